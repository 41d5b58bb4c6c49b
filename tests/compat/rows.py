"""Rows of every type as plain values that compare exactly, random ones too, and their way to and from Arrow.

A physical value is what ``format.values`` says: days, milliseconds of the day, nanoseconds since the epoch as integers;
ROWs are tuples, MAPs dicts.
"""

import decimal
import operator
import random

import pyarrow as pa

from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.types import ArrayType, AtomicType, DataField, DataType, MapType, RowType, parse_ddl

PRIMITIVES = """b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, c CHAR(5), v VARCHAR(100),
  st STRING, bi BINARY(3), vb VARBINARY(9), by BYTES, d1 DECIMAL(5,2), d2 DECIMAL(18,4), d3 DECIMAL(38,10), dt DATE,
  ti TIME(3), ts0 TIMESTAMP(0), ts3 TIMESTAMP(3), ts6 TIMESTAMP(6), lt0 TIMESTAMP_LTZ(0), lt3 TIMESTAMP_LTZ(3),
  lt6 TIMESTAMP_LTZ(6)"""
NANOS = "ts7 TIMESTAMP(7), ts9 TIMESTAMP(9), lt9 TIMESTAMP_LTZ(9)"
NESTED = """a ARRAY<INT>, aa ARRAY<ARRAY<STRING>>, ad ARRAY<DECIMAL(20,3)>, at ARRAY<TIMESTAMP(6)>,
  m MAP<STRING, BIGINT>, ma MAP<INT, ARRAY<DOUBLE>>, mr MAP<STRING, ROW<k INT, v MAP<INT, STRING>>>,
  r ROW<x INT, y STRING>, rr ROW<x INT, y ROW<z STRING, w ARRAY<INT>>>, ar ARRAY<ROW<p INT, q DATE>>"""

_TEXTS = ("", " ", "a", "abc", "\u00e9t\u00e9", "\U0001f600", "\u4e2d\u6587", "a\nb", "'q\"", "%_")
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_UNIT_NANOS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_EXACT = decimal.Context(prec=50)


def columns(ddl: str) -> list[DataField]:
    """The fields of DDL text."""
    return parse_ddl(ddl)


def random_rows(rng: random.Random, fields, count: int, null_share: float = 0.2) -> list[tuple]:
    """Random physical rows; the first one has nulls wherever the type allows."""
    rows = [tuple(random_value(rng, f.type, 1.0) for f in fields)]
    return rows + [tuple(random_value(rng, f.type, null_share) for f in fields) for _ in range(count - 1)]


def random_value(rng: random.Random, t: DataType, null_share: float):
    """One physical value of the type, edges included."""
    if t.nullable and rng.random() < null_share:
        return None
    if isinstance(t, ArrayType):
        return [random_value(rng, t.element, null_share) for _ in range(rng.randrange(4))]
    if isinstance(t, MapType):
        keys = [random_value(rng, t.key, 0.0) for _ in range(rng.randrange(4))]
        return {key: random_value(rng, t.value, null_share) for key in keys}
    if isinstance(t, RowType):
        return tuple(random_value(rng, f.type, null_share) for f in t.fields)
    return _random_atom(rng, t)


def _random_atom(rng: random.Random, t: AtomicType):
    root = t.root
    if root == "BOOLEAN":
        return rng.random() < 0.5
    if root in _BITS:
        top = 2 ** (_BITS[root] - 1)
        return rng.choice([-top, top - 1, 0, rng.randrange(-top, top), rng.randrange(-9, 9)])
    if root in ("FLOAT", "DOUBLE"):
        return rng.choice([0.0, 1.5, -2.25, 1024.0, float("inf"), -float("inf"), rng.randrange(-999, 999) / 8])
    if root in ("CHAR", "VARCHAR"):
        text = rng.choice(_TEXTS) * (1 if (t.length or 0) < 100 else rng.choice([1, 1, 9]))
        return text[: t.length]
    if root in ("BINARY", "VARBINARY"):
        size = t.length if root == "BINARY" else rng.randrange(min(t.length, 20))
        return bytes(rng.randrange(256) for _ in range(size))
    if root == "DECIMAL":
        top = 10**t.precision
        return decimal.Decimal(rng.choice([top - 1, 1 - top, 0, rng.randrange(-top + 1, top)])).scaleb(-t.scale, _EXACT)
    if root == "DATE":
        return rng.choice([0, -1, 19724, rng.randrange(-100_000, 100_000), -719162, 2932896])
    if root == "TIME":
        return rng.choice([0, 86_399_999, rng.randrange(86_400_000)])
    step = 10 ** (9 - (t.precision or 0))
    # Only what fits into 64 bits of nanoseconds: pypaimon wraps INT96 beyond that.
    far = [9_223_372_036 * 10**9, -9_223_372_036 * 10**9]
    nanos = rng.choice([0, 1_704_164_645_123_456_789, rng.randrange(2**60), -1, -rng.randrange(2**60), *far])
    return nanos // step * step


def to_arrow(rows: list[tuple], fields) -> pa.Table:
    """The rows as Arrow data in the types of a data file."""
    schema = to_arrow_schema(fields)
    arrays = [pa.array([_given(row[i], f.type) for row in rows], schema.field(i).type) for i, f in enumerate(fields)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _given(value, t: DataType):
    """What pa.array takes for a physical value."""
    if value is None:
        return None
    if isinstance(t, ArrayType):
        return [_given(v, t.element) for v in value]
    if isinstance(t, MapType):
        return [(_given(k, t.key), _given(v, t.value)) for k, v in value.items()]
    if isinstance(t, RowType):
        return {f.name: _given(v, f.type) for f, v in zip(t.fields, value)}
    if t.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        unit = "ms" if t.precision <= 3 else "us" if t.precision <= 6 else "ns"
        return value // _UNIT_NANOS[unit]
    return value


def from_arrow(table: pa.Table) -> list[tuple]:
    """Physical rows of Arrow data, whoever made it."""
    held = [[_physical(v) for v in column] for column in table.columns]
    return list(zip(*held)) if held else [()] * table.num_rows


def _physical(scalar: pa.Scalar):
    if not scalar.is_valid:
        return None
    t = scalar.type
    if pa.types.is_timestamp(t):
        return scalar.value * _UNIT_NANOS[t.unit]
    if pa.types.is_date32(t):
        return scalar.value
    if pa.types.is_time(t):
        return scalar.value * _UNIT_NANOS[t.unit] // 10**6
    if pa.types.is_map(t):
        return {_physical(pair["key"]): _physical(pair["value"]) for pair in _pairs(scalar)}
    if pa.types.is_struct(t):
        return tuple(_physical(scalar[i]) for i in range(t.num_fields))
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [_physical(v) for v in scalar.values]
    return scalar.as_py()


def _pairs(scalar):
    for pair in scalar.values:
        yield {"key": pair[0], "value": pair[1]}


def canonical(rows) -> list[str]:
    """One text a row, sorted: equal lists mean equal bags of rows."""
    return sorted(repr(tuple(row)) for row in rows)


def assert_same(found, expected) -> None:
    """Check that both are the same bag of rows; show only the first differences."""
    left, right = canonical(found), canonical(expected)
    if left == right:
        return
    extra = [row for row in left if row not in right][:2]
    gone = [row for row in right if row not in left][:2]
    message = f"{len(left)} rows found, {len(right)} expected\nnot expected: {extra}\nmissing: {gone}"
    raise AssertionError(message[:2000])


_COMPARE = {
    "equal": operator.eq,
    "greater_than": operator.gt,
    "less_than": operator.lt,
    "greater_or_equal": operator.ge,
    "less_or_equal": operator.le,
    "not_equal": operator.ne,
}


def matching(rows, fields, where) -> list[tuple]:
    """The rows for which every (function, column, value) holds, by SQL's rules: a null compares to nothing."""
    names = [f.name for f in fields]

    def holds(row):
        for function, column, value in where:
            found = row[names.index(column)]
            if function == "is_null":
                if found is not None:
                    return False
            elif function == "is_not_null":
                if found is None:
                    return False
            elif found is None or not _COMPARE[function](found, value):
                return False
        return True

    return [row for row in rows if holds(row)]


def project(rows, fields, names) -> list[tuple]:
    """The named columns of the rows, in that order."""
    at = [[f.name for f in fields].index(name) for name in names]
    return [tuple(row[i] for i in at) for row in rows]
