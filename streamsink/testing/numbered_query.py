"""A query over a numbered source, without Spark, that a process runs and that may be killed: ``python -m`` this module.

Arguments: the table's path, the file that stands for Spark's checkpoint, the number of batches, rows of each batch; and
perhaps a folder to which each batch is appended first, by a writer that knows nothing of repeated batches. The
environment may arm a fault (``faults.py``). What Spark keeps of a query, the ends of planned batches and how many are
committed, is made durable in that file, at the instants at which Spark does it.
"""

import json
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.clock import IdSource
from streamsink.options import RESTORE_AND_CONTINUE, SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import store_of
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import arm_from_env

# Rows: a number that tells each of them apart, and a partition.
SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("amount", pa.float64())])
_DAYS = 3


def rows(start: int, end: int) -> pa.RecordBatch:
    """The rows of these numbers."""
    numbers = range(start, end)
    days = [f"2026-11-{1 + n % _DAYS:02}" for n in numbers]
    return pa.record_batch({"id": list(numbers), "dt": days, "amount": [n / 4 for n in numbers]}, schema=SCHEMA)


def query(file_io: FileIO, root: str, checkpoint_file: str, batches: int, size: int, *, beside: str = "") -> None:
    """Run the query until so many batches of this size are written. Restarts go on where the checkpoint ends.

    beside: a folder for files of a plain writer; '' for none.
    """
    options = SinkOptions(partition_by=("dt",), restore=RESTORE_AND_CONTINUE)
    driver, checkpoint = MicroBatchDriver(root, SCHEMA, rows, options), _load(checkpoint_file)
    sink = driver.start(file_io, checkpoint)
    try:
        for batch_id in range(checkpoint.committed, batches):
            if len(checkpoint.ends) == batch_id:
                checkpoint.ends.append((batch_id + 1) * size)
                _save(checkpoint_file, checkpoint)
            if beside:
                _append(beside, rows(batch_id * size, (batch_id + 1) * size))
            sink.batch(driver.describe(checkpoint, batch_id))
            checkpoint.committed = batch_id + 1
            _save(checkpoint_file, checkpoint)
    finally:
        sink.close()


def _append(folder: str, batch: pa.RecordBatch) -> None:
    """One file more, as a batch function writes it that appends what it gets."""
    os.makedirs(folder, exist_ok=True)
    pq.write_table(pa.table(batch), os.path.join(folder, f"part-{IdSource().new_id()}.parquet"))


def _load(path: str) -> SparkCheckpoint:
    if not os.path.exists(path):
        return SparkCheckpoint(IdSource().new_id())
    with open(path, encoding="utf-8") as stream:
        said = json.load(stream)
    return SparkCheckpoint(said["query"], said["ends"], said["committed"])


def _save(path: str, checkpoint: SparkCheckpoint) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        json.dump(vars(checkpoint), stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    arm_from_env()
    _, _root, _checkpoint, _batches, _size, *_beside = sys.argv
    query(store_of(_root).open(), _root, _checkpoint, int(_batches), int(_size), beside="".join(_beside))
