"""Rows as PostgreSQL's binary COPY takes them, made of whole Arrow columns, so that no value passes through Python.

Numbers and times are as the server keeps them, so it has nothing to parse, which is half of its work with a text.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
# So many rows are encoded while the server still has the ones before to do.
_ROWS_AT_ONCE = 16_384
_NUMBERS = {"int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
_TEXTS = ("text", "varchar", "bpchar", "json")
_NULL = -1  # in the place of a value's length
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000  # from 1970 to 2000, where the server begins to count


def fits(rows: pa.Schema, bases: Sequence[str]) -> bool:
    """Whether rows can be encoded for columns of these types, by their names in pg_type."""
    return len(rows) == len(bases) and all(_fits(field.type, base) for field, base in zip(rows, bases))


def _fits(of: pa.DataType, base: str) -> bool:
    if base in _TEXTS or base == "bytea":
        return pt.is_string(of) if base in _TEXTS else pt.is_binary(of)
    if base == "bool":
        return pt.is_boolean(of)
    if base in _NUMBERS:
        width = np.dtype(_NUMBERS[base]).itemsize * 8
        alike = pt.is_signed_integer(of) if base.startswith("int") else pt.is_float32(of) or pt.is_float64(of)
        return alike and of.bit_width <= width
    if base in ("timestamp", "timestamptz"):
        return pt.is_timestamp(of) and (of.tz is not None) == (base == "timestamptz") and of.unit != "ns"
    return pt.is_date32(of) if base == "date" else base == "time" and pt.is_time(of) and of.unit != "ns"


def encoded(rows: pa.Table, bases: Sequence[str]) -> Iterator[memoryview]:
    """What a COPY ... (FORMAT binary) of these rows takes, in parts. bases: for which ``fits`` is true."""
    yield memoryview(_HEADER)
    for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
        yield _encoded(rows.slice(first, _ROWS_AT_ONCE), bases)
    yield memoryview(_TRAILER)


def _encoded(rows: pa.Table, bases: Sequence[str]) -> memoryview:
    """Some rows: before each how many fields it has, before each field its length."""
    count = rows.num_rows
    pieces: list[pa.Array] = []
    # What has the same width in each row stands side by side in a matrix of bytes, until something has not.
    beside = [_bytes_of(np.full(count, rows.num_columns, ">i2"))]
    for column, base in zip(rows.columns, bases):
        values = column.combine_chunks()
        empty = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        if base in _TEXTS or base == "bytea":
            texts = values.cast(pa.large_binary())
            lengths = np.diff(np.frombuffer(texts.buffers()[1], np.int64, count + 1, 8 * texts.offset))
            beside.append(_bytes_of((lengths if empty is None else np.where(empty, _NULL, lengths)).astype(">i4")))
            pieces += [_joined(beside), texts.fill_null(b"")]
            beside = []
            continue
        binary = _bytes_of(_numbers(values, base))
        if empty is None:
            beside += [_bytes_of(np.full(count, binary.shape[1], ">i4")), binary]
            continue
        pieces += [_joined(beside)] if beside else []
        pieces.append(_with_nulls(binary, empty))
        beside = []
    pieces += [_joined(beside)] if beside else []
    # One buffer of all: what stands between the rows, and between their parts, is nothing.
    whole = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))
    first, end = np.frombuffer(whole.buffers()[1], np.int64, count + 1, 8 * whole.offset)[[0, count]]
    return memoryview(whole.buffers()[2])[first:end]


def _numbers(values: pa.Array, base: str) -> np.ndarray:
    """The values as the server keeps them; 0 for nulls."""
    of = values.type
    if base in ("timestamp", "timestamptz"):
        ours = values.cast(pa.timestamp("us", of.tz)).cast(pa.int64())
        return (_plain(ours) - _MICROSECONDS).astype(">i8")
    if base == "date":
        return (_plain(values.cast(pa.int32())) - _DAYS).astype(">i4")
    if base == "time":
        return _plain(values.cast(pa.time64("us")).cast(pa.int64())).astype(">i8")
    if base == "bool":
        return _plain(values.cast(pa.int8())).astype("i1")
    return _plain(values).astype(_NUMBERS[base])


def _plain(values: pa.Array) -> np.ndarray:
    return values.fill_null(0).to_numpy(zero_copy_only=False)


def _bytes_of(numbers: np.ndarray) -> np.ndarray:
    """A line of bytes for each number."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), -1)


def _joined(parts: Sequence[np.ndarray]) -> pa.Array:
    lines = np.concatenate(parts, axis=1)
    count, width = lines.shape
    return _binaries(np.arange(count + 1, dtype=np.int64) * width, lines)


def _with_nulls(binary: np.ndarray, empty: np.ndarray) -> pa.Array:
    """Fields with their lengths before them, of which the empty ones have nothing but a length."""
    count, width = binary.shape
    lengths = np.where(empty, _NULL, width).astype(">i4")
    lines = np.concatenate([_bytes_of(lengths), binary], axis=1)
    kept = np.ones(lines.shape, bool)
    kept[empty, 4:] = False
    ends = np.cumsum(np.where(empty, 4, 4 + width), dtype=np.int64)
    return _binaries(np.concatenate([np.zeros(1, np.int64), ends]), lines[kept])


def _binaries(offsets: np.ndarray, data: np.ndarray) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data).reshape(-1))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
