"""Real drivers that write into databases, and are killed: batches on the driver and by tasks, of which only the driver
knows the database."""

import signal
from dataclasses import asdict

import pytest

from tests.databases.places import KINDS, place_of
from tests.e2e.harness import ids_of, run_driver, run_here

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("passwords")]

# Each driver is killed at one of them, and the next one goes on from there.
STEPS = ("write.staged", "precommit.before_record", "precommit.saved", "restore.before_publish", "commit.marked")


def _write(place, spark, ground, steps, way, **of_sink) -> None:
    """Kill a driver at each of these steps, on one table and one checkpoint; our own session comes to its end."""
    sink = asdict(place.sink(str(ground.root / "journal"), **of_sink))
    del sink["path"]
    files = 0
    for step in steps:
        ground.add_files(files, 2)
        files += 2
        job = ground.job(options=way, database=sink, max_restarts=3)
        fault = f"{step}@{1 if step.startswith('restore.') else 2}:kill"
        outcome = run_driver(ground, job, fault=fault)
        assert outcome.code == -signal.SIGKILL, f"a driver does not reach {step}: {outcome}"
        assert len(place.ids()) == len(set(place.ids()))
    ground.add_files(files, 1)
    outcome = run_here(spark, ground.job(options=way, database=sink, max_restarts=3))
    assert outcome.code == 0, outcome
    assert place.ids() == sorted(ids_of(0, files + 1))


@pytest.mark.in_turn("destinations whose drivers are killed", 1)
@pytest.mark.parametrize("way", [{}, {"driver_max_rows": 0}], ids=["driver", "tasks"])
@pytest.mark.parametrize("step", STEPS[1:3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_is_killed_writes_each_row_once(kind, step, way, spark, ground, request, tmp_path):
    """Right before its record, and right behind it."""
    _write(place_of(kind, request, tmp_path), spark, ground, (step,), way)


@pytest.mark.soak
@pytest.mark.parametrize("of_sink", [{}, {"mode": "upsert", "keys": ["id"]}], ids=["insert", "upsert"])
@pytest.mark.parametrize("way", [{}, {"driver_max_rows": 0}, {"publish": "async"}], ids=["driver", "tasks", "async"])
@pytest.mark.parametrize("kind", KINDS)
def test_drivers_that_are_killed_at_each_step(kind, way, of_sink, spark, ground, request, tmp_path):
    """There is a kill at each step, on one table and one checkpoint."""
    _write(place_of(kind, request, tmp_path), spark, ground, STEPS, way, **of_sink)
