"""The world of a walk over several tables: queries that write each row to the table of its route, through one
coordinating journal.

Everything that is done to "the table" is done to the one that is in focus; see ``world.py``.
"""

import json
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.sinks.paimon.opening import open_many
from streamsink.table.read.scan import data_file_path, read_arrow
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.testing.driver import Driven
from tests.walks.foreign import Others
from tests.walks.model import Version
from tests.walks.queries import SCHEMA, Query, RowsWithLetters, Run, arrow, is_bad, partitioned
from tests.walks.store import Process
from tests.walks.world import World

FOLDER = "/lake/shop.db"
TABLES = ("orders", "returns", "visits")
# The table for dead letters, where a world has one. It gets the rows for which no rule names a table.
LETTERS = "rejected"
_NO_TABLE = "nowhere"
IN_A_ROW = 3
# So many rows one after another reach every table.
ROWS_FOR_ALL = IN_A_ROW * len(TABLES)


def route(row: int) -> str:
    """The table of a row that a query writes. Batches of few rows do not reach all tables."""
    return TABLES[row // IN_A_ROW % len(TABLES)]


class _OneOfSeveral(Others):
    """One of several tables: the tables beside it are not its dead letters."""

    def letter_tables(self):
        return []


class _Letters(_OneOfSeveral):
    """The table for dead letters, which has rows as JSON."""

    def rows_of(self, entry):
        table = self.table()
        path = data_file_path(table, table.latest_schema(), entry)
        if path not in self._rows:
            with self.io.open_input(path) as stream:
                self._rows[path] = _ids(pq.ParquetFile(stream).read(["row"], use_threads=False))
        return self._rows[path]

    def read(self):
        return _ids(read_arrow(self.table()))


def _ids(letters: pa.Table) -> list[int]:
    return [json.loads(row)["id"] for row in letters.column("row").to_pylist()]


class _Rows(RowsWithLetters):
    """Rows with their routes."""

    def _routed(self, ids):
        given, has_letters = arrow(ids, self._parts), self._run.has_letters
        routes = pa.array([_NO_TABLE if has_letters and is_bad(row) else route(row) for row in ids], pa.string())
        return pa.RecordBatch.from_arrays([*given.columns, routes], schema=SCHEMA.append(pa.field(ROUTE, pa.string())))


class _Run(Run):
    """One start of a query into several tables."""

    has_letters = False

    def open(self, batch_id):
        if self.sink is not None:
            return
        rules = {name: {"partition_by": partitioned(self.parts)} for name in TABLES}
        letters = (
            {"dead_letters": LETTERS, "unrouted": "dead-letter"}
            if self.has_letters
            else {"dead_letters": None, "unrouted": "fail"}
        )
        routing = Routing.of(self._root, rules, self.driver.options, **letters)
        self.opened = open_many(self.process.io, routing, self.driver.options, emit=lambda event: None)
        self.sink = Driven(self.driver, self.process.io, self.opened, self._query_id)

    def _rows(self, *given):
        return _Rows(self, *given)


@dataclass
class SeveralTables(World):
    """The tables below one folder. ``others`` and ``versions`` are those of the table in focus.
    has_letters: one table is for dead letters."""

    has_letters: bool = False

    def __post_init__(self):
        super().__post_init__()
        self.tables = (*TABLES, LETTERS) if self.has_letters else TABLES
        self._others = {
            name: (_Letters if name == LETTERS else _OneOfSeveral)(self.store, f"{self.root}/{name}")
            for name in self.tables
        }
        self._versions = {name: {} for name in self.tables}
        self._came_to: dict[int, str] = {}
        self.went_back_times = 0
        self.table = TABLES[0]
        self.focus(TABLES[0])

    def focus(self, table: str) -> None:
        """From now on this table is "the table"."""
        self._versions[self.table] = self.versions
        self.table, self.others, self.versions = table, self._others[table], self._versions[table]

    def came(self, rows, table: str) -> None:
        """Another writer has added rows, which follow no route."""
        self._came_to.update(dict.fromkeys(rows, table))

    def delete(self, rows) -> None:
        """Delete these rows in whichever tables they are."""
        for name in self.tables:
            self.focus(name)
            if self.others.is_table() and self.others.delete(rows):
                self.accident("others")

    def table_of(self, row: int) -> str:
        return self._came_to.get(row) or (LETTERS if self.has_letters and is_bad(row) else route(row))

    def start(self, query: Query) -> Run:
        self.serial += 1
        process, settings = Process(self.store, self.root), query.settings(self.root)
        run = _Run(process, self.root, settings, query.checkpoint.query, self.parts, None)
        run.has_letters = self.has_letters
        query.live = run
        return run

    def visible(self) -> Counter:
        """What a reader sees in all tables."""
        return sum((self._read(self._others[name].visible) for name in self.tables), Counter())

    def look(self):
        seen = {name: self._read(self._others[name].visible) for name in self.tables}
        self.model.check_never_twice(sum(seen.values(), Counter()))
        for name in self.tables:
            self.focus(name)
            self._look_at_table(seen[name])

    def check_whole(self):
        for name in self.tables:
            self.focus(name)
            self._check_table()
        self.model.check_account(self.visible())

    def whole(self, to: Version) -> Version:
        """What is in the other tables stays as it is."""
        self.went_back_times += 1
        visible = (
            Counter({row: count for row, count in self.visible().items() if self.table_of(row) != self.table})
            + to.visible
        )
        fate = {row: counts for row, counts in self.model.fate.items() if self.table_of(row) != self.table}
        return Version(
            visible,
            fate | {row: counts for row, counts in to.fate.items() if self.table_of(row) == self.table},
            to.earlier,
        )

    def of_message(self, rows, said, letters):
        named = next((name for name in self.tables if said.startswith(f"{self.root}/{name}:")), None)
        return [row for row in rows if named in (None, self.table_of(row))]
