"""Another writer, as Paimon's own writers are on a bare local disk:
it prepares a snapshot and renames it over whatever has its number."""

import dataclasses
import os

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.format.snapshot import Snapshot
from streamsink.journal.record_format import decode_record
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import open_table
from tests.crash.world import World
from tests.table.entries import commit

FIRST_ID = 1000


class _Held(FileIO):
    """Keeps a snapshot back instead of publishing it."""

    held: bytes | None = None

    def create_if_absent(self, path, data, unique="", **prepared):
        if os.path.basename(path).startswith("snapshot-"):
            self.held = data
            self.give_up(path, unique)
            return True
        return super().create_if_absent(path, data, unique, **prepared)

    def replace(self, path, data, unique):
        if os.path.basename(path) not in ("LATEST", "EARLIEST"):
            super().replace(path, data, unique)


class Prepared:
    """A foreign commit of three rows, built on the newest snapshot that there is now; ``rename`` publishes it."""

    def __init__(self, world: World, number: int = 0):
        self._calls = world.calls
        self.root = world.driver.root
        name = f"foreign{number}"
        other = World(world.calls, self.root, application=name)
        first, rows = FIRST_ID + 10 * number, other.driver.rows
        other.driver.rows = lambda start, end: _shifted(rows(start, end), first)
        io = _Held(world.calls, IdSource().new_id)
        other.driver.run(io, other.checkpoint, (3,))
        io.delete_tree(f"{self.root}/streamsink/{name}")  # A foreign writer has no journal.
        self.ids = [first, first + 1, first + 2]
        # Paimon's writers carry no properties of others forward.
        self.snapshot = dataclasses.replace(Snapshot.from_json(io.held, "held"), properties=None, commit_user=name)

    def rename(self, time_millis: int | None = None) -> None:
        """Publish the snapshot over whatever has its number.
        ``time_millis``: let it look as if it had been prepared then."""
        io = FileIO(self._calls, IdSource().new_id)
        snapshot = self.snapshot
        if time_millis is not None:
            snapshot = dataclasses.replace(snapshot, time_millis=time_millis)
        io.replace(f"{self.root}/snapshot/snapshot-{snapshot.id}", snapshot.to_json(), IdSource().new_id())
        io.replace(f"{self.root}/snapshot/LATEST", str(snapshot.id).encode(), IdSource().new_id())


def _shifted(batch, first):
    ids = pa.array([first + n for n in batch.column("id").to_pylist()], pa.int64())
    return batch.set_column(0, "id", ids)


# -- what a compaction of another writer does to a record of ours -----------------------------------------------------


def opened(world):
    return open_table(FileIO(world.calls, IdSource().new_id), world.driver.root, for_writing=True)


def record_of(world, sequence):
    path = f"{world.driver.root}/streamsink/streamsink/record-{sequence}.json"
    return decode_record(world.calls.read(path), path)


def files_of_record(world, sequence):
    return [f"{world.driver.root}/{file.final}" for file in record_of(world, sequence).files]


def compact(world, count: int | None = None) -> None:
    """Another writer rewrites files of our record, all or so many of them: the same rows, under other names."""
    table = opened(world)
    mine = {file.final.rsplit("/", 1)[-1] for file in record_of(world, 2).files[:count]}
    old = [e for e in table.manifests.entries_of(table.snapshots.latest()) if e.file.file_name in mine]
    assert old
    commit(table, Changes((*(e.deleting for e in old), *rewritten(table, old))), user="compactor", kind="COMPACT")
    newest = table.snapshots.latest()  # Paimon's compactor carries no properties of others.
    plain = dataclasses.replace(newest, properties=None)
    table.file_io.replace(table.layout.snapshot(newest.id), plain.to_json(), IdSource().new_id())


def rewritten(table, old) -> list:
    """Entries of files with the same rows under other names."""
    new = []
    for number, entry in enumerate(old):
        file = dataclasses.replace(entry.file, file_name=f"compacted-{number}.parquet")
        path = data_file_path(table, table.latest_schema(), entry)
        table.file_io.write(f"{path.rsplit('/', 1)[0]}/{file.file_name}", table.file_io.read(path))
        new.append(dataclasses.replace(entry, file=file))
    return new
