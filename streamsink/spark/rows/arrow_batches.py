"""How many rows a Python task is given at once. Runs on the driver.

Spark 4 also bounds the Arrow batches of a task by their size (64 MiB; 256 MiB in 4.0), and measures a batch again after
each row: with eight columns this takes as long as filling the batch. Where rows are known to be narrow, their number
bounds the size as well, and Spark need not measure.
"""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from streamsink.format.types import AtomicType, DataField
from streamsink.protocol.committable import Batch
from streamsink.spark.gateway import running

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NO_LIMIT = str(2**31 - 1)  # with this limit Spark does not measure
_MOST_BYTES, _MOST_ROWS = 64 << 20, 10_000  # Spark's own limits
# With fewer rows at once, a task takes longer than with measuring.
_FEWEST_ROWS = 1_000
# The bytes of a row in Arrow are at most this many times its bytes in the file, by a wide margin.
_IN_MEMORY = 16
# A larger estimate is what Spark says of a source that gives no size.
NO_ESTIMATE = 1 << 50
_UNBOUNDED = ("BINARY", "VARBINARY")


def rows_at_once(
    spark: SparkSession, given: Sequence[DataField], batch: Batch, bytes_per_row: float | None
) -> int | None:
    """A number of rows that bounds the Arrow batches of this batch's tasks, or None when Spark must measure them.

    given: the columns of the DataFrame. bytes_per_row: in the files of the last batch of the run; None before there is
    one.

    None also when the session sets a limit of bytes, which is kept.
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
    """Settings of the session for one job whose tasks are given at most ``rows`` rows at once; none for None."""
    return {} if rows is None else {_BYTES: _NO_LIMIT, _ROWS: str(rows)}


def _is_bounded(given: Sequence[DataField], batch: Batch) -> bool:
    """Whether a first batch comes from files, of which each task reads a piece, and its columns hold no documents or
    pictures.
    """
    if not all(isinstance(f.type, AtomicType) and f.type.root not in _UNBOUNDED for f in given):
        return False
    estimate = running.estimated_bytes(batch.run)
    return estimate is not None and estimate < NO_ESTIMATE
