"""S9: tasks that fail, run twice or lose their executor, with the writers in Spark's tasks."""

import pytest

from tests.e2e import task_faults
from tests.e2e.cluster import Cluster
from tests.e2e.harness import assert_each_once, ids_of, orphans, run_driver

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark_settings")]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}
FOUR_TASKS = {"spark.sql.shuffle.partitions": "4"}


def tasks_job(ground, conf: dict, shuffle: bool = True):
    ground.add_files(0, 4)
    return ground.job(per_batch=2, shuffle=shuffle, options={"driver_max_rows": 0, "large_batches": "tasks"}, conf=conf)


def faults_of(ground) -> int:
    return len(list((ground.root / "marks").iterdir()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, spark_settings):
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.in_turn("tasks that fail", 1)
@pytest.mark.parametrize("step, action", [("task.file_closed", "raise"), ("task.end", "exit")])
def test_s9_a_task_that_fails_twice(ground, step, action):
    """Every task's first two attempts fail after they have written (by an error, or a worker's death): each row is
    there once, and no file is left."""
    job = tasks_job(ground, task_faults.CONF | {"spark.master": "local[2,3]"})
    outcome = run_driver(ground, job, env=task_faults.environment(f"{step}:{action}:2", ground.root / "marks"))
    assert outcome.code == 0, outcome
    batches = outcome.of("BatchWritten")
    assert [written["way"] for written in batches] == ["tasks", "tasks"]
    assert faults_of(ground) == 2 * sum(written["files"] for written in batches)
    assert_each_once(ground.table, ids_of(0, 4))
    assert orphans(ground.table) == set()


@pytest.mark.in_turn("machines and stores", 1)
def test_s9_speculative_execution(ground, cluster):
    """An attempt hangs (for longer than a driver may take) after it has written, and the attempt on the other host
    wins: each row is there once, and no file is left."""
    env = task_faults.environment("task.file_closed:sleep:2:0", ground.root / "marks")
    conf = cluster.conf(env) | task_faults.CONF | FOUR_TASKS | SPECULATION
    job = tasks_job(ground, conf).but(per_batch=4)
    outcome = run_driver(ground, job)
    assert outcome.code == 0, outcome
    assert faults_of(ground) == 1
    assert_each_once(ground.table, ids_of(0, 4))
    assert orphans(ground.table) == set()


@pytest.mark.in_turn("machines and stores", 1)
def test_s9_an_executor_is_lost_in_the_middle_of_a_batch(ground, cluster):
    """In each batch an executor gets kill -9 when its task has written, and its tasks run again elsewhere: each row is
    there once, and no file is left."""
    env = task_faults.environment("task.file_closed:lose-executor:1:0", ground.root / "marks")
    conf = cluster.conf(env) | task_faults.CONF
    job = tasks_job(ground, conf, shuffle=False)
    outcome = run_driver(ground, job)
    assert outcome.code == 0, outcome
    assert faults_of(ground) == 2
    assert_each_once(ground.table, ids_of(0, 4))
    assert orphans(ground.table) == set()
