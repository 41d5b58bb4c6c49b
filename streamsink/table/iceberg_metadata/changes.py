"""What Paimon's snapshots have changed, as manifests of Iceberg: appended, removed, merged. Driver only.

As Paimon's ``IcebergCommitCallback``: an append adds manifests and reads none; a snapshot that removes files rewrites
the manifests that name these.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from streamsink.errors import Corrupt
from streamsink.format.binary_row import decode_physical
from streamsink.format.iceberg_manifest import (
    ADDED,
    DELETED,
    EXISTING,
    Entry,
    IcebergManifest,
    ManifestWriter,
    added,
    is_live,
    read_entries,
)
from streamsink.format.iceberg_options import IcebergOptions
from streamsink.format.iceberg_values import partition_columns
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.snapshot import COMPACT, Snapshot
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.iceberg_metadata.folder import Folder
from streamsink.table.manifest_merge import MergeOptions
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import Table

APPEND, OVERWRITE, REPLACE = "append", "overwrite", "replace"


@dataclass
class Counts:
    """Files and rows that a snapshot adds or removes, size in bytes, and the partitions of the files."""

    files: int = 0
    rows: int = 0
    size: int = 0
    partitions: set[bytes] = field(default_factory=set)

    @classmethod
    def of(cls, entries: Iterable[ManifestEntry]) -> "Counts":
        """Of the files of these entries."""
        made = cls()
        for entry in entries:
            made.add(entry)
        return made

    def add(self, entry: ManifestEntry) -> None:
        """One file more."""
        self.files += 1
        self.rows += entry.file.row_count
        self.size += entry.file.file_size
        self.partitions.add(entry.partition)


@dataclass
class Delta:
    """The files that one snapshot adds and removes, by name: what it both removes and adds is not changed."""

    added: dict[str, ManifestEntry] = field(default_factory=dict)
    removed: dict[str, ManifestEntry] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot) -> "Delta":
        """From the manifests of its delta list. Raises Corrupt, naming the file."""
        made = cls()
        for meta in table.manifests.delta_of(snapshot):
            for entry in table.manifests.entries_in(meta):
                name = entry.file.file_name
                ours, other = (made.added, made.removed) if entry.kind is FileKind.ADD else (made.removed, made.added)
                if other.pop(name, None) is None:
                    ours[name] = entry
        return made


class Manifests:
    """Makes the manifests of one round, which are durable when ``group`` has been flushed."""

    def __init__(self, table: Table, folder: Folder, options: IcebergOptions, group: FlushGroup):
        self._table = table
        self._folder = folder
        self._options = options
        self._group = group
        self._schema = table.latest_schema()
        self._columns = partition_columns(self._schema)
        self._target_bytes = MergeOptions.of(self._schema.options).target_bytes
        # The bytes of manifests that are not written yet, by path: they may be merged before anybody reads them.
        self._waiting: dict[str, bytes] = {}

    def adding(self, entries: Iterable[ManifestEntry], snapshot_id: int) -> list[IcebergManifest]:
        """Manifests of files that a snapshot adds. Raises Corrupt."""
        return self._made((self._added(entry, snapshot_id) for entry in entries), snapshot_id)

    def of_all(self, snapshot: Snapshot) -> tuple[list[IcebergManifest], Counts]:
        """Manifests of all files that a snapshot has, which are written at once, and what these files are.

        Raises Corrupt.
        """
        counts = Counts()

        def entries() -> Iterator[Entry]:
            for entry in self._table.manifests.entries_of(snapshot):
                counts.add(entry)
                yield self._added(entry, snapshot.id)

        manifests = list[IcebergManifest]()
        for manifest in self._made_one_by_one(entries(), snapshot.id):
            self.write([manifest])
            manifests.append(manifest)
        return manifests, counts

    def changed(
        self, base: Sequence[IcebergManifest], delta: Delta, snapshot: Snapshot
    ) -> tuple[list[IcebergManifest], str]:
        """The manifests of a snapshot that changes this, and the name of what it does.

        base: those of the snapshot before. Raises Corrupt where they do not name each file that it removes once.
        """
        operation, made, left = APPEND, list[IcebergManifest](), set(delta.removed)
        for manifest in base:
            if not delta.removed:
                made.append(manifest)
                continue
            entries = self._entries(manifest)
            gone = {name for entry in entries if is_live(entry) and (name := _name(entry)) in delta.removed}
            left -= gone
            if not gone:
                made.append(manifest)
                continue
            operation = REPLACE if snapshot.commit_kind == COMPACT else OVERWRITE
            made += self._made((_kept(entry, gone, snapshot.id) for entry in entries if is_live(entry)), snapshot.id)
        if left:
            raise Corrupt(
                f"{self._folder.path}: snapshot {snapshot.id} removes {sorted(left)[0]}, which the metadata of the "
                "snapshot before does not name. It is made again from the table's newest snapshot",
                kind="manifest.corrupt",
            )
        return [*made, *self.adding(delta.added.values(), snapshot.id)], operation

    def merged(self, manifests: Sequence[IcebergManifest], snapshot_id: int) -> list[IcebergManifest]:
        """Few manifests in place of many small ones, if the table's options say so. Raises Corrupt."""
        small = [each for each in manifests if each.size < self._target_bytes * 2 // 3]
        too_few = len(small) < self._options.least_merged
        if too_few or len(small) < self._options.most_apart and sum(m.size for m in small) < self._target_bytes:
            return list(manifests)
        large = [each for each in manifests if each.size >= self._target_bytes * 2 // 3]
        entries = (aged for each in small for entry in self._entries(each) if (aged := _aged(entry, snapshot_id)))
        return [*large, *self._made(entries, snapshot_id)]

    def total_size(self, manifests: Iterable[IcebergManifest]) -> int:
        """Bytes of the files that readers read. This reads all manifests. Raises Corrupt."""
        live = (entry["data_file"] for each in manifests for entry in self._entries(each) if is_live(entry))
        return sum(file["file_size_in_bytes"] for file in live)

    def write(self, needed: Iterable[IcebergManifest]) -> None:
        """Write those of these manifests that are made and not written yet."""
        for manifest in needed:
            data = self._waiting.pop(manifest.path, None)
            if data is not None:
                self._group.write(manifest.path, data)

    def _added(self, entry: ManifestEntry, snapshot_id: int) -> Entry:
        path = data_file_path(self._table, self._schema, entry)
        partition = decode_physical(entry.partition, [column.type for column in self._columns])
        return added(path, partition, entry.file, self._table.schemas.load(entry.file.schema_id), snapshot_id)

    def _entries(self, manifest: IcebergManifest) -> list[Entry]:
        waiting = self._waiting.get(manifest.path)
        try:
            return list(read_entries(waiting or self._folder.read(manifest.path), manifest.path, self._columns))
        except FileNotFoundError as missing:
            raise Corrupt(
                f"{manifest.path} is missing, although the metadata names it. It is made again from the table's newest "
                "snapshot",
                kind="manifest.corrupt",
            ) from missing

    def _made(self, entries: Iterable[Entry], snapshot_id: int) -> list[IcebergManifest]:
        return list(self._made_one_by_one(entries, snapshot_id))

    def _made_one_by_one(self, entries: Iterable[Entry], snapshot_id: int) -> Iterator[IcebergManifest]:
        writer: ManifestWriter | None = None
        for entry in entries:
            writer = writer or ManifestWriter(self._schema, self._options.codec)
            writer.add(entry)
            if writer.size >= self._target_bytes:
                yield self._finished(writer, snapshot_id)
                writer = None
        if writer:
            yield self._finished(writer, snapshot_id)

    def _finished(self, writer: ManifestWriter, snapshot_id: int) -> IcebergManifest:
        data, manifest = writer.finish(self._folder.new_manifest(), snapshot_id)
        self._waiting[manifest.path] = data
        return manifest


def _name(entry: Entry) -> str:
    """The name of the entry's file, which is unique in a table, however the path to it is spelled."""
    return os.path.basename(entry["data_file"]["file_path"])


def _kept(entry: Entry, gone: set[str], snapshot_id: int) -> Entry:
    if _name(entry) in gone:
        return {**entry, "status": DELETED, "snapshot_id": snapshot_id}
    return {**entry, "status": EXISTING}


def _aged(entry: Entry, snapshot_id: int) -> Entry | None:
    """The entry as a manifest of a later snapshot has it; None where it is about a file that went before."""
    if entry["snapshot_id"] == snapshot_id or entry["status"] == EXISTING:
        return entry
    return {**entry, "status": EXISTING} if entry["status"] == ADDED else None
