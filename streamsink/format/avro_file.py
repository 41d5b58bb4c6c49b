"""Avro object container files in memory: the one place that calls fastavro."""

import io
import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.write import Writer

from streamsink.errors import Corrupt

NAMESPACE = "org.apache.paimon.avro.generated"
#: Java's block size, bytes before compression.
SYNC_INTERVAL = 64000
#: A file cut between two blocks is a valid Avro file with fewer records; our own files say how many there are.
COUNT_KEY = "streamsink.records"
#: Constant, so that equal records give equal bytes and a retry writes the same file.
_SYNC_MARKER = b"streamsink-sync."


def _decoding_errors() -> tuple[Any, ...]:
    found = [
        EOFError,
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        MemoryError,
        AssertionError,
        RecursionError,
        OSError,
        struct.error,
        zlib.error,
        SchemaParseException,
    ]
    for module in ("compression.zstd", "backports.zstd"):
        try:
            found.append(__import__(module, fromlist=["ZstdError"]).ZstdError)
        except ImportError:
            continue
    return tuple(found)


#: What fastavro and its codecs raise on bytes that are not what they must be.
DECODING_ERRORS = _decoding_errors()


def parsed(schema: Mapping[str, Any]) -> Any:
    """The schema as ``write_avro`` needs it."""
    return fastavro.parse_schema(dict(schema))


def write_avro(schema: Mapping[str, Any], records: Sequence[dict[str, Any]], *, codec: str, level: int) -> bytes:
    """The bytes of a container file. ``schema``: ``parsed``; ``codec`` is an Avro codec name, ``level`` its level."""
    stream = AvroStream(schema, codec=codec, level=level)
    for found in records:
        stream.add(found)
    return stream.finish()


class AvroStream:
    """A container file made record by record: what it holds in memory is the compressed file.

    ``schema``: ``parsed``.
    """

    def __init__(self, schema: Mapping[str, Any], *, codec: str, level: int, block_bytes: int = SYNC_INTERVAL):
        self._schema = schema
        self._settings = (codec, level, block_bytes)
        self._count = 0
        self._out, self._writer = self._open(0)
        self._body = self._out.tell()

    @property
    def size(self) -> int:
        """Bytes so far, without the records of the open block."""
        return self._out.tell()

    def add(self, found: dict[str, Any]) -> None:
        self._writer.write(found)
        self._count += 1

    def finish(self) -> bytes:
        """The bytes. The header says how many records there are, so it is written last."""
        self._writer.flush()
        header, _ = self._open(self._count)
        return header.getvalue() + self._out.getbuffer()[self._body :]

    def _open(self, count: int) -> tuple[io.BytesIO, Writer]:
        out = io.BytesIO()
        codec, level, block_bytes = self._settings
        return out, Writer(
            out,
            self._schema,
            codec=codec,
            sync_interval=block_bytes,
            metadata={COUNT_KEY: str(count)},
            sync_marker=_SYNC_MARKER,
            compression_level=level if codec in ("zstandard", "deflate") else None,
        )


def read_avro(data: bytes, name: str) -> Iterator[dict[str, Any]]:
    """The records of a container file, one by one; ``name`` is the file's name.

    Raises: Corrupt ``manifest.corrupt``, which for a file that was cut short may come after its last record.
    """
    try:
        reader = fastavro.reader(io.BytesIO(data))
        count = 0
        for found in reader:
            count += 1
            yield _checked(found)
        _check_count(count, reader.metadata)
    except DECODING_ERRORS as bad:
        raise unreadable(name, bad) from bad


def read_blocks(data: bytes, name: str) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """(how many records, the first of them, all of them as they are encoded) of each block of a container file.

    Twenty times cheaper than decoding them. A text stands in the bytes as UTF-8. Raises as ``read_avro``.
    """
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        count = 0
        for block in reader:
            count += block.num_records
            encoded = block.bytes_.getvalue()
            for first in itertools.islice(block, 1):
                yield block.num_records, _checked(first), encoded
        _check_count(count, reader.metadata)
    except DECODING_ERRORS as bad:
        raise unreadable(name, bad) from bad


def _checked(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError("a record is not an Avro record")
    return found


def _check_count(count: int, metadata: Mapping[str, str]) -> None:
    expected = metadata.get(COUNT_KEY)
    if expected is not None and int(expected) != count:
        raise ValueError(f"{count} records, the file was written with {expected}")


def unreadable(name: str, why: object) -> Corrupt:
    """The error of a manifest file whose bytes are wrong."""
    return Corrupt(
        f"{name} is not readable: {type(why).__name__}: {why}. It is torn or altered: restore it, or roll "
        "the table back to a snapshot that does not use it",
        kind="manifest.corrupt",
    )


def nullable(schema: Any) -> list[Any]:
    """The union Java writes for a nullable field."""
    return ["null", schema]


def record(name: str, fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A record schema in Paimon's namespace."""
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


def stats_schema(name: str) -> dict[str, Any]:
    """The schema of SimpleStats."""
    return record(
        name,
        [
            {"name": "_MIN_VALUES", "type": "bytes"},
            {"name": "_MAX_VALUES", "type": "bytes"},
            {"name": "_NULL_COUNTS", "type": nullable({"type": "array", "items": nullable("long")}), "default": None},
        ],
    )
