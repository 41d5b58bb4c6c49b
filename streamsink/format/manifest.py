"""Manifests: the files that a commit adds to the table or deletes from it."""

import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from streamsink.errors import Corrupt
from streamsink.format.avro_file import (
    DECODING_ERRORS,
    open_blocks,
    parsed,
    read_avro,
    read_blocks,
    record,
    unreadable,
    write_avro,
)
from streamsink.format.data_file import DataFileMeta, file_schema

MANIFEST_VERSION = 2

Identity = tuple[Any, ...]
#: The number of files that a manifest adds, and the number that it deletes.
Counts = tuple[int, int]
#: The beginning of a data file's name as our writers choose it; only files of one writer share it. Two such beginnings
#: never overlap.
_OWN_NAME = re.compile(rb"data-[0-9a-f-]{36}")


class FileKind(IntEnum):
    """What an entry does to its file."""

    ADD = 0
    DELETE = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file that is added or deleted, as Paimon's class of this name.

    ``partition`` is a BinaryRow with arity prefix.
    """

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> Identity:
        """The key that two entries about the same file have in common. The level is part of it."""
        f = self.file
        return (
            self.partition,
            self.bucket,
            f.level,
            f.file_name,
            f.extra_files,
            f.embedded_file_index,
            f.external_path,
        )

    @property
    def deleting(self) -> "ManifestEntry":
        """The entry that removes this file."""
        return replace(self, kind=FileKind.DELETE)


@functools.lru_cache
def manifest_schema(with_sequences: bool) -> dict[str, Any]:
    """The Avro schema of a manifest's records: Java's fields in Java's order."""
    return parsed(
        record(
            "record",
            [
                {"name": "_VERSION", "type": "int"},
                {"name": "_KIND", "type": "int"},
                {"name": "_PARTITION", "type": "bytes"},
                {"name": "_BUCKET", "type": "int"},
                {"name": "_TOTAL_BUCKETS", "type": "int"},
                {"name": "_FILE", "type": file_schema(with_sequences)},
            ],
        )
    )


def write_manifest(entries: Sequence[ManifestEntry], *, codec: str = "zstandard", level: int = 1) -> bytes:
    """The bytes of a manifest.

    ``codec`` is the name of an Avro codec that Java can read (null, deflate, zstandard), ``level`` its compression
    level.
    """
    with_sequences = any(e.file.write_cols_sequences is not None for e in entries)
    return write_avro(manifest_schema(with_sequences), [_to_record(e) for e in entries], codec=codec, level=level)


def _to_record(entry: ManifestEntry) -> dict[str, Any]:
    return {
        "_VERSION": MANIFEST_VERSION,
        "_KIND": int(entry.kind),
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": entry.file.to_record(),
    }


def iter_manifest(
    data: bytes, name: str, partitions: Collection[bytes] | None = None, counts: Counts | None = None
) -> Iterator[ManifestEntry]:
    """Yield the entries of a manifest, only those of ``partitions`` if given.

    ``name`` is the file's name, for messages. Raises: Corrupt ``manifest.version``, or ``manifest.corrupt`` if the
    manifest is unreadable, torn, or does not have the ``counts`` of its manifest list, perhaps only after the last
    entry.
    """
    for found in checked_records(data, name, counts):
        try:
            if partitions is not None and found["_PARTITION"] not in partitions:
                continue
            entry = ManifestEntry(
                FileKind(found["_KIND"]),
                found["_PARTITION"],
                found["_BUCKET"],
                found["_TOTAL_BUCKETS"],
                DataFileMeta.from_record(found["_FILE"]),
            )
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
        yield entry


def checked_records(data: bytes, name: str, counts: Counts | None) -> Iterator[dict[str, Any]]:
    """Yield the Avro records of a manifest. Raises like ``iter_manifest``."""
    seen = [0, 0]
    for found in read_avro(data, name):
        if found.get("_VERSION") != MANIFEST_VERSION:
            check_version(found, MANIFEST_VERSION, name)
        try:
            seen[found["_KIND"]] += 1
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
        yield found
    if counts is not None and tuple(seen) != counts:
        raise unreadable(
            name,
            ValueError(
                f"{seen[0]} files added and {seen[1]} deleted, its manifest list says {counts[0]} and {counts[1]}"
            ),
        )


class NameSearch:
    """Finds the manifests that may contain entries about given data files, without decoding the entries."""

    def __init__(self, files: Iterable[str]):
        """files: names of data files. A name that our writers would not choose may be in any manifest."""
        found = [_OWN_NAME.match(file.encode()) for file in files]
        own = {match[0] for match in found if match is not None}
        self._wanted = None if None in found else own

    def may_find(self, data: bytes, name: str, counts: Counts) -> bool:
        """Whether the manifest may contain one of the files; False is certain. Raises like ``check_blocks``."""
        wanted = self._wanted
        found = wanted is None
        for encoded in _checked_blocks(data, name, counts):
            found = found or wanted is None or not wanted.isdisjoint(_OWN_NAME.findall(encoded))
        return found


def check_blocks(data: bytes, name: str, counts: Counts) -> None:
    """Raise like ``iter_manifest``, without decoding the entries.

    Therefore only the version of the first entry of each block is checked, and only the sum of the counts.
    """
    for _ in _checked_blocks(data, name, counts):
        pass


def _checked_blocks(data: bytes, name: str, counts: Counts) -> Iterator[bytes]:
    """Yield the encoded entries of each block. Raises like ``check_blocks``."""
    seen = 0
    for count, first, encoded in read_blocks(data, name):
        check_version(first, MANIFEST_VERSION, name)
        seen += count
        yield encoded
    _check_sum(seen, counts, name)


def _check_sum(seen: int, counts: Counts, name: str) -> None:
    if seen != sum(counts):
        raise unreadable(name, ValueError(f"{seen} entries, its manifest list says {sum(counts)}"))


def read_manifest(data: bytes, name: str) -> list[ManifestEntry]:
    """All entries of a manifest. Raises like ``iter_manifest``."""
    return list(iter_manifest(data, name))


#: What a scan needs of a data file: partition, bucket, file name, size in bytes, rows, schema id. It is a plain tuple,
#: because there may be very many of them.
LiveFile = tuple[bytes, int, str, int, int, int]
#: A function from (partition, the Avro record ``_FILE``) to whether a scan wants the file.
Keep = Callable[[bytes, Mapping[str, Any]], bool]


def iter_files(
    data: bytes,
    name: str,
    counts: Counts,
    keep: Keep | None = None,
    deleted: Collection[Identity] = (),
    *,
    marks: Collection[bytes] | None = None,
) -> Iterator[LiveFile]:
    """Yield the files that a manifest adds, that are not ``deleted``, and that ``keep`` wants.

    marks: each entry that ``keep`` wants contains one of them, as it is encoded; None where nothing is known of that.
    Raises like ``iter_manifest``; like ``check_blocks`` for entries that contain none of the ``marks``.
    """
    for found in checked_records(data, name, counts) if marks is None else _marked(data, name, counts, marks):
        try:
            file, partition = found["_FILE"], found["_PARTITION"]
            if found["_KIND"] or (keep is not None and not keep(partition, file)):
                continue
            if deleted and _identity(found) in deleted:
                continue
            item = (
                partition,
                found["_BUCKET"],
                file["_FILE_NAME"],
                file["_FILE_SIZE"],
                file["_ROW_COUNT"],
                file["_SCHEMA_ID"],
            )
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
        yield item


def _marked(data: bytes, name: str, counts: Counts, marks: Collection[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the Avro records of each block that contains one of the marks. Other blocks are not decoded."""
    seen = 0
    for count, records, encoded in open_blocks(data, name):
        seen += count
        is_marked = any(mark in encoded for mark in marks)
        for found in records if is_marked else itertools.islice(records, 1):
            check_version(found, MANIFEST_VERSION, name)
            if is_marked:
                yield found
    _check_sum(seen, counts, name)


def iter_records(data: bytes, name: str, counts: Counts) -> Iterator[tuple[FileKind, Identity, dict[str, Any]]]:
    """Yield the entries of a manifest as (kind, identity of the file, Avro record). Raises like ``iter_manifest``.

    This is for passing entries on unchanged, and much cheaper than building them.
    """
    for found in checked_records(data, name, counts):
        try:
            item = FileKind(found["_KIND"]), _identity(found), found
        except DECODING_ERRORS as bad:
            raise unreadable(name, bad) from bad
        yield item


def _identity(found: dict[str, Any]) -> Identity:
    file = found["_FILE"]
    return (
        found["_PARTITION"],
        found["_BUCKET"],
        file["_LEVEL"],
        file["_FILE_NAME"],
        tuple(file["_EXTRA_FILES"]),
        file.get("_EMBEDDED_FILE_INDEX"),
        file.get("_EXTERNAL_PATH"),
    )


def check_version(found: dict[str, Any], expected: int, name: str) -> None:
    """Raises: Corrupt ``manifest.version`` if a record has another ``_VERSION``."""
    if found.get("_VERSION") != expected:
        raise Corrupt(
            f"{name} has records of version {found.get('_VERSION')!r}, known is {expected}; a newer Paimon "
            "may have written it. Nothing was written. Use a streamsink that knows it, or roll the table back to an "
            "older snapshot",
            kind="manifest.version",
        )
