"""The content of a commit: what it adds and deletes, and what its tries write."""

from dataclasses import dataclass

from streamsink.format.index_manifest import IndexManifestEntry
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import Snapshot

# Name and size in bytes of a file in the manifest folder.
Written = tuple[str, int]


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


@dataclass(frozen=True)
class Files:
    """What a try has written.

    index: name of the index manifest, old or new. metas: all manifests of the snapshot. own: paths that only this try's
    snapshot would refer to. shared_delta_list: the list that the next try may use as well.
    """

    base_list: Written
    delta_list: Written
    index: str | None
    metas: list[ManifestFileMeta]
    own: list[str]
    shared_delta_list: Written | None


@dataclass(frozen=True)
class Ahead:
    """What the first try of a commit needs, written before the commit began.

    newest: the snapshot on which it is built; None for the first one. commit_name: ``CommitRequest.name``.
    behind: where it is built on the snapshot of a commit that is not made yet, the name of that one's base list, which
    no other snapshot has.
    """

    newest: Snapshot | None
    commit_name: str
    files: Files
    behind: str | None = None

    def is_on(self, newest: Snapshot | None) -> bool:
        """Whether it is built on this snapshot."""
        if self.behind is None:
            return newest == self.newest
        return newest is not None and newest.base_manifest_list == self.behind
