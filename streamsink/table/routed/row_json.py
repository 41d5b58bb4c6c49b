"""Rows as JSON text, for dead letters. What JSON cannot hold exactly gets a text form:

    integers, booleans, null     as they are           DECIMAL        text of all its digits: "12.50"
    FLOAT, DOUBLE                number; "NaN", "Infinity", "-Infinity"
    BINARY                       base64 text           STRING         text; {"base64": ...} when it is not UTF-8
    DATE, TIME                   ISO text              TIMESTAMP      "2026-11-21 12:00:00.000000", "Z" when zoned (UTC)
    ARRAY                        array                 MAP            array of [key, value] pairs
    ROW                          object                others         Arrow's text form

A date or time outside the years that ISO text can name becomes "<number> <unit> since 1970-01-01". Dead letters have
BINARY as {"base64": ...}, because they are read back, and a column of bytes may have become one of texts since, or the
other way round.
"""

import base64
import json
import math
from typing import Any

import pyarrow as pa


def rows_to_json(rows: pa.RecordBatch, marked: bool = False) -> list[str]:
    """One JSON object for each row, with the columns in their order. marked: bytes are told from texts."""
    names = rows.schema.names
    columns = [[_value(scalar, marked) for scalar in column] for column in rows.columns]
    return [
        json.dumps(dict(zip(names, values)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        for values in zip(*columns)
    ]


def _value(scalar: pa.Scalar, marked: bool) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return scalar.as_py()
    if pa.types.is_floating(kind):
        return _float(scalar.as_py())
    if pa.types.is_decimal(kind):
        return format(scalar.as_py(), "f")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _text(scalar)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        text = base64.b64encode(scalar.as_py()).decode()
        return {"base64": text} if marked else text
    if pa.types.is_map(kind):
        entries = scalar.values
        return [[_value(key, marked), _value(value, marked)] for key, value in zip(entries.field(0), entries.field(1))]
    if pa.types.is_struct(kind):
        return {name: _value(scalar[index], marked) for index, name in enumerate(f.name for f in kind)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(item, marked) for item in scalar.values]
    return _other(scalar)


def _float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _text(scalar: pa.Scalar) -> Any:
    data = scalar.as_buffer().to_pybytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _other(scalar: pa.Scalar) -> str:
    kind, zone = scalar.type, ""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Of a time with a zone, even UTC, Arrow keeps but 16 bits of the year, or fails where that is far away.
        scalar, zone = scalar.cast(pa.timestamp(kind.unit)), "Z"
    if pa.types.is_temporal(kind):
        text = scalar.cast(pa.string()).as_py()
        unit = getattr(kind, "unit", "days")
        return f"{text}{zone}" if not text.startswith("<") else f"{scalar.value} {unit} since 1970-01-01"
    return str(scalar.as_py())
