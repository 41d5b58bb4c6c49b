"""Which partition each row belongs to: a batch is split without looking at rows one by one."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamsink.format.binary_row import EMPTY_ROW, encode_row
from streamsink.format.schema import TableSchema


@dataclass(frozen=True)
class PartitionKey:
    """``row``: BinaryRow bytes, the identity of a partition. ``values``: Python values, for its path."""

    row: bytes
    values: tuple


def split_by_partition(batch: pa.RecordBatch, schema: TableSchema) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
    """Each partition's rows of a batch that has the table's columns. Rows of one partition keep their order."""
    if not schema.partition_keys:
        yield PartitionKey(EMPTY_ROW, ()), batch
        return
    columns = [batch.column(schema.field_names.index(name)) for name in schema.partition_keys]
    codes = _codes(columns)
    if (codes == codes[0]).all():
        yield _key(columns, 0, schema), batch
        return
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.concatenate(([0], np.nonzero(np.diff(ordered))[0] + 1, [len(ordered)]))
    sorted_batch = batch.take(pa.array(order))
    for start, end in zip(starts[:-1], starts[1:]):
        yield _key(columns, int(order[start]), schema), sorted_batch.slice(int(start), int(end - start))


def _codes(columns: list[pa.Array]) -> np.ndarray:
    """One integer a row; equal exactly where all partition columns are equal (nulls are equal to each other)."""
    combined = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        indices = pc.dictionary_encode(column, null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        combined = combined * (int(indices.max()) + 1) + indices
        # Keep the numbers small, so that many columns cannot overflow.
        combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return combined


def _key(columns: list[pa.Array], row: int, schema: TableSchema) -> PartitionKey:
    fields = schema.partition_fields
    values = tuple(_value(column, row) for column in columns)
    return PartitionKey(encode_row(values, [f.type for f in fields]), values)


def _value(column: pa.Array, row: int):
    scalar = column[row]
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and scalar.is_valid:
        return scalar.value  # nanoseconds since the epoch: datetime would lose the last three digits
    return scalar.as_py()
