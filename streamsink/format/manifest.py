"""Manifests: the files that a commit adds to or deletes from the table."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Collection, Dict, Iterable, List, Optional, Sequence, Tuple

from streamsink.errors import Corrupt
from streamsink.format.avro_file import DECODING_ERRORS, read_avro, record, unreadable, write_avro
from streamsink.format.data_file import DataFileMeta, file_schema

MANIFEST_VERSION = 2

Identity = Tuple[Any, ...]


class FileKind(IntEnum):
    """What an entry does to its file."""

    ADD = 0
    DELETE = 1


@dataclass(frozen=True)
class ManifestEntry:
    """One file added or deleted. ``partition`` is a BinaryRow with arity prefix."""

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> Identity:
        """What makes two entries speak of the same file. The level is part of it."""
        f = self.file
        return (self.partition, self.bucket, f.level, f.file_name, f.extra_files, f.embedded_file_index,
                f.external_path)

    @property
    def deleting(self) -> "ManifestEntry":
        """The entry that removes this file."""
        return replace(self, kind=FileKind.DELETE)


def write_manifest(entries: Sequence[ManifestEntry], *, codec: str = "zstandard", level: int = 1) -> bytes:
    """The bytes of a manifest. ``codec`` is an Avro codec name that Java can read (null, deflate, zstandard)."""
    with_sequences = any(e.file.write_cols_sequences is not None for e in entries)
    schema = record("record", [
        {"name": "_VERSION", "type": "int"}, {"name": "_KIND", "type": "int"}, {"name": "_PARTITION", "type": "bytes"},
        {"name": "_BUCKET", "type": "int"}, {"name": "_TOTAL_BUCKETS", "type": "int"},
        {"name": "_FILE", "type": file_schema(with_sequences)},
    ])
    return write_avro(schema, [_to_record(e) for e in entries], codec=codec, level=level)


def _to_record(entry: ManifestEntry) -> Dict[str, Any]:
    return {"_VERSION": MANIFEST_VERSION, "_KIND": int(entry.kind), "_PARTITION": entry.partition,
            "_BUCKET": entry.bucket, "_TOTAL_BUCKETS": entry.total_buckets, "_FILE": entry.file.to_record()}


def read_manifest(data: bytes, name: str, partitions: Optional[Collection[bytes]] = None) -> List[ManifestEntry]:
    """The entries of a manifest, only those of ``partitions`` when given; ``name`` is the file's name.

    Raises: Corrupt ``manifest.corrupt`` (unreadable, torn) or ``manifest.version``.
    """
    entries = []
    for found in read_avro(data, name):
        check_version(found, MANIFEST_VERSION, name)
        try:
            if partitions is not None and found["_PARTITION"] not in partitions:
                continue
            entries.append(ManifestEntry(FileKind(found["_KIND"]), found["_PARTITION"], found["_BUCKET"],
                                         found["_TOTAL_BUCKETS"], DataFileMeta.from_record(found["_FILE"])))
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
    return entries


def check_version(found: Dict[str, Any], expected: int, name: str) -> None:
    """Raises: Corrupt ``manifest.version`` when a record has another ``_VERSION``."""
    if found.get("_VERSION") != expected:
        raise Corrupt(f"{name} has records of version {found.get('_VERSION')!r}, known is {expected}; a newer Paimon "
                      "may have written it", kind="manifest.version")


def merge_entries(entries: Iterable[ManifestEntry]) -> List[ManifestEntry]:
    """The live files, in order: ADD entries whose identity no DELETE entry has, wherever it stands.

    An identity that is added twice comes out twice: so do all readers see it.
    """
    every = list(entries)
    deleted = {e.identity for e in every if e.kind is FileKind.DELETE}
    return [e for e in every if e.kind is FileKind.ADD and e.identity not in deleted]
