"""What others do to the table: Paimon's own writers, which know nothing of streamsink, and the table's maintenance."""

import dataclasses
import os
from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.clock import IdSource
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.snapshot import APPEND, COMPACT, OVERWRITE, Snapshot
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.read.scan import data_file_path, read_arrow
from streamsink.table.table import Table, open_table
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter
from tests.walks.readers import Reader

_MEMORY = 64 * 1024 * 1024


class Others(Reader):
    """Everything that is not streamsink. Whatever it does is durable at once.
    changes: how often snapshots or files were deleted."""

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self.changes = 0

    # -- writing -----------------------------------------------------------------------------------------------------

    def prepare(self, kind: str, rows=None, partition: dict | None = None) -> Snapshot | None:
        """Make a snapshot that is built on the newest one, and do not publish it. rows: an Arrow batch that is added.

        partition: what an overwrite replaces. Returns None when there is nothing to do.
        """
        io = self.io
        # Its hint is left alone, because what it publishes is taken back at once.
        io.replace = lambda path, data, unique: None
        table = open_table(io, self.root, for_writing=True)
        changes, overwrite = Changes(tuple(self._added(io, table, rows)) if rows is not None else ()), None
        if kind == OVERWRITE:
            overwrite = Overwrite.of(self.root, table.latest_schema(), partition)
        if kind == COMPACT:
            changes = self._compacted(io, table)
            if changes is None:
                return None
        request = CommitRequest("paimon", 2**63 - 1, changes, IdSource().new_id(), kind, overwrite=overwrite)
        options = SinkOptions.of(self.root, {"commit_min_wait_ms": 0, "commit_max_wait_ms": 0})
        made = TableCommit(table, options).commit(request, Guard()).snapshot
        self.io.delete(table.layout.snapshot(made.id))
        self.io.sync_dir(table.layout.snapshot_dir)
        return dataclasses.replace(made, properties=None)

    def publish(self, snapshot: Snapshot, replacing: bool = False) -> bool:
        """Publish a snapshot: by a rename, which may replace another one, or only if its number is free.
        Returns whether it is published."""
        path, unique = f"{self.root}/snapshot/snapshot-{snapshot.id}", IdSource().new_id()
        if replacing:
            self._store.put_over(path, snapshot.to_json(), unique)
        elif not self.io.create_if_absent(path, snapshot.to_json(), unique):
            return False
        self.io.replace(f"{self.root}/snapshot/LATEST", str(snapshot.id).encode(), unique)
        return True

    def commit(self, kind: str = APPEND, rows=None, partition: dict | None = None) -> bool:
        """Prepare a snapshot and publish it at once. Returns whether it is published."""
        snapshot = self.prepare(kind, rows, partition)
        return snapshot is not None and self.publish(snapshot)

    def delete(self, rows: Collection[int]) -> bool:
        """Delete these rows by a snapshot that replaces the whole table by the other rows.
        Returns whether any of them was there."""
        kept = [row not in rows for row in self.read()]
        if all(kept):
            return False
        batches = read_arrow(self.table()).filter(pa.array(kept)).combine_chunks().to_batches()
        return self.commit(OVERWRITE, *batches, partition={})

    def _added(self, io: FileIO, table: Table, rows) -> list[ManifestEntry]:
        folder = f"{self.root}/{IdSource().new_id()}"
        io.make_dir(folder)
        spec = WriteSpec(folder, table.latest_schema().to_json(), _MEMORY, 10, _MEMORY)
        writer, group = TableWriter(io, spec), io.flush_group()
        writer.write(rows)
        written = writer.close(group)
        group.flush()
        for file in written:
            target = table.layout.within(file.final)
            io.place(file.staged, target, False)
            io.sync_dir(os.path.dirname(target))
        io.delete_tree(folder)
        return [ManifestEntry(FileKind.ADD, file.partition, 0, -1, file.meta) for file in written]

    def _compacted(self, io: FileIO, table: Table) -> Changes | None:
        """The changes by which all files of the partition with the most files become one."""
        by_partition: dict[bytes, list[ManifestEntry]] = {}
        for entry in self.files():
            by_partition.setdefault(entry.partition, []).append(entry)
        most = max(by_partition.values(), key=len, default=[])
        if len(most) < 2:
            return None
        parts = []
        for entry in most:
            with io.open_input(data_file_path(table, table.latest_schema(), entry)) as stream:
                parts.append(pq.read_table(stream))
        whole = pa.concat_tables(parts).combine_chunks().to_batches()[0]
        return Changes((*(entry.deleting for entry in most), *self._added(io, table, whole)))

    # -- maintenance -------------------------------------------------------------------------------------------------

    def tag(self, name: str) -> None:
        newest = self.table().snapshots.latest()
        if newest is not None:
            path = f"{self.root}/tag/tag-{name}"
            self.io.make_dir(f"{self.root}/tag")
            self.io.delete(path)
            self.io.write(path, newest.to_json())
            self.io.sync_dir(f"{self.root}/tag")

    def tags(self) -> list[Snapshot]:
        names = self.io.names(f"{self.root}/tag")
        return [
            Snapshot.from_json(self.io.read(f"{self.root}/tag/{name}"), name)
            for name in names
            if name.startswith("tag-")
        ]

    def expire(self, keep: int) -> bool:
        """Delete all except the newest snapshots, with the files that only they need.
        Returns whether there were any."""
        ids = self.snapshot_ids()
        if len(ids) > keep:
            self._forget(ids[:-keep])
            self.io.replace(f"{self.root}/snapshot/EARLIEST", str(ids[-keep]).encode(), IdSource().new_id())
        return len(ids) > keep

    def roll_back(self, to: int, clean: bool) -> None:
        """Delete newer snapshots. clean: with the files that only they need, as Paimon's own rollback does."""
        ids = [number for number in self.snapshot_ids() if number > to]
        self._forget(list(reversed(ids)), clean)
        self.io.replace(f"{self.root}/snapshot/LATEST", str(to).encode(), IdSource().new_id())

    def take_out(self, path: str, application: str, checkpoint_id: int) -> None:
        """Roll a table for dead letters back to the snapshot before the last one of this checkpoint;
        drop it where that snapshot is not there."""
        snapshots = open_table(self.io, path, for_writing=False).snapshots
        ids = snapshots.ids()
        mine = [
            s.id
            for s in map(snapshots.load, ids)
            if s.commit_identifier == checkpoint_id and s.commit_user.startswith(f"{application}@")
        ]
        if not mine or mine[-1] == ids[0]:
            self._store.remove(path)
        else:
            Others(self._store, path).roll_back(mine[-1] - 1, clean=True)

    def _forget(self, ids: list[int], clean: bool = True) -> None:
        self.changes += 1
        table = self.table()
        doomed = [table.snapshots.load(number) for number in ids]
        kept = [table.snapshots.load(number) for number in table.snapshots.ids() if number not in ids] + self.tags()
        paths = self._needed(table, doomed) - self._needed(table, kept) if clean else set()
        for number in ids:
            self.io.delete(f"{self.root}/snapshot/snapshot-{number}")
        for path in sorted(paths):
            self.io.delete(path)
        for folder in sorted({f"{self.root}/snapshot", *map(os.path.dirname, paths)}):
            self.io.sync_dir(folder)
