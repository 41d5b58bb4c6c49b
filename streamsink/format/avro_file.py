"""Reads and writes Avro object container files in memory; the only module that calls fastavro."""

import io
import itertools
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.write import Writer

from streamsink import shell
from streamsink.errors import Corrupt

NAMESPACE = "org.apache.paimon.avro.generated"
#: The block size of Java's writer, in bytes before compression.
SYNC_INTERVAL = 64000
#: Metadata key for the number of records. A file that is cut between two blocks is a valid Avro file with fewer
#: records, so our own files say how many there are.
COUNT_KEY = "streamsink.records"
#: It is constant, so that equal records give equal bytes and a retry writes the same file.
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


#: What fastavro and its codecs raise for bytes that are no valid file.
DECODING_ERRORS = _decoding_errors()


def parsed(schema: Mapping[str, Any]) -> Any:
    """The schema in the form that ``write_avro`` and ``AvroStream`` need."""
    return fastavro.parse_schema(dict(schema))


def write_avro(schema: Mapping[str, Any], records: Sequence[dict[str, Any]], *, codec: str, level: int) -> bytes:
    """The bytes of a container file.

    ``schema`` comes from ``parsed``; ``codec`` is the name of an Avro codec, and ``level`` its compression level.
    """
    stream = AvroStream(schema, codec=codec, level=level)
    for found in records:
        stream.add(found)
    return stream.finish()


class AvroStream:
    """A container file that is made record by record; in memory it holds only the compressed file.

    ``schema`` comes from ``parsed``.
    """

    def __init__(self, schema: Mapping[str, Any], *, codec: str, level: int, block_bytes: int = SYNC_INTERVAL):
        self._schema = schema
        self._settings = (codec, level, block_bytes)
        self._count = 0
        self._out, self._writer = self._open(0)
        self._body = self._out.tell()

    @property
    def size(self) -> int:
        """The size so far in bytes, without the records of the open block."""
        return self._out.tell()

    def add(self, found: dict[str, Any]) -> None:
        """Append a record."""
        self._writer.write(found)
        self._count += 1

    def finish(self) -> bytes:
        """Return the bytes of the file. The header is written last, because it says how many records there are."""
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
    """Yield the records of a container file one by one; ``name`` is the file's name, for messages.

    Raises: Corrupt ``manifest.corrupt``. For a file that was cut short, this may come only after its last record.
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
    """Yield for each block of a container file (number of records, first record, all records still encoded).

    This is twenty times cheaper than decoding all records. In the encoded bytes a text is its UTF-8. Raises like
    ``read_avro``.
    """
    for count, records, encoded in open_blocks(data, name):
        for first in itertools.islice(records, 1):
            yield count, first, encoded


def open_blocks(data: bytes, name: str) -> Iterator[tuple[int, Iterator[dict[str, Any]], bytes]]:
    """Yield for each block of a container file (number of records, the records one by one, all of them still encoded).

    A block is decoded as far as its records are taken. Raises like ``read_avro``, the iterator of the records too.
    """
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        count = 0
        for block in reader:
            count += block.num_records
            encoded = block.bytes_.getvalue()
            yield block.num_records, _records_in(block, name), encoded
        _check_count(count, reader.metadata)
    except DECODING_ERRORS as bad:
        raise unreadable(name, bad) from bad


def _records_in(block: Any, name: str) -> Iterator[dict[str, Any]]:
    try:
        yield from map(_checked, block)
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
    """The error for a manifest file whose bytes are wrong."""
    return Corrupt(
        f"{name} is not readable: {type(why).__name__}: {why}. It is torn or altered: restore it "
        f"{shell.restore(name)}, or roll the table back to a snapshot that does not use it",
        kind="manifest.corrupt",
    )


def nullable(schema: Any) -> list[Any]:
    """The union that Java writes for a nullable field."""
    return ["null", schema]


def record(name: str, fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A record schema in the namespace that Paimon uses."""
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


def stats_schema(name: str) -> dict[str, Any]:
    """The Avro schema of a ``SimpleStats``."""
    return record(
        name,
        [
            {"name": "_MIN_VALUES", "type": "bytes"},
            {"name": "_MAX_VALUES", "type": "bytes"},
            {"name": "_NULL_COUNTS", "type": nullable({"type": "array", "items": nullable("long")}), "default": None},
        ],
    )
