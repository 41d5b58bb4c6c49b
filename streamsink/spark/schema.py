"""Spark's schema in Paimon's types, and Spark's spelling of a column's name. DRIVER."""

import re

from pyspark.sql import types as spark_types

from streamsink.errors import Misuse
from streamsink.format.types import ArrayType, AtomicType, DataField, DataType, MapType, RowType

_PLAIN = {
    "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "STRING", "binary": "BYTES", "date": "DATE",
}
_CHAR = re.compile(r"(char|varchar)\((\d+)\)")
_TIME = re.compile(r"time\((\d)\)")
_NEW = -1


def quoted(name: str) -> str:
    """The column of this name in SQL, and for ``F.col``: a dot or a backtick in it is a plain letter."""
    return "`" + name.replace("`", "``") + "`"


def to_fields(schema: spark_types.StructType) -> list[DataField]:
    """Columns of a DataFrame as fields of a new table. Raises Misuse that names a column of a type Paimon lacks."""
    return [DataField(_NEW, f.name, _type(f.dataType, f.nullable, f.name, _char(f))) for f in schema.fields]


def _char(field: spark_types.StructField) -> str | None:
    return (field.metadata or {}).get("__CHAR_VARCHAR_TYPE_STRING")


def _type(kind: spark_types.DataType, nullable: bool, column: str, char: str | None = None) -> DataType:
    if isinstance(kind, spark_types.ArrayType):
        return ArrayType(_type(kind.elementType, kind.containsNull, f"{column}.element"), nullable)
    if isinstance(kind, spark_types.MapType):
        key = _type(kind.keyType, False, f"{column}.key")
        return MapType(key, _type(kind.valueType, kind.valueContainsNull, f"{column}.value"), nullable)
    if isinstance(kind, spark_types.StructType):
        fields = (DataField(_NEW, f.name, _type(f.dataType, f.nullable, f"{column}.{f.name}")) for f in kind.fields)
        return RowType(tuple(fields), nullable)
    if isinstance(kind, spark_types.DecimalType):
        return AtomicType("DECIMAL", nullable, precision=kind.precision, scale=kind.scale)
    return _atomic(kind, nullable, column, char)


def _atomic(kind: spark_types.DataType, nullable: bool, column: str, char: str | None) -> DataType:
    name = char or kind.simpleString() if kind.typeName() in ("char", "varchar") or char else kind.typeName()
    limited = _CHAR.fullmatch(name)
    if limited:
        return AtomicType(limited[1].upper(), nullable, length=int(limited[2]))
    if name == "timestamp":
        return AtomicType("TIMESTAMP_LTZ", nullable, precision=6)
    if name == "timestamp_ntz":
        return AtomicType("TIMESTAMP", nullable, precision=6)
    time = _TIME.fullmatch(kind.simpleString())
    if time:
        return AtomicType("TIME", nullable, precision=int(time[1]))
    if name.split(" ")[0] in _PLAIN:  # a collated string is 'string collate ...'
        return AtomicType(_PLAIN[name.split(" ")[0]], nullable)
    raise Misuse(
        f"column '{column}' has the type {kind.simpleString()}, which a Paimon table cannot hold; cast it, for instance "
        "to STRING",
        kind="schema.unsupported-type",
    )
