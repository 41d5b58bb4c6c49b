"""Jars that PySpark does not ship, resolved by Spark's own package resolver (no Maven), and remembered.

`jars("kafka")` gives the Kafka source of the PySpark at hand, `jars("paimon")` Paimon's Java library, `jars("broker")`
a Kafka broker, `jars("hdfs")` an HDFS cluster, `jars("yarn")` a YARN cluster, `jars("s3proxy")` an S3 server,
`jars("iceberg")`, `jars("delta")`, `jars("hudi")` and `jars("paimon-spark")` the sinks that the benchmarks compare
with, `jars("s3a")` what they need to write to S3, `jars("jdbc")` what Java needs to reach the tests' databases,
`jars("paimon-rest")` the REST catalog of Paimon's own tests. A registry does not always hold every version of
everything: the Kafka source needs Spark's token provider, which some mirrors have in other versions only. So the plain
coordinate is tried first, and then the two separately; `Resolved.way` says which way was taken.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from tools.common import ATTEMPTS, RETRY_PAUSES_S, SetupError, cache_dir, locked, read_json, say, write_atomically
from tools.java import find_java

PAIMON = "org.apache.paimon:paimon-bundle:1.4.2"
BROKER = (
    # Without the second one the broker's log is lost.
    "org.apache.kafka:kafka_2.13:4.1.1,org.slf4j:slf4j-simple:1.7.36"
)
# Hadoop's own cluster for tests. WebHDFS needs the second one on Java 11 and newer.
HDFS = "org.apache.hadoop:hadoop-client-minicluster:3.4.2,javax.xml.bind:jaxb-api:2.3.1,org.slf4j:slf4j-simple:1.7.36"
# Hadoop's own YARN: the same jar, and what its daemons call besides.
YARN = f"{HDFS},ch.qos.reload4j:reload4j:1.2.22,org.bouncycastle:bcpkix-jdk18on:1.78.1"
# A second S3 server for tests: objects as files.
S3PROXY = "org.gaul:s3proxy:4.1.0"
# Paimon's server is in the jar of its tests, which has a classifier; it is made of the second one's HTTP server.
PAIMON_REST = ("org.apache.paimon:paimon-core:1.4.2", "com.squareup.okhttp3:mockwebserver:4.12.0")
# They run in a JVM of their own, beside no jar of Spark's.
STANDALONE = {"hdfs": HDFS, "yarn": YARN, "s3proxy": S3PROXY}
# For the Spark minor version at hand. Iceberg's runtime holds all that it needs.
OTHERS = {
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{minor}_{scala}:1.12.0",
    "delta": "io.delta:delta-spark_{minor}_{scala}:4.4.0",
    "hudi": "org.apache.hudi:hudi-spark{minor}-bundle_{scala}:1.1.1",
    "paimon-spark": "org.apache.paimon:paimon-spark-{minor}:0.9.0",
    "jdbc": "org.postgresql:postgresql:42.7.7,com.mysql:mysql-connector-j:9.3.0,org.xerial:sqlite-jdbc:3.50.1.0",
}
# What Hadoop's S3A loads, and Iceberg's S3FileIO (the last two), instead of the whole SDK of 641 MB that S3A asks for.
S3A = (
    "org.apache.hadoop:hadoop-aws:{hadoop},software.amazon.awssdk:s3:{sdk},"
    "software.amazon.awssdk:s3-transfer-manager:{sdk},software.amazon.awssdk:sts:{sdk},"
    "software.amazon.awssdk:kms:{sdk},software.amazon.awssdk:url-connection-client:{sdk}"
)
S3A_READER, SDK_BUNDLE = (
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3",
    "software.amazon.awssdk:bundle",
)
# Hadoop's version -> (the SDK's that it was built with, its reader's).
SDKS = {"3.4.1": ("2.24.6", ""), "3.4.2": ("2.29.52", "1.2.1"), "3.5.0": ("2.35.4", "1.3.1")}
KINDS = ("kafka", "paimon", "broker", "s3a", "paimon-rest", *STANDALONE, *OTHERS)
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_{scala}"
TOKEN_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_{scala}"
# Spark minor version -> (newest connector, newest token provider) known to be published widely; the provider's API did
# not change in 4.x
FALLBACK = {"4.0": ("4.0.2", "4.0.0"), "4.1": ("4.1.3", "4.1.0-preview1"), "4.2": ("4.2.0", "4.1.0-preview1")}
# These are for peers that exist for Spark 3.5 only.
OLDER_FALLBACK = {"3.5": ("3.5.3", "3.5.3")}
TIMEOUT_S = 900
# A missing version is an answer; these are not, and are worth another try.
TRANSIENT = re.compile(
    r"Server access error|Connection (?:reset|refused|timed out)|Read timed out|download failed|Host \S+ not found"
    r"|(?:HTTP|response code:) (?:429|5\d\d)"
)

# The default chain looks into ~/.m2 first, where a description without its jar (left by other tools) makes the whole
# resolution fail. Ivy knows where Maven's central repository is. $STREAMSINK_IVY_SETTINGS names another file, for a
# mirror.
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

# Spark's resolver asks for no classifier. So the jars of tests are resolved with this pattern, and in a cache of their
# own, where they have the names of the others.
_WHOLE, _TESTS = 'm2compatible="true"', "[organisation]/[module]/[revision]/[module]-[revision]-tests.[ext]"

# Runs under the interpreter that has PySpark. Starts Spark's launcher only, no context: it resolves the packages and
# sets spark.jars.
LAUNCH = """
import json, sys
from pyspark.java_gateway import launch_gateway
gateway = launch_gateway()
print("JARS=" + json.dumps(gateway.jvm.System.getProperty("spark.jars") or ""))
"""


class Resolved(NamedTuple):
    """Absolute jar paths, and how they were found."""

    jars: list[str]
    way: str


class NotPublished(SetupError):
    """The registry answered, and it does not have these coordinates."""


@functools.cache
def pyspark_of(python: str) -> tuple[str, Path]:
    """(version, folder of the jars it ships) of the PySpark that `python` has."""
    if os.path.samefile(python, sys.executable):
        try:
            found = importlib.metadata.distribution("pyspark")
            return found.version, Path(str(found.locate_file("pyspark"))) / "jars"
        except importlib.metadata.PackageNotFoundError:
            pass  # The failure is reported below, in the same words as for another interpreter.
    code = (
        "import importlib.metadata as m; d = m.distribution('pyspark'); print(d.version); "
        "print(d.locate_file('pyspark'))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SetupError(f"{python} has no PySpark")
    version, folder = done.stdout.split("\n")[:2]
    return version, Path(folder) / "jars"


def _submit_args(packages: str, excluded: str, of_tests: bool = False) -> str:
    ivy = cache_dir() / ("ivy-tests" if of_tests else "ivy")
    settings = os.environ.get("STREAMSINK_IVY_SETTINGS")
    if of_tests:
        text = Path(settings).read_text() if settings else IVY_SETTINGS
        settings = str(cache_dir() / "ivysettings-tests.xml")
        text = text.replace(_WHOLE, f'{_WHOLE} usepoms="false" pattern="{_TESTS}"')
        write_atomically(Path(settings), text)
    elif not settings:
        settings = str(cache_dir() / "ivysettings.xml")
        write_atomically(Path(settings), IVY_SETTINGS)
    args = ["--master", "local[1]", "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
    args += ["--conf", f"spark.jars.ivy={ivy}", "--conf", f"spark.jars.ivySettings={settings}", "--packages", packages]
    if excluded:
        args += ["--exclude-packages", excluded]
    return shlex.join([*args, "pyspark-shell"])


def _resolve_once(python: str, packages: str, excluded: str, of_tests: bool = False) -> list[str]:
    # Arguments or settings of the caller's own submit must not leak into this one.
    env = {key: value for key, value in os.environ.items() if key not in ("SPARK_CONF_DIR", "SPARK_HOME")}
    env |= {"PYSPARK_SUBMIT_ARGS": _submit_args(packages, excluded, of_tests)}
    env["JAVA_HOME"] = find_java((python, "-m", "pip")).home
    command = [python, "-c", LAUNCH]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    line = next((line for line in done.stdout.splitlines() if line.startswith("JARS=")), None)
    if done.returncode == 0 and line:
        return [unquote(urlparse(url).path) for url in json.loads(line[len("JARS=") :]).split(",")]
    output = done.stdout + done.stderr
    reasons = sorted(set(re.findall(r":: (\S+#\S+: .+?)\s*::", output))) or output.strip().splitlines()[-5:]
    failure = f"{packages} cannot be resolved: {'; '.join(reasons)}"
    if transient := TRANSIENT.search(output):
        raise SetupError(f"{failure} ({transient.group()})")
    if "not found" in output:
        raise NotPublished(failure)
    raise SetupError(failure)


def _resolve(python: str, packages: str, excluded: str = "", of_tests: bool = False) -> list[str]:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _resolve_once(python, packages, excluded, of_tests)
        except NotPublished:
            raise
        except (SetupError, subprocess.TimeoutExpired) as failure:
            if attempt == ATTEMPTS:
                raise SetupError(str(failure)) from failure
            say(f"attempt {attempt} of {ATTEMPTS}: {failure}")
            time.sleep(RETRY_PAUSES_S[attempt - 1])
    raise SetupError(f"{packages}: no attempt was made")


def _kafka(python: str, spark: str, scala: str = "2.13") -> Resolved:
    connector, token_provider = CONNECTOR.format(scala=scala), TOKEN_PROVIDER.format(scala=scala)
    plain = f"{connector}:{spark}"
    try:
        return Resolved(_resolve(python, plain), f"plain: {plain}")
    except NotPublished as missing:
        say(f"kafka: {missing}")
    minor = _minor(spark)
    newest, provider = (OLDER_FALLBACK | FALLBACK).get(minor, FALLBACK["4.2"])
    separate = f"{token_provider}:{provider}"
    for version in dict.fromkeys((spark, newest)):
        coordinate = f"{connector}:{version}"
        try:
            found = _resolve(python, coordinate, excluded=token_provider)
        except NotPublished as missing:
            say(f"kafka: {missing}")
            continue
        # The connector has already brought what the provider itself depends on.
        found += [jar for jar in _resolve(python, separate) if "token-provider" in jar]
        return Resolved(found, f"split: {coordinate} without its token provider, and {separate}")
    raise SetupError(f"no Kafka connector for Spark {spark} is published; tried {spark} and {newest}")


def _s3a(python: str, shipped: Path) -> Resolved:
    """S3A is of the same version as the Hadoop that PySpark ships."""
    hadoop = next((jar.stem.rpartition("-")[2] for jar in shipped.glob("hadoop-client-api-*.jar")), "")
    if hadoop not in SDKS:
        raise SetupError(f"s3a: no SDK is known for Hadoop {hadoop or '(not found)'}; known are {', '.join(SDKS)}")
    sdk, reader = SDKS[hadoop]
    packages = S3A.format(hadoop=hadoop, sdk=sdk) + (f",{S3A_READER}:{reader}" if reader else "")
    found = _resolve(python, packages, excluded=SDK_BUNDLE)
    return Resolved(_beyond(found, shipped), f"without the SDK's bundle: {packages}")


def _minor(spark: str) -> str:
    return ".".join(spark.split(".")[:2])


def _scala(shipped: Path) -> str:
    """The Scala version that this PySpark was built with, as artifacts are named by it."""
    return next((entry.name.split("_")[1].split("-")[0] for entry in shipped.glob("spark-core_*.jar")), "2.13")


def _base(jar: str) -> str:
    """A jar's name without its version."""
    return re.sub(r"-\d[^/]*\.jar$", "", os.path.basename(jar))


def _beyond(jars: list[str], shipped: Path) -> list[str]:
    """The jars without those that PySpark ships:
    two versions of one library in one JVM make errors that are hard to explain."""
    names = {_base(entry.name) for entry in shipped.glob("*.jar")}
    # Resolved jars are called organisation_artifact-version.jar.
    return [jar for jar in jars if not any(_base(jar).endswith(f"_{name}") for name in names)]


def _resolve_kind(kind: str, python: str) -> Resolved:
    spark, shipped = pyspark_of(python)
    if kind == "kafka":
        found = _kafka(python, spark, _scala(shipped))
        return Resolved(_beyond(found.jars, shipped), found.way)
    if kind in STANDALONE:
        return Resolved(_resolve(python, STANDALONE[kind]), f"plain: {STANDALONE[kind]}")
    if kind == "s3a":
        return _s3a(python, shipped)
    if kind == "paimon-rest":
        found = _resolve(python, PAIMON_REST[0], of_tests=True) + _resolve(python, PAIMON_REST[1])
        return Resolved(found, f"the jar of tests of {PAIMON_REST[0]}, and {PAIMON_REST[1]}")
    if kind != "broker":
        coordinate = PAIMON if kind == "paimon" else OTHERS[kind].format(minor=_minor(spark), scala=_scala(shipped))
        return Resolved(_beyond(_resolve(python, coordinate), shipped), f"plain: {coordinate}")
    # Spark's resolver never fetches the Scala library, because Spark has it; the broker runs without Spark.
    library = [str(jar) for jar in shipped.glob("scala-library-*.jar")]
    return Resolved(_resolve(python, BROKER) + library, f"plain: {BROKER}")


def resolve(kind: str, python: str = sys.executable) -> Resolved:
    """The jars of `kind` (one of KINDS) for the PySpark of `python`; from the cache when all of them still exist.

    Idempotent. Raises: SetupError when the registry cannot be reached or lacks them."""
    if kind not in KINDS:
        raise SetupError(f"{kind}: not one of {', '.join(KINDS)}")
    spark, shipped = pyspark_of(python)
    # The broker's list holds a jar of this very PySpark, so its folder belongs to the key.
    wanted = [spark, PAIMON, BROKER, FALLBACK, str(shipped) if kind == "broker" else ""]
    if kind in OTHERS:
        wanted = [spark, OTHERS[kind]]
    if kind in STANDALONE:
        wanted = [spark, STANDALONE[kind]]
    if kind == "s3a":
        wanted = [spark, S3A, S3A_READER, SDKS]
    if kind == "paimon-rest":
        wanted = [spark, PAIMON_REST]
    key = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:10]
    entry = cache_dir() / f"jars-{kind}-{spark}-{key}.json"
    if found := _remembered(entry):
        return found
    with locked(cache_dir() / "ivy.lock"):
        if found := _remembered(entry):
            return found
        say(f"{kind}: resolving jars for Spark {spark}")
        found = _resolve_kind(kind, python)
        missing = [jar for jar in found.jars if not os.path.isfile(jar)]
        if missing:
            raise SetupError(f"{kind}: resolved, but not there: {missing}")
        write_atomically(entry, json.dumps(found._asdict(), indent=1))
    say(f"{kind}: {len(found.jars)} jars; {found.way}")
    return found


def _remembered(entry: Path) -> Resolved | None:
    known = read_json(entry)
    if not known or not all(os.path.isfile(jar) for jar in known["jars"]):
        return None
    return Resolved(known["jars"], known["way"])


def jars(kind: str, python: str = sys.executable) -> list[str]:
    """The paths alone: what `spark.jars` wants, joined with commas."""
    return resolve(kind, python).jars
