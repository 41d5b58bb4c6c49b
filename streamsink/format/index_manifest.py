"""Index manifests: the complete state of a snapshot's hash indexes and deletion vectors.

An index manifest is rewritten when any of that state changes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamsink.errors import Conflict
from streamsink.format.avro_file import DECODING_ERRORS, nullable, parsed, read_avro, record, unreadable, write_avro
from streamsink.format.manifest import FileKind, check_version

INDEX_MANIFEST_VERSION = 1
HASH_INDEX = "HASH"
DELETION_VECTORS_INDEX = "DELETION_VECTORS"


@dataclass(frozen=True)
class DeletionVectorRange:
    """Where one data file's deletion vector is in the index file, in bytes. ``cardinality``: rows deleted, or None."""

    data_file: str
    offset: int
    length: int
    cardinality: int | None = None


@dataclass(frozen=True)
class GlobalIndexMeta:
    """What a global index covers. It is carried along, never made here."""

    row_range_start: int
    row_range_end: int
    index_field_id: int
    extra_field_ids: tuple[int, ...] | None = None
    index_meta: bytes | None = None
    source_meta: bytes | None = None


@dataclass(frozen=True)
class IndexFileMeta:
    """One file below ``index/``. ``file_size`` is in bytes; ``row_count`` counts its hashes or deletion vectors."""

    index_type: str
    file_name: str
    file_size: int
    row_count: int
    dv_ranges: tuple[DeletionVectorRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndexMeta | None = None


@dataclass(frozen=True)
class IndexManifestEntry:
    """One index file that is added or deleted, as Paimon's class of this name.

    ``partition`` is a BinaryRow with arity prefix.
    """

    kind: FileKind
    partition: bytes
    bucket: int
    file: IndexFileMeta

    @property
    def deleting(self) -> "IndexManifestEntry":
        """The entry that removes this index file."""
        return replace(self, kind=FileKind.DELETE)

    @property
    def slot(self) -> tuple[bytes, int, str]:
        """The key under which, in a table with buckets, only one index exists at a time."""
        return self.partition, self.bucket, self.file.index_type


def combine(
    before: Sequence[IndexManifestEntry], changes: Sequence[IndexManifestEntry], *, unaware_buckets: bool
) -> list[IndexManifestEntry]:
    """The state after these changes: deletions are applied first, then additions, by Paimon's rules.

    A bucket has one index of each type, and an added one replaces it. Deletion vectors of a table without buckets
    and global indexes are identified by their file's name instead. Raises: Conflict ``commit.index-changed`` if a
    file to delete does not exist or a file to add exists already, because then another writer has changed it.
    """
    state = {_key(e, unaware_buckets): e for e in before}
    for entry in (e for e in changes if e.kind is FileKind.DELETE):
        if state.pop(_key(entry, unaware_buckets), None) is None and _by_name(entry, unaware_buckets):
            raise _changed(entry, "to be deleted is not in the table")
    for entry in (e for e in changes if e.kind is FileKind.ADD):
        if _by_name(entry, unaware_buckets) and _key(entry, unaware_buckets) in state:
            raise _changed(entry, "to be added is in the table already")
        state[_key(entry, unaware_buckets)] = entry
    return list(state.values())


def _by_name(entry: IndexManifestEntry, unaware_buckets: bool) -> bool:
    kind = entry.file.index_type
    return kind not in (HASH_INDEX, DELETION_VECTORS_INDEX) or (kind == DELETION_VECTORS_INDEX and unaware_buckets)


def _key(entry: IndexManifestEntry, unaware_buckets: bool) -> tuple[Any, ...]:
    return (entry.file.file_name,) if _by_name(entry, unaware_buckets) else entry.slot


def _changed(entry: IndexManifestEntry, what: str) -> Conflict:
    return Conflict(
        f"index file {entry.file.file_name} {what}: another writer changed it meanwhile", kind="commit.index-changed"
    )


def write_index_manifest(entries: Iterable[IndexManifestEntry], *, codec: str = "zstandard", level: int = 1) -> bytes:
    """The bytes of an index manifest."""
    return write_avro(_SCHEMA, [_to_record(e) for e in entries], codec=codec, level=level)


def read_index_manifest(data: bytes, name: str) -> list[IndexManifestEntry]:
    """The entries of an index manifest; ``name`` is the file's name, for messages.

    Raises: Corrupt ``manifest.corrupt`` or ``manifest.version``.
    """
    entries = []
    for found in read_avro(data, name):
        check_version(found, INDEX_MANIFEST_VERSION, name)
        try:
            entries.append(_from_record(found))
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
    return entries


_RANGE = record(
    "record__DELETIONS_VECTORS_RANGES",
    [
        {"name": "f0", "type": "string"},
        {"name": "f1", "type": "int"},
        {"name": "f2", "type": "int"},
        {"name": "_CARDINALITY", "type": nullable("long"), "default": None},
    ],
)
_GLOBAL = record(
    "record__GLOBAL_INDEX",
    [
        {"name": "_ROW_RANGE_START", "type": "long"},
        {"name": "_ROW_RANGE_END", "type": "long"},
        {"name": "_INDEX_FIELD_ID", "type": "int"},
        {"name": "_EXTRA_FIELD_IDS", "type": nullable({"type": "array", "items": "int"}), "default": None},
        {"name": "_INDEX_META", "type": nullable("bytes"), "default": None},
        {"name": "_SOURCE_META", "type": nullable("bytes"), "default": None},
    ],
)
_SCHEMA = parsed(
    record(
        "record",
        [
            {"name": "_VERSION", "type": "int"},
            {"name": "_KIND", "type": "int"},
            {"name": "_PARTITION", "type": "bytes"},
            {"name": "_BUCKET", "type": "int"},
            {"name": "_INDEX_TYPE", "type": "string"},
            {"name": "_FILE_NAME", "type": "string"},
            {"name": "_FILE_SIZE", "type": "long"},
            {"name": "_ROW_COUNT", "type": "long"},
            {
                "name": "_DELETIONS_VECTORS_RANGES",
                "type": nullable({"type": "array", "items": nullable(_RANGE)}),
                "default": None,
            },
            {"name": "_EXTERNAL_PATH", "type": nullable("string"), "default": None},
            {"name": "_GLOBAL_INDEX", "type": nullable(_GLOBAL), "default": None},
        ],
    )
)


def _to_record(entry: IndexManifestEntry) -> dict[str, Any]:
    file, ranges, index = entry.file, None, None
    if file.dv_ranges is not None:
        ranges = [
            {"f0": r.data_file, "f1": r.offset, "f2": r.length, "_CARDINALITY": r.cardinality} for r in file.dv_ranges
        ]
    if file.global_index is not None:
        g = file.global_index
        index = {
            "_ROW_RANGE_START": g.row_range_start,
            "_ROW_RANGE_END": g.row_range_end,
            "_INDEX_FIELD_ID": g.index_field_id,
            "_INDEX_META": g.index_meta,
            "_SOURCE_META": g.source_meta,
            "_EXTRA_FIELD_IDS": None if g.extra_field_ids is None else list(g.extra_field_ids),
        }
    return {
        "_VERSION": INDEX_MANIFEST_VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": file.index_type,
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": ranges,
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": index,
    }


def _from_record(found: dict[str, Any]) -> IndexManifestEntry:
    ranges, g = found.get("_DELETIONS_VECTORS_RANGES"), found.get("_GLOBAL_INDEX")
    if ranges is not None:
        ranges = tuple(DeletionVectorRange(r["f0"], r["f1"], r["f2"], r.get("_CARDINALITY")) for r in ranges if r)
    if g is not None:
        extra = g.get("_EXTRA_FIELD_IDS")
        g = GlobalIndexMeta(
            g["_ROW_RANGE_START"],
            g["_ROW_RANGE_END"],
            g["_INDEX_FIELD_ID"],
            None if extra is None else tuple(extra),
            g.get("_INDEX_META"),
            g.get("_SOURCE_META"),
        )
    file = IndexFileMeta(
        found["_INDEX_TYPE"],
        found["_FILE_NAME"],
        found["_FILE_SIZE"],
        found["_ROW_COUNT"],
        ranges,
        found.get("_EXTERNAL_PATH"),
        g,
    )
    return IndexManifestEntry(FileKind(found["_KIND"]), found["_PARTITION"], found["_BUCKET"], file)
