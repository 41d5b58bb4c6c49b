"""Real drivers that write into a Delta table, and are killed: batches on the driver and by tasks."""

import os
import signal

import pytest
from deltalake import DeltaTable

from tests.e2e.harness import ROOT, ids_of, run_driver, run_here

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Each driver is killed at one of them, and the next one goes on from there.
STEPS = (
    "table.before_create",
    "table.created",
    "write.staged",
    "precommit.before_record",
    "precommit.saved",
    "restore.before_publish",
    "commit.before_publish",
    "commit.published",
    "commit.marked",
)


def _ids(table: str) -> list[int]:
    if not DeltaTable.is_deltatable(table):
        return []
    return sorted(DeltaTable(table).to_pyarrow_table().column("id").to_pylist())


def _write(spark, ground, steps, way) -> None:
    """Kill a driver at each of these steps, on one table and one checkpoint; our own session comes to its end."""
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    job, files = ground.job(options=way, delta=True, max_restarts=3), 0
    for step in steps:
        ground.add_files(files, 2)
        files += 2
        at = 1 if step.startswith(("restore.", "table.", "task.")) else 2
        outcome = run_driver(ground, job, fault=f"{step}@{at}:kill", env=env)
        assert outcome.code == -signal.SIGKILL, f"a driver does not reach {step}: {outcome}"
        found = _ids(ground.table)
        assert len(found) == len(set(found))
    ground.add_files(files, 1)
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert _ids(ground.table) == sorted(ids_of(0, files + 1))


@pytest.mark.in_turn("destinations whose drivers are killed", 1)
@pytest.mark.parametrize("way", [{}, {"driver_max_rows": 0}], ids=["driver", "tasks"])
@pytest.mark.parametrize("step", ["precommit.saved", "commit.before_publish", "commit.published"])
def test_a_driver_that_is_killed_writes_each_row_once(step, way, spark, ground):
    """Right behind its record, before its commit, and right behind that."""
    _write(spark, ground, (step,), way)


@pytest.mark.soak
@pytest.mark.parametrize("way", [{}, {"driver_max_rows": 0}, {"publish": "async"}], ids=["driver", "tasks", "async"])
def test_drivers_that_are_killed_at_each_step(way, spark, ground):
    """There is a kill at each step, on one table and one checkpoint."""
    _write(spark, ground, STEPS, way)
