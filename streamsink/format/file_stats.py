"""Reads the statistics of one column out of a manifest's record, without building the rest of the record."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from streamsink.format.binary_row import field_reader
from streamsink.format.types import DataField

#: What a field reader raises for bytes that are no valid BinaryRow.
_BAD_ROW = (struct.error, ValueError, IndexError, OverflowError, TypeError)


class ColumnStats(NamedTuple):
    """What is known about one column's values in some rows.

    low, high: physical bounds, None if unknown; they may be wider than the values, because those of long texts are
    cut.
    nulls: the number of nulls, None if unknown. rows: the number of rows.
    """

    low: Any
    high: Any
    nulls: int | None
    rows: int


#: A function from the Avro record ``_FILE`` to the stats of one column.
StatsReader = Callable[[Mapping[str, Any]], ColumnStats]


def covered_columns(file: Mapping[str, Any]) -> tuple[str, ...] | None:
    """``_VALUE_STATS_COLS``: the columns that a file's stats cover; None if they cover all columns of its schema."""
    names = file.get("_VALUE_STATS_COLS")
    return None if names is None else tuple(names)


def stats_reader(
    fields: Sequence[DataField], covered: Sequence[str] | None, name: str, bounded: bool
) -> StatsReader | None:
    """A function that reads the stats of column ``name``; None if the files have no stats of it.

    It is for files of a schema with these ``fields`` whose stats cover the columns ``covered`` (None: all). Without
    ``bounded`` the bounds are not read. Stats that cannot be read are unknown; some other writers leave the rows
    empty.
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
            if low != low or high != high:  # NaN bounds nothing
                low = high = None
        return ColumnStats(low, high, nulls, file["_ROW_COUNT"])

    return stats_of
