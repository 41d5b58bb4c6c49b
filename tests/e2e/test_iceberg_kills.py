"""Real drivers that write into an Iceberg table, and are killed: batches on the driver and by tasks."""

import signal

import pytest
from pyiceberg.catalog import load_catalog

from tests.e2e.harness import ids_of, run_driver, run_here

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Each driver is killed at one of them, and the next one goes on from there.
STEPS = (
    "write.staged",
    "precommit.before_record",
    "precommit.saved",
    "restore.before_publish",
    "commit.before_publish",
    "commit.published",
    "commit.marked",
)
TABLE = "shop.numbers"
WAYS = {"driver": {}, "tasks": {"driver_max_rows": 0, "partition_by": ["name"]}, "async": {"publish": "async"}}


def _write(spark, ground, steps, way) -> None:
    """Kill a driver at each of these steps, on one table and one checkpoint; our own session comes to its end."""
    catalog = {"type": "sql", "uri": f"sqlite:///{ground.root}/catalog.db", "warehouse": f"file://{ground.root}/wh"}
    sink = {"table": TABLE, "catalog": "lake", "catalog_properties": catalog}

    def table():
        return load_catalog("lake", **catalog).load_table(TABLE)

    files = 0
    for step in steps:
        ground.add_files(files, 2)
        files += 2
        job = ground.job(options=way, iceberg=sink, max_restarts=3)
        fault = f"{step}@{1 if step.startswith('restore.') else 2}:kill"
        outcome = run_driver(ground, job, fault=fault)
        assert outcome.code == -signal.SIGKILL, f"a driver does not reach {step}: {outcome}"
    ground.add_files(files, 1)
    outcome = run_here(spark, ground.job(options=way, iceberg=sink, max_restarts=3))
    assert outcome.code == 0, outcome
    assert sorted(table().scan().to_arrow().column("id").to_pylist()) == sorted(ids_of(0, files + 1))
    named = {path.removeprefix("file://") for path in table().inspect.files().column("file_path").to_pylist()}
    assert {str(path) for path in (ground.root / "wh").rglob("*.parquet")} == named


@pytest.mark.in_turn("destinations whose drivers are killed", 1)
@pytest.mark.parametrize("way", ["driver", "tasks"])
@pytest.mark.parametrize("step", ["precommit.before_record", "precommit.saved", "commit.published"])
def test_a_driver_that_is_killed_writes_each_row_once(step, way, spark, ground):
    """Right before its record, right behind it, and behind the commit; nothing is left of it."""
    _write(spark, ground, (step,), WAYS[way])


@pytest.mark.soak
@pytest.mark.parametrize("way", ["driver", "tasks", "async"])
def test_drivers_that_are_killed_at_each_step(way, spark, ground):
    """There is a kill at each step, on one table and one checkpoint."""
    _write(spark, ground, STEPS, WAYS[way])
