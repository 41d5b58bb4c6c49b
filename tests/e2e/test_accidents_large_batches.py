"""S9 and S13 where Spark's own writer writes:
attempts that fail, run twice or lose their executor, and a driver killed in the middle."""

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.harness import Driver, assert_each_once, ids_of, orphans, run_driver, until
from tests.e2e.test_accidents_tasks import SPECULATION

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark_settings")]

# Each row is a file of its own, so that an attempt that fails at its last row has left nine.
SPARKS_WRITER = {"driver_max_rows": 0, "large_batches": "spark", "target_file_bytes": 1}
LAST_ROW = "id % 10 = 9"
# A file of the source is not divided, and no two of them are put together: each has some 250 bytes.
PARTITIONS, ABOVE_A_FILE = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"), 400
# JVM-wide state: the first time that a task comes to its last row it says so in a file, and fails.
FAILS_ONCE = (
    f"NOT ({LAST_ROW}) OR java_method('java.lang.System', 'setProperty', concat('failed-', id), 'yes') <> 'null'"
    " OR raise_error(java_method('java.io.File', 'createTempFile', 'fault', '.mark')) IS NULL"
)


def on_executor_0(action: str) -> str:
    """A condition that is true, after the executor with this number has done something at a last row."""
    return (
        f"NOT ({LAST_ROW}) OR java_method('java.lang.System', 'getProperty', 'user.dir') NOT LIKE '%/0' OR "
        f"{action} IS NOT NULL"
    )


SLEEPS = "java_method('java.lang.Thread', 'sleep', 250000L)"
EXITS = "java_method('java.lang.System', 'exit', 1)"


def writers_job(ground, where: str, conf: dict, per_batch: int = 2):
    ground.add_files(0, 4)
    # There is one task for each of the source's files.
    conf = {name: str(ABOVE_A_FILE) for name in PARTITIONS} | conf
    return ground.job(per_batch=per_batch, options=SPARKS_WRITER, where=where, conf=conf)


def assert_written_once(ground, outcome, batches: int) -> None:
    assert outcome.code == 0, outcome
    assert [written["way"] for written in outcome.of("BatchWritten")] == ["spark"] * batches
    assert_each_once(ground.table, ids_of(0, 4))
    assert orphans(ground.table) == set()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, spark_settings):
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.in_turn("tasks that fail", 1)
def test_s9_a_task_that_fails(ground, spark_settings):
    """Every task's first attempt fails at its last row:
    each row is there once, and no file of a failed attempt is left."""
    marks = ground.root / "marks"
    marks.mkdir()
    java = f"{spark_settings['spark.driver.extraJavaOptions']} -Djava.io.tmpdir={marks}"
    job = writers_job(ground, FAILS_ONCE, {"spark.master": "local[2,3]", "spark.driver.extraJavaOptions": java})
    outcome = run_driver(ground, job)
    assert_written_once(ground, outcome, 2)
    assert len(list(marks.glob("fault*.mark"))) == 4


@pytest.mark.soak
def test_s9_speculative_execution(ground, cluster):
    """One task hangs for longer than a driver may take, and its copy on the other host wins:
    each row is there once, and no file is left."""
    job = writers_job(ground, on_executor_0(SLEEPS), cluster.conf({}) | SPECULATION, per_batch=4)
    assert_written_once(ground, run_driver(ground, job), 1)


@pytest.mark.soak
def test_s9_an_executor_is_lost_in_the_middle_of_a_batch(ground, cluster):
    """Its tasks run again elsewhere."""
    job = writers_job(ground, on_executor_0(EXITS), cluster.conf({}))
    assert_written_once(ground, run_driver(ground, job), 2)


@pytest.mark.in_turn("tasks that fail", 1)
def test_s13_a_driver_killed_while_spark_s_writer_writes(ground):
    """Files of attempts are in staging: the next start removes them with their folder, and writes the batch again."""
    slow = writers_job(ground, "java_method('java.lang.Thread', 'sleep', 2000L) IS NOT NULL", {})
    staging = ground.root / "lake" / "orders" / "streamsink" / "streamsink" / "staging"
    with Driver(ground, slow) as driver:
        until(lambda: list(staging.glob("*/spark/_temporary/0/_temporary/*/part-*.parquet")), driver._still_there)
        driver.kill()
    assert list(staging.glob("*/spark/_temporary/0/_temporary/*/part-*.parquet"))
    assert_written_once(ground, run_driver(ground, slow.but(where=None)), 2)
    assert list(staging.iterdir()) == []
