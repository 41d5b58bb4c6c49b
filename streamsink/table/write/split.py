"""Splits batches by the partition that each row belongs to, with Arrow's vector operations instead of row by row."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsink.errors import Misuse
from streamsink.format.arrow_types import physical
from streamsink.format.binary_row import EMPTY_ROW, encode_row
from streamsink.format.schema import TableSchema

WHY_NOT_UTF8 = "column '{}': a partition value is not UTF-8 text, so that it names no folder"


class NotUtf8:
    """Stands for a text whose bytes are not UTF-8."""


@dataclass(frozen=True)
class PartitionKey:
    """A partition. row: its BinaryRow bytes, which identify it. values: as the format stores them, for its path."""

    row: bytes
    values: tuple[Any, ...]


def split_by_partition(
    batch: pa.RecordBatch, schema: TableSchema, table: str = ""
) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """The rows of each partition, of a batch that has the table's columns. Rows of one partition keep their order.

    table: its path, for messages. Raises Misuse ``partition.encoding`` for a text that is not UTF-8; the message does
    not contain the value.
    """
    if not schema.partition_keys:
        yield PartitionKey(EMPTY_ROW, ()), batch
        return
    columns = [batch.column(schema.field_names.index(name)) for name in schema.partition_keys]
    for first, rows in split_by_columns(batch, columns):
        yield _key(columns, first, schema, table), rows


def split_with_places(batch: pa.RecordBatch, schema: TableSchema) -> Iterator[tuple[PartitionKey, pa.Array]]:
    """As ``split_by_partition``, but with the indices of each partition's rows in the batch instead of the rows."""
    places = pa.RecordBatch.from_arrays([pa.array(range(batch.num_rows), pa.int64())], ["place"])
    columns = [batch.column(schema.field_names.index(name)) for name in schema.partition_keys]
    for first, rows in split_by_columns(places, columns):
        yield _key(columns, first, schema), rows.column(0)


def split_by_text(batch: pa.RecordBatch, column: str) -> Iterator[tuple[str | None | NotUtf8, pa.RecordBatch]]:
    """The rows of each value of a text column. Rows of one value keep their order.

    The value is None for nulls, and a NotUtf8 for a text that is not UTF-8.
    """
    texts = batch.column(column)
    for first, rows in split_by_columns(batch, [texts]):
        yield _text(texts[first]), rows


def not_utf8(column: pa.Array) -> list[int]:
    """Indices of the texts in a column that are not UTF-8. Arrow does not check a column that comes from elsewhere."""
    if not pa.types.is_string(column.type):
        return []
    held = column.cast(pa.binary())
    try:
        held.cast(pa.string())
        return []
    except pa.ArrowInvalid:
        return [place for place, text in enumerate(column) if isinstance(_text(text), NotUtf8)]


def _text(text: pa.Scalar) -> str | None | NotUtf8:
    try:
        return text.as_py()
    except UnicodeDecodeError:
        return NotUtf8()


def split_by_columns(batch: pa.RecordBatch, columns: list[pa.Array]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(index of its first row, its rows) for each combination of values in ``columns``."""
    codes = _codes(columns)
    if pc.count_distinct(codes).as_py() == 1:
        yield 0, batch
        return
    order = pc.sort_indices(codes)  # the sort is stable, so rows of one combination keep their order
    runs = pc.run_end_encode(codes.take(order))
    start = 0
    for end in runs.run_ends.to_pylist():
        # The rows are copied, since a slice that waits in a buffer would keep the whole batch in memory.
        yield order[start].as_py(), batch.take(order.slice(start, end - start))
        start = end


def _codes(columns: list[pa.Array]) -> pa.Array:
    """One integer for each row; two are equal exactly if all columns are equal (nulls are equal to each other)."""
    combined = None
    for column in columns:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        indices = encoded.indices.cast(pa.int64())
        if combined is not None:
            indices = pc.add(pc.multiply(combined, len(encoded.dictionary)), indices)
            # The codes are numbered again from 0, so that many columns cannot overflow.
            indices = pc.dictionary_encode(indices).indices.cast(pa.int64())
        combined = indices
    return combined


def _key(columns: list[pa.Array], row: int, schema: TableSchema, table: str = "") -> PartitionKey:
    fields = schema.partition_fields
    values = tuple(_physical(column[row], field.name, table) for column, field in zip(columns, fields))
    return PartitionKey(encode_row(values, [f.type for f in fields]), values)


def _physical(value: pa.Scalar, column: str, table: str) -> Any:
    try:
        return physical(value)
    except UnicodeDecodeError:
        raise Misuse(
            f"{table + ': ' if table else ''}{WHY_NOT_UTF8.format(column)}. Nothing was recorded. Say in the query "
            "what its bytes are, such as decode(value, 'ISO-8859-1'), filter such rows there (try_validate_utf8 makes "
            "null of them, from Spark 4), or name a table for them with dead_letters",
            kind="partition.encoding",
        ) from None  # the original message quotes a byte of the value
