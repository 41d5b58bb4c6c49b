"""S9: tasks that fail, run twice or lose their executor, with the writers in Spark's tasks."""
import json
import os
from pathlib import Path

import pytest

from tests.e2e import task_faults
from tests.e2e.harness import assert_each_once, ids_of, orphans, run_driver

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark_settings")]

CLUSTER = task_faults.CONF | {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.adaptive.enabled": "false",
}
FOUR_TASKS = {"spark.sql.shuffle.partitions": "4"}


def tasks_job(ground, conf: dict, shuffle: bool = True):
    ground.add_files(0, 4)
    return ground.job(per_batch=2, shuffle=shuffle, options={"driver_max_rows": 0}, conf=conf)


def spark_home() -> dict:
    """Executors of a local cluster are started from here."""
    import pyspark

    return {"SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13"}


def fast_executors() -> dict:
    """The executors' JVMs start as cheaply as the driver's."""
    conf = json.loads(Path(os.environ["STREAMSINK_TEST_SPARK_CONF"]).read_text())
    return {"spark.executor.extraJavaOptions": conf.get("spark.driver.extraJavaOptions", "")}


@pytest.mark.parametrize("step, action", [("task.file_closed", "raise"), ("task.end", "exit")])
def test_s9_a_task_that_fails_twice(ground, step, action):
    """Every task's first two attempts fail after they have written (an error; a worker's death): each row once, no file left."""
    job = tasks_job(ground, task_faults.CONF | FOUR_TASKS | {"spark.master": "local[2,3]"})
    outcome = run_driver(ground, job, env={task_faults.VARIABLE: f"{step}:{action}:2"})
    assert outcome.code == 0, outcome
    assert [written["way"] for written in outcome.of("BatchWritten")] == ["tasks", "tasks"]
    assert_each_once(ground.table, ids_of(0, 4))
    assert orphans(ground.table) == set()


def test_s9_speculative_execution(ground):
    """One task hangs after it has written; its speculative copy wins: each row once, no file left."""
    conf = CLUSTER | FOUR_TASKS | fast_executors() | {
        "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "100ms",
    }
    job = tasks_job(ground, conf)
    outcome = run_driver(ground, job, env=spark_home() | {task_faults.VARIABLE: "task.file_closed:sleep:1:0"})
    assert outcome.code == 0, outcome
    assert_each_once(ground.table, ids_of(0, 4))
    assert orphans(ground.table) == set()


def test_s9_an_executor_is_lost_in_the_middle_of_a_batch(ground):
    """kill -9 of an executor, in each batch, when its task has written: its tasks run again elsewhere; each row once, no file left."""
    job = tasks_job(ground, CLUSTER | fast_executors(), shuffle=False)
    outcome = run_driver(ground, job, env=spark_home() | {task_faults.VARIABLE: "task.file_closed:lose-executor:1:0"})
    assert outcome.code == 0, outcome
    assert_each_once(ground.table, ids_of(0, 4))
    assert orphans(ground.table) == set()
