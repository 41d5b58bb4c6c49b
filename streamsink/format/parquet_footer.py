"""Changes two things in a Parquet file's footer: INT64 columns become timestamps, and columns lose their bounds.

pyarrow writes either all timestamps of a file as INT96 or none. Java's files have INT96 for nanoseconds only, and its
readers fail on a filter over a TIMESTAMP(6) column that is INT96. So such columns are written as plain INT64, which is
how their values are stored anyway, and the schema in the footer is changed to say what they are.

pyarrow leaves NaN out of the bounds of a column. To Spark and Java a NaN is greater than every other number, so by such
bounds their readers would skip rows that a filter wants.
"""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence

from streamsink.errors import Corrupt

MAGIC = b"PAR1"
_TAIL = 8
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _STRUCT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
_LONG_LIST = 15
_MOST_VARINT_BYTES = 10
# fields of SchemaElement
_TYPE, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 4, 5, 6, 10
_INT64 = 2
# fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS = 4, 1, 3, 12
# fields of Statistics: both bounds in their old and in their new place, and whether they are exact
_BOUNDS = frozenset((1, 2, 5, 6, 7, 8))
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
    return _with_footer(end, lambda footer: _annotated(footer, columns))


def without_bounds(end: bytes, leaves: Collection[int]) -> bytes:
    """Return the end of a Parquet file, as of ``with_timestamps``, in which these columns have no bounds.

    leaves: places of the columns among those that have values of their own, in the order of the schema, from 0. How
    many nulls a column has stays. Raises: Corrupt ``parquet.footer`` as ``with_timestamps`` does.
    """
    return _with_footer(end, lambda footer: _unbounded(footer, leaves))


def _with_footer(end: bytes, change: Callable[[bytes], bytes]) -> bytes:
    try:
        size = struct.unpack_from("<i", end, len(end) - _TAIL)[0]
        start = len(end) - _TAIL - size
        footer = change(end[start:-_TAIL])
        if end[-4:] != MAGIC or start < 0:
            raise ValueError("no Parquet footer")
        return end[:start] + footer + struct.pack("<i", len(footer)) + MAGIC
    except (struct.error, ValueError, IndexError) as bad:
        raise Corrupt(f"a Parquet footer is not readable: {bad}", kind="parquet.footer") from bad


def _unbounded(footer: bytes, leaves: Collection[int]) -> bytes:
    def of_chunk(leaf: int, chunk: bytes) -> bytes:
        return _within(chunk, (_META_DATA, _STATISTICS), _without_min_max) if leaf in leaves else chunk

    def of_group(_: int, group: bytes) -> bytes:
        return _within(group, (_COLUMNS,), lambda chunks: _each_struct(chunks, of_chunk))

    return _within(footer, (_ROW_GROUPS,), lambda groups: _each_struct(groups, of_group))


def _without_min_max(statistics: bytes) -> bytes:
    fields, _ = _read_struct(statistics, 0)
    return _write_struct({field: value for field, value in fields.items() if field not in _BOUNDS})


def _within(data: bytes, path: Sequence[int], change: Callable[[bytes], bytes]) -> bytes:
    """The struct ``data`` with one of its fields changed, if it has it. path: of the field, by ids."""
    fields, _ = _read_struct(data, 0)
    if path[0] in fields:
        kind, value = fields[path[0]]
        fields[path[0]] = kind, change(value) if len(path) == 1 else _within(value, path[1:], change)
    return _write_struct(fields)


def _each_struct(data: bytes, change: Callable[[int, bytes], bytes]) -> bytes:
    """A list of structs, each of them changed. change: is given its place in the list, and its bytes."""
    count, first = _list_header(data, 0)
    at, changed = first, []
    for place in range(count):
        _, end = _read_struct(data, at)
        changed.append(change(place, data[at:end]))
        at = end
    return data[:first] + b"".join(changed)


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
