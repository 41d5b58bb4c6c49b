"""Avro object container files in memory: the one place that calls fastavro."""

import io
import struct
import zlib
from typing import Any, Dict, List, Mapping, Sequence

import fastavro
from fastavro.schema import SchemaParseException

from streamsink.errors import Corrupt

NAMESPACE = "org.apache.paimon.avro.generated"
#: Java's block size, bytes before compression.
SYNC_INTERVAL = 64000
#: A file cut between two blocks is a valid Avro file with fewer records; our own files say how many there are.
COUNT_KEY = "streamsink.records"
#: Constant, so that equal records give equal bytes and a retry writes the same file.
_SYNC_MARKER = b"streamsink-sync."


def _decoding_errors() -> tuple:
    found = [EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, MemoryError,
             AssertionError, RecursionError, OSError, struct.error, zlib.error, SchemaParseException]
    for module in ("compression.zstd", "backports.zstd"):
        try:
            found.append(__import__(module, fromlist=["ZstdError"]).ZstdError)
        except ImportError:
            continue
    return tuple(found)


#: What fastavro and its codecs raise on bytes that are not what they must be.
DECODING_ERRORS = _decoding_errors()


def write_avro(schema: Mapping[str, Any], records: Sequence[Dict[str, Any]], *, codec: str, level: int) -> bytes:
    """The bytes of a container file. ``codec`` is an Avro codec name, ``level`` its compression level."""
    out = io.BytesIO()
    fastavro.writer(
        out, fastavro.parse_schema(dict(schema)), records, codec=codec, sync_interval=SYNC_INTERVAL,
        metadata={COUNT_KEY: str(len(records))}, sync_marker=_SYNC_MARKER,
        codec_compression_level=level if codec in ("zstandard", "deflate") else None,
    )
    return out.getvalue()


def read_avro(data: bytes, name: str) -> List[Dict[str, Any]]:
    """The records of a container file; ``name`` is the file's name. Raises: Corrupt ``manifest.corrupt``."""
    try:
        reader = fastavro.reader(io.BytesIO(data))
        expected = reader.metadata.get(COUNT_KEY)
        records = list(reader)
        if expected is not None and int(expected) != len(records):
            raise ValueError(f"{len(records)} records, the file was written with {expected}")
        if not all(isinstance(record, dict) for record in records):
            raise ValueError("a record is not an Avro record")
        return records
    except DECODING_ERRORS as bad:
        raise unreadable(name, bad) from bad


def unreadable(name: str, why: object) -> Corrupt:
    """The error of a manifest file whose bytes are wrong."""
    return Corrupt(f"{name} is not readable: {type(why).__name__}: {why}. It is torn or altered: restore it, or roll "
                   "the table back to a snapshot that does not use it", kind="manifest.corrupt")


def nullable(schema: Any) -> List[Any]:
    """The union Java writes for a nullable field."""
    return ["null", schema]


def record(name: str, fields: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """A record schema in Paimon's namespace."""
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": list(fields)}


def stats_schema(name: str) -> Dict[str, Any]:
    """The schema of SimpleStats."""
    return record(name, [
        {"name": "_MIN_VALUES", "type": "bytes"},
        {"name": "_MAX_VALUES", "type": "bytes"},
        {"name": "_NULL_COUNTS", "type": nullable({"type": "array", "items": nullable("long")}), "default": None},
    ])
