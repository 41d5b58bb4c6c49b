"""A small lake for the commands, made without Spark: lake/shop.db/orders, with a query whose driver died."""

from pathlib import Path

import pyarrow as pa

from streamsink import faults
from streamsink.options import RESTORE_AND_CONTINUE, SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash, arm, crash

SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string())])
PUBLISHED = (10, 20, 30)
PENDING = 40


def rows(start: int, end: int) -> pa.RecordBatch:
    numbers = range(start, end)
    return pa.record_batch({"id": list(numbers), "dt": [f"2026-11-{1 + n % 3:02}" for n in numbers]}, schema=SCHEMA)


def driver(root: Path | str, **settings) -> MicroBatchDriver:
    options = SinkOptions(partition_by=("dt",), restore=RESTORE_AND_CONTINUE, **settings)
    return MicroBatchDriver(str(root), SCHEMA, rows, options)


def dying(root: Path | str, checkpoint: SparkCheckpoint, ends, step: str = "precommit.saved", **settings) -> None:
    """Run the query up to the last batch, in which its driver dies at this step."""
    arm(step, len(ends) - checkpoint.committed, crash)
    try:
        driver(root, **settings).run(local_file_io(False), checkpoint, ends)
    except InjectedCrash:
        return
    finally:
        faults.arm(None)
    raise AssertionError(f"{step} was not reached")


def make_lake(folder: Path) -> Path:
    """Returns the table, which has three snapshots and one record pending."""
    root, checkpoint = folder / "lake" / "shop.db" / "orders", SparkCheckpoint("q1")
    dying(root, checkpoint, [*PUBLISHED, PENDING])
    return root
