"""The content of a commit: what it adds and deletes."""

from dataclasses import dataclass

from streamsink.format.index_manifest import IndexManifestEntry
from streamsink.format.manifest import FileKind, ManifestEntry


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
