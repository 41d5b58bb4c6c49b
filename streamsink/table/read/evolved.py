"""Reads files that were written with an older schema. Columns are matched by field id, then by that schema's names."""

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.evolution import widens
from streamsink.format.schema import TableSchema
from streamsink.format.type_model import INTEGER_ROOTS, MAX_LENGTH
from streamsink.format.types import TIMESTAMP_ROOTS, ArrayType, AtomicType, DataField, DataType, MapType, RowType

_FROM_INTEGER = ("FLOAT", "DOUBLE")


def check_casts(written: TableSchema, wanted: TableSchema, table: str) -> None:
    """Raises Misuse, naming the column, when an older type cannot be read as the newest one exactly as Java does it.

    Java allows type changes that this library never makes itself, such as to a narrower type.
    """
    by_id = {field.id: field for field in written.fields}
    for field in wanted.fields:
        if field.id in by_id and not _castable(by_id[field.id].type, field.type):
            raise Misuse(
                f"{table}: column '{field.name}' was of type {by_id[field.id].type} in schema {written.id} and is "
                f"{field.type} now; files of schema {written.id} cannot be read here. Compact the table with Paimon",
                kind="read.unsupported-cast",
            )


def _castable(old: DataType, new: DataType) -> bool:
    if isinstance(old, RowType) and isinstance(new, RowType):
        by_id = {field.id: field.type for field in old.fields}
        return all(_castable(by_id[f.id], f.type) for f in new.fields if f.id in by_id)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _castable(old.element, new.element)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return _castable(old.key, new.key) and _castable(old.value, new.value)
    if not isinstance(old, AtomicType) or not isinstance(new, AtomicType):
        return False
    if old.as_nullable(True) == new.as_nullable(True) or widens(old, new):
        return True
    if old.root in INTEGER_ROOTS:
        return new.root in _FROM_INTEGER or (new.root == "VARCHAR" and new.length == MAX_LENGTH)
    return old.root == new.root and old.root in TIMESTAMP_ROOTS and (old.precision or 0) < (new.precision or 0)


def evolve_table(found: pa.Table, written: TableSchema, wanted: TableSchema) -> pa.Table:
    """The rows of ``found`` in the columns of ``wanted``: added columns are null, and widened ones are cast."""
    target = to_arrow_schema(wanted.fields)
    by_id = {field.id: field for field in written.fields}
    columns = []
    for field, arrow in zip(wanted.fields, target):
        old = by_id.get(field.id)
        if old is None:
            columns.append(pa.nulls(found.num_rows, arrow.type))
            continue
        column = found.column(old.name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
        try:
            columns.append(_convert(column, old.type, field.type, arrow.type))
        except pa.ArrowInvalid:
            raise Misuse(
                f"column '{field.name}': a value of type {old.type} cannot be read as {field.type}", kind="read.cast"
            ) from None  # Arrow's own message quotes the value
    return pa.Table.from_arrays(columns, schema=target)


def _convert(column: pa.Array, old: DataType, new: DataType, arrow: pa.DataType) -> pa.Array:
    if isinstance(new, RowType) and isinstance(old, RowType):
        by_id: dict[int, tuple[int, DataField]] = {f.id: (i, f) for i, f in enumerate(old.fields)}
        children = []
        for i, field in enumerate(new.fields):
            child = arrow.field(i)
            if field.id in by_id:
                position, before = by_id[field.id]
                children.append(_convert(column.field(position), before.type, field.type, child.type))
            else:
                children.append(pa.nulls(len(column), child.type))
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=column.is_null())
    if isinstance(new, ArrayType) and isinstance(old, ArrayType) and _has_rows(new):
        values = _convert(column.values, old.element, new.element, arrow.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=arrow, mask=column.is_null())
    if isinstance(new, MapType) and isinstance(old, MapType) and _has_rows(new):
        values = _convert(column.items, old.value, new.value, arrow.item_type)
        keys = _convert(column.keys, old.key, new.key, arrow.key_type)
        return pa.MapArray.from_arrays(column.offsets, keys, values, type=arrow, mask=column.is_null())
    # An integer above 2**53 becomes the nearest double, as in Java.
    return column.cast(arrow, safe=not (pa.types.is_integer(column.type) and pa.types.is_floating(arrow)))


def _has_rows(kind: DataType) -> bool:
    if isinstance(kind, RowType):
        return True
    if isinstance(kind, ArrayType):
        return _has_rows(kind.element)
    return isinstance(kind, MapType) and (_has_rows(kind.value) or _has_rows(kind.key))
