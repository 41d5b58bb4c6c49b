"""An Iceberg table as the destination of a walk: its catalog is a file of SQLite, all of its files are in the store."""

import contextlib
import io
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import In
from pyiceberg.types import StringType

from streamsink.table.application_states import state_of_text
from tests.walks.elsewhere.catalog import USERS, Strike, User, WalkSink
from tests.walks.elsewhere.places import Place
from tests.walks.queries import SCHEMA
from tests.walks.store import Process

_MEMORY = "/dev/shm"
_TABLE, _AWAY = "shop.orders", "shop.away"
_STATE = "streamsink.app."
_PICKED = "source-snapshot-id"


class Iceberg(Place):
    """A backup of it has the catalog's word, metadata, and data files."""

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self.journals = f"{root}/_streamsink"
        self._of_applications = f"{self.journals}/streamsink"
        self._disk = tempfile.mkdtemp(prefix="streamsink-walk-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        self._strike = Strike()
        self._users: list[str] = []
        self._rows: dict[str, list[int]] = {}
        self._files: dict[str, list[str]] = {}
        self._catalog = load_catalog("lake", **self._properties(None))
        self._catalog.create_namespace("shop")

    def strike_at(self, number, mode):
        self._strike.left, self._strike.mode = number, mode

    def close(self):
        for who in self._users:
            del USERS[who]
        shutil.rmtree(self._disk, ignore_errors=True)

    def _properties(self, process: Process | None) -> dict[str, str]:
        who = f"{self._disk}/{len(self._users)}"
        self._users.append(who)
        USERS[who] = User(self.io if process is None else process.io, process, self._strike)
        own = f"{WalkSink.__module__}."
        return {
            "py-catalog-impl": f"{own}WalkCatalog",
            "py-io-impl": f"{own}WalkFileIO",
            "uri": f"sqlite:///{self._disk}/catalog.db",
            "warehouse": self.root,
            "who": who,
        }

    def sink(self, process):
        properties = self._properties(process)
        return WalkSink(
            _TABLE,
            "lake",
            properties,
            location=self.root,
            journal=self.journals,
            process=process,
            user=USERS[properties["who"]],
        )

    # -- what is seen ------------------------------------------------------------------------------------------------

    def metadata(self) -> str | None:
        """The newest metadata file."""
        said = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 'orders'"
        with contextlib.closing(sqlite3.connect(f"{self._disk}/catalog.db")) as asking:
            found = asking.execute(said).fetchone()
        return found[0] if found else None

    def _table(self):
        try:
            return self._catalog.load_table(_TABLE)
        except NoSuchTableError:
            return None

    def visible(self):
        """By the manifests. A metadata file never changes, and a data file does not either."""
        at = self.metadata()
        if at is None:
            return []
        if at not in self._files:
            self._files[at] = _paths(self._table())
        return [row for path in self._files[at] for row in self._read(path)]

    def listed(self):
        """pyiceberg's own reader, which finds columns by their ids."""
        table = self._table()
        return table.scan().to_arrow().column("id").to_pylist() if table is not None else []

    def applications(self):
        """As the properties say."""
        table = self._table()
        names = table.properties if table is not None else {}
        return sorted(name.removeprefix(_STATE) for name in names if name.startswith(_STATE))

    def _read(self, path: str) -> list[int]:
        if path not in self._rows:
            self._rows[path] = pq.read_table(io.BytesIO(self.io.read(path)), columns=["id"]).column("id").to_pylist()
        elif not self.io.exists(path):
            raise FileNotFoundError(path)
        return self._rows[path]

    # -- what is done to it ------------------------------------------------------------------------------------------

    def copy(self):
        files = self._store.copy_of(self.root)
        kept = {path: data for path, data in files.items() if not path.startswith(f"{self._of_applications}/")}
        return self.metadata(), kept

    def put_back(self, copy):
        at, files = copy
        self._store.put_back(self.root, files, keep=self._of_applications)
        self._register(at)

    def drop(self):
        self._store.remove(self.root, keep=self._of_applications)
        self._register(None)

    def _register(self, at: str | None) -> None:
        """The catalog knows the table by this metadata file, or no table."""
        if self.metadata() is not None:
            self._catalog.drop_table(_TABLE)
        if at is not None:
            self._catalog.register_table(_TABLE, at)

    def lose_known(self, all_of_it):
        """Nothing tells which rows are there but the table itself."""
        return False

    def add(self, rows) -> bool:
        """pyiceberg appends rows."""
        table = self._table()
        if table is None:
            return False
        table.append(_arrow(table, rows))
        return True

    def delete(self, rows: Iterable[int]) -> list[int]:
        table, wanted = self._table(), set(rows)
        gone = [row for row in self.visible() if row in wanted]
        if gone:
            table.delete(In("id", gone))
        return gone

    def compact(self) -> None:
        """All files become one."""
        table = self._table()
        if table is not None and table.current_snapshot() is not None:
            table.overwrite(table.scan().to_arrow())

    def forget(self, application):
        table = self._table()
        if table is not None and f"{_STATE}{application}" in table.properties:
            with table.transaction() as forgetting:
                forgetting.remove_properties(f"{_STATE}{application}")

    def version(self):
        table = self._table()
        return table.metadata.current_snapshot_id if table is not None else None

    def last_snapshot(self, application: str) -> int | None:
        """What the table's property says of this application's last record: its snapshot."""
        said = self._table().properties.get(f"{_STATE}{application}") if self.metadata() is not None else None
        return state_of_text(said)["snapshot"] if said else None

    def has(self, version: int) -> bool:
        """Whether the snapshot is retained."""
        table = self._table()
        return table is not None and any(each.snapshot_id == version for each in table.metadata.snapshots)

    def is_whole(self) -> bool:
        """Whether all snapshots that lead to the current one are retained."""
        metadata = self._table().metadata
        found = _lineage(metadata)
        first = next((each for each in metadata.snapshots if found and each.snapshot_id == found[-1]), None)
        return first is None or first.parent_snapshot_id is None and first.sequence_number == 1

    def register(self, at: str) -> bool:
        """Register the table from one of its metadata files, if all is there that this names as current."""
        if at == self.metadata() or not self.io.exists(at) or not all(map(self.io.exists, self._files.get(at, ["?"]))):
            return False
        self._register(at)
        return True

    def roll_back(self, version: int) -> bool:
        if not self.has(version) or self.version() == version:
            return False
        self._table().manage_snapshots().set_current_snapshot(snapshot_id=version).commit()
        return True

    def expire(self, kept: int) -> None:
        """All snapshots expire but the newest ones, the current one, and those with a tag. Files go that nothing
        names any more, as Spark's procedure does it."""
        table = self._table()
        if table is None:
            return
        referred = {each.snapshot_id for each in table.metadata.refs.values()}
        ids = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in referred]
        doomed = ids[: len(ids) - kept]
        if not doomed:
            return
        before = _all_paths(table)
        table.maintenance.expire_snapshots().by_ids(doomed).commit()
        self.io.delete_all(sorted(before - _all_paths(self._table())))

    def tag(self, name: str) -> None:
        table = self._table()
        if table is not None and table.current_snapshot() is not None:
            table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, name).commit()

    def pick(self, number: int) -> list[int]:
        """Put back what a snapshot that does not lead to the current one has added, as Spark's cherrypick_snapshot
        does it: its files under a new snapshot that names it. Returns the rows."""
        table = self._table()
        metadata = table.metadata if table is not None else None
        lost = [each for each in metadata.snapshots if each.snapshot_id not in _lineage(metadata)] if metadata else []
        if not lost or not _lineage(metadata):
            return []
        picked = lost[number % len(lost)]
        files = _added(table, picked)
        rows = [row for each in files for row in self._read(each.file_path)]
        if not rows or set(rows).intersection(self.visible()) or not picked.summary.operation.value == "append":
            return []
        named = {_PICKED: str(picked.snapshot_id)}
        with table.transaction() as adding, adding.update_snapshot(snapshot_properties=named).fast_append() as update:
            for each in files:
                update.append_data_file(each)
        return rows

    def rename_table(self) -> str | None:
        """The table gets another name in the catalog, or the first one again if nothing has that. Returns what it has
        been renamed to."""
        is_away = self._catalog.table_exists(_AWAY)
        if is_away == (self.metadata() is not None):
            return None
        self._catalog.rename_table(*((_AWAY, _TABLE) if is_away else (_TABLE, _AWAY)))
        return _TABLE if is_away else _AWAY

    def change_columns(self, number: int) -> None:
        """Somebody adds a column, renames it, or drops it."""
        table = self._table()
        if table is None:
            return
        more = [each.name for each in table.schema().fields if each.name.startswith("more")]
        with table.update_schema() as update:
            if not more:
                update.add_column("more", StringType())
            elif number % 2:
                update.delete_column(more[0])
            else:
                update.rename_column(more[0], f"{more[0]}_")


def _arrow(table, rows: Sequence[int]) -> pa.Table:
    """Rows of another program, with the columns that the table has by now."""
    given = {"id": list(rows), "part": ["a"] * len(rows), "n": [0] * len(rows)}
    names = [each.name for each in table.schema().fields]
    schema = pa.schema([SCHEMA.field(name) if name in given else pa.field(name, pa.string()) for name in names])
    return pa.Table.from_pydict({name: given.get(name, [None] * len(rows)) for name in names}, schema=schema)


def _paths(table) -> list[str]:
    """The data files of the current snapshot."""
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current is not None else []
    return [entry.data_file.file_path for each in manifests for entry in each.fetch_manifest_entry(table.io)]


def _all_paths(table) -> set[str]:
    """The data files of all snapshots that are retained."""
    manifests = {
        each.manifest_path: each for snapshot in table.metadata.snapshots for each in snapshot.manifests(table.io)
    }
    return {e.data_file.file_path for each in manifests.values() for e in each.fetch_manifest_entry(table.io)}


def _added(table, snapshot) -> list:
    manifests = [each for each in snapshot.manifests(table.io) if each.added_snapshot_id == snapshot.snapshot_id]
    entries = [entry for each in manifests for entry in each.fetch_manifest_entry(table.io)]
    return [entry.data_file for entry in entries if entry.status.name == "ADDED"]


def _lineage(metadata) -> list[int]:
    by_id, found, at = {each.snapshot_id: each for each in metadata.snapshots}, [], metadata.current_snapshot_id
    while at in by_id:
        found.append(at)
        at = by_id[at].parent_snapshot_id
    return found
