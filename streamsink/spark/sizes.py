"""The sizes of the rows that a run has written, from which the way to write its next batch is chosen.

Runs on the driver.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from streamsink.format.schema import TableSchema
from streamsink.format.types import AtomicType, DataType

# The ways from a DataFrame to staged files: on the driver, by Spark's own Parquet writer, in Python tasks.
DRIVER, SPARK, TASKS = "driver", "spark", "tasks"
# The bytes of a value in a file, as long as no batch has shown them. They are generous, so that the first files become
# too small rather than too large.
_FIXED_BYTES, _GUESSED_BYTES = 8, {"VARCHAR": 32, "VARBINARY": 128}
# After so many batches, at the most, it is tried again whether the next batch is as small as those before it.
_LONGEST_PAUSE = 64


class Expected(NamedTuple):
    """What the next batch will have, as far as the last one tells: rows and bytes."""

    rows: float
    size: float


class _Seen(NamedTuple):
    """The last batch: its rows, its bytes (in memory where they were seen there, else of its files), its weight."""

    rows: int
    size: float
    weight: int | None


@dataclass
class Forecast:
    """What the batches of a run say of its next one.

    A batch has a weight: what is known of it before Spark computes it, in rows or bytes that are read; None where the
    source tells nothing. What is written of a batch is taken to be in proportion to its weight.
    """

    _last: _Seen | None = None
    _weight: int | None = 0
    _kept: float | None = None
    _pause: int = 0
    _left: int = 0

    def begin(self, weight: int | None) -> None:
        """A batch of this weight is the next one. A weight of 0 says that what is written of it tells nothing."""
        self._weight, self._kept = weight, None

    def expected(self) -> Expected | None:
        """What the batch will have. Ask it once a batch.

        None before the first batch, and for a while after a batch that was not as expected: for one batch the first
        time, for twice as many each time that it happens again.
        """
        if self._left:
            self._left -= 1
            return None
        if self._last is None:
            return None
        rows, size, before = self._last
        share = self._weight / before if self._weight is not None and before else 1.0
        return Expected(rows * share, size * share)

    def came(self, size: float, as_expected: bool) -> None:
        """Record that the batch was computed, and whether it was small, as expected. size: its bytes in memory."""
        self._kept = size
        if as_expected:
            self._pause //= 2
        else:
            self._left = self._pause = min(max(1, self._pause * 2), _LONGEST_PAUSE)

    def add(self, rows: int, size: int) -> None:
        """Record what was written of the batch that was begun."""
        weight, self._weight = self._weight, 0
        if weight == 0:
            return
        self._last = _Seen(rows, size if self._kept is None else self._kept, weight)


@dataclass
class Sizes:
    """Bytes per row in the files of earlier batches of this run; None before the first batch.

    bytes_per_row: of the last batch that had rows, whichever way it was written.
    spark_bytes_per_row: of the last batch that Spark's writer wrote. Its files are large, so that a file's own overhead
    counts for little.
    forecast: of the next batch. is_misled: a batch that was known to be small was not, so this is not known any more.
    must_not_keep: Spark must not keep rows of this run.
    """

    bytes_per_row: float | None = None
    spark_bytes_per_row: float | None = None
    forecast: Forecast = field(default_factory=Forecast)
    is_misled: bool = False
    must_not_keep: bool = False

    def add(self, way: str, rows: int, size: int) -> None:
        """Record that a batch was written. A batch without rows tells nothing of the bytes of a row.

        way: ``DRIVER``, ``SPARK`` or ``TASKS``. rows, size: the rows of the batch, and the bytes of its files.
        """
        self.forecast.add(rows, size)
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
