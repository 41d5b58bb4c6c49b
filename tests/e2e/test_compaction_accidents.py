"""Tasks that compact beside a query fail, run twice, or lose their executor or their driver: each row is there once."""

import os
import signal

import pytest

from streamsink.compaction.compactor import Compactor
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.e2e import task_faults
from tests.e2e.cluster import Cluster
from tests.e2e.harness import Driver, assert_each_once, orphans, run_driver

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.usefixtures("spark_settings")]

# The driver writes the small batches, so only tasks of compactions meet a fault.
BY_TASKS = {
    "compaction": True,
    "compaction_by": "tasks",
    "compaction_interval_ms": 1,
    "compaction_idle_ms": 0,
    "compaction_core_percent": 100,
}
# A stage of one task is run twice as well.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "1s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, spark_settings):
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def _faults(ground) -> int:
    return len(list((ground.root / "marks").iterdir()))


def _goes_on(ground, ids) -> None:
    """The query's next start writes more, and each row is there once. What tasks have left is swept in the end."""
    ids |= ground.add_files(len(ids) // 10, 2)
    outcome = run_driver(ground, ground.job(options={"compaction": False}))
    assert outcome.code == 0, outcome
    assert_each_once(ground.table, ids)
    table = open_table(local_file_io(), ground.table, for_writing=True)
    for _ in range(2):  # the first one may be the one that makes the notes, and what it deletes is looked at again
        Compactor(table, SinkOptions(), abandoned_ms=0).settle()
    assert_each_once(ground.table, ids)
    assert orphans(ground.table) == set()


def _until_compacted(ground, conf: dict, env: dict, times: int = 2) -> None:
    """The query runs until so many compactions have come through; then its driver is killed."""
    job = ground.job(options=BY_TASKS, conf=conf, processing_time="0 seconds")
    with Driver(ground, job, env=env) as driver:
        driver.wait_for("Compacted")
        for number in range(1, times):
            ground.add_files(8 + 6 * (number - 1), 6)
            driver.wait_for("Compacted", number + 1)
        driver.signal(signal.SIGKILL)


@pytest.mark.parametrize("step, action", [("task.file_closed", "raise"), ("task.end", "exit")])
def test_a_task_that_fails_twice(ground, step, action):
    """Each one's first two attempts fail behind what they wrote, by an error or by their worker's death."""
    ids = ground.add_files(0, 8)
    env = task_faults.environment(f"{step}:{action}:2", ground.root / "marks")
    _until_compacted(ground, task_faults.CONF | {"spark.master": "local[2,3]"}, env)
    assert _faults(ground) >= 4
    _goes_on(ground, ids | set(range(80, 140)))


def test_the_driver_dies_while_tasks_write(ground):
    """They have written a file, and the driver is killed before it hears of that."""
    ids = ground.add_files(0, 8)
    env = task_faults.environment("task.file_closed:kill-driver:1", ground.root / "marks")
    job = ground.job(options=BY_TASKS, conf=task_faults.CONF, processing_time="0 seconds")
    assert run_driver(ground, job, env=env).code == -signal.SIGKILL
    assert _faults(ground) == 1 and [name for name in os.listdir(f"{ground.table}/streamsink") if "compact-" in name]
    _goes_on(ground, ids)


def test_an_executor_is_lost(ground, cluster):
    """With what its task wrote; the task runs again elsewhere."""
    ids = ground.add_files(0, 8)
    env = task_faults.environment("task.file_closed:lose-executor:1", ground.root / "marks")
    _until_compacted(ground, cluster.conf(env) | task_faults.CONF, {}, times=1)
    assert _faults(ground) >= 1
    _goes_on(ground, ids)


def test_a_task_runs_twice(ground, cluster):
    """The first attempt hangs behind its file, for longer than a test lasts; the copy on another host wins."""
    ids = ground.add_files(0, 8)
    env = task_faults.environment("task.file_closed:sleep:2", ground.root / "marks")
    _until_compacted(ground, cluster.conf(env) | task_faults.CONF | SPECULATION, {}, times=1)
    assert _faults(ground) == 1
    _goes_on(ground, ids)
