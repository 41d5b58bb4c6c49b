"""A class-data archive for Spark's JVM:
made once for an environment, it halves the start of every session that the tests open."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.common import ROOT, checkout_cache, locked, say
from tools.jars import pyspark_of
from tools.java import Java, find_java

FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A session of many tests fills the 48 MB that one compiler has for its code, and then sweeps them again and again.
_ROOM_FOR_CODE = "-XX:ReservedCodeCacheSize=256m"
# Spark's own classes and those of the tests' jars need no verification; an archive, though, has verified classes only.
_UNVERIFIED = "-XX:-UsePerfData -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
# For the servers of the tests, which are started some ten times and live for minutes.
OF_SERVERS = [*FAST.split(), *_UNVERIFIED.split()]
# An archive that lies where it was made for is not rewritten at each start: 0.12 CPU-seconds, and 110 MB less memory.
_IN_PLACE = "-XX:ArchiveRelocationMode=0"
# Hadoop's local files start a process for each chmod and readlink: without another one between, it costs half.
_SPAWNING = "-Djdk.lang.Process.launchMechanism=VFORK"
TIMEOUT_S = 600

# Runs the code paths that tests take: a shuffle, Parquet, Python workers, streams of files into our sink, which writes
# on the driver, in Python tasks and with Spark's writer, and Kafka's source as far as it comes without a broker.
TRAIN = """
import json, os, sys
from pathlib import Path
from pyspark import SparkContext
from pyspark.sql import SparkSession
import streamsink
options, class_path, folder = sys.argv[1:]
conf = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": folder + "/w", "spark.driver.extraJavaOptions": options}
if class_path:
    conf["spark.driver.extraClassPath"] = class_path
builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.range(100).selectExpr("id % 7 k", "cast(id as string) v").write.parquet(folder + "/p")
spark.read.parquet(folder + "/p").groupBy("k").count().collect()
spark.sparkContext.parallelize(range(4), 2).map(lambda n: n + 1).collect()
query = (spark.readStream.schema("k long, v string").parquet(folder + "/p").writeStream
         .foreachBatch(lambda frame, number: frame.count()).option("checkpointLocation", folder + "/c")
         .trigger(availableNow=True).start())
query.awaitTermination()
Path(folder, "json").mkdir()
for way in ({}, {"driver_max_rows": 0, "large_batches": "tasks"}, {"driver_max_rows": 0, "large_batches": "spark"}):
    name = str(len(os.listdir(folder + "/json")))
    Path(folder, "json", name + ".json").write_text(json.dumps({"k": 1, "v": "x"}))
    sink = streamsink.to_table(folder + "/tables/" + name, lambda event: None, **way)
    query = (spark.readStream.schema("k long, v string").json(folder + "/json").writeStream.foreachBatch(sink)
             .option("checkpointLocation", folder + "/c-" + name).trigger(availableNow=True).start())
    query.awaitTermination()
    streamsink.read(spark, folder + "/tables/" + name).collect()
if "kafka" in class_path:
    spark.readStream.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:9").option("subscribe", "t").load()
spark.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait(120)  # the archive is written while the JVM exits
"""


def _has_base_archive(java: Java) -> bool:
    """A dynamic archive lies on top of the JVM's own, which a Java from a wheel lacks: make that one first."""
    probe = subprocess.run([java.java, "-Xshare:on", "-version"], capture_output=True, stdin=subprocess.DEVNULL)
    if probe.returncode == 0:
        return True
    dump = subprocess.run([java.java, "-Xshare:dump"], capture_output=True, stdin=subprocess.DEVNULL)
    return dump.returncode == 0


def fast_options(
    python: str = sys.executable, class_path: Sequence[str] = (), make: bool = True, home: Path | None = None
) -> str:
    """JVM options for a fast start; with `make`, builds the archive first if there is none (half a minute, once).

    class_path: the jars that sessions with these options have in ``spark.driver.extraClassPath``, in this order; a JVM
    with other jars before Spark's own refuses the archive. home: what $SPARK_HOME names there, if it is named. Never
    fails: without an archive the options are merely less fast.
    """
    java = find_java((python, "-m", "pip"))
    version, shipped = pyspark_of(python)
    # A JVM refuses the archive of another JVM, or when the path or the date of a jar differ.
    dates = sorted((entry.name, entry.stat().st_mtime_ns) for entry in shipped.iterdir())
    key = hashlib.sha256(
        json.dumps([java.home, java.version, str(home or shipped), dates, list(class_path), TRAIN]).encode()
    ).hexdigest()[:12]
    archive = checkout_cache() / f"spark-{version}-{key}.jsa"
    # A JVM that refuses the archive says so on stdout, which may be a test's result: it has to be silent.
    options = (
        f"{FAST} {_ROOM_FOR_CODE} {_UNVERIFIED} {_IN_PLACE} {_SPAWNING} -XX:SharedArchiveFile={archive} -Xshare:auto "
        "-Xlog:disable"
    )
    if archive.exists():
        return options
    if not make or (archive.with_suffix(".none")).exists():
        return FAST
    with locked(archive.with_suffix(".lock")):
        if not archive.exists() and not _train(python, java, archive, class_path, home):
            archive.with_suffix(".none").touch()
            return FAST
    return options


def _train(python: str, java: Java, archive: Path, class_path: Sequence[str], home: Path | None) -> bool:
    say("making a class-data archive for Spark (once, about half a minute)")
    if not _has_base_archive(java):
        say("no archive: this Java cannot make one")
        return False
    with tempfile.TemporaryDirectory(prefix="streamsink-cds-") as folder:
        fresh = archive.with_suffix(".tmp")
        options = f"{FAST} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
        env = os.environ | {"JAVA_HOME": java.home, "PYSPARK_PYTHON": python, "PYTHONPATH": str(ROOT)}
        env.pop("PYSPARK_SUBMIT_ARGS", None)
        env.pop("SPARK_HOME", None)
        if home is not None:
            env["SPARK_HOME"] = str(home)
        try:
            command = [python, "-c", TRAIN, options, os.pathsep.join(class_path), folder]
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            say("no archive: the training run took too long")
            return False
        if done.returncode or not fresh.exists():
            say(f"no archive: {done.stderr.strip()[-300:]}")
            return False
        fresh.replace(archive)
    return True
