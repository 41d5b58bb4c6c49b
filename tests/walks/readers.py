"""What readers of the table see: its snapshots, their files and rows, and the dead letters beside it."""

import json
import os
from collections.abc import Iterable

import pyarrow.parquet as pq

from streamsink.format.manifest import ManifestEntry
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.read.scan import data_file_path, read_arrow
from streamsink.table.table import Table, is_table, new_schema, open_table


class Reader:
    """Reads one table, and the tables for dead letters beside it, as they are in the store now."""

    def __init__(self, store, root: str):
        self._store = store
        self.root = root
        self._rows: dict[str, list[int]] = {}
        # By snapshot: the content of every file that it needs, and its rows.
        self._seen: dict[bytes, tuple[dict[str, bytes], list[int]]] = {}

    @property
    def io(self) -> FileIO:
        """The I/O of somebody who comes anew."""
        return self._store.io(self._store, self.root)

    def is_table(self) -> bool:
        return is_table(self.io, self.root)

    def table(self) -> Table:
        return open_table(self.io, self.root, for_writing=False)

    def files(self, snapshot: Snapshot | None = None) -> list[ManifestEntry]:
        """The live files of a snapshot, or of the newest one."""
        table = self.table()
        snapshot = snapshot or table.snapshots.latest()
        return list(table.manifests.entries_of(snapshot)) if snapshot else []

    def rows_of(self, entry: ManifestEntry) -> list[int]:
        """The ids in a data file. A data file never changes, so it is read once."""
        name = entry.file.file_name
        if name not in self._rows:
            table = self.table()
            self._rows[name] = self._read(data_file_path(table, table.latest_schema(), entry))
        return self._rows[name]

    def rows_in(self, path: str) -> list[int] | None:
        """The ids in a file that need not be the table's; None where it is not there."""
        return self._read(path) if self.io.size(path) is not None else None

    def _read(self, path: str) -> list[int]:
        with self.io.open_input(path) as stream:
            return pq.ParquetFile(stream).read(["id"], use_threads=False).column("id").to_pylist()

    def rows_at(self, snapshot_id: int) -> list[int]:
        """The ids that a reader of this snapshot sees."""
        return [row for file in self.files(self.table().snapshots.load(snapshot_id)) for row in self.rows_of(file)]

    def visible(self) -> list[int]:
        """The ids that a reader sees now. Raises when one cannot read.
        A snapshot is not decoded again while all bytes that it needs are the same."""
        table = self.table() if self.is_table() else None
        newest = table and table.snapshots.latest()
        if newest is None:
            return []
        contents, rows = self._seen.get(newest.to_json(), ({}, []))
        if not contents or any(self._store.read(path) != content for path, content in contents.items()):
            contents = {path: self._store.read(path) for path in self._needed(table, [newest])}
            rows = [row for entry in self.files(newest) for row in self.rows_of(entry)]
            self._seen[newest.to_json()] = contents, rows
        return rows

    def read(self) -> list[int]:
        """The ids as our own reader returns them."""
        return read_arrow(self.table()).column("id").to_pylist()

    def letters(self) -> list[int]:
        """The ids of all dead letters beside the table, whichever table has them."""
        tables = [open_table(self.io, path, for_writing=False) for path in self.letter_tables()]
        return [row for table in tables for row in self._letters_of(table, table.snapshots.latest())]

    def _letters_of(self, table: Table, snapshot: Snapshot | None) -> list[int]:
        found = []
        for entry in table.manifests.entries_of(snapshot) if snapshot else ():
            path = data_file_path(table, table.latest_schema(), entry)
            if path not in self._rows:
                with self.io.open_input(path) as stream:
                    column = pq.ParquetFile(stream).read(["row"], use_threads=False).column("row")
                self._rows[path] = [json.loads(row)["id"] for row in column.to_pylist()]
            found += self._rows[path]
        return found

    def before(self, rows: Iterable[int]) -> int | None:
        """The snapshot before the first one that has any of these rows; None where there is none."""
        rows, ids = set(rows), self.snapshot_ids()
        first = next(
            (
                at
                for at in ids
                if rows & {row for entry in self.files(self.table().snapshots.load(at)) for row in self.rows_of(entry)}
            ),
            None,
        )
        return first - 1 if first is not None and first > ids[0] else None

    def letter_tables(self) -> list[str]:
        """The paths of the tables for dead letters."""
        folder = os.path.dirname(self.root)
        paths = [f"{folder}/{name}" for name in self.io.names(folder)]
        return [path for path in paths if path != self.root and is_table(self.io, path)]

    def snapshot_ids(self) -> list[int]:
        return self.table().snapshots.ids() if self.is_table() else []

    def hint(self) -> int:
        """The snapshot that LATEST names; 0 when there is none, or it was torn."""
        try:
            return int(self.io.read(f"{self.root}/snapshot/LATEST") or 0)
        except FileNotFoundError:
            return 0

    def applications(self) -> list[str]:
        """The applications that have a state in the newest snapshot."""
        table = self.table()
        return sorted(table.states.read(table.snapshots.latest()).by_application)

    def create(self, fields, partition_by: tuple[str, ...]) -> None:
        """Create the table as a catalog does it, whatever else is in the folder."""
        self.io.create_if_absent(f"{self.root}/schema/schema-0", new_schema(fields, partition_by, {}).to_json())

    def _needed(self, table: Table, snapshots: list[Snapshot]) -> set[str]:
        found = set()
        for snapshot in snapshots:
            found |= {table.layout.manifest(n) for n in (snapshot.base_manifest_list, snapshot.delta_manifest_list)}
            found |= {table.layout.manifest(meta.file_name) for meta in table.manifests.all_of(snapshot)}
            found |= {
                data_file_path(table, table.latest_schema(), entry) for entry in table.manifests.entries_of(snapshot)
            }
        return found
