"""What a table's schema is in Iceberg's metadata: types, field ids, and the partition spec.

As Paimon's ``IcebergSchema`` and ``IcebergDataField``. The ids of fields are Paimon's own; the elements of arrays, and
the keys and values of maps, get ids of which Paimon's schema does not speak (``SpecialFields``).
"""

from typing import Any

from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.types import TIMESTAMP_ROOTS, ArrayType, AtomicType, DataField, DataType, MapType, RowType

SPEC_ID, ORDER_ID = 0, 0
#: The id of the first partition field; the others follow.
FIRST_PARTITION_ID = 1000
#: root of a type -> its name in Iceberg's metadata, which is Avro's name as well, but for DATE and for bytes
PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "CHAR": "string",
    "VARCHAR": "string",
    "BINARY": "binary",
    "VARBINARY": "binary",
}
_TIMES = {"TIMESTAMP": "timestamp", "TIMESTAMP_LTZ": "timestamptz"}
_LEAST_PRECISION, _MOST_PRECISION = 3, 6
_BASE, _DEPTHS = (2**31 - 1) // 4, 1 << 10


def element_id(field_id: int, depth: int) -> int:
    """Of the elements of an array. depth: 1 in the column itself, and one more in each array or map."""
    return _BASE + field_id * _DEPTHS + depth


def key_id(field_id: int, depth: int) -> int:
    """Of the keys of a map. depth: as above."""
    return _BASE - field_id * _DEPTHS - depth


def value_id(field_id: int, depth: int) -> int:
    """Of the values of a map. depth: as above."""
    return element_id(field_id, depth)


def check_types(schema: TableSchema) -> None:
    """Raises Misuse ``table.unsupported-column`` for the first column that Iceberg's metadata cannot describe."""
    for field in schema.fields:
        iceberg_type(field.type, field.id, field.name)


def iceberg_schema(schema: TableSchema) -> dict[str, Any]:
    """The schema as Iceberg's metadata has it. Raises as ``check_types``."""
    return {"type": "struct", "schema-id": schema.id, "fields": [_field(field, field.name) for field in schema.fields]}


def partition_spec(schema: TableSchema) -> list[dict[str, Any]]:
    """The fields of the only partition spec: each partition column as it is."""
    return [
        {"name": field.name, "transform": "identity", "source-id": field.id, "field-id": FIRST_PARTITION_ID + number}
        for number, field in enumerate(schema.partition_fields)
    ]


def iceberg_type(t: DataType, field_id: int, column: str, depth: int = 0) -> Any:
    """The type as JSON. field_id, depth: of the field that the type is a part of. Raises as ``check_types``."""
    if isinstance(t, AtomicType):
        return _atomic(t, column)
    if isinstance(t, RowType):
        return {"type": "struct", "fields": [_field(part, f"{column}.{part.name}") for part in t.fields]}
    inner = depth + 1
    if isinstance(t, ArrayType):
        return {
            "type": "list",
            "element-id": element_id(field_id, inner),
            "element-required": not t.element.nullable,
            "element": iceberg_type(t.element, field_id, column, inner),
        }
    if isinstance(t, MapType):
        return {
            "type": "map",
            "key-id": key_id(field_id, inner),
            "key": iceberg_type(t.key, field_id, column, inner),
            "value-id": value_id(field_id, inner),
            "value-required": not t.value.nullable,
            "value": iceberg_type(t.value, field_id, column, inner),
        }
    raise _refused(t, column)


def _field(field: DataField, column: str) -> dict[str, Any]:
    made = {
        "id": field.id,
        "name": field.name,
        "required": not field.type.nullable,
        "type": iceberg_type(field.type, field.id, column),
    }
    return made if field.description is None else {**made, "doc": field.description}


def _atomic(t: AtomicType, column: str) -> str:
    if t.root in PLAIN:
        return PLAIN[t.root]
    if t.root == "DECIMAL":
        return f"decimal({t.precision}, {t.scale})"
    if t.root in TIMESTAMP_ROOTS and _LEAST_PRECISION <= (t.precision or 0) <= _MOST_PRECISION:
        return _TIMES[t.root]
    raise _refused(t, column)


def _refused(t: DataType, column: str) -> Misuse:
    return Misuse(
        f"column {column!r} has a part of type {t}, which Iceberg's metadata of format version 2 cannot describe as "
        "Paimon's writer does (timestamps of precision 3 to 6, and no TIME): cast the column, or leave out the table's "
        "option 'metadata.iceberg.storage'",
        kind="table.unsupported-column",
    )


def is_described(schema: TableSchema) -> bool:
    """Whether Iceberg's metadata can have the schema."""
    try:
        check_types(schema)
    except Misuse:
        return False
    return True


def changed_type(earlier: TableSchema, current: TableSchema) -> str:
    """The first column that readers of Iceberg cannot read from files of the earlier schema, in words; '' if none.

    They widen INT to BIGINT, FLOAT to DOUBLE and the precision of a DECIMAL. Paimon's programs allow more, such as INT
    to STRING; then bounds of the old type would be compared with values of the new one, and rows would be missed.
    """
    fields = {field.id: field for field in current.fields}
    for old in earlier.fields:
        new = fields.get(old.id)
        if new is not None and not _reads(old.type, new.type):
            return f"column {new.name!r} was of type {old.type} and is of type {new.type}"
    return ""


def _reads(old: DataType, new: DataType) -> bool:
    if isinstance(old, RowType) and isinstance(new, RowType):
        parts = {part.id: part.type for part in new.fields}
        return all(_reads(part.type, parts[part.id]) for part in old.fields if part.id in parts)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _reads(old.element, new.element)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return _reads(old.key, new.key) and _reads(old.value, new.value)
    if not isinstance(old, AtomicType) or not isinstance(new, AtomicType):
        return False
    if old.root == new.root == "DECIMAL":
        return old.scale == new.scale and (old.precision or 0) <= (new.precision or 0)
    if old.root == new.root:
        return True
    kinds = PLAIN.get(old.root), PLAIN.get(new.root)
    return kinds[0] is not None and (kinds[0] == kinds[1] or kinds in (("int", "long"), ("float", "double")))
