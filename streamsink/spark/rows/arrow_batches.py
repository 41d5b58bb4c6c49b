"""How many rows a Python task is given at once. DRIVER.

Spark 4 bounds the Arrow batches of a task by their size, too (64 MiB; 256 in 4.0), and weighs a batch again after each row: with eight
columns that takes as long as filling it. Where rows are known to be narrow, their number bounds the batch as well.
"""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from streamsink.format.types import AtomicType, DataField
from streamsink.protocol.committable import Batch
from streamsink.spark.gateway import running

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NO_LIMIT = str(2**31 - 1)  # with which Spark does not weigh
_MOST_BYTES, _MOST_ROWS = 64 << 20, 10_000  # Spark's own
# With fewer at once a task takes longer than with weighing.
_FEWEST_ROWS = 1_000
# What Arrow takes of a row is at most so many times what its file did, by far.
_IN_MEMORY = 16
# An estimate beyond this is what Spark says of a source that says nothing.
_NO_ESTIMATE = 1 << 50
_UNBOUNDED = ("BINARY", "VARBINARY")


def rows_at_once(
    spark: SparkSession, given: Sequence[DataField], batch: Batch, bytes_per_row: float | None
) -> int | None:
    """A number of rows that bounds the Arrow batches of this batch's tasks, or None when Spark must weigh them.

    given: columns of the DataFrame. bytes_per_row: in the files of the run's last batch, None before there is one. A session that sets
    a limit of bytes keeps it.
    """
    if spark.conf.get(_BYTES, None) is not None:
        return None
    own = int(spark.conf.get(_ROWS, None) or _MOST_ROWS)
    most = own if own > 0 else _MOST_ROWS
    if bytes_per_row is None:
        return most if _is_bounded(given, batch) else None
    rows = int(_MOST_BYTES / (_IN_MEMORY * bytes_per_row))
    return min(rows, most) if rows >= _FEWEST_ROWS else None


def settings(rows: int | None) -> dict[str, str]:
    """Of the session, for one job whose tasks are given at most so many rows at once."""
    return {} if rows is None else {_BYTES: _NO_LIMIT, _ROWS: str(rows)}


def _is_bounded(given: Sequence[DataField], batch: Batch) -> bool:
    """Whether a first batch comes from files, of which each task reads a piece, and in columns that hold no documents or pictures."""
    if not all(isinstance(f.type, AtomicType) and f.type.root not in _UNBOUNDED for f in given):
        return False
    estimate = running.estimated_bytes(batch.run)
    return estimate is not None and estimate < _NO_ESTIMATE
