"""Manifest lists: the manifests of a snapshot, with what is needed to skip them."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.errors import Misuse
from streamsink.format.avro_file import (
    DECODING_ERRORS,
    nullable,
    parsed,
    read_avro,
    record,
    stats_schema,
    unreadable,
    write_avro,
)
from streamsink.format.manifest import Counts, ManifestEntry, check_version
from streamsink.format.partition_stats import partition_stats
from streamsink.format.simple_stats import SimpleStats
from streamsink.format.types import DataType

MANIFEST_LIST_VERSION = 2


@dataclass(frozen=True)
class ManifestFileMeta:
    """One manifest of a list, as Paimon's class of this name.

    ``file_size`` is in bytes and must be exact: with a wrong size Java reads nothing. ``total_buckets`` and
    ``extra_files`` are written only by newer writers, and are carried along.
    """

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None
    total_buckets: int | None = None
    extra_files: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls, name: str, size: int, entries: Sequence[ManifestEntry], partition_types: Sequence[DataType]
    ) -> "ManifestFileMeta":
        """The list's record of a manifest with these entries, whose file has ``size`` bytes.

        Raises: Misuse ``manifest.empty`` if there are no entries.
        """
        summary = EntrySummary()
        for e in entries:
            f = e.file
            summary.add(e.kind, e.partition, e.bucket, (f.schema_id, f.level, f.first_row_id, f.row_count))
        return summary.meta(name, size, partition_types)

    @property
    def counts(self) -> Counts:
        """How many added and deleted files a reader must find in the manifest."""
        return self.num_added_files, self.num_deleted_files

    @functools.cached_property
    def _record(self) -> dict[str, Any]:
        """The Avro record. It is cached, because the same manifests are in one list after another."""
        out: dict[str, Any] = {
            "_VERSION": MANIFEST_LIST_VERSION,
            "_PARTITION_STATS": self.partition_stats.to_record(),
            "_EXTRA_FILES": None if self.extra_files is None else list(self.extra_files),
        }
        for name in _PLAIN_REQUIRED + _OPTIONAL_INTS + _OPTIONAL_LONGS + ("total_buckets",):
            out["_" + name.upper()] = getattr(self, name)
        return out


class EntrySummary:
    """What a manifest list says about a manifest, collected entry by entry."""

    def __init__(self) -> None:
        self._count = [0, 0]
        self._partitions: dict[bytes, int] = {}
        self._schema_id = 0
        self._buckets: set[int] = set()
        self._levels: set[int] = set()
        self._rows: tuple[int, int] | None = None
        self._all_rows = True

    def add(self, kind: int, partition: bytes, bucket: int, file: tuple[int, int, int | None, int]) -> None:
        """Add one entry; ``file`` is its schema id, level, first row id, and number of rows."""
        schema_id, level, first, rows = file
        self._count[kind] += 1
        self._partitions[partition] = self._partitions.get(partition, 0) + 1
        self._schema_id = max(self._schema_id, schema_id)
        self._buckets.add(bucket)
        self._levels.add(level)
        if first is None:
            self._all_rows = False
        elif self._all_rows:
            low, high = self._rows or (first, first)
            self._rows = min(low, first), max(high, first + rows - 1)

    def meta(self, name: str, size: int, partition_types: Sequence[DataType]) -> ManifestFileMeta:
        """The list's record of the manifest. Raises: Misuse ``manifest.empty`` if there were no entries."""
        if not self._partitions:
            raise Misuse(f"manifest {name} has no entries", kind="manifest.empty")
        added, deleted = self._count
        min_row, max_row = self._rows if self._all_rows and self._rows else (None, None)
        return ManifestFileMeta(
            name,
            size,
            added,
            deleted,
            partition_stats(self._partitions, partition_types),
            self._schema_id,
            min(self._buckets),
            max(self._buckets),
            min(self._levels),
            max(self._levels),
            min_row,
            max_row,
        )


_PLAIN_REQUIRED = ("file_name", "file_size", "num_added_files", "num_deleted_files", "schema_id")
_OPTIONAL_INTS = ("min_bucket", "max_bucket", "min_level", "max_level")
_OPTIONAL_LONGS = ("min_row_id", "max_row_id")


@functools.lru_cache
def _schema(with_extras: bool) -> dict[str, Any]:
    fields: list[dict[str, Any]] = [{"name": "_VERSION", "type": "int"}, {"name": "_FILE_NAME", "type": "string"}]
    fields += [{"name": n, "type": "long"} for n in ("_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES")]
    fields += [
        {"name": "_PARTITION_STATS", "type": stats_schema("record__PARTITION_STATS")},
        {"name": "_SCHEMA_ID", "type": "long"},
    ]
    optional: list[tuple[str, Any]] = [("_" + n.upper(), "int") for n in _OPTIONAL_INTS]
    optional += [("_" + n.upper(), "long") for n in _OPTIONAL_LONGS]
    if with_extras:
        optional += [("_TOTAL_BUCKETS", "int"), ("_EXTRA_FILES", {"type": "array", "items": "string"})]
    fields += [{"name": name, "type": nullable(kind), "default": None} for name, kind in optional]
    return parsed(record("record", fields))


def write_manifest_list(metas: Sequence[ManifestFileMeta], *, codec: str = "zstandard", level: int = 1) -> bytes:
    """The bytes of a manifest list. An empty list is a valid file, and the base of a first snapshot."""
    with_extras = any(m.total_buckets is not None or m.extra_files is not None for m in metas)
    return write_avro(_schema(with_extras), [m._record for m in metas], codec=codec, level=level)


def read_manifest_list(data: bytes, name: str) -> list[ManifestFileMeta]:
    """The manifests of a list; ``name`` is the file's name, for messages. Unknown columns are ignored.

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
            metas.append(
                ManifestFileMeta(
                    partition_stats=SimpleStats.from_record(found["_PARTITION_STATS"]),
                    extra_files=None if extra is None else tuple(extra),
                    **values,
                )
            )
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
    return metas
