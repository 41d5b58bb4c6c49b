"""Avro container files as Iceberg has them: their header says more, and snappy is the usual codec.

Values of logical types are not converted: a date stays a number of days, so that every date can be read and written.
"""

import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pyarrow as pa

from streamsink.errors import Corrupt
from streamsink.format.avro_file import DECODING_ERRORS, SYNC_INTERVAL, unreadable

_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)
_LONG = fastavro.parse_schema("long")
_MAGIC = b"Obj\x01"


class Container:
    """A container file that is made record by record."""

    def __init__(self, schema: Mapping[str, Any], codec: str, metadata: Mapping[str, str]):
        """schema: as JSON has it. codec: Avro's name of it."""
        self._schema = _parsed(schema)
        self._codec = codec
        self._sync = os.urandom(16)
        self._out, self._block, self._count = io.BytesIO(), io.BytesIO(), 0
        meta = {"avro.schema": json.dumps(schema), "avro.codec": codec, **metadata}
        header = {"magic": _MAGIC, "meta": {key: text.encode() for key, text in meta.items()}, "sync": self._sync}
        fastavro.schemaless_writer(self._out, _HEADER, header)

    @property
    def size(self) -> int:
        """The size so far in bytes, with the records of the open block as they are before compression."""
        return self._out.tell() + self._block.tell()

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record."""
        fastavro.schemaless_writer(self._block, self._schema, record)
        self._count += 1
        if self._block.tell() >= SYNC_INTERVAL:
            self._end_block()

    def finish(self) -> bytes:
        """The bytes of the file."""
        self._end_block()
        return self._out.getvalue()

    def _end_block(self) -> None:
        if self._count:
            data = _compressed(self._block.getvalue(), self._codec)
            for number in (self._count, len(data)):
                fastavro.schemaless_writer(self._out, _LONG, number)
            self._out.write(data + self._sync)
        self._block, self._count = io.BytesIO(), 0


def read_container(data: bytes, name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield (the schema as the header has it, a record) for each record. name: of the file, for messages.

    Raises: Corrupt ``manifest.corrupt``, also behind the last record.
    """
    stream = io.BytesIO(data)
    try:
        header: Any = fastavro.schemaless_reader(stream, _HEADER, None)
        if header["magic"] != _MAGIC:
            raise ValueError("not an Avro file")
        said = json.loads(header["meta"]["avro.schema"])
        schema, codec = _parsed(said), header["meta"].get("avro.codec", b"null").decode()
        while stream.tell() < len(data):
            count, size = (fastavro.schemaless_reader(stream, _LONG, None) for _ in range(2))
            block = io.BytesIO(_decompressed(stream.read(size), codec))
            if stream.read(16) != header["sync"]:
                raise ValueError("a block is torn")
            for _ in range(count):
                found: Any = fastavro.schemaless_reader(block, schema, None)
                yield said, found
    except (*DECODING_ERRORS, pa.ArrowInvalid) as bad:
        raise _unreadable(name, bad) from bad


def _unreadable(name: str, bad: Exception) -> Corrupt:
    return bad if isinstance(bad, Corrupt) else unreadable(name, bad)


def _parsed(schema: Mapping[str, Any]) -> Any:
    return fastavro.parse_schema(_without_logical_types(schema))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(part) for part in schema]
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def _compressed(data: bytes, codec: str) -> bytes:
    if codec == "snappy":
        return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
    if codec == "zstandard":
        return pa.Codec("zstd", compression_level=1).compress(data, asbytes=True)
    return zlib.compress(data, 6)[2:-4] if codec == "deflate" else data


def _decompressed(data: bytes, codec: str) -> bytes:
    if codec == "snappy":
        found = pa.Codec("snappy").decompress(data[:-4], decompressed_size=_snappy_size(data), asbytes=True)
        if zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
            raise ValueError("the checksum of a block is wrong")
        return found
    if codec == "zstandard":
        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    if codec == "deflate":
        return zlib.decompress(data, -15)
    if codec != "null":
        raise ValueError(f"codec {codec!r} is not read here")
    return data


def _snappy_size(data: bytes) -> int:
    """What the first bytes say of the size of the content."""
    size = 0
    for number, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * number
        if not byte & 0x80:
            return size
    raise ValueError("the size of a block is not readable")
