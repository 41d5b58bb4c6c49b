"""Fixtures that all tests share, and two rules of the gate: a skipped test is a failure there, and a random test's seed
is printed.

`make test` prepares everything and says where it is in the environment; under a plain `pytest` the fixtures prepare it
themselves.
"""

import gc
import json
import os
import random
import re
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from streamsink import faults
from tests import durations, schedule
from tests.crash import tried
from tools.common import SetupError

REQUIRED = os.environ.get("STREAMSINK_REQUIRE_SERVICES") == "1"
SEED_BITS = 32
# A file system in memory: the tests make and remove some hundred thousand small files, which is a third of their time
# on a disk. What they leave there, at most, and what their processes need besides.
_IN_MEMORY, _MOST_LEFT, _FOR_PROCESSES = "/dev/shm", 4 << 30, 8 << 30
# Spark's default on a local disk starts about thirty processes a batch (readlink, chmod), which is a third of a small
# batch. What it leaves is the same, but for a death within, and nobody kills the session of the tests' own process.
# Drivers that may be killed within keep the default (e2e/harness.py).
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_PROCESSES = "FileSystemBasedCheckpointFileManager"
# Thousands of tests that are collected are looked through at each full collection, and a crash test makes many objects.
_OBJECTS = (10_000, 20, 50)


def _has_room_in_memory() -> bool:
    """Whether the folder of temporary files can be in memory, and programs can be started there."""
    try:
        place = os.statvfs(_IN_MEMORY)
        [available] = re.findall(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return False
    has_room = place.f_bavail * place.f_frsize >= _MOST_LEFT and int(available) << 10 >= _MOST_LEFT + _FOR_PROCESSES
    return has_room and not place.f_flag & os.ST_NOEXEC and os.access(_IN_MEMORY, os.W_OK | os.X_OK)


def pytest_configure(config: pytest.Config) -> None:
    # set in the controller before the workers start, so that all of them share it
    if "TMPDIR" not in os.environ and config.option.markexpr != "soak" and _has_room_in_memory():
        os.environ["TMPDIR"] = tempfile.tempdir = _IN_MEMORY
    os.environ.setdefault("STREAMSINK_SEED", str(random.SystemRandom().getrandbits(SEED_BITS)))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # PySpark imports numpy, whose threads for products of matrices would wait busily in every process of the tests.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The other processors have tests of their own: to hand small columns to threads costs more than it gains.
    pa.set_cpu_count(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session):
    """What is made of the tests stays: the garbage collection would look through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what has another mark
def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    if os.environ.get("STREAMSINK_TURNS") != "all":  # the sabotage asks for all: it may be any of them that notices
        schedule.take_turns(items, int(os.environ["STREAMSINK_SEED"]), all_of_them=config.option.markexpr == "soak")
    schedule.longest_first(items, durations.read())


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_OBJECTS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return schedule.scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    tried.of_worker(node)


@pytest.hookimpl(trylast=True)  # when what the workers have tried is known
def pytest_sessionfinish(session: pytest.Session) -> None:
    tried.finish(session)


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    tried.say(terminalreporter, config)


def pytest_report_header() -> str:
    services = "required" if REQUIRED else "optional"
    seed = os.environ["STREAMSINK_SEED"]
    return f"streamsink: STREAMSINK_SEED={seed} (set it to repeat the random tests), services {services}"


def _fail_instead(report) -> None:
    """Where services are required, turn a skip into a failure that keeps the reason. An expected failure is no skip."""
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped, but STREAMSINK_REQUIRE_SERVICES=1: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    _fail_instead(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    outcome = yield
    _fail_instead(outcome.get_result())


def unavailable(what: str, why: Exception) -> None:
    """Skip, or fail where the services are required."""
    if REQUIRED:
        pytest.fail(f"{what}: {why}", pytrace=False)
    pytest.skip(f"{what}: {why}")


def spark_conf() -> dict[str, str]:
    """What every Spark session of the tests is started with, for sessions of one's own and for drivers in other
    processes.

    Those read the same from the JSON file that $STREAMSINK_TEST_SPARK_CONF names."""
    named = os.environ.get("STREAMSINK_TEST_SPARK_CONF")
    if named:
        return json.loads(Path(named).read_text())
    from tools.sparkconf import test_conf, test_home

    os.environ["STREAMSINK_TEST_SPARK_HOME"] = str(test_home())
    return test_conf()


def checkpoints_without_processes() -> dict[str, str]:
    """Spark's setting by which it writes the files of a checkpoint by itself."""
    import pyspark

    folder = ".checkpointing" if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1) else ""
    return {_CHECKPOINT_FILES: f"org.apache.spark.sql.execution.streaming{folder}.{_WITHOUT_PROCESSES}"}


@pytest.fixture(autouse=True)
def disarmed():
    """No test leaves a fault armed."""
    yield
    faults.arm(None)


@pytest.fixture
def seed() -> int:
    """The seed of this run's random tests."""
    return int(os.environ["STREAMSINK_SEED"])


@pytest.fixture
def rng(request, seed) -> random.Random:
    """A generator of its own for each test: the same numbers whichever tests run before it."""
    print(f"STREAMSINK_SEED={seed}")
    return random.Random(f"{seed}-{request.node.nodeid}")


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory) -> dict[str, str]:
    """spark_conf() with a warehouse folder of this session, and its file exported for drivers in other processes."""
    try:
        conf = spark_conf()
    except SetupError as why:
        unavailable("Spark", why)
    folder = tmp_path_factory.mktemp("spark")
    conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    conf["spark.local.dir"] = str(folder / "local")
    file = folder / "spark-conf.json"
    file.write_text(json.dumps(conf))
    os.environ["STREAMSINK_TEST_SPARK_CONF"] = str(file)
    if home := os.environ.get("STREAMSINK_TEST_SPARK_HOME"):
        os.environ["SPARK_HOME"] = home
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if "JAVA_HOME" not in os.environ:
        from tools.java import find_java

        os.environ["JAVA_HOME"] = find_java().home
    return conf


@pytest.fixture(scope="session")
def spark(spark_settings):
    """One Spark session for all tests of a process. A test that needs other settings uses spark.newSession()."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("streamsink-tests")
    for name, value in (spark_settings | checkpoints_without_processes()).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _serving(server, end=None):
    """Start a server of the tests, and end it with them; ``end``: how, if not in order."""
    from tests.services.server import ServerError

    try:
        server.start()
    except (SetupError, ServerError, ImportError, OSError) as why:
        server.stop()
        unavailable(type(server).__name__, why)
    yield server
    (end or type(server).stop)(server)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory):
    """A real Kafka broker for all tests of a process; tests take topics of their own.

    One that kills a broker starts its own.
    """
    from tests.services.kafka import KafkaBroker

    yield from _serving(KafkaBroker(tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A real PostgreSQL server for all tests of a process. One that restarts it leaves it running."""
    from tests.services.postgres import Postgres

    yield from _serving(Postgres(tmp_path_factory.mktemp("postgres")))


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory):
    """A real MariaDB server, likewise."""
    from tests.services.mariadb import MariaDb

    yield from _serving(MariaDb(tmp_path_factory.mktemp("mariadb")))


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory):
    """A real Hive Metastore whose silent locks end after five seconds: of all locks, for it has one length."""
    from tests.services.hive_metastore import HiveMetastore

    yield from _serving(HiveMetastore(tmp_path_factory.mktemp("hive"), lock_timeout_s=5))


@pytest.fixture(scope="session")
def paimon_rest(tmp_path_factory):
    """Paimon's REST catalog for all tests of a process; tests take databases of their own."""
    from tests.services.paimon_rest import PaimonRest

    yield from _serving(PaimonRest(tmp_path_factory.mktemp("paimon-rest")))


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory):
    """A REST catalog of Iceberg tables for all tests of a process; tests take namespaces of their own."""
    from tests.services.iceberg_rest import IcebergRest

    yield from _serving(IcebergRest(tmp_path_factory.mktemp("rest")), end=IcebergRest.kill)


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory):
    """A real HDFS for all tests of a process; tests take folders of their own."""
    from tests.services.hdfs import HdfsCluster

    # an orderly end takes a quarter of a minute, and nobody needs the data any more
    yield from _serving(HdfsCluster(tmp_path_factory.mktemp("hdfs")), end=HdfsCluster.kill)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """A real S3 server with one bucket for all tests of a process; tests take prefixes of their own."""
    from tests.services.s3 import S3Server

    for server in _serving(S3Server(tmp_path_factory.mktemp("s3")), end=S3Server.kill):
        server.client().create_bucket(Bucket=server.bucket)
        yield server


@pytest.fixture(scope="session")
def second_s3_server(tmp_path_factory):
    """Another S3 server, likewise."""
    from tests.services.s3_files import FilesS3Server

    for server in _serving(FilesS3Server(tmp_path_factory.mktemp("s3-files")), end=FilesS3Server.kill):
        server.client().create_bucket(Bucket=server.bucket)
        yield server


@pytest.fixture(scope="session")
def pypaimon_python() -> str:
    """The interpreter that has pypaimon (another pyarrow than ours, so a process of its own)."""
    if named := os.environ.get("STREAMSINK_PYPAIMON_PYTHON"):
        return named
    from tools.venvs import ensure_pypaimon

    try:
        return str(ensure_pypaimon())
    except SetupError as why:
        return unavailable("pypaimon", why)
