"""Encodes and decodes Paimon's BinaryRow to the byte as Java does: the rows of partition values, keys and stats.

The serialized form is the arity as big-endian int32, null bits, one slot of 8 bytes for each field, then the variable
part. Everything after the arity is little-endian. Values are plain Python values; a DATE, TIME or timestamp may also be
given as an integer: days, milliseconds of the day, nanoseconds since the epoch.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from streamsink.errors import Corrupt, Misuse
from streamsink.format.simple_stats import EMPTY_ROW
from streamsink.format.types import (
    BINARY_ROOTS,
    CHARACTER_ROOTS,
    TIMESTAMP_ROOTS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    RowType,
)
from streamsink.format.values import from_physical, to_physical

__all__ = ["EMPTY_ROW", "decode_physical", "decode_row", "encode_row", "field_reader", "mark_of"]

#: root of a type -> struct code of its values, for types of a fixed width
_FIXED: dict[str, str] = {
    "BOOLEAN": "<?",
    "TINYINT": "<b",
    "SMALLINT": "<h",
    "INT": "<i",
    "DATE": "<i",
    "TIME": "<i",
    "BIGINT": "<q",
    "FLOAT": "<f",
    "DOUBLE": "<d",
}
#: Those of which equal values have equal bytes.
_WHOLE = ("TINYINT", "SMALLINT", "INT", "DATE", "TIME", "BIGINT")
_INLINE = 7
_COMPACT_DECIMAL = 18
_COMPACT_TIMESTAMP = 3


def encode_row(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    """The row with its arity prefix. Raises: Misuse ``row.bad-value`` or ``row.unsupported-type``."""
    return struct.pack(">i", len(types)) + _encode_fields(values, types)


def decode_row(data: bytes, types: Sequence[DataType]) -> tuple[Any, ...]:
    """The values of a row with arity prefix: date, time, datetime (aware for LTZ), Decimal, str, bytes, list, dict.

    Timestamps with a precision above 6, and those that Python's datetime cannot hold, are returned as integer
    nanoseconds. Raises: Corrupt ``row.corrupt``.
    """
    return tuple(_to_python(v, t) for v, t in zip(decode_physical(data, types), types))


def decode_physical(data: bytes, types: Sequence[DataType]) -> tuple[Any, ...]:
    """Like ``decode_row``, but DATE, TIME and timestamps are integers, which are comparable and never out of range."""
    try:
        arity = struct.unpack_from(">i", data)[0]
        if arity != len(types):
            raise ValueError(f"{arity} fields, expected {len(types)}")
        return _decode_fields(data[4:], types)
    except (struct.error, ValueError, IndexError, OverflowError) as bad:
        raise Corrupt(f"a binary row is not readable: {bad}", kind="row.corrupt") from bad


def field_reader(arity: int, index: int, t: DataType) -> Callable[[bytes], Any]:
    """A function that reads one field, like ``decode_physical``, of rows with arity prefix; cheap for wide rows.

    ``arity`` is the number of fields of the rows, ``index`` that of the field. The function raises struct.error,
    ValueError, IndexError or OverflowError for bytes that are no such row.
    """
    prefix, bit = struct.pack(">i", arity), index + 8
    byte, mask = 4 + bit // 8, 1 << bit % 8
    at = (arity + 63 + 8) // 64 * 8 + 8 * index
    fixed = _FIXED.get(t.root) if isinstance(t, AtomicType) else None
    unpack = struct.Struct(fixed).unpack_from if fixed else None

    def read(data: bytes) -> Any:
        if data[:4] != prefix:
            raise ValueError("another number of fields")
        if data[byte] & mask:
            return None
        return unpack(data, 4 + at)[0] if unpack else _read_value(data[4:], at, t)

    return read


def mark_of(value: Any, t: DataType) -> bytes | None:
    """Bytes that every row contains in which a field of this type has this value; None where none are known.

    value: physical, as ``decode_physical`` returns it.
    """
    if not isinstance(t, AtomicType):
        return None
    if t.root in CHARACTER_ROOTS:
        return str(value).encode("utf-8") or None
    if t.root not in _WHOLE:
        return None
    try:
        return struct.pack(_FIXED[t.root], value)  # not its whole slot: nobody says what is in the rest
    except struct.error:
        return None  # the column holds no such value


def _to_python(value: Any, t: DataType) -> Any:
    if value is None:
        return None
    if isinstance(t, ArrayType):
        return [_to_python(v, t.element) for v in value]
    if isinstance(t, MapType):
        return {_to_python(k, t.key): _to_python(v, t.value) for k, v in value.items()}
    if isinstance(t, RowType):
        return tuple(_to_python(v, f.type) for v, f in zip(value, t.fields))
    # Decoding has refused every type that is neither nested as above nor atomic.
    return from_physical(value, cast(AtomicType, t))


def _round_up(size: int) -> int:
    return (size + 7) // 8 * 8


class _Area:
    """The bytes of a row or an array while it is filled: a fixed part, to which the variable part is appended."""

    def __init__(self, fixed_bytes: int):
        self.bytes = bytearray(fixed_bytes)

    def put(self, at: int, code: str, value: Any) -> None:
        struct.pack_into(code, self.bytes, at, value)

    def set_bit(self, start: int, bit: int) -> None:
        self.bytes[start + bit // 8] |= 1 << (bit % 8)

    def append(self, at: int, data: bytes, length: int, room: int = 0) -> None:
        """Append ``data``, padded to a multiple of 8 and to at least ``room``.

        Its offset and ``length`` are put into the slot at ``at``.
        """
        offset = len(self.bytes)
        self.bytes += data.ljust(max(_round_up(len(data)), room), b"\0")
        self.put(at, "<q", (offset << 32) | length)


def _write_value(area: _Area, at: int, value: Any, t: DataType) -> None:
    if isinstance(t, AtomicType):
        physical = to_physical(value, t)
        if t.root in _FIXED:
            area.put(at, _FIXED[t.root], physical)
        elif t.root in CHARACTER_ROOTS or t.root in BINARY_ROOTS:
            _write_bytes(area, at, physical.encode("utf-8") if isinstance(physical, str) else physical)
        elif t.root == "DECIMAL":
            _write_decimal(area, at, physical, t)
        else:
            _write_timestamp(area, at, physical, t)
        return
    blob = _encode_nested(value, t)
    area.append(at, blob, len(blob))


def _write_bytes(area: _Area, at: int, data: bytes) -> None:
    if len(data) <= _INLINE:
        area.bytes[at : at + len(data)] = data
        area.bytes[at + 7] = 0x80 | len(data)
    else:
        area.append(at, data, len(data))


def _write_decimal(area: _Area, at: int, value: Any, t: AtomicType) -> None:
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if (t.precision or 0) <= _COMPACT_DECIMAL:
        area.put(at, "<q", unscaled)
    else:
        magnitude = unscaled if unscaled >= 0 else ~unscaled
        data = unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
        area.append(at, data, len(data), room=16)


def _write_timestamp(area: _Area, at: int, nanos: int, t: AtomicType) -> None:
    millis, rest = divmod(nanos, 1_000_000)
    if (t.precision or 0) <= _COMPACT_TIMESTAMP:
        area.put(at, "<q", millis)
    else:
        area.append(at, struct.pack("<q", millis), rest)


def _encode_fields(values: Sequence[Any], types: Sequence[DataType]) -> bytes:
    if len(values) != len(types):
        raise Misuse(f"a row of {len(types)} fields got {len(values)} values", kind="row.bad-value")
    slots = (len(types) + 63 + 8) // 64 * 8
    area = _Area(slots + 8 * len(types))
    for i, (value, t) in enumerate(zip(values, types)):
        at = slots + 8 * i
        if value is not None:
            _pack(area, at, value, t)
            continue
        area.set_bit(0, i + 8)
        # Java keeps room for a later update of these types; without it the bytes and the bucket hashes would differ.
        if isinstance(t, AtomicType) and t.root == "DECIMAL" and (t.precision or 0) > _COMPACT_DECIMAL:
            area.append(at, b"", 0, room=16)
        elif isinstance(t, AtomicType) and t.root in TIMESTAMP_ROOTS and (t.precision or 0) > _COMPACT_TIMESTAMP:
            area.append(at, b"", 0, room=8)
    return bytes(area.bytes)


def _pack(area: _Area, at: int, value: Any, t: DataType) -> None:
    try:
        _write_value(area, at, value, t)
    except (struct.error, OverflowError, AttributeError, TypeError, ValueError) as bad:
        raise Misuse(f"a value of type {type(value).__name__} does not fit {t}", kind="row.bad-value") from bad


def _encode_nested(value: Any, t: DataType) -> bytes:
    if isinstance(t, RowType):
        if isinstance(value, Mapping):
            value = [value.get(f.name) for f in t.fields]
        return _encode_fields(value, [f.type for f in t.fields])
    if isinstance(t, ArrayType):
        return _encode_array(list(value), t.element)
    if isinstance(t, MapType):
        pairs = list(value.items()) if isinstance(value, Mapping) else list(value)
        keys = _encode_array([k for k, _ in pairs], t.key)
        return struct.pack("<i", len(keys)) + keys + _encode_array([v for _, v in pairs], t.value)
    raise Misuse(f"values of type {t} cannot be written here", kind="row.unsupported-type")


def _element_size(t: DataType) -> int:
    return struct.calcsize(_FIXED[t.root]) if isinstance(t, AtomicType) and t.root in _FIXED else 8


def _encode_array(values: list[Any], element: DataType) -> bytes:
    size, header = _element_size(element), 4 + (len(values) + 31) // 32 * 4
    area = _Area(_round_up(header + size * len(values)))
    area.put(0, "<i", len(values))
    for i, value in enumerate(values):
        if value is None:
            area.set_bit(4, i)
        else:
            _pack(area, header + size * i, value, element)
    return bytes(area.bytes)


def _is_null(data: bytes, start: int, bit: int) -> bool:
    return bool(data[start + bit // 8] >> (bit % 8) & 1)


def _decode_fields(data: bytes, types: Sequence[DataType]) -> tuple[Any, ...]:
    slots = (len(types) + 63 + 8) // 64 * 8
    if len(data) < slots + 8 * len(types):
        raise ValueError("the row is cut short")
    return tuple(None if _is_null(data, 0, i + 8) else _read_value(data, slots + 8 * i, t) for i, t in enumerate(types))


def _pointed(data: bytes, at: int) -> tuple[int, int]:
    word = struct.unpack_from("<Q", data, at)[0]
    return word >> 32, word & 0xFFFFFFFF


def _slice(data: bytes, offset: int, length: int) -> bytes:
    if offset + length > len(data):
        raise ValueError("a value lies outside of the row")
    return data[offset : offset + length]


def _read_value(data: bytes, at: int, t: DataType) -> Any:
    if not isinstance(t, AtomicType):
        return _decode_nested(_slice(data, *_pointed(data, at)), t)
    if t.root in _FIXED:
        return struct.unpack_from(_FIXED[t.root], data, at)[0]
    if t.root in CHARACTER_ROOTS or t.root in BINARY_ROOTS:
        mark = data[at + 7]
        raw = data[at : at + (mark & 0x7F)] if mark & 0x80 else _slice(data, *_pointed(data, at))
        return raw.decode("utf-8") if t.root in CHARACTER_ROOTS else bytes(raw)
    if t.root == "DECIMAL":
        if (t.precision or 0) <= _COMPACT_DECIMAL:
            unscaled = struct.unpack_from("<q", data, at)[0]
        else:
            unscaled = int.from_bytes(_slice(data, *_pointed(data, at)), "big", signed=True)
        return from_physical(unscaled, t)
    if t.root in TIMESTAMP_ROOTS:
        if (t.precision or 0) <= _COMPACT_TIMESTAMP:
            return struct.unpack_from("<q", data, at)[0] * 1_000_000
        offset, rest = _pointed(data, at)
        return struct.unpack("<q", _slice(data, offset, 8))[0] * 1_000_000 + rest
    raise ValueError(f"values of type {t} cannot be read here")


def _decode_nested(data: bytes, t: DataType) -> Any:
    if isinstance(t, RowType):
        return _decode_fields(data, [f.type for f in t.fields])
    if isinstance(t, ArrayType):
        return _decode_array(data, t.element)
    if isinstance(t, MapType):
        size = struct.unpack_from("<i", data)[0]
        return dict(zip(_decode_array(_slice(data, 4, size), t.key), _decode_array(data[4 + size :], t.value)))
    raise ValueError(f"values of type {t} cannot be read here")


def _decode_array(data: bytes, element: DataType) -> list[Any]:
    count = struct.unpack_from("<i", data)[0]
    size, header = _element_size(element), 4 + (count + 31) // 32 * 4
    if count < 0 or header + size * count > len(data):
        raise ValueError("an array is cut short")
    return [None if _is_null(data, 4, i) else _read_value(data, header + size * i, element) for i in range(count)]
