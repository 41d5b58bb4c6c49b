"""The sizes of the rows that a run has written, from which the way to write its next batch is chosen.

Runs on the driver.
"""

from dataclasses import dataclass

from streamsink.format.schema import TableSchema
from streamsink.format.types import AtomicType, DataType

# The ways from a DataFrame to staged files: on the driver, by Spark's own Parquet writer, in Python tasks.
DRIVER, SPARK, TASKS = "driver", "spark", "tasks"
# The bytes of a value in a file, as long as no batch has shown them. They are generous, so that the first files become
# too small rather than too large.
_FIXED_BYTES, _GUESSED_BYTES = 8, {"VARCHAR": 32, "VARBINARY": 128}


@dataclass
class Sizes:
    """Bytes per row in the files of earlier batches of this run; None before the first batch.

    bytes_per_row: of the last batch that had rows, whichever way it was written.
    spark_bytes_per_row: of the last batch that Spark's writer wrote. Its files are large, so that a file's own overhead
    counts for little.
    """

    bytes_per_row: float | None = None
    spark_bytes_per_row: float | None = None

    def add(self, way: str, rows: int, size: int) -> None:
        """Record that a batch was written. Nothing is learnt from a batch without rows.

        way: ``DRIVER``, ``SPARK`` or ``TASKS``. rows, size: the rows of the batch, and the bytes of its files.
        """
        if rows:
            self.bytes_per_row = size / rows
            if way == SPARK:
                self.spark_bytes_per_row = size / rows

    def rows_in(self, target_bytes: int, schema: TableSchema) -> int:
        """About how many rows make a file of ``target_bytes``; at least one."""
        bytes_per_row = self.spark_bytes_per_row or sum(_guessed_bytes(f.type) for f in schema.fields)
        return max(1, int(target_bytes / bytes_per_row))


def _guessed_bytes(kind: DataType) -> int:
    return _GUESSED_BYTES.get(kind.root, _FIXED_BYTES) if isinstance(kind, AtomicType) else _FIXED_BYTES
