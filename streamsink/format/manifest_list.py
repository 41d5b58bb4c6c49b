"""Manifest lists: the manifests of a snapshot, with what is needed to skip them."""

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from streamsink.errors import Misuse
from streamsink.format.avro_file import (
    DECODING_ERRORS, nullable, read_avro, record, stats_schema, unreadable, write_avro,
)
from streamsink.format.manifest import FileKind, ManifestEntry, check_version
from streamsink.format.partition_stats import partition_stats
from streamsink.format.simple_stats import SimpleStats
from streamsink.format.types import DataType

MANIFEST_LIST_VERSION = 2


@dataclass(frozen=True)
class ManifestFileMeta:
    """One manifest of a list. ``file_size`` in bytes and exact: a wrong one makes Java read nothing.

    ``total_buckets`` and ``extra_files`` are written by newer writers only and carried along.
    """

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: Optional[int] = None
    max_bucket: Optional[int] = None
    min_level: Optional[int] = None
    max_level: Optional[int] = None
    min_row_id: Optional[int] = None
    max_row_id: Optional[int] = None
    total_buckets: Optional[int] = None
    extra_files: Optional[Tuple[str, ...]] = None

    @classmethod
    def of(cls, name: str, size: int, entries: Sequence[ManifestEntry],
           partition_types: Sequence[DataType]) -> "ManifestFileMeta":
        """The record of a manifest of ``size`` bytes. Raises: Misuse ``manifest.empty`` without entries."""
        if not entries:
            raise Misuse(f"manifest {name} has no entries", kind="manifest.empty")
        added = sum(1 for e in entries if e.kind is FileKind.ADD)
        buckets = [e.bucket for e in entries]
        levels = [e.file.level for e in entries]
        first_ids = [e.file.first_row_id for e in entries if e.file.first_row_id is not None]
        min_row = max_row = None
        if len(first_ids) == len(entries):
            min_row = min(first_ids)
            max_row = max((e.file.first_row_id or 0) + e.file.row_count - 1 for e in entries)
        return cls(name, size, added, len(entries) - added,
                   partition_stats([e.partition for e in entries], partition_types),
                   max(e.file.schema_id for e in entries), min(buckets), max(buckets), min(levels), max(levels),
                   min_row, max_row)

    def _to_record(self) -> Dict[str, Any]:
        out = {"_VERSION": MANIFEST_LIST_VERSION, "_PARTITION_STATS": self.partition_stats.to_record(),
               "_EXTRA_FILES": None if self.extra_files is None else list(self.extra_files)}
        for name in _PLAIN_REQUIRED + _OPTIONAL_INTS + _OPTIONAL_LONGS + ("total_buckets",):
            out["_" + name.upper()] = getattr(self, name)
        return out


_PLAIN_REQUIRED = ("file_name", "file_size", "num_added_files", "num_deleted_files", "schema_id")
_OPTIONAL_INTS = ("min_bucket", "max_bucket", "min_level", "max_level")
_OPTIONAL_LONGS = ("min_row_id", "max_row_id")


def _schema(with_extras: bool) -> Dict[str, Any]:
    fields = [{"name": "_VERSION", "type": "int"}, {"name": "_FILE_NAME", "type": "string"}]
    fields += [{"name": n, "type": "long"} for n in ("_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES")]
    fields += [{"name": "_PARTITION_STATS", "type": stats_schema("record__PARTITION_STATS")},
               {"name": "_SCHEMA_ID", "type": "long"}]
    optional: List[Tuple[str, Any]] = [("_" + n.upper(), "int") for n in _OPTIONAL_INTS]
    optional += [("_" + n.upper(), "long") for n in _OPTIONAL_LONGS]
    if with_extras:
        optional += [("_TOTAL_BUCKETS", "int"), ("_EXTRA_FILES", {"type": "array", "items": "string"})]
    fields += [{"name": name, "type": nullable(kind), "default": None} for name, kind in optional]
    return record("record", fields)


def write_manifest_list(metas: Sequence[ManifestFileMeta], *, codec: str = "zstandard", level: int = 1) -> bytes:
    """The bytes of a manifest list; an empty one is a valid file and the base of a first snapshot."""
    with_extras = any(m.total_buckets is not None or m.extra_files is not None for m in metas)
    return write_avro(_schema(with_extras), [m._to_record() for m in metas], codec=codec, level=level)


def read_manifest_list(data: bytes, name: str) -> List[ManifestFileMeta]:
    """The manifests of a list; ``name`` is the file's name. Unknown columns are ignored.

    Raises: Corrupt ``manifest.corrupt`` (unreadable, torn) or ``manifest.version``.
    """
    metas = []
    for found in read_avro(data, name):
        check_version(found, MANIFEST_LIST_VERSION, name)
        try:
            values = {n: found["_" + n.upper()] for n in _PLAIN_REQUIRED}
            for n in _OPTIONAL_INTS + _OPTIONAL_LONGS + ("total_buckets",):
                values[n] = found.get("_" + n.upper())
            extra = found.get("_EXTRA_FILES")
            metas.append(ManifestFileMeta(partition_stats=SimpleStats.from_record(found["_PARTITION_STATS"]),
                                          extra_files=None if extra is None else tuple(extra), **values))
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
    return metas
