"""The types of a table's columns: the values, the JSON of schema files, and the column lists that people write.

parse_ddl("id BIGINT NOT NULL, tags ARRAY<STRING>")  -> [DataField(-1, "id", ...), DataField(-1, "tags", ...)]
parse_type("DECIMAL(10, 2) NOT NULL")                -> AtomicType("DECIMAL", False, precision=10, scale=2)
type_to_json(...)                                    -> what Java Paimon writes into schema-N
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from streamsink.format.type_model import (
    BINARY_ROOTS,
    CHARACTER_ROOTS,
    FOREIGN_ROOTS,
    MAX_LENGTH,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    VectorType,
    is_nested,
    is_primitive,
)
from streamsink.format.type_parser import MAX_DEPTH, TypeParser, bad_type

__all__ = [
    "BINARY_ROOTS",
    "CHARACTER_ROOTS",
    "FOREIGN_ROOTS",
    "MAX_LENGTH",
    "TIMESTAMP_ROOTS",
    "ArrayType",
    "AtomicType",
    "DataField",
    "DataType",
    "MapType",
    "MultisetType",
    "RowType",
    "VectorType",
    "field_from_json",
    "field_to_json",
    "is_nested",
    "is_primitive",
    "parse_ddl",
    "parse_type",
    "type_to_json",
]


def parse_ddl(text: str) -> list[DataField]:
    """The columns of a list such as ``id BIGINT NOT NULL, name STRING COMMENT 'x'``, all with id -1.

    The spellings of Paimon and Flink SQL and of Spark DDL are accepted; a plain TIMESTAMP is Paimon's TIMESTAMP(6)
    without a time zone. Raises: Misuse ``schema.bad-type``.
    """
    return TypeParser(text).columns()


def parse_type(value: str | Mapping[str, Any], _depth: int = 0) -> DataType:
    """The type that a schema file describes with a string, or with an object if it is nested.

    Raises: Misuse ``schema.bad-type``.
    """
    if isinstance(value, str):
        return _type_of(value)
    if _depth > MAX_DEPTH:
        raise bad_type(f"a type is nested deeper than {MAX_DEPTH}")
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise bad_type(f"a type is a string or an object with 'type', found {type(value).__name__}")
    words = value["type"].upper().split()
    if len(words) not in (1, 2, 3) or words[1:] not in ([], ["NULL"], ["NOT", "NULL"]):
        raise bad_type(f"unknown nested type {value['type']!r}")
    root, nullable = words[0], words[1:] != ["NOT", "NULL"]
    try:
        return _nested_from_json(root, value, nullable, _depth + 1)
    except KeyError as missing:
        raise bad_type(f"a {root} type has no {missing}") from missing


@lru_cache(maxsize=1024)  # the schema of a table is read again and again, and types are frozen
def _type_of(text: str) -> DataType:
    return TypeParser(text).whole_type()


def _nested_from_json(root: str, value: Mapping[str, Any], nullable: bool, depth: int) -> DataType:
    if root == "ARRAY":
        return ArrayType(parse_type(value["element"], depth), nullable)
    if root == "MULTISET":
        return MultisetType(parse_type(value["element"], depth), nullable)
    if root == "VECTOR":
        return VectorType(parse_type(value["element"], depth), _integer(value["length"], "length"), nullable)
    if root == "MAP":
        return MapType(parse_type(value["key"], depth), parse_type(value["value"], depth), nullable)
    if root == "ROW":
        if not isinstance(value["fields"], list):
            raise bad_type("the fields of a ROW are a list")
        return RowType(tuple(field_from_json(f, depth) for f in value["fields"]), nullable)
    raise bad_type(f"unknown nested type {root!r}")


def field_from_json(value: Any, _depth: int = 0) -> DataField:
    """The field that an object of a schema file describes. Raises: Misuse ``schema.bad-type``."""
    if not isinstance(value, Mapping):
        raise bad_type("a field is an object")
    name, described, default = value.get("name"), value.get("description"), value.get("defaultValue")
    if not isinstance(name, str) or "type" not in value:
        raise bad_type("a field has no name or no type")
    if not isinstance(described, (str, type(None))) or not isinstance(default, (str, type(None))):
        raise bad_type(f"description or defaultValue of field {name!r} is not a string")
    return DataField(_integer(value.get("id"), "id"), name, parse_type(value["type"], _depth), described, default)


def _integer(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_type(f"{what} of a field or type is not an integer")
    return value


def field_to_json(field: DataField) -> dict[str, Any]:
    """The object of a schema file for this field, with its keys in Java's order."""
    out: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        out["description"] = field.description
    if field.default_value is not None:
        out["defaultValue"] = field.default_value
    return out


def type_to_json(t: DataType) -> str | dict[str, Any]:
    """What Java Paimon writes into a schema file for this type."""
    if isinstance(t, AtomicType):
        return str(t)
    suffix = "" if t.nullable else " NOT NULL"
    if isinstance(t, ArrayType):
        return {"type": "ARRAY" + suffix, "element": type_to_json(t.element)}
    if isinstance(t, MapType):
        return {"type": "MAP" + suffix, "key": type_to_json(t.key), "value": type_to_json(t.value)}
    if isinstance(t, RowType):
        return {"type": "ROW" + suffix, "fields": [field_to_json(f) for f in t.fields]}
    if isinstance(t, MultisetType):
        return {"type": "MULTISET" + suffix, "element": type_to_json(t.element)}
    if isinstance(t, VectorType):
        return {"type": "VECTOR" + suffix, "element": type_to_json(t.element), "length": t.length}
    raise bad_type(f"not a type: {t!r}")
