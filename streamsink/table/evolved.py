"""Reading a file that was written with an older schema: columns are matched by field id, then by that schema's names."""

import pyarrow as pa

from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.schema import TableSchema
from streamsink.format.types import ArrayType, DataField, DataType, MapType, RowType


def evolve_table(found: pa.Table, written: TableSchema, wanted: TableSchema) -> pa.Table:
    """``found`` in the columns of ``wanted``: added columns are null, widened ones cast."""
    target = to_arrow_schema(wanted.fields)
    by_id = {field.id: field for field in written.fields}
    columns = []
    for field, arrow in zip(wanted.fields, target):
        old = by_id.get(field.id)
        if old is None or old.name not in found.column_names:
            columns.append(pa.nulls(found.num_rows, arrow.type))
            continue
        column = found.column(old.name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
        columns.append(_convert(column, old.type, field.type, arrow.type))
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
    return column.cast(arrow)


def _has_rows(kind: DataType) -> bool:
    if isinstance(kind, RowType):
        return True
    if isinstance(kind, ArrayType):
        return _has_rows(kind.element)
    return isinstance(kind, MapType) and (_has_rows(kind.value) or _has_rows(kind.key))
