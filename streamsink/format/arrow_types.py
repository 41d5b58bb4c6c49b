"""Converts between Paimon types and Arrow types, and Arrow values to what the format stores for them."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.format.types import TIMESTAMP_ROOTS, ArrayType, AtomicType, DataField, DataType, MapType, RowType

_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "TIME": pa.time32("ms"),
}
_FROM_PLAIN = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.string_view(): "STRING",
    pa.binary(): "BYTES",
    pa.large_binary(): "BYTES",
    pa.binary_view(): "BYTES",
}
# Earlier versions of pyarrow do not know an argument with which files are written, and write some times within lists as
# others.
LEAST_ARROW = 23
_UNIT_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}


def to_arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    """The Arrow schema of the batches of a data file with these columns.

    Raises: Misuse ``schema.unsupported-type``, which names the column.
    """
    return pa.schema([pa.field(f.name, to_arrow_type(f.type, f.name), f.type.nullable) for f in fields])


def to_arrow_type(t: DataType, column: str) -> pa.DataType:
    """The Arrow type for a Paimon type; ``column`` is the name for the error message.

    Raises: Misuse ``schema.unsupported-type`` if there is none.
    """
    if isinstance(t, ArrayType):
        return pa.list_(pa.field("element", to_arrow_type(t.element, column), t.element.nullable))
    if isinstance(t, MapType):
        # The keys of Arrow maps and of Parquet maps are never null.
        return pa.map_(
            pa.field("key", to_arrow_type(t.key, column), False),
            pa.field("value", to_arrow_type(t.value, column), t.value.nullable),
        )
    if isinstance(t, RowType):
        return pa.struct(
            [pa.field(f.name, to_arrow_type(f.type, f"{column}.{f.name}"), f.type.nullable) for f in t.fields]
        )
    if isinstance(t, AtomicType):
        if t.root in _PLAIN:
            return _PLAIN[t.root]
        if t.root == "DECIMAL":
            return pa.decimal128(t.precision, t.scale)
        if t.root in TIMESTAMP_ROOTS:
            precision = t.precision or 0
            unit = "ms" if precision <= 3 else "us" if precision <= 6 else "ns"
            return pa.timestamp(unit, tz="UTC" if t.root == "TIMESTAMP_LTZ" else None)
    raise Misuse(f"column {column!r}: type {t} is not supported by this writer", kind="schema.unsupported-type")


def physical(scalar: pa.Scalar) -> Any:
    """What the format stores for a value of a plain type, as in ``values.py``; None for a null.

    Dates, times and timestamps become numbers, so any year can be represented.
    """
    t = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(t):
        return scalar.value * _UNIT_NANOS[t.unit]
    if pa.types.is_date32(t) or pa.types.is_time32(t):
        return scalar.value
    return scalar.as_py()


def from_arrow_schema(schema: pa.Schema) -> list[DataField]:
    """The columns of an Arrow schema, all with id -1.

    Timestamps with a time zone, whichever it is, are instants and become TIMESTAMP_LTZ. Raises: Misuse
    ``schema.unsupported-type``, which names the column.
    """
    return [DataField(-1, f.name, from_arrow_type(f.type, f.nullable, f.name)) for f in schema]


def from_arrow_type(t: pa.DataType, nullable: bool, column: str) -> DataType:
    """The Paimon type for an Arrow type. Raises: Misuse ``schema.unsupported-type``, which names the column."""
    if t in _FROM_PLAIN:
        return AtomicType(_FROM_PLAIN[t], nullable)
    if pa.types.is_dictionary(t) or pa.types.is_run_end_encoded(t):
        return from_arrow_type(t.value_type, nullable, column)
    if pa.types.is_timestamp(t):
        root = "TIMESTAMP" if t.tz is None else "TIMESTAMP_LTZ"
        return AtomicType(root, nullable, precision=_UNIT_PRECISION[t.unit])
    if pa.types.is_time32(t):
        return AtomicType("TIME", nullable, precision=_UNIT_PRECISION[t.unit])
    if pa.types.is_fixed_size_binary(t) and t.byte_width > 0:
        return AtomicType("BINARY", nullable, length=t.byte_width)
    if pa.types.is_decimal(t) and t.precision <= 38 and 0 <= t.scale <= t.precision:
        return AtomicType("DECIMAL", nullable, precision=t.precision, scale=t.scale)
    if pa.types.is_map(t):
        return MapType(
            from_arrow_type(t.key_type, False, column),
            from_arrow_type(t.item_type, t.item_field.nullable, column),
            nullable,
        )
    if _is_list(t):
        return ArrayType(from_arrow_type(t.value_type, t.value_field.nullable, column), nullable)
    if pa.types.is_struct(t) and t.num_fields:
        return RowType(
            tuple(DataField(-1, f.name, from_arrow_type(f.type, f.nullable, f"{column}.{f.name}")) for f in t.fields),
            nullable,
        )
    hint = ""
    if pa.types.is_unsigned_integer(t):
        hint = "; Paimon has no unsigned integers: cast it to a larger signed type"
    elif pa.types.is_time64(t):
        hint = "; Paimon keeps times in milliseconds: cast it to time32[ms]"
    raise Misuse(f"column {column!r}: Arrow type {t} has no Paimon type{hint}", kind="schema.unsupported-type")


def _is_list(t: pa.DataType) -> bool:
    checks = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return any(getattr(pa.types, check)(t) for check in checks if hasattr(pa.types, check))


def needs_int96(fields: Sequence[DataField]) -> bool:
    """Whether any of these columns is, or contains, a timestamp with a precision above 6.

    A file with such a column must be written with INT96 timestamps: released Java readers return garbage for INT64
    nanoseconds.
    """
    return any(_has_nanos(f.type) for f in fields)


def _has_nanos(t: DataType) -> bool:
    if isinstance(t, AtomicType):
        return t.root in TIMESTAMP_ROOTS and (t.precision or 0) > 6
    if isinstance(t, ArrayType):
        return _has_nanos(t.element)
    if isinstance(t, MapType):
        return _has_nanos(t.key) or _has_nanos(t.value)
    return isinstance(t, RowType) and needs_int96(t.fields)


def leaf_arrays(values: pa.Array) -> Iterator[pa.Array]:
    """The values at each place where a nested array has some, at any depth, in the order of a Parquet file's columns.

    Those below a null, or outside of a slice, may be among them.
    """
    kind = values.type
    if not pa.types.is_nested(kind):
        yield values
    elif pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            yield from leaf_arrays(values.field(place))
    elif pa.types.is_map(kind):
        yield from leaf_arrays(values.keys)
        yield from leaf_arrays(values.items)
    else:
        yield from leaf_arrays(values.values)


def check_arrow(where: str) -> None:
    """Raises Misuse when the pyarrow of this Python is too old; each machine has its own.

    where: the path that is written, for the message.
    """
    if int(pa.__version__.partition(".")[0]) < LEAST_ARROW:
        raise Misuse(
            f"{where}: pyarrow {pa.__version__} of {sys.executable} on {os.uname().nodename} is too old, expected "
            f"{LEAST_ARROW} or later. Nothing was written. Run {sys.executable} -m pip install "
            f"'pyarrow>={LEAST_ARROW}' there; the driver and each executor have a Python of their own "
            "(spark.pyspark.python). Then start it again",
            kind="pyarrow.version",
        )
