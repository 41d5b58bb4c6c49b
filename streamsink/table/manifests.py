"""Reading, searching and merging the manifests of a table's snapshots."""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.format.binary_row import decode_physical
from streamsink.format.index_manifest import IndexManifestEntry, read_index_manifest
from streamsink.format.manifest import (
    FileKind,
    Identity,
    LiveFile,
    ManifestEntry,
    NameSearch,
    check_blocks,
    iter_files,
    iter_manifest,
    iter_records,
)
from streamsink.format.manifest_list import ManifestFileMeta, read_manifest_list
from streamsink.format.manifest_stream import ManifestStream
from streamsink.format.partition_stats import may_hold
from streamsink.format.snapshot import Snapshot
from streamsink.format.types import DataType
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import Questions
from streamsink.table.layout import Layout
from streamsink.table.manifest_merge import ManifestMerge, MergeOptions

# Bytes of manifests that are kept at most within ``Manifests.keeping``.
_MOST_KEPT = 8 * 2**20
# How many manifests are read at once. Each one has at most manifest.target-file-size, so this bounds the memory too.
_READ_AHEAD = 4


class FileFilter(Protocol):
    """Decides which manifests and files a reader needs; ``read/pruning.py`` has one.

    What it skips has no row that is wanted.

    marks: each manifest entry of a file that may be needed contains one of them, as it is encoded; None where nothing
    is known of that. So most of a large manifest need not be decoded.
    """

    @property
    def marks(self) -> Collection[bytes] | None: ...

    def may_hold(self, meta: ManifestFileMeta) -> bool:
        """Whether the manifest may name a file that is needed."""

    def keep(self, partition: bytes, file: Mapping[str, Any]) -> bool:
        """Whether the file may be needed. ``partition``: its BinaryRow bytes; ``file``: the Avro record ``_FILE``."""


class Manifests:
    """Manifest lists and manifests of one table.

    Only the lists of the snapshot that was asked for last are remembered. Another thread may ask for those of another
    one meanwhile, while it checks what was published, so what is remembered is looked at once in each call.
    """

    def __init__(self, file_io: FileIO, layout: Layout, partition_types: Sequence[DataType]):
        self._io = file_io
        self._at = layout
        self._partition_types = tuple(partition_types)
        self._known: tuple[Snapshot, list[ManifestFileMeta]] | None = None
        # Within ``keeping``, the bytes of manifests by path.
        self._kept: dict[str, bytes] | None = None
        # Others of the same table, for other threads, that are told what this one publishes.
        self.told: tuple[Manifests, ...] = ()

    def all_of(self, snapshot: Snapshot | None) -> list[ManifestFileMeta]:
        """The base and then the delta manifests of a snapshot, in the order of their lists. Raises Corrupt."""
        if snapshot is None:
            return []
        known = self.known_of(snapshot)
        if known is None:
            known = self.base_of(snapshot) + self.delta_of(snapshot)
            self._known = (snapshot, known)
        return known

    def known_of(self, snapshot: Snapshot) -> list[ManifestFileMeta] | None:
        """What ``all_of`` returns if that is known without asking the store, else None."""
        known = self._known
        return known[1] if known is not None and known[0] == snapshot else None

    def known_names(self) -> frozenset[str]:
        """Names of the manifests of the snapshot that was read or published here last."""
        known = self._known
        return frozenset(meta.file_name for meta in known[1]) if known is not None else frozenset()

    def base_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """The manifests of the snapshot's base list, which is read from the store. Raises Corrupt."""
        return self.list_of(snapshot.base_manifest_list)

    def delta_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        """The manifests of the snapshot's delta list, which is read from the store. Raises Corrupt."""
        return self.list_of(snapshot.delta_manifest_list)

    def remember(self, snapshot: Snapshot, metas: list[ManifestFileMeta]) -> None:
        """Keep the manifests of a snapshot that was just published here, so that its lists need not be read."""
        for each in (self, *self.told):
            each._known = (snapshot, metas)

    def entries_of(self, snapshot: Snapshot, partitions: Collection[bytes] | None = None) -> Iterator[ManifestEntry]:
        """The live entries: every ADD that no DELETE of any manifest hides. They come one by one, to save memory.

        partitions: only entries of these (as in ``ManifestEntry.partition``) are returned, and manifests that hold none
        of them are not read. Raises Corrupt, naming the manifest, when one is missing, torn, or not what its list says.
        """
        metas = self.all_of(snapshot)
        if partitions is not None:
            metas = self._holding(metas, partitions)
        deleted = self._deleted(metas)
        for meta, path, data in self._data_of(metas):
            for entry in iter_manifest(data, path, partitions, meta.counts):
                if entry.kind is FileKind.ADD and (not deleted or entry.identity not in deleted):
                    yield entry

    def said_of(
        self, wanted: Collection[Identity], metas: Sequence[ManifestFileMeta]
    ) -> Iterator[tuple[str, FileKind, Identity]]:
        """(name of the manifest, kind, identity of the file) of all entries of the wanted files, and of some others.

        A manifest that names none of the files is not decoded. Raises as ``entries_of`` does, for those that are.
        """
        partitions = {partition for partition, *_ in wanted}
        search = NameSearch(file_name for _, _, _, file_name, *_ in wanted)
        for meta, path, data in self._data_of(self._holding(metas, partitions)):
            if search.may_find(data, path, meta.counts):
                for kind, identity, _ in iter_records(data, path, meta.counts):
                    yield meta.file_name, kind, identity

    def files_of(self, snapshot: Snapshot, pruner: FileFilter | None = None) -> Iterator[LiveFile]:
        """The live files that ``pruner`` keeps, in short form. Manifests that it rules out are not read.

        Raises as ``entries_of`` does.
        """
        metas = [meta for meta in self.all_of(snapshot) if pruner is None or pruner.may_hold(meta)]
        deleted = self._deleted(metas)
        keep, marks = (pruner.keep, pruner.marks) if pruner is not None else (None, None)
        for meta, path, data in self._data_of(metas):
            yield from iter_files(data, path, meta.counts, keep, deleted, marks=marks)

    def identities_of(self, metas: Sequence[ManifestFileMeta]) -> set[Identity]:
        """Identities of all files that are live by these manifests, all in memory. Raises as ``entries_of`` does."""
        added, deleted = self.named_by(metas)
        return added - deleted

    def named_by(self, metas: Sequence[ManifestFileMeta]) -> tuple[set[Identity], set[Identity]]:
        """Identities of the files that these manifests add, and of those that they delete. Raises as ``entries_of``."""
        added, deleted = set[Identity](), set[Identity]()
        for meta, path, data in self._data_of(metas):
            for kind, identity, _ in iter_records(data, path, meta.counts):
                (added if kind is FileKind.ADD else deleted).add(identity)
        return added, deleted

    def index_of(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """The index files as of a snapshot. Raises Corrupt."""
        if snapshot.index_manifest is None:
            return []
        path = self._at.manifest(snapshot.index_manifest)
        return read_index_manifest(self._bytes(path), path)

    def read(self, name: str, partitions: Collection[bytes] | None = None) -> list[ManifestEntry]:
        """All entries of one manifest, or those of these partitions. Raises Corrupt, naming the file."""
        path = self._at.manifest(name)
        return list(iter_manifest(self._bytes(path), path, partitions))

    def entries_in(self, meta: ManifestFileMeta) -> Iterator[ManifestEntry]:
        """The entries of one manifest, one by one.

        Raises Corrupt, naming the file; it does so before the first entry when the manifest is not what its list says.
        """
        path = self._at.manifest(meta.file_name)
        data = self._bytes(path)
        check_blocks(data, path, meta.counts)
        return iter_manifest(data, path)

    def check(self, metas: Sequence[ManifestFileMeta]) -> None:
        """Raises Corrupt, naming the manifest: it is missing, torn, of unknown version, or not what its list says."""
        for meta, path, data in self._data_of(metas):
            check_blocks(data, path, meta.counts)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Within it small manifests that were read or written here need not be read again: they never change."""
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def keep(self, path: str, data: bytes) -> None:
        """These bytes of a manifest have been read, or are about to be written, within ``keeping``."""
        if self._kept is not None and sum(map(len, self._kept.values())) + len(data) <= _MOST_KEPT:
            self._kept[path] = data

    def merge(
        self,
        metas: Sequence[ManifestFileMeta],
        table_options: Mapping[str, str],
        name: str,
        write: Callable[[str, bytes], object] | None = None,
        *,
        without_deletes: bool = False,
    ) -> list[ManifestFileMeta]:
        """Manifests with the same live entries, in fewer files if Paimon's rules say so; see ``manifest_merge``.

        name: unique to this try of a commit; the names of new files contain it. write: writes a manifest of this name;
        by default it is durable at once. without_deletes: no DELETE stays, whatever the rules say.
        Raises Corrupt, and Misuse for a bad option.
        """
        options = MergeOptions.of(table_options)
        output = _RollingOutput(write or self._write, self._partition_types, options.target_bytes, f"manifest-{name}-m")
        merge = ManifestMerge(options, self._partition_types, self._records, output, self.reading)
        return merge.without_deletes(metas) if without_deletes else merge.merge(metas)

    def reading(self, metas: Sequence[ManifestFileMeta]) -> AbstractContextManager[None]:
        """Within it these manifests are read once, at once where the store is distant."""
        paths = [self._at.manifest(meta.file_name) for meta in metas]
        return self._io.asking(Questions(read=tuple(path for path in paths if path not in (self._kept or {}))))

    def _write(self, name: str, data: bytes) -> None:
        self._io.write(self._at.manifest(name), data)

    def _holding(self, metas: Sequence[ManifestFileMeta], partitions: Collection[bytes]) -> list[ManifestFileMeta]:
        """Those of the manifests that may have entries of these partitions."""
        rows = [decode_physical(partition, self._partition_types) for partition in partitions]
        return [meta for meta in metas if may_hold(meta.partition_stats, rows, self._partition_types)]

    def _deleted(self, metas: Sequence[ManifestFileMeta]) -> set[Identity]:
        found = self._data_of([meta for meta in metas if meta.num_deleted_files])
        return {
            identity
            for meta, path, data in found
            for kind, identity, _ in iter_records(data, path, meta.counts)
            if kind is FileKind.DELETE
        }

    def _data_of(self, metas: Sequence[ManifestFileMeta]) -> Iterator[tuple[ManifestFileMeta, str, bytes]]:
        """The manifests with their paths and bytes, in order.

        A few are read ahead, because a remote store answers slowly.
        """
        paths = [self._at.manifest(meta.file_name) for meta in metas]
        if len(paths) < 2:
            yield from ((meta, path, self._bytes(path)) for meta, path in zip(metas, paths))
            return
        with ThreadPoolExecutor(_READ_AHEAD) as pool:
            ahead = deque(pool.submit(self._bytes, path) for path in paths[:_READ_AHEAD])
            for number, (meta, path) in enumerate(zip(metas, paths)):
                data = ahead.popleft().result()
                if number + _READ_AHEAD < len(paths):
                    ahead.append(pool.submit(self._bytes, paths[number + _READ_AHEAD]))
                yield meta, path, data

    def _records(self, meta: ManifestFileMeta) -> Iterator[tuple[FileKind, Identity, dict[str, Any]]]:
        path = self._at.manifest(meta.file_name)
        return iter_records(self._bytes(path), path, meta.counts)

    def list_of(self, name: str) -> list[ManifestFileMeta]:
        """The manifests that one list names. Raises Corrupt, naming the file."""
        path = self._at.manifest(name)
        return read_manifest_list(self._bytes(path), path)

    def _bytes(self, path: str) -> bytes:
        kept = self._kept
        if kept is not None and path in kept:
            return kept[path]
        try:
            return self._io.read(path)
        except FileNotFoundError as missing:
            raise Corrupt(
                f"{path}: the manifest is missing, although a snapshot refers to it; restore it "
                f"{shell.restore(path)}, or roll the table back to a snapshot that is whole",
                kind="manifest.missing",
            ) from missing


class _RollingOutput:
    """Writes the merged manifests of one try of a commit. Each one is finished when it has reached the target size."""

    def __init__(
        self, write: Callable[[str, bytes], object], types: Sequence[DataType], target_bytes: int, prefix: str
    ):
        self._write = write
        self._types = types
        self._target = target_bytes
        self._names = (f"{prefix}{number}" for number in itertools.count())
        self._open: ManifestStream | None = None
        self._done: list[ManifestFileMeta] = []

    def add(self, kind: FileKind, record: dict[str, Any]) -> None:
        if self._open is not None and not self._open.takes(record):
            self._finish(self._open)
        if self._open is None:
            self._open = ManifestStream.for_record(record, self._target, self._types)
        self._open.add(kind, record)

    def close(self) -> list[ManifestFileMeta]:
        """Finish the open manifest and return those written since the last close."""
        if self._open is not None:
            self._finish(self._open)
        done, self._done = self._done, []
        return done

    def _finish(self, stream: ManifestStream) -> None:
        data, meta = stream.finish(next(self._names))
        self._write(meta.file_name, data)
        self._done.append(meta)
        self._open = None
