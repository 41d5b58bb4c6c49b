"""Rows of dead letters back from their JSON text, as ``table/routed/row_json.py`` has made it.

A value comes back in the type of its text (a number, a text, a truth value, bytes), also one inside of a list, and the
writer's own exact casts bring it to the table's type. So a replayed row is judged as a row of the query is.
"""

import base64
import datetime
import json
import math
import re
import struct
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.schema import TableSchema
from streamsink.format.type_model import INTEGER_ROOTS, ArrayType, AtomicType, DataType, MapType, RowType
from streamsink.format.types import DataField
from streamsink.table.routed.dead_letters import Screen
from streamsink.table.write.exact_cast import cast_exactly
from streamsink.table.write.nested_nulls import loosened

_COUNTED = re.compile(r"(-?\d+) (days|s|ms|us|ns) since 1970-01-01")
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:\.(\d+))?")
_INT64 = range(-(2**63), 2**63)
_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_TEXTS, _REALS = ("CHAR", "VARCHAR", "BINARY", "VARBINARY"), ("FLOAT", "DOUBLE")
_MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP_LTZ")
# What Arrow and Python raise for a value that is not of a type.
_NONE_OF_IT = (ValueError, TypeError, KeyError, AttributeError, OverflowError, pa.ArrowException)


class Unfit(Exception):
    """A row that cannot be brought into the table's columns. Its text has no value."""


# A value with the Arrow type in which it comes back.
_Typed = tuple[Any, pa.DataType]


def decoded(
    texts: Sequence[tuple[str, Collection[str]]],
    schema: TableSchema,
    screen: Screen,
    taken: Collection[str] | None = None,
) -> Iterator[tuple[Sequence[int], pa.RecordBatch | None, Mapping[int, str]]]:
    """Yield parts of these rows: (places of the rows that fit, these rows in the table's columns, {place: reason}).

    texts: each with the names of columns that the table need not have. screen: of this schema. taken: names of the
    columns that the table takes; None means all.
    """
    groups: dict[tuple[pa.DataType, ...], list[tuple[int, list[Any]]]] = defaultdict(list)
    unfit: dict[int, str] = {}
    arrow = {field.name: kind.type for field, kind in zip(schema.fields, to_arrow_schema(schema.fields))}
    for place, (text, spare) in enumerate(texts):
        try:
            row = _row(text, taken)
            _check_columns(row, arrow.keys() | spare)
            typed = [_value(row.get(field.name), field, arrow[field.name]) for field in schema.fields]
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


def _row(text: str, taken: Collection[str] | None) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise Unfit("letter.text: the letter's row is no JSON object")
    return row if taken is None else {name: value for name, value in row.items() if name in taken}


def _check_columns(row: Mapping[str, Any], known: Collection[str]) -> None:
    extra = sorted(row.keys() - known)
    if extra:
        raise Unfit(
            f"letter.column: the table has no column '{extra[0]}'. Add it to the table; or, if the query does not "
            "write that column (its route column, or by the option columns of its table), give --columns existing, "
            "or the names of those that it writes"
        )


def _value(value: Any, field: DataField, arrow: pa.DataType) -> _Typed:
    if value is None:
        return None, loosened(arrow)
    if not isinstance(field.type, AtomicType):
        return _nested(value, field, loosened(arrow))
    root = field.type.root
    try:
        found = _atom(value, root, arrow)
        if found is not None:
            pa.scalar(*found)
    except _NONE_OF_IT:
        found = None
    if found is None:
        raise Unfit(f"letter.value: column '{field.name}' is {root}, and the letter has a value of another type for it")
    return found


def _atom(value: Any, root: str, arrow: pa.DataType) -> _Typed | None:
    """A value of no parts, with the type in which it comes back; None where a value of that kind cannot be a ``root``.

    Raises one of ``_NONE_OF_IT`` for a text that is no ``root``.
    """
    if isinstance(value, str):
        return _of_text(value, root, arrow)
    if isinstance(value, dict) and value.keys() == {"base64"} and root in _TEXTS:
        return base64.b64decode(value["base64"], validate=True), pa.binary()
    if isinstance(value, bool):
        return (value, pa.bool_()) if root == "BOOLEAN" else None
    if isinstance(value, int) and root in (*INTEGER_ROOTS, *_REALS, "DECIMAL"):
        is_short = value in _INT64
        return (value, pa.int64()) if is_short else (str(value), pa.string()) if root not in _REALS else None
    if isinstance(value, float) and (root == "DOUBLE" or root == "FLOAT" and _is_single(value)):
        return value, pa.float64()
    return None


def _of_text(value: str, root: str, arrow: pa.DataType) -> _Typed | None:
    """A text as a value of this type; None where a text cannot be one. Raises ValueError for a time that is none."""
    if root in _REALS:
        return (_FLOATS[value], pa.float64()) if value in _FLOATS else None
    if root == "TIME":
        return _time(value), pa.time64("us")
    counted = _COUNTED.fullmatch(value) if root in _MOMENTS else None
    if counted is not None and counted[2] == "days":
        return int(counted[1]), pa.date32()
    if counted is not None:
        return int(counted[1]), pa.timestamp(counted[2], arrow.tz if pa.types.is_timestamp(arrow) else None)
    known = (*INTEGER_ROOTS, *_MOMENTS, *_TEXTS, "DECIMAL", "BOOLEAN")
    return (value, pa.string()) if root in known else None


def _is_single(value: float) -> bool:
    """Whether a FLOAT holds exactly this number."""
    try:
        return not math.isfinite(value) or struct.unpack("f", struct.pack("f", value))[0] == value
    except OverflowError:
        return False


def _time(text: str) -> datetime.time:
    """Raises ValueError for another text, and for a part of nanoseconds, which Python's type cannot hold."""
    found = _CLOCK.fullmatch(text)
    if found is None or (found[1] or "")[6:].strip("0"):
        raise ValueError("no time")
    return datetime.time.fromisoformat(f"{text[:8]}.{(found[1] or '')[:6]:0<6}")


def _nested(value: Any, field: DataField, arrow: pa.DataType) -> _Typed:
    try:
        made = _python(value, field.type, arrow)
        pa.array([made], arrow)
    except _NONE_OF_IT:
        raise Unfit(f"letter.value: column '{field.name}' has a value that is no {field.type}") from None
    return made, arrow


def _python(value: Any, kind: DataType, arrow: pa.DataType) -> Any:
    """A value inside of a nested one, as Arrow takes it. Raises one of ``_NONE_OF_IT`` for one of another type."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_python(each, kind.element, arrow.value_type) for each in _list(value)]
    if isinstance(kind, MapType):
        return [
            (_python(key, kind.key, arrow.key_type), _python(each, kind.value, arrow.item_type))
            for key, each in _list(value)
        ]
    if isinstance(kind, RowType):
        known = {field.name: field.type for field in kind.fields}
        return {name: _python(each, known[name], arrow.field(name).type) for name, each in value.items()}
    found = _atom(value, kind.root, arrow) if isinstance(kind, AtomicType) else None
    if found is None:
        raise TypeError(f"no {kind}")
    return cast_exactly(pa.array([found[0]], found[1]), arrow).to_pylist()[0]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("no array")
    return value
