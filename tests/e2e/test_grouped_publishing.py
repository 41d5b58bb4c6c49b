"""Grouped and asynchronous publishing under Spark: killed drivers, a stopped query, an error beside the batches."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamsink import faults
from streamsink.errors import Conflict
from streamsink.spark import runs
from tests.e2e.harness import ROOT, assert_each_once, ids_in, ids_of, run_driver, run_here, until
from tests.e2e.job import start

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BESIDE = {"publish": "async", "publish_every_batches": 2, "publish_as": "one-snapshot", "publish_queue": 3}
# In the thread that publishes and in the batch's, each time on what the kill before left behind. Without Spark,
# tests/crash/test_every_step.py dies at every step of every way of publishing.
KILLS = ("commit.lists_written@2", "precommit.saved@4")
MORE_KILLS = ("group.queued@3", KILLS[0], "commit.published@2", KILLS[1])


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(KILLS, marks=pytest.mark.in_turn("pending beyond a batch", 1)),
        pytest.param(MORE_KILLS, marks=pytest.mark.soak),
    ],
    ids=["", "more"],
)
def test_drivers_killed_while_checkpoints_are_pending_lose_and_double_nothing(spark, ground, kills):
    """SIGKILL follows upon SIGKILL, then a run goes to the end.
    A reader always sees whole batches in order, and in the end each row once."""
    files = 8 * len(kills)
    ground.add_files(0, files)
    for fault in kills:
        outcome = run_driver(ground, ground.job(options=BESIDE), fault=f"{fault}:kill")
        assert outcome.code == -signal.SIGKILL, f"a driver does not reach {fault}: {outcome}"
        found = ids_in(ground.table)
        assert len(found) == len(set(found)) and set(found) == ids_of(0, len(found) // 10)
    outcome = run_here(spark, ground.job(options=BESIDE))
    assert outcome.code == 0, outcome
    assert_each_once(ground.table, ids_of(0, files))
    grouped = [e for e in outcome.of("CheckpointPublished") if e["checkpoints"] > 1]
    assert grouped, "nothing was published as a group"


def test_run_returns_when_everything_is_published(spark, ground):
    """The group is never full: stopping publishes it, in one snapshot."""
    ground.add_files(0, 5)
    outcome = run_here(spark, ground.job(options={"publish_every_batches": 100, "publish_as": "one-snapshot"}))
    assert outcome.code == 0
    assert [(e["checkpoint_id"], e["checkpoints"]) for e in outcome.of("CheckpointPublished")] == [(4, 5)]
    assert_each_once(ground.table, ids_of(0, 5))


def test_a_plain_query_that_is_stopped_publishes_what_is_pending(spark, ground):
    """Without streamsink.run nobody tells the sink: its thread notices that the query has ended."""
    ground.add_files(0, 3)
    job = ground.job(options={"publish_every_batches": 100}, processing_time="50 milliseconds")
    query = start(spark, job, lambda event: None)
    until(lambda: Path(ground.checkpoint, "commits", "2").exists())
    assert ids_in(ground.table) == []
    query.stop()
    until(lambda: set(ids_in(ground.table)) == ids_of(0, 3))
    assert_each_once(ground.table, ids_of(0, 3))


def test_an_error_beside_the_batches_fails_the_query_at_its_next_batch(spark, ground):
    """It fails with the original error, to which the table's name is added. A restart publishes what was pending."""
    ground.add_files(0, 1)
    broken = Conflict("injected", kind="test")

    def fail(step):
        if step == "group.before_publish":
            raise broken

    faults.arm(fail)
    seen = []
    query = start(spark, ground.job(options={"publish": "async"}, processing_time="50 milliseconds"), seen.append)
    until(lambda: any(type(e).__name__ == "BatchWritten" for e in seen))
    assert query.isActive
    ground.add_files(1, 1)
    until(lambda: not query.isActive)
    error = runs.failure(str(query.runId))
    assert (type(error), error.kind, error.__cause__) == (Conflict, "test", broken) and ground.table in str(error)
    faults.arm(None)
    assert run_here(spark, ground.job(options={"publish": "async"})).code == 0
    assert_each_once(ground.table, ids_of(0, 2))


EXIT = """
import sys
from streamsink.protocol.committable import Batch
from streamsink.spark import runs
from tests.crash.world import posix_world
from tests.protocol.query import QUERY, Query

world = posix_world(sys.argv[1], publish_every_batches=100)
query = Query(world, background=None)
query.batch(6)
run = runs.Run(None, query.sink.opened, query.sink.run, Batch(0, QUERY, "run"), lambda: False)
runs.add(world.driver.root, "streamsink", run)
assert world.ids() == []
"""


def test_an_interpreter_that_exits_publishes_what_is_pending_and_does_not_hang(tmp_path):
    """Nobody stopped anything. The thread is there, and is no hindrance."""
    subprocess.run([sys.executable, "-c", EXIT, str(tmp_path)], cwd=ROOT, check=True, timeout=300)
    assert_each_once(str(tmp_path / "shop.db" / "orders"), set(range(6)))
