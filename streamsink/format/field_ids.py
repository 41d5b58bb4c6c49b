"""The ids of fields within a Parquet file, as Paimon's Java writer gives them; see Paimon's ``SpecialFields``.

A reader that knows columns by their ids, as Iceberg's do, needs them in the file. A field of a ROW has an id of its own
in the table's schema. An element of an array, and a key or value of a map, has one that follows from the column, and
from how deep it lies in it.
"""

from collections.abc import Sequence

import pyarrow as pa

from streamsink.format.iceberg_types import element_id, key_id, value_id
from streamsink.format.types import ArrayType, DataField, DataType, MapType, RowType

_KEY = b"PARQUET:field_id"


def with_field_ids(schema: pa.Schema, fields: Sequence[DataField]) -> pa.Schema:
    """The Arrow schema of these columns, with the ids that Arrow's writer then puts into the file."""
    return pa.schema([_named(arrow, field) for arrow, field in zip(schema, fields)])


def _named(arrow: pa.Field, field: DataField) -> pa.Field:
    return _marked(arrow.with_type(_typed(arrow.type, field.type, field.id, 0)), field.id)


def _marked(arrow: pa.Field, number: int) -> pa.Field:
    return arrow.with_metadata({_KEY: str(number).encode()})


def _typed(arrow: pa.DataType, t: DataType, field_id: int, depth: int) -> pa.DataType:
    inner = depth + 1
    if isinstance(t, RowType):
        return pa.struct([_named(arrow.field(number), part) for number, part in enumerate(t.fields)])
    if isinstance(t, ArrayType):
        element = arrow.value_field.with_type(_typed(arrow.value_type, t.element, field_id, inner))
        return pa.list_(_marked(element, element_id(field_id, inner)))
    if isinstance(t, MapType):
        key = arrow.key_field.with_type(_typed(arrow.key_type, t.key, field_id, inner))
        value = arrow.item_field.with_type(_typed(arrow.item_type, t.value, field_id, inner))
        return pa.map_(_marked(key, key_id(field_id, inner)), _marked(value, value_id(field_id, inner)))
    return arrow
