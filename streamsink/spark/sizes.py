"""What the batches of a run were like, by which the next one's way is chosen. DRIVER."""

from dataclasses import dataclass

from streamsink.format.schema import TableSchema
from streamsink.format.types import AtomicType, DataType

# The ways from a DataFrame to staged files.
DRIVER, SPARK, TASKS = "driver", "spark", "tasks"
# Bytes of a value in a file, until a batch has shown them: generous, so that the first files are too small rather than too large.
_FIXED_BYTES, _GUESSED_BYTES = 8, {"VARCHAR": 32, "VARBINARY": 128}


@dataclass
class Sizes:
    """What earlier batches of this run were like: bytes of a row in their files, None before the first one.

    spark_bytes_per_row: of the last one that Spark's writer wrote, where a file's own overhead counts for little.
    """

    bytes_per_row: float | None = None
    spark_bytes_per_row: float | None = None

    def add(self, way: str, rows: int, size: int) -> None:
        """A batch was written. Nothing is learnt from one without rows."""
        if rows:
            self.bytes_per_row = size / rows
            if way == SPARK:
                self.spark_bytes_per_row = size / rows

    def rows_in(self, target_bytes: int, schema: TableSchema) -> int:
        """How many rows make a file of this size, about."""
        bytes_per_row = self.spark_bytes_per_row or sum(_guessed_bytes(f.type) for f in schema.fields)
        return max(1, int(target_bytes / bytes_per_row))


def _guessed_bytes(kind: DataType) -> int:
    return _GUESSED_BYTES.get(kind.root, _FIXED_BYTES) if isinstance(kind, AtomicType) else _FIXED_BYTES
