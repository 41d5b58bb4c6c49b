"""The content of a commit: messages of writers and compactors, sorted into an append part and a compact part."""

from collections.abc import Iterable
from dataclasses import dataclass

from streamsink.format.data_file import DataFileMeta
from streamsink.format.index_manifest import DELETION_VECTORS_INDEX, IndexFileMeta, IndexManifestEntry
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.snapshot import APPEND, OVERWRITE


@dataclass(frozen=True)
class Increment:
    """What one part of a message does in its bucket: the data files and index files that it deletes and adds."""

    deleted: tuple[DataFileMeta, ...] = ()
    new: tuple[DataFileMeta, ...] = ()
    deleted_index: tuple[IndexFileMeta, ...] = ()
    new_index: tuple[IndexFileMeta, ...] = ()


@dataclass(frozen=True)
class CommitMessage:
    """One bucket's share of a commit.

    partition: BinaryRow bytes with the arity in front. append: what writing did. compact: what compacting did
    (``deleted`` is its input, ``new`` its output).
    """

    partition: bytes
    bucket: int
    total_buckets: int
    append: Increment = Increment()
    compact: Increment = Increment()


@dataclass(frozen=True)
class Changes:
    """The changes of one snapshot: entries of its manifests, and of its index manifest."""

    entries: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries or self.index)

    @property
    def rows(self) -> int:
        """Number of rows in added files minus number of rows in deleted files."""
        return sum(e.file.row_count if e.kind is FileKind.ADD else -e.file.row_count for e in self.entries)

    @property
    def partitions(self) -> frozenset[bytes]:
        """The partitions of all entries, as BinaryRow bytes."""
        return frozenset(e.partition for e in self.entries) | frozenset(e.partition for e in self.index)

    @property
    def schema_ids(self) -> frozenset[int]:
        """Numbers of the schemas with which the added files were written."""
        return frozenset(e.file.schema_id for e in self.entries if e.kind is FileKind.ADD)

    @property
    def append_kind(self) -> str:
        """APPEND, or OVERWRITE when rows that readers see are removed: with a data file, or by deletion vectors."""
        goes = any(e.kind is FileKind.DELETE for e in self.entries)
        return OVERWRITE if goes or any(e.file.index_type == DELETION_VECTORS_INDEX for e in self.index) else APPEND


def collect(messages: Iterable[CommitMessage]) -> tuple[Changes, Changes]:
    """The append part and the compact part of these messages. Each part becomes a snapshot of its own."""
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
