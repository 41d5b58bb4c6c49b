"""Spark's types as Paimon's types and the reverse, and column names as SQL spells them. Runs on the driver."""

import re

from pyspark.sql import types as spark_types

from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.types import ArrayType, AtomicType, DataField, DataType, MapType, RowType

_IN_PAIMON = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BYTES",
    "date": "DATE",
}
_IN_SPARK = {
    "BOOLEAN": spark_types.BooleanType,
    "TINYINT": spark_types.ByteType,
    "SMALLINT": spark_types.ShortType,
    "INT": spark_types.IntegerType,
    "BIGINT": spark_types.LongType,
    "FLOAT": spark_types.FloatType,
    "DOUBLE": spark_types.DoubleType,
    "CHAR": spark_types.StringType,
    "VARCHAR": spark_types.StringType,
    "BINARY": spark_types.BinaryType,
    "VARBINARY": spark_types.BinaryType,
    "DATE": spark_types.DateType,
    "TIMESTAMP": spark_types.TimestampNTZType,
    "TIMESTAMP_LTZ": spark_types.TimestampType,
}
_CHAR = re.compile(r"(char|varchar)\((\d+)\)")
_TIME = re.compile(r"time\((\d)\)")
_NEW = -1


def quoted(name: str) -> str:
    """The column of this name in SQL and for ``F.col``. A dot or a backtick in the name has no special meaning then."""
    return "`" + name.replace("`", "``") + "`"


def to_fields(schema: spark_types.StructType) -> list[DataField]:
    """Return the columns of a DataFrame as fields of a new table, with the id -1.

    Raises Misuse, which names the column, for a type that Paimon lacks.
    """
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
    # Spark calls a string with a collation 'string collate ...'.
    if name.split(" ")[0] in _IN_PAIMON:
        return AtomicType(_IN_PAIMON[name.split(" ")[0]], nullable)
    raise Misuse(
        f"column '{column}' has the type {kind.simpleString()}, which a Paimon table cannot hold; cast it, for "
        "instance to STRING",
        kind="schema.unsupported-type",
    )


def to_spark(schema: TableSchema, table: str) -> spark_types.StructType:
    """Return the table's columns in Spark's types. table: the table's path, for messages.

    Raises Misuse, which names the column, for a type that Spark's Parquet reader lacks.
    """
    return _struct(schema.fields, table)


def _struct(fields: tuple[DataField, ...], table: str) -> spark_types.StructType:
    return spark_types.StructType(
        [spark_types.StructField(f.name, type_in_spark(f.type, f.name, table), f.type.nullable) for f in fields]
    )


def type_in_spark(kind: DataType, column: str, table: str) -> spark_types.DataType:
    """Return one type in Spark's types. column, table: for the message. Raises Misuse as ``to_spark`` does."""
    if isinstance(kind, RowType):
        return _struct(kind.fields, table)
    if isinstance(kind, ArrayType):
        return spark_types.ArrayType(type_in_spark(kind.element, column, table), kind.element.nullable)
    if isinstance(kind, MapType):
        value = type_in_spark(kind.value, column, table)
        return spark_types.MapType(type_in_spark(kind.key, column, table), value, kind.value.nullable)
    if isinstance(kind, AtomicType) and kind.root == "DECIMAL":
        return spark_types.DecimalType(kind.precision or 0, kind.scale or 0)
    if isinstance(kind, AtomicType) and kind.root in _IN_SPARK:
        return _IN_SPARK[kind.root]()
    raise Misuse(
        f"{table}: column '{column}' has the type {kind}, which Spark's Parquet reader cannot read; read the table "
        "with streamsink.read_arrow",
        kind="read.unsupported-type",
    )
