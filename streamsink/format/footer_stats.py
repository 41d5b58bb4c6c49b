"""What the Parquet footer of a file that Spark wrote says of its columns, as physical values. Flat columns only."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from streamsink.format.stats import ColumnChunk
from streamsink.format.types import CHARACTER_ROOTS, TIMESTAMP_ROOTS, AtomicType, DataField
from streamsink.format.values import from_physical

_MICRO_NANOS = 1000
_FLOATS = ("FLOAT", "DOUBLE")
_CREATED_BY = re.compile(r"parquet-mr version (\d+)\.(\d+)\.")
# From this version on a NaN is left out of the bounds. Before it, one makes the greatest value NaN, so that it is seen.
_WITHOUT_NAN = (1, 18)


def row_groups_of(footer: pq.FileMetaData, fields: Sequence[DataField]) -> Iterator[list[ColumnChunk]]:
    """By row group, each column. The file has exactly these columns, in this order, timestamps in microseconds."""
    writer = _CREATED_BY.match(footer.created_by or "")
    sees_nan = writer is not None and (int(writer[1]), int(writer[2])) < _WITHOUT_NAN
    for number in range(footer.num_row_groups):
        group, chunks = footer.row_group(number), []
        for i, field in enumerate(fields):
            required = footer.schema.column(i).max_definition_level == 0
            bounded = sees_nan or field.type.root not in _FLOATS
            chunks.append(_chunk(group.column(i), field.type, 0 if required else None, bounded))
        yield chunks


def _chunk(column: pq.ColumnChunkMetaData, t: AtomicType, nulls: int | None, bounded: bool) -> ColumnChunk:
    """nulls: what is known of them without the statistics, which parquet-mr leaves out where values are kilobytes long."""
    found = column.statistics
    if found is None:
        return ColumnChunk(column.num_values, nulls, None, None)
    if found.has_null_count:
        nulls = found.null_count
    if not bounded or not found.has_min_max:
        return ColumnChunk(column.num_values, nulls, None, None)
    return ColumnChunk(column.num_values, nulls, _physical(found.min_raw, t), _physical(found.max_raw, t))


def _physical(raw: Any, t: AtomicType) -> Any | None:
    """None for a text that is not UTF-8, which has no bound in code points."""
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
