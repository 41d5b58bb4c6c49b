"""The sinks that pages of the docs show, in real drivers:
batches on the driver and by tasks, and kills between every two of its steps."""

import signal

import pytest

from streamsink.storage.file_io import local_file_io
from tests.e2e.harness import ids_of, run_driver, run_here
from tests.sinks.shown import rows_of, rows_of_lines

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# The steps that every sink has. Each driver is killed at one of them, and the next one goes on from there,
# at last one that is not killed. What the third one leaves pending the fourth one is about to publish.
STEPS = ("write.staged", "precommit.before_record", "precommit.saved", "restore.before_publish", "commit.marked")


ROWS = {"plain files": rows_of, "json lines": rows_of_lines}


def _seen(ground, sink: str) -> list[int]:
    return sorted(ROWS[sink](local_file_io(), ground.table))


# The gate kills twice: before the record, around the restart that publishes it, or before it and at the end.
PARTS = {"before": STEPS[:2], "pending": STEPS[2:4], "ends": STEPS[::4]}


@pytest.mark.in_turn("destinations whose drivers are killed", 1)
@pytest.mark.parametrize("steps", [*PARTS.values(), pytest.param(STEPS, marks=pytest.mark.soak)], ids=[*PARTS, "all"])
@pytest.mark.parametrize("way", [{}, {"driver_max_rows": 0}], ids=["driver", "tasks"])
@pytest.mark.parametrize("sink", list(ROWS))
def test_drivers_that_are_killed_write_each_row_once(spark, ground, way, sink, steps):
    """There is a kill at each of these steps, on one destination and one checkpoint."""
    files = 0
    for step in steps:
        ground.add_files(files, 2)
        files += 2
        job = ground.job(options=way, shown=sink, max_restarts=3)
        outcome = run_driver(ground, job, fault=f"{step}@{1 if step.startswith('restore.') else 2}:kill")
        assert outcome.code == -signal.SIGKILL, f"a driver does not reach {step}: {outcome}"
        assert len(_seen(ground, sink)) == len(set(_seen(ground, sink)))
    ground.add_files(files, 1)
    outcome = run_here(spark, ground.job(options=way, shown=sink, max_restarts=3))
    assert outcome.code == 0, outcome
    assert _seen(ground, sink) == sorted(ids_of(0, files + 1))
