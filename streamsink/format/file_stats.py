"""The statistics of one column, read out of a manifest's record without building the rest."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from streamsink.format.binary_row import field_reader
from streamsink.format.types import DataField

#: What a BinaryRow that is not what it must be makes a field reader raise.
_BAD_ROW = (struct.error, ValueError, IndexError, OverflowError, TypeError)


class ColumnStats(NamedTuple):
    """What is known of one column's values in some rows: bounds (physical; None: unknown), nulls (None: unknown), rows.

    Bounds may be wider than the values are: those of long texts are cut.
    """

    low: Any
    high: Any
    nulls: int | None
    rows: int


#: The Avro record ``_FILE`` -> its stats of one column.
StatsReader = Callable[[Mapping[str, Any]], ColumnStats]


def covered_columns(file: Mapping[str, Any]) -> tuple[str, ...] | None:
    """``_VALUE_STATS_COLS``: the columns that a file's stats are of; None for all of its schema."""
    names = file.get("_VALUE_STATS_COLS")
    return None if names is None else tuple(names)


def stats_reader(
    fields: Sequence[DataField], covered: Sequence[str] | None, name: str, bounded: bool
) -> StatsReader | None:
    """Reads the stats of column ``name`` from files of a schema with these ``fields``; None when there are none.

    ``bounded`` False leaves the bounds out. Stats that cannot be read (other writers leave rows empty) are unknown.
    """
    by_name = {field.name: field for field in fields}
    columns = [field.name for field in fields] if covered is None else list(covered)
    if name not in columns or name not in by_name:
        return None
    index = columns.index(name)
    read = field_reader(len(columns), index, by_name[name].type) if bounded else None

    def stats_of(file: Mapping[str, Any]) -> ColumnStats:
        stats = file["_VALUE_STATS"]
        counts = stats["_NULL_COUNTS"]
        nulls = counts[index] if counts and len(counts) == len(columns) else None
        low = high = None
        if read is not None:
            try:
                low, high = read(stats["_MIN_VALUES"]), read(stats["_MAX_VALUES"])
            except _BAD_ROW:
                low = high = None
            if low != low or high != high:  # NaN is a bound of nothing
                low = high = None
        return ColumnStats(low, high, nulls, file["_ROW_COUNT"])

    return stats_of
