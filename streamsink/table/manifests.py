"""Reading and rewriting the manifests of a snapshot."""

import itertools
from collections.abc import Collection, Iterator, Sequence

from streamsink.errors import Corrupt
from streamsink.format.binary_row import decode_physical
from streamsink.format.index_manifest import IndexManifestEntry, read_index_manifest
from streamsink.format.manifest import ManifestEntry, merge_entries, read_manifest, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta, read_manifest_list
from streamsink.format.partition_stats import may_hold
from streamsink.format.snapshot import Snapshot
from streamsink.format.types import DataType
from streamsink.storage.file_io import FileIO
from streamsink.table.layout import Layout
from streamsink.table.manifest_merge import cancel_pairs, merge_small


class Manifests:
    """Manifest lists and manifests of one table. Remembers the list of the newest snapshot only."""

    def __init__(self, file_io: FileIO, layout: Layout, partition_types: Sequence[DataType]):
        self._io = file_io
        self._at = layout
        self._partition_types = tuple(partition_types)
        self._known: tuple[Snapshot, list[ManifestFileMeta]] | None = None

    def all_of(self, snapshot: Snapshot | None) -> list[ManifestFileMeta]:
        """Base and delta manifests of a snapshot, in order."""
        if snapshot is None:
            return []
        if self._known is None or self._known[0] != snapshot:
            metas = self.base_of(snapshot) + self.delta_of(snapshot)
            self._known = (snapshot, metas)
        return self._known[1]

    def base_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        return self._list(snapshot.base_manifest_list)

    def delta_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        return self._list(snapshot.delta_manifest_list)

    def remember(self, snapshot: Snapshot, metas: list[ManifestFileMeta]) -> None:
        """A snapshot that was just published here: its lists need not be read again."""
        self._known = (snapshot, metas)

    def entries_of(
        self, snapshot: Snapshot, partitions: Collection[bytes] | None = None
    ) -> Iterator[ManifestEntry]:
        """The live entries: every ADD that no DELETE of any manifest hides.

        partitions: only entries of these (``ManifestEntry.partition``); manifests that hold none of them are not read.
        """
        metas = self.all_of(snapshot)
        if partitions is not None:
            rows = [decode_physical(partition, self._partition_types) for partition in partitions]
            metas = [meta for meta in metas if may_hold(meta.partition_stats, rows, self._partition_types)]
        yield from merge_entries([e for meta in metas for e in self.read(meta.file_name, partitions)])

    def index_of(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """Index files as of a snapshot."""
        if snapshot.index_manifest is None:
            return []
        path = self._at.manifest(snapshot.index_manifest)
        return read_index_manifest(self._bytes(path), path)

    def read(self, name: str, partitions: Collection[bytes] | None = None) -> list[ManifestEntry]:
        """Entries of one manifest, of these partitions unless None. Raises Corrupt that names the file."""
        path = self._at.manifest(name)
        return read_manifest(self._bytes(path), path, partitions)

    def merge(
        self, metas: Sequence[ManifestFileMeta], options: tuple[int, int], name: str
    ) -> list[ManifestFileMeta]:
        """The same entries in fewer files, when Paimon's minor rule says so; see ``manifest_merge``.

        ``name``: unique to this try of a commit; the new files carry it.
        """
        target_bytes, min_count = options
        numbers = itertools.count()
        return merge_small(metas, target_bytes, min_count, lambda run: self._rewrite(run, f"{name}-m{next(numbers)}"))

    def _rewrite(self, run: list[ManifestFileMeta], suffix: str) -> list[ManifestFileMeta]:
        entries = cancel_pairs([e for meta in run for e in self.read(meta.file_name)])
        if not entries:
            return []
        name = f"manifest-{suffix}"
        data = write_manifest(entries)
        self._io.write(self._at.manifest(name), data)
        return [ManifestFileMeta.of(name, len(data), entries, self._partition_types)]

    def _list(self, name: str) -> list[ManifestFileMeta]:
        path = self._at.manifest(name)
        return read_manifest_list(self._bytes(path), path)

    def _bytes(self, path: str) -> bytes:
        try:
            return self._io.read(path)
        except FileNotFoundError as missing:
            raise Corrupt(
                f"{path}: the manifest is missing, although a snapshot refers to it; restore it from a backup, or roll "
                "the table back to a snapshot that is whole",
                kind="manifest.missing",
            ) from missing
