"""Collects the column stats of one data file, from its batches or its Parquet footer, to the byte as Java Paimon does.

Readers skip files by these stats, so every bound must be correct. Where Java's own rules do not give a correct bound (a
NaN in the column, a code point that cannot be incremented), none is written.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.format.arrow_types import physical, to_arrow_type
from streamsink.format.binary_row import encode_row
from streamsink.format.partition_stats import partition_stats
from streamsink.format.simple_stats import EMPTY_STATS, SimpleStats
from streamsink.format.types import BINARY_ROOTS, CHARACTER_ROOTS, FOREIGN_ROOTS, TIMESTAMP_ROOTS, AtomicType, DataField

__all__ = ["EMPTY_STATS", "ColumnChunk", "SimpleStats", "StatsCollector", "partition_stats"]

_DEFAULT_MODE = "truncate(16)"
_TRUNCATE = re.compile(r"TRUNCATE\((\d{1,9})\)")
_MAX_CODE_POINT = 0x10FFFF
_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000


class ColumnChunk(NamedTuple):
    """One column in one row group.

    nulls: their number, None if unknown. low, high: physical bounds, None if there are none.
    """

    rows: int
    nulls: int | None
    low: Any
    high: Any


class StatsCollector:
    """Takes the batches of one file in order, or its row groups; ``finish`` returns the stats.

    ``mode_options`` are the table's options: ``metadata.stats-mode`` (none, counts, truncate(n), full),
    ``fields.<name>.stats-mode``, ``metadata.stats-keep-first-n-columns``, ``metadata.stats-dense-store``. Raises:
    Misuse ``stats.bad-mode`` for a mode that is none of these.
    """

    def __init__(self, fields: Sequence[DataField], mode_options: Mapping[str, str]):
        keep_text = mode_options.get("metadata.stats-keep-first-n-columns", "-1").strip()
        try:
            keep = int(keep_text)
        except ValueError as bad:
            raise _bad_mode("metadata.stats-keep-first-n-columns", keep_text, "a number such as '16'") from bad
        default = mode_options.get("metadata.stats-mode", _DEFAULT_MODE)
        self._dense = mode_options.get("metadata.stats-dense-store", "true").strip().lower() == "true"
        self._columns: list[_Column] = []
        for i, field in enumerate(fields):
            option = f"fields.{field.name}.stats-mode"
            mode = mode_options.get(option)
            if mode is None:
                mode, option = "none" if 0 <= keep <= i else default, "metadata.stats-mode"
            self._columns.append(_Column(field, mode, option))

    def update(self, batch: pa.RecordBatch) -> None:
        """Add a batch, which has the columns given to the constructor in that order.

        Raises: Misuse ``stats.bad-batch`` if the batch has other columns, or types that cannot be cast.
        """
        if batch.num_columns != len(self._columns):
            raise Misuse(
                f"a batch has {batch.num_columns} columns, expected {len(self._columns)}", kind="stats.bad-batch"
            )
        for i, column in enumerate(self._columns):
            if batch.schema.field(i).name != column.field.name:
                raise Misuse(
                    f"column {i} of a batch is {batch.schema.field(i).name!r}, expected {column.field.name!r}",
                    kind="stats.bad-batch",
                )
            column.update(batch.column(i))

    def update_from(self, chunks: Sequence[ColumnChunk]) -> None:
        """Add a row group, by what the file's footer says of each of the constructor's columns in that order."""
        for column, chunk in zip(self._columns, chunks, strict=True):
            column.add(chunk)

    def finish(self) -> tuple[SimpleStats, tuple[str, ...] | None]:
        """Return the stats and ``_VALUE_STATS_COLS``, which is None if the stats cover every column."""
        kept = [c for c in self._columns if c.collected or not self._dense]
        if not kept:
            return EMPTY_STATS, (() if self._columns else None)
        types = [c.field.type.as_nullable(True) for c in kept]
        bounds = [c.bounds() for c in kept]
        stats = SimpleStats(
            encode_row([low for low, _ in bounds], types),
            encode_row([hi for _, hi in bounds], types),
            tuple(c.nulls if c.collected else None for c in kept),
        )
        return stats, (None if len(kept) == len(self._columns) else tuple(c.field.name for c in kept))


class _Column:
    """What is known of one column so far. ``collected`` is False for columns that get no stats."""

    def __init__(self, field: DataField, mode: str, option: str):
        self.field = field
        self.nulls: int | None = 0
        self._low: Any = None
        self._high: Any = None
        self._spoiled = False
        text = mode.strip().upper()
        match = _TRUNCATE.fullmatch(text)
        if text not in ("NONE", "COUNTS", "FULL") and (match is None or int(match.group(1)) == 0):
            raise _bad_mode(option, mode, "none, counts, full, or truncate(n) such as 'truncate(16)'")
        self._length = int(match.group(1)) if match else None
        t = field.type
        self.collected = text != "NONE" and isinstance(t, AtomicType) and t.root not in FOREIGN_ROOTS
        self._root = t.root if isinstance(t, AtomicType) else ""
        # Timestamps finer than microseconds are INT96 in the file. Parquet has no order for it, so Java writes no
        # bounds.
        unordered = self._root in BINARY_ROOTS or (
            isinstance(t, AtomicType) and self._root in TIMESTAMP_ROOTS and (t.precision or 0) > 6
        )
        self._bounded = self.collected and text != "COUNTS" and not unordered
        self._arrow = to_arrow_type(t, field.name) if self._bounded else None

    def update(self, values: pa.Array) -> None:
        if not self.collected:
            return
        self.nulls += values.null_count
        if not self._bounded or self._spoiled or values.null_count == len(values):
            return
        if values.type != self._arrow:
            try:
                values = values.cast(self._arrow)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as bad:
                raise Misuse(
                    f"column {self.field.name!r}: a batch has type {values.type}, expected {self._arrow}",
                    kind="stats.bad-batch",
                ) from bad
        if self._root in ("FLOAT", "DOUBLE") and pc.any(pc.is_nan(values)).as_py():
            # As in Parquet, a NaN leaves the values without an order, so the whole file has no bounds.
            self._spoiled = True
            return
        found = pc.min_max(values)
        try:
            low, high = physical(found["min"]), physical(found["max"])
        except UnicodeDecodeError:
            # A text that is not UTF-8 has no bound in code points. As with a footer, the bounds of the other batches
            # are no bounds of the file.
            self._spoiled = True
            return
        self._widen(low, high)

    def add(self, chunk: ColumnChunk) -> None:
        if not self.collected:
            return
        self.nulls = None if self.nulls is None or chunk.nulls is None else self.nulls + chunk.nulls
        if not self._bounded or self._spoiled or chunk.nulls == chunk.rows:
            return
        low, high = chunk.low, chunk.high
        if low is None or high is None or low != low or high != high:
            # The bounds are unknown or NaN, so those of the other row groups are no bounds of the file.
            self._spoiled = True
            return
        self._widen(low, high)

    def _widen(self, low: Any, high: Any) -> None:
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def bounds(self) -> tuple[Any, Any]:
        """The smallest and the greatest value as they are written, or (None, None)."""
        low, high = self._low, self._high
        if self._spoiled or low is None:
            return None, None
        if self._root in ("FLOAT", "DOUBLE"):
            # Parquet's rule: the two zeros are equal, so a bound that is zero has the outer sign.
            return (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
        if self._root in CHARACTER_ROOTS and self._length is not None:
            high = _truncated_above(high, self._length)
            return (None, None) if high is None else (low[: self._length], high)
        return low, high


def _truncated_above(text: str, length: int) -> str | None:
    """The shortest string of at most ``length`` code points above ``text`` that Java finds; None if there is none."""
    if len(text) <= length:
        return text
    for i in range(length - 1, -1, -1):
        following = ord(text[i]) + 1
        if following == _FIRST_SURROGATE:
            following = _AFTER_SURROGATES  # Java writes '?' here, which is no valid bound
        if following <= _MAX_CODE_POINT:
            return text[:i] + chr(following)
    return None


def _bad_mode(option: str, found: str, expected: str) -> Misuse:
    return Misuse(
        f"the table's option '{option}' is {found!r}, expected {expected}. Nothing was recorded. Set it right with "
        f"ALTER TABLE {shell.set_option('PATH', option)}",
        kind="stats.bad-mode",
    )
