"""Reads column statistics, as physical values, from Parquet footers that Spark wrote. Flat columns only."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow.parquet as pq

from streamsink.format.stats import ColumnChunk
from streamsink.format.types import CHARACTER_ROOTS, TIMESTAMP_ROOTS, AtomicType, DataField
from streamsink.format.values import from_physical

_MICRO_NANOS = 1000
_FLOATS = ("FLOAT", "DOUBLE")
_CREATED_BY = re.compile(r"parquet-mr version (\d+)\.(\d+)\.")
# From this version on the bounds leave out a NaN. Before it a NaN became the greatest value, so that it is noticed.
_WITHOUT_NAN = (1, 18)


def row_groups_of(footer: pq.FileMetaData, fields: Sequence[DataField]) -> Iterator[list[ColumnChunk]]:
    """Yield for each row group the statistics of each column.

    The file has exactly the columns ``fields``, in this order, with timestamps in microseconds.
    """
    writer = _CREATED_BY.match(footer.created_by or "")
    sees_nan = writer is not None and (int(writer[1]), int(writer[2])) < _WITHOUT_NAN
    for number in range(footer.num_row_groups):
        group, chunks = footer.row_group(number), []
        for i, field in enumerate(fields):
            t = cast(AtomicType, field.type)  # the columns are flat
            required = footer.schema.column(i).max_definition_level == 0
            bounded = sees_nan or t.root not in _FLOATS
            chunks.append(_chunk(group.column(i), t, 0 if required else None, bounded))
        yield chunks


def _chunk(column: pq.ColumnChunkMetaData, t: AtomicType, nulls: int | None, bounded: bool) -> ColumnChunk:
    """The statistics of one column in one row group.

    nulls: the number of nulls as far as it is known without the statistics, which parquet-mr omits where values are
    kilobytes long.
    """
    found = column.statistics
    if found is None:
        return ColumnChunk(column.num_values, nulls, None, None)
    if found.has_null_count:
        nulls = found.null_count
    if not bounded or not found.has_min_max:
        return ColumnChunk(column.num_values, nulls, None, None)
    return ColumnChunk(column.num_values, nulls, _physical(found.min_raw, t), _physical(found.max_raw, t))


def _physical(raw: Any, t: AtomicType) -> Any | None:
    """The physical value of a bound; None for a text that is not UTF-8, which has no bound in code points."""
    if t.root in CHARACTER_ROOTS:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if t.root == "DECIMAL":
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else raw
        return from_physical(unscaled, t)
    if t.root in TIMESTAMP_ROOTS:
        return raw * _MICRO_NANOS
    return raw
