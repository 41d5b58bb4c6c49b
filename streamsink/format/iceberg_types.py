"""What a table's schema is in Iceberg's metadata: types, field ids, the partition spec, and the mapping of names.

As Paimon's ``IcebergSchema`` and ``IcebergDataField``. The ids of fields are Paimon's own; the elements of arrays, and
the keys and values of maps, get ids of which Paimon's schema does not speak (``SpecialFields``).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.types import TIMESTAMP_ROOTS, ArrayType, AtomicType, DataField, DataType, MapType, RowType

SPEC_ID, ORDER_ID = 0, 0
#: The id of the first partition field; the others follow.
FIRST_PARTITION_ID = 1000
_PLAIN = {
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
    if t.root in _PLAIN:
        return _PLAIN[t.root]
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


def name_mapping(current: TableSchema, without_ids: Iterable[TableSchema]) -> list[dict[str, Any]]:
    """By which name a field is found in data files that say no field ids.

    without_ids: schemas with which such files may have been written. A field has the names of all of them, and that of
    the newest schema. Raises Misuse ``table.unsupported-column`` where a name stood for another field.
    """
    names: dict[int, list[str]] = {}
    for schema in (current, *without_ids):
        for field in schema.fields:
            names.setdefault(field.id, [])
            if field.name not in names[field.id]:
                names[field.id].append(field.name)
    fields = {field.id: field for field in current.fields}
    owners: dict[str, int] = {}
    for number, known in names.items():
        for name in known:
            if owners.setdefault(name, number) != number:
                raise Misuse(
                    f"column {name!r}: an earlier schema had another column of this name, and files of it say no field "
                    "ids, so that readers of Iceberg's metadata would take one for the other. ALTER TABLE in Spark or "
                    "Flink gives a column another name",
                    kind="table.unsupported-column",
                )
    return [_mapped(fields[number], known) for number, known in names.items() if number in fields]


def _mapped(field: DataField, names: Sequence[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"field-id": field.id, "names": list(names)}
    parts = _mapped_parts(field.type, field.id, 0)
    return {**made, "fields": parts} if parts else made


def _mapped_parts(t: DataType, field_id: int, depth: int) -> list[dict[str, Any]]:
    if isinstance(t, RowType):
        return [_mapped(part, [part.name]) for part in t.fields]
    if isinstance(t, ArrayType):
        return [_part(element_id(field_id, depth + 1), "element", t.element, field_id, depth + 1)]
    if isinstance(t, MapType):
        return [
            _part(key_id(field_id, depth + 1), "key", t.key, field_id, depth + 1),
            _part(value_id(field_id, depth + 1), "value", t.value, field_id, depth + 1),
        ]
    return []


def _part(own: int, name: str, t: DataType, field_id: int, depth: int) -> dict[str, Any]:
    parts = _mapped_parts(t, field_id, depth)
    return {"field-id": own, "names": [name]} | ({"fields": parts} if parts else {})
