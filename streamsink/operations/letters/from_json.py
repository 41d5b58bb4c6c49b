"""Rows of dead letters back from their JSON text, as ``table/routed/row_json.py`` has made it.

A value comes back in the type of its text (a number, a text, a truth value), and the writer's own exact casts bring it
to the table's type. So a replayed row is judged as a row of the query is.
"""

import base64
import datetime
import decimal
import json
import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.schema import TableSchema
from streamsink.format.type_model import INTEGER_ROOTS, ArrayType, AtomicType, DataType, MapType, RowType
from streamsink.format.types import DataField
from streamsink.table.routed.dead_letters import Screen
from streamsink.table.write.nested_nulls import loosened

_COUNTED = re.compile(r"(-?\d+) (days|s|ms|us|ns) since 1970-01-01")
_INT64 = range(-(2**63), 2**63)
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_BYTES, _REALS = ("BINARY", "VARBINARY"), ("FLOAT", "DOUBLE")
_MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ")


class Unfit(Exception):
    """A row that cannot be brought into the table's columns. Its text has no value."""


# A value with the Arrow type in which it comes back.
_Typed = tuple[Any, pa.DataType]


def decoded(
    texts: Sequence[str], schema: TableSchema, screen: Screen, always_bytes: frozenset[str]
) -> Iterator[tuple[Sequence[int], pa.RecordBatch | None, Mapping[int, str]]]:
    """Yield parts of these rows: (places of the rows that fit, these rows in the table's columns, {place: reason}).

    screen: of this schema. always_bytes: names of the columns that have held bytes under every schema: a text there is
    base64.
    """
    groups: dict[tuple[pa.DataType, ...], list[tuple[int, list[Any]]]] = defaultdict(list)
    unfit: dict[int, str] = {}
    arrow = {field.name: kind.type for field, kind in zip(schema.fields, to_arrow_schema(schema.fields))}
    for place, text in enumerate(texts):
        try:
            typed = _row(text, schema.fields, arrow, always_bytes)
        except Unfit as reason:
            unfit[place] = str(reason)
            continue
        groups[tuple(kind for _, kind in typed)].append((place, [value for value, _ in typed]))
    if unfit:
        yield (), None, unfit
    names = [field.name for field in schema.fields]
    for kinds, rows in groups.items():
        columns = [pa.array([values[at] for _, values in rows], kind) for at, kind in enumerate(kinds)]
        fitting, bad = screen(pa.RecordBatch.from_arrays(columns, names=names))
        refused = {each.index: each.reason for each in bad}
        places = [place for at, (place, _) in enumerate(rows) if at not in refused]
        yield places, fitting, {rows[at][0]: reason for at, reason in refused.items()}


def _row(
    text: str, fields: Sequence[DataField], arrow: Mapping[str, pa.DataType], always_bytes: frozenset[str]
) -> list[_Typed]:
    try:
        row = json.loads(text)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise Unfit("letter.text: the letter's row is no JSON object")
    extra = sorted(row.keys() - {field.name for field in fields})
    if extra:
        raise Unfit(f"letter.column: the table has no column '{extra[0]}'")
    return [_value(row.get(field.name), field, arrow[field.name], field.name in always_bytes) for field in fields]


def _value(value: Any, field: DataField, arrow: pa.DataType, is_bytes: bool) -> _Typed:
    if value is None:
        return None, loosened(arrow)
    if not isinstance(field.type, AtomicType):
        return _nested(value, field, loosened(arrow))
    root, found = field.type.root, None
    if isinstance(value, str):
        found = _of_text(value, field.name, root, arrow, is_bytes=is_bytes)
    elif isinstance(value, bool):
        found = (value, pa.bool_()) if root == "BOOLEAN" else None
    elif isinstance(value, int) and root in (*INTEGER_ROOTS, *_REALS, "DECIMAL"):
        is_short = value in _INT64
        found = (value, pa.int64()) if is_short else (str(value), pa.string()) if root not in _REALS else None
    elif isinstance(value, float) and (root == "DOUBLE" or root == "FLOAT" and _is_single(value)):
        found = value, pa.float64()
    if found is None:
        raise Unfit(f"letter.value: column '{field.name}' is {root}, and the letter has a value of another type for it")
    return found


def _of_text(value: str, name: str, root: str, arrow: pa.DataType, *, is_bytes: bool) -> _Typed | None:
    """A text as a value of this type; None where a text cannot be one."""
    if root in _REALS:
        return (_FLOATS[value], pa.float64()) if value in _FLOATS else None
    if root in _BYTES:
        return _bytes(value, name, is_bytes), pa.binary()
    if root == "TIME":
        return _time(value, name), pa.time64("us")
    counted = _COUNTED.fullmatch(value) if root in _MOMENTS else None
    if counted is not None and counted[2] == "days":
        return int(counted[1]), pa.date32()
    if counted is not None:
        return int(counted[1]), pa.timestamp(counted[2], arrow.tz if pa.types.is_timestamp(arrow) else None)
    known = (*INTEGER_ROOTS, *_MOMENTS, "CHAR", "VARCHAR", "DECIMAL", "BOOLEAN")
    return (value, pa.string()) if root in known else None


def _is_single(value: float) -> bool:
    """Whether a FLOAT holds exactly this number."""
    try:
        return not math.isfinite(value) or struct.unpack("f", struct.pack("f", value))[0] == value
    except OverflowError:
        return False


def _time(text: str, name: str) -> datetime.time:
    whole, _, fraction = text.partition(".")
    try:
        if fraction[6:].strip("0"):
            raise ValueError("nanoseconds")
        return datetime.time.fromisoformat(f"{whole}.{fraction[:6]:0<6}")
    except ValueError:
        raise Unfit(f"letter.value: column '{name}' is a TIME, and the letter's text is none") from None


def _bytes(text: str, name: str, is_bytes: bool) -> bytes:
    if not is_bytes:
        raise Unfit(
            f"letter.value: column '{name}' has not always held bytes, so whether this is base64 is not certain"
        )
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Unfit(f"letter.value: column '{name}' holds bytes, and the letter's text is no base64") from None


def _nested(value: Any, field: DataField, arrow: pa.DataType) -> _Typed:
    try:
        made = _python(value, field.type)
        pa.array([made], arrow)
    except (ValueError, TypeError, KeyError, AttributeError, decimal.DecimalException, pa.ArrowException, Unfit):
        raise Unfit(f"letter.value: column '{field.name}' has a value that is no {field.type}") from None
    return made, arrow


def _python(value: Any, kind: DataType) -> Any:
    """A value inside of a nested one, as Arrow takes it. Raises one of Python's errors for one of another type."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_python(each, kind.element) for each in _list(value)]
    if isinstance(kind, MapType):
        return [(_python(key, kind.key), _python(each, kind.value)) for key, each in _list(value)]
    if isinstance(kind, RowType):
        known = {field.name: field.type for field in kind.fields}
        return {name: _python(each, known[name]) for name, each in value.items()}
    if not isinstance(kind, AtomicType):
        raise TypeError(str(kind))
    return _atom(value, kind.root)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no array")
    return value


def _atom(value: Any, root: str) -> Any:
    if root in _REALS:
        return _FLOATS[value] if isinstance(value, str) else float(value)
    if root == "DECIMAL":
        return decimal.Decimal(value)
    if root == "DATE":
        return datetime.date.fromisoformat(value)
    if root == "TIME":
        return _time(value, "")
    if root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return _instant(value)
    if root in _BYTES:
        return base64.b64decode(value, validate=True)
    if isinstance(value, dict):
        raise TypeError("a text that is not UTF-8")
    return value


def _instant(text: str) -> datetime.datetime:
    """Raises ValueError for one with a part of nanoseconds, which Python's type cannot hold."""
    plain = text.removesuffix("Z")
    whole, _, fraction = plain.partition(".")
    if fraction[6:].strip("0"):
        raise ValueError("nanoseconds")
    moment = datetime.datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}")
    return moment.replace(tzinfo=datetime.timezone.utc) if text.endswith("Z") else moment
