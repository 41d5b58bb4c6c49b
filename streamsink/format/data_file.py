"""DataFileMeta: what a manifest says about one data file."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from streamsink.errors import Corrupt
from streamsink.format.avro_file import nullable, record, stats_schema
from streamsink.format.simple_stats import EMPTY_ROW, EMPTY_STATS, SimpleStats, decode_bytes, encode_bytes

FILE_SOURCE_APPEND, FILE_SOURCE_COMPACT = 0, 1
WIRE_VERSION = 1

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """One data file, as Paimon's class of this name.

    Sizes are in bytes; keys are BinaryRows with arity prefix; ``creation_time`` is in ms of the local wall clock as
    if it were UTC, which is Java's convention.
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time: int | None = None
    delete_row_count: int | None = None
    embedded_file_index: bytes | None = None
    file_source: int | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    write_cols_sequences: tuple[int, ...] | None = None

    @classmethod
    def for_append(
        cls,
        *,
        file_name: str,
        file_size: int,
        row_count: int,
        schema_id: int,
        value_stats: SimpleStats = EMPTY_STATS,
        value_stats_cols: Sequence[str] | None = (),
        creation_time: int | None = None,
    ) -> "DataFileMeta":
        """A new file of a bucket-unaware append table: sequence numbers 0 to rows - 1, level 0, no keys.

        ``value_stats_cols`` None means that the stats cover every column; by default there are no stats at all.
        """
        return cls(
            file_name,
            file_size,
            row_count,
            EMPTY_ROW,
            EMPTY_ROW,
            EMPTY_STATS,
            value_stats,
            0,
            max(row_count - 1, 0),
            schema_id,
            0,
            creation_time=creation_time,
            delete_row_count=0,
            file_source=FILE_SOURCE_APPEND,
            value_stats_cols=None if value_stats_cols is None else tuple(value_stats_cols),
        )

    def to_record(self) -> dict[str, Any]:
        """The Avro record ``_FILE``."""
        out = {_avro_name(name): getattr(self, name) for name in _NAMES}
        out["_KEY_STATS"], out["_VALUE_STATS"] = self.key_stats.to_record(), self.value_stats.to_record()
        for name in _LISTS:
            value = getattr(self, name)
            out[_avro_name(name)] = None if value is None else list(value)
        return out

    @classmethod
    def from_record(cls, found: Mapping[str, Any]) -> "DataFileMeta":
        """The file of an Avro record; absent nullable fields are None. Raises: KeyError, TypeError, ValueError."""
        values: dict[str, Any] = {}
        for name in _NAMES:
            key = _avro_name(name)
            value = found[key] if name in _REQUIRED else found.get(key)
            if name in _LISTS and value is not None:
                value = tuple(value)
            values[name] = value
        values["key_stats"] = SimpleStats.from_record(values["key_stats"])
        values["value_stats"] = SimpleStats.from_record(values["value_stats"])
        values["creation_time"] = _millis(values["creation_time"])
        return cls(**values)

    def to_wire(self) -> dict[str, Any]:
        """A dict with a version that JSON can hold. Executors send it to the driver, and the journal keeps it."""
        out: dict[str, Any] = {"v": WIRE_VERSION}
        for name in _NAMES:
            value = getattr(self, name)
            if isinstance(value, SimpleStats):
                value = value.to_wire()
            elif name in _BYTES:
                value = encode_bytes(value)
            elif name in _LISTS and value is not None:
                value = list(value)
            out[name] = value
        return out

    @classmethod
    def from_wire(cls, value: Mapping[str, Any]) -> "DataFileMeta":
        """The inverse of ``to_wire``. Raises: Corrupt ``wire.corrupt``."""
        try:
            if value["v"] != WIRE_VERSION:
                raise ValueError(f"version {value['v']!r} is not known here")
            values = {name: value[name] for name in _NAMES}
            for name in _BYTES:
                values[name] = decode_bytes(values[name])
            for name in _LISTS:
                values[name] = None if values[name] is None else tuple(values[name])
            for name in ("key_stats", "value_stats"):
                values[name] = SimpleStats.from_wire(values[name])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as bad:
            raise Corrupt(
                f"a data file's record is not readable: {type(bad).__name__}: {bad}", kind="wire.corrupt"
            ) from bad


_NAMES: tuple[str, ...] = tuple(f.name for f in dataclass_fields(DataFileMeta))
_REQUIRED = frozenset(_NAMES[:12])
_LISTS = ("extra_files", "value_stats_cols", "write_cols", "write_cols_sequences")
_BYTES = ("min_key", "max_key", "embedded_file_index")


def _avro_name(name: str) -> str:
    return "_" + name.upper()


def _millis(value: Any) -> int | None:
    # fastavro turns timestamp-millis into a datetime. The arithmetic is in integers, because floats lose milliseconds.
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    return value


def file_schema(with_sequences: bool) -> dict[str, Any]:
    """The Avro schema of ``_FILE``: 20 fields as released Java writes them; 21 with ``_WRITE_COLS_SEQUENCES``."""
    texts = {"type": "array", "items": "string"}
    required: list[dict[str, Any]] = [
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        {"name": "_MIN_KEY", "type": "bytes"},
        {"name": "_MAX_KEY", "type": "bytes"},
        {"name": "_KEY_STATS", "type": stats_schema("record__FILE__KEY_STATS")},
        {"name": "_VALUE_STATS", "type": stats_schema("record__FILE__VALUE_STATS")},
        {"name": "_MIN_SEQUENCE_NUMBER", "type": "long"},
        {"name": "_MAX_SEQUENCE_NUMBER", "type": "long"},
        {"name": "_SCHEMA_ID", "type": "long"},
        {"name": "_LEVEL", "type": "int"},
        {"name": "_EXTRA_FILES", "type": texts},
    ]
    optional = [
        ("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
        ("_DELETE_ROW_COUNT", "long"),
        ("_EMBEDDED_FILE_INDEX", "bytes"),
        ("_FILE_SOURCE", "int"),
        ("_VALUE_STATS_COLS", texts),
        ("_EXTERNAL_PATH", "string"),
        ("_FIRST_ROW_ID", "long"),
        ("_WRITE_COLS", texts),
    ]
    if with_sequences:
        optional.append(("_WRITE_COLS_SEQUENCES", {"type": "array", "items": "long"}))
    return record(
        "record__FILE", required + [{"name": name, "type": nullable(kind), "default": None} for name, kind in optional]
    )
