"""Changes one thing in a Parquet file's footer: INT64 columns become timestamps.

pyarrow writes either all timestamps of a file as INT96 or none. Java's files have INT96 for nanoseconds only, and its
readers fail on a filter over a TIMESTAMP(6) column that is INT96. So such columns are written as plain INT64, which is
how their values are stored anyway, and the schema in the footer is changed to say what they are.
"""

import struct
from collections.abc import Mapping

from streamsink.errors import Corrupt

MAGIC = b"PAR1"
_TAIL = 8
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
_LONG_LIST = 15
_MOST_VARINT_BYTES = 10
# fields of SchemaElement
_TYPE, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 4, 5, 6, 10
_INT64 = 2
# unit -> (its field in the union TimeUnit, its ConvertedType)
_UNITS = {"ms": (1, 9), "us": (2, 10)}

#: name of a column -> (unit "ms" or "us", whether it is an instant in UTC)
Timestamps = Mapping[str, tuple[str, bool]]
_Fields = dict[int, tuple[int, bytes]]


def with_timestamps(end: bytes, columns: Timestamps) -> bytes:
    """Return the end of a Parquet file with these top-level INT64 columns declared as timestamps.

    The end consists of the footer, its length and the magic bytes; bytes before the footer are returned unchanged.
    Raises: Corrupt ``parquet.footer`` if the bytes do not match Parquet's Thrift definition.
    """
    try:
        size = struct.unpack_from("<i", end, len(end) - _TAIL)[0]
        start = len(end) - _TAIL - size
        footer = _annotated(end[start:-_TAIL], columns)
        if end[-4:] != MAGIC or start < 0:
            raise ValueError("no Parquet footer")
        return end[:start] + footer + struct.pack("<i", len(footer)) + MAGIC
    except (struct.error, ValueError, IndexError) as bad:
        raise Corrupt(f"a Parquet footer is not readable: {bad}", kind="parquet.footer") from bad


def _annotated(footer: bytes, columns: Timestamps) -> bytes:
    header, at = footer[0], 1
    if header != (1 << 4 | _I32):
        raise ValueError("it does not begin with its version")
    _, at = _varint(footer, at)
    if footer[at] != (1 << 4 | _LIST):
        raise ValueError("its schema is not where it must be")
    count, first = _list_header(footer, at + 1)
    at, elements = first, []
    for _ in range(count):
        fields, at = _read_struct(footer, at)
        elements.append(fields)
    for element in _top_level_leaves(elements):
        encoded = element[_NAME][1]
        name = encoded[_varint(encoded, 0)[1] :].decode("utf-8")
        if name in columns and _number(element, _TYPE) == _INT64 and _LOGICAL not in element:
            _annotate(element, *columns[name])
    return footer[:first] + b"".join(map(_write_struct, elements)) + footer[at:]


def _top_level_leaves(elements: list[_Fields]) -> list[_Fields]:
    """The columns directly below the root that have no children."""
    leaves, at = [], 1
    while at < len(elements):
        children = _number(elements[at], _CHILDREN)
        if not children:
            leaves.append(elements[at])
        at += 1
        while children:  # skip everything below it
            children += _number(elements[at], _CHILDREN) - 1
            at += 1
    return leaves


def _annotate(element: _Fields, unit: str, utc: bool) -> None:
    unit_field, converted = _UNITS[unit]
    if utc:
        element[_CONVERTED] = (_I32, bytes([converted << 1]))
    is_utc, time_unit = 1 << 4 | (_TRUE if utc else _FALSE), unit_field << 4 | _STRUCT
    # union LogicalType { 8: TimestampType { 1: bool isAdjustedToUTC, 2: union TimeUnit { n: an empty struct } } }
    element[_LOGICAL] = (_STRUCT, bytes([8 << 4 | _STRUCT, is_utc, 2 - 1 << 4 | _STRUCT, time_unit, 0, 0, 0, 0]))


def _number(element: _Fields, field: int) -> int:
    if field not in element:
        return 0
    value, _ = _varint(element[field][1], 0)
    return (value >> 1) ^ -(value & 1)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_MOST_VARINT_BYTES):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise Corrupt("a Parquet footer holds a number of more than 64 bits", kind="parquet.footer")


def _list_header(data: bytes, at: int) -> tuple[int, int]:
    size = data[at] >> 4
    return _varint(data, at + 1) if size == _LONG_LIST else (size, at + 1)


def _read_struct(data: bytes, at: int) -> tuple[_Fields, int]:
    """Return the fields of a struct by id, each with its Thrift type and its bytes, and where the struct ends."""
    fields: _Fields = {}
    last = 0
    while data[at] != _STOP:
        kind, delta = data[at] & 0x0F, data[at] >> 4
        at += 1
        if delta:
            last += delta
        else:
            value, at = _varint(data, at)
            last = (value >> 1) ^ -(value & 1)
        end = _skip(data, at, kind)
        fields[last] = (kind, data[at:end])
        at = end
    return fields, at + 1


def _write_struct(fields: _Fields) -> bytes:
    out, last = b"", 0
    for field in sorted(fields):
        kind, value = fields[field]
        out += bytes([(field - last) << 4 | kind]) + value
        last = field
    return out + bytes([_STOP])


def _skip(data: bytes, at: int, kind: int) -> int:
    if kind in (_TRUE, _FALSE):
        return at
    if kind == _BYTE:
        return at + 1
    if kind in (_I16, _I32, _I64):
        return _varint(data, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind == _STRUCT:
        return _read_struct(data, at)[1]
    if kind == _LIST:
        inner = data[at] & 0x0F
        count, at = _list_header(data, at)
        for _ in range(count):
            at = at + 1 if inner in (_TRUE, _FALSE) else _skip(data, at, inner)
        return at
    raise ValueError(f"an unknown Thrift type {kind}")
