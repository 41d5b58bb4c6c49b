"""Reading and rewriting the manifests of a snapshot."""

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

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
from streamsink.table.layout import Layout
from streamsink.table.manifest_merge import ManifestMerge, MergeOptions

# Manifests read at once; each is of manifest.target-file-size at most, so this bounds the memory too.
_READ_AHEAD = 4


class FileFilter(Protocol):
    """What decides which manifests and files a reader needs: ``read/pruning.py``. What it skips has no row that is asked for."""

    def may_hold(self, meta: ManifestFileMeta) -> bool:
        """Whether a manifest may name a file that is needed."""

    def keep(self, partition: bytes, file: Mapping[str, Any]) -> bool:
        """Whether a file may be needed. ``file``: the Avro record ``_FILE``."""


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

    def known_of(self, snapshot: Snapshot) -> list[ManifestFileMeta] | None:
        """As ``all_of``, when that is known without asking; else None."""
        return self._known[1] if self._known is not None and self._known[0] == snapshot else None

    def known_names(self) -> frozenset[str]:
        """Of the manifests of the snapshot that was read or made here last."""
        return frozenset(meta.file_name for meta in self._known[1]) if self._known is not None else frozenset()

    def base_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        return self.list_of(snapshot.base_manifest_list)

    def delta_of(self, snapshot: Snapshot) -> list[ManifestFileMeta]:
        return self.list_of(snapshot.delta_manifest_list)

    def remember(self, snapshot: Snapshot, metas: list[ManifestFileMeta]) -> None:
        """A snapshot that was just published here: its lists need not be read again."""
        self._known = (snapshot, metas)

    def entries_of(self, snapshot: Snapshot, partitions: Collection[bytes] | None = None) -> Iterator[ManifestEntry]:
        """The live entries: every ADD that no DELETE of any manifest hides. One by one: few are in memory at a time.

        partitions: only entries of these (``ManifestEntry.partition``); manifests that hold none of them are not read.
        Raises Corrupt, naming the manifest, when one is missing, torn, or not what its list says.
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
        """(name of the manifest, what the entry does, whose it is) of these manifests: the entries of the wanted files, and others.

        Raises as ``entries_of``, but a manifest that names none of the files is not decoded.
        """
        partitions = {partition for partition, *_ in wanted}
        search = NameSearch(file_name for _, _, _, file_name, *_ in wanted)
        for meta, path, data in self._data_of(self._holding(metas, partitions)):
            if search.may_find(data, path, meta.counts):
                for kind, identity, _ in iter_records(data, path, meta.counts):
                    yield meta.file_name, kind, identity

    def files_of(self, snapshot: Snapshot, pruner: FileFilter | None = None) -> Iterator[LiveFile]:
        """The live files in short, those that ``pruner`` keeps; manifests that it rules out are not read.

        Raises as ``entries_of``.
        """
        metas = [meta for meta in self.all_of(snapshot) if pruner is None or pruner.may_hold(meta)]
        deleted = self._deleted(metas)
        for meta, path, data in self._data_of(metas):
            yield from iter_files(data, path, meta.counts, pruner.keep if pruner else None, deleted)

    def identities_of(self, metas: Sequence[ManifestFileMeta]) -> set[Identity]:
        """Of all files that are live by these manifests; all of them in memory. Raises as ``entries_of``."""
        added = {
            identity
            for meta, path, data in self._data_of(metas)
            for kind, identity, _ in iter_records(data, path, meta.counts)
            if kind is FileKind.ADD
        }
        return added - self._deleted(metas)

    def index_of(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """Index files as of a snapshot."""
        if snapshot.index_manifest is None:
            return []
        path = self._at.manifest(snapshot.index_manifest)
        return read_index_manifest(self._bytes(path), path)

    def read(self, name: str, partitions: Collection[bytes] | None = None) -> list[ManifestEntry]:
        """Entries of one manifest, of these partitions unless None. Raises Corrupt that names the file."""
        path = self._at.manifest(name)
        return list(iter_manifest(self._bytes(path), path, partitions))

    def entries_in(self, meta: ManifestFileMeta) -> Iterator[ManifestEntry]:
        """Entries of one manifest, one by one. Raises Corrupt that names the file, at once when it is not what its list says."""
        path = self._at.manifest(meta.file_name)
        data = self._bytes(path)
        check_blocks(data, path, meta.counts)
        return iter_manifest(data, path)

    def check(self, metas: Sequence[ManifestFileMeta]) -> None:
        """Raises Corrupt, naming the manifest, when one is missing, torn, of an unknown version, or not what its list says."""
        for meta, path, data in self._data_of(metas):
            check_blocks(data, path, meta.counts)

    def merge(
        self, metas: Sequence[ManifestFileMeta], table_options: Mapping[str, str], name: str
    ) -> list[ManifestFileMeta]:
        """The same live entries in fewer files, when Paimon's rules say so; see ``manifest_merge``.

        ``name``: unique to this try of a commit; the new files carry it. Raises Corrupt, Misuse for a bad option.
        """
        options = MergeOptions.of(table_options)
        output = _RollingOutput(self._write, self._partition_types, options.target_bytes, f"manifest-{name}-m")
        return ManifestMerge(options, self._partition_types, self._records, output).merge(metas)

    def _write(self, name: str, data: bytes) -> None:
        self._io.write(self._at.manifest(name), data)

    def _holding(self, metas: Sequence[ManifestFileMeta], partitions: Collection[bytes]) -> list[ManifestFileMeta]:
        """Those that may have entries of these partitions."""
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
        """The manifests with their paths and bytes, in order. A few are read ahead: a store far away answers slowly."""
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
        """Manifests of one list. Raises Corrupt that names the file."""
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


class _RollingOutput:
    """New manifests of one try of a commit, each finished when it has reached the target size."""

    def __init__(self, write: Callable[[str, bytes], None], types: Sequence[DataType], target_bytes: int, prefix: str):
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
        """The manifests written since the last close."""
        if self._open is not None:
            self._finish(self._open)
        done, self._done = self._done, []
        return done

    def _finish(self, stream: ManifestStream) -> None:
        data, meta = stream.finish(next(self._names))
        self._write(meta.file_name, data)
        self._done.append(meta)
        self._open = None
