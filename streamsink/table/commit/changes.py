"""What a commit is made of: messages of writers and compactors, sorted into an append part and a compact part."""

from collections.abc import Iterable
from dataclasses import dataclass

from streamsink.format.data_file import DataFileMeta
from streamsink.format.index_manifest import DELETION_VECTORS_INDEX, IndexFileMeta, IndexManifestEntry
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.snapshot import APPEND, OVERWRITE


@dataclass(frozen=True)
class Increment:
    """What one part of a message does in its bucket: data files and index files that go and that come."""

    deleted: tuple[DataFileMeta, ...] = ()
    new: tuple[DataFileMeta, ...] = ()
    deleted_index: tuple[IndexFileMeta, ...] = ()
    new_index: tuple[IndexFileMeta, ...] = ()


@dataclass(frozen=True)
class CommitMessage:
    """One bucket's share of a commit. ``partition``: BinaryRow with arity prefix.

    append: what writing did. compact: what compacting did (``deleted``: its input, ``new``: its output).
    """

    partition: bytes
    bucket: int
    total_buckets: int
    append: Increment = Increment()
    compact: Increment = Increment()


@dataclass(frozen=True)
class Changes:
    """Entries of one snapshot: of its manifests, and of its index manifest."""

    entries: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries or self.index)

    @property
    def rows(self) -> int:
        """Rows that come, minus rows that go."""
        return sum(e.file.row_count if e.kind is FileKind.ADD else -e.file.row_count for e in self.entries)

    @property
    def partitions(self) -> frozenset[bytes]:
        """Partitions of all entries."""
        return frozenset(e.partition for e in self.entries) | frozenset(e.partition for e in self.index)

    @property
    def schema_ids(self) -> frozenset[int]:
        """Of the schemas that files which come were written with."""
        return frozenset(e.file.schema_id for e in self.entries if e.kind is FileKind.ADD)

    @property
    def append_kind(self) -> str:
        """APPEND; or OVERWRITE when something that readers know goes: a data file, or rows by deletion vectors."""
        goes = any(e.kind is FileKind.DELETE for e in self.entries)
        return OVERWRITE if goes or any(e.file.index_type == DELETION_VECTORS_INDEX for e in self.index) else APPEND


def collect(messages: Iterable[CommitMessage]) -> tuple[Changes, Changes]:
    """The append part and the compact part of these messages: each becomes a snapshot of its own."""
    messages = list(messages)
    return _changes((m, m.append) for m in messages), _changes((m, m.compact) for m in messages)


def _changes(parts: Iterable[tuple[CommitMessage, Increment]]) -> Changes:
    entries: list[ManifestEntry] = []
    index: list[IndexManifestEntry] = []
    for message, part in parts:
        for kind, files, indexes in (
            (FileKind.DELETE, part.deleted, part.deleted_index),
            (FileKind.ADD, part.new, part.new_index),
        ):
            where = (kind, message.partition, message.bucket)
            entries += [ManifestEntry(*where, message.total_buckets, file) for file in files]
            index += [IndexManifestEntry(*where, file) for file in indexes]
    return Changes(tuple(entries), tuple(index))
