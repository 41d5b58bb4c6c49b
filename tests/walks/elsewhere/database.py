"""A table of SQLite as the destination of a walk, read and changed by SQLite's own module."""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streamsink.sinks.databases import sqlite
from streamsink.sinks.databases.sink import DatabaseSink
from streamsink.testing.crashing import Mode
from tests.walks.elsewhere.places import Place
from tests.walks.store import Process

_TABLE = "orders"
_MEMORY = "/dev/shm"


class _Strike:
    """What is to go wrong at the n-th statement or commit from now on; 0 for nothing. refuses: whether no rows are
    committed."""

    left, mode, refuses = 0, Mode.BEFORE, False

    def __init__(self):
        self.opened: list[tuple[Process | None, sqlite3.Connection]] = []

    def end_the_dead(self) -> None:
        """The system ends connections of dead drivers, and what they have locked."""
        for process, inner in self.opened:
            if process is not None and process.dead:
                inner.close()
        self.opened = [each for each in self.opened if each[0] is not None and not each[0].dead]

    def ask(self, process: Process | None, name: str, ask: Callable[[], Any]) -> Any:
        """Make a call of this driver, which a command does without one. The database's error stands for the store's."""
        if process is None:
            return ask()
        self.left -= 1
        if self.left == 0:
            # SQLite is in the process, so no reply of a statement is lost; that of a commit stands for other servers'.
            is_lost = self.mode in (Mode.REPLY_LOST, Mode.REPEATED) and name != "commit"
            process.fail_in(1, Mode.ERROR if is_lost else self.mode)
        try:
            return process._do(name, ask)
        except OSError as failed:
            raise sqlite3.OperationalError("disk I/O error") from failed


class _Cursor:
    """A cursor of a driver that may die or fail at each statement, and stand still before its transaction begins."""

    def __init__(self, inner: sqlite3.Cursor, of: "_Dialect"):
        self._inner, self._of = inner, of

    def execute(self, text: str, *given: Any) -> None:
        if text.startswith("BEGIN"):
            self._of.has_rows = False
            self._of.strike.ask(self._of.process, "begin", lambda: self._inner.execute(text, *given))
        else:
            self._of.ask("statement", lambda: self._inner.execute(text, *given))

    def executemany(self, text: str, rows: Any) -> None:
        self._of.has_rows = True
        self._of.ask("statement", lambda: self._inner.executemany(text, rows))

    def __iter__(self) -> Iterator[tuple]:
        return iter(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Connection:
    """A connection of such a driver. It does not stand still within a transaction: its successor would only wait."""

    def __init__(self, inner: sqlite3.Connection, of: "_Dialect"):
        self._inner, self._of = inner, of

    def cursor(self) -> _Cursor:
        return _Cursor(self._inner.cursor(), self._of)

    def commit(self) -> None:
        if self._of.has_rows and self._of.strike.refuses and self._of.process:
            raise sqlite3.OperationalError("disk I/O error")
        self._of.ask("commit", self._inner.commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Dialect(sqlite.Sqlite):
    """has_rows: whether rows were given since a transaction began."""

    has_rows = False

    def __init__(self, process: Process | None, strike: _Strike):
        self.process, self.strike = process, strike

    def ask(self, name: str, ask: Callable[[], Any]) -> Any:
        """Make a call within a transaction, in which nobody stands still."""
        with self.process.awake() if self.process else contextlib.nullcontext():
            return self.strike.ask(self.process, name, ask)

    def connect(self, address):
        self.strike.end_the_dead()
        inner = super().connect(address)
        self.strike.opened.append((self.process, inner))
        inner.execute("PRAGMA synchronous=OFF")  # no walk loses the power of this machine
        inner.execute("PRAGMA busy_timeout=0")
        return _Connection(inner, self)


@dataclass(frozen=True)
class _Sink(DatabaseSink):
    process: Process | None = field(default=None, compare=False)
    strike: _Strike = field(default_factory=_Strike, compare=False)

    def _dialect(self):
        return _Dialect(self.process, self.strike)


class Database(Place):
    """A file of SQLite. The journals are in the store."""

    def __init__(self, store, root: str):
        super().__init__(store, root)
        self._folder = tempfile.mkdtemp(prefix="streamsink-walk-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        self._file = f"{self._folder}/shop.db"
        self._strike = _Strike()

    def strike_at(self, number, mode):
        self._strike.left, self._strike.mode = number, mode

    def refuse(self, refuses: bool) -> None:
        """No rows are committed, until they are again."""
        self._strike.refuses = refuses

    def close(self):
        shutil.rmtree(self._folder, ignore_errors=True)

    def sink(self, process):
        # The name does not say where the file is, so that a walk is the same each time.
        return _Sink(
            f"sqlite:{self._file}",
            table=_TABLE,
            journal=self.root,
            create_table=True,
            name="shop/orders",
            process=process,
            strike=self._strike,
        )

    def visible(self):
        with self._open() as database:
            return [row for (row,) in database.execute(f"SELECT id FROM {_TABLE}")] if _has(database, _TABLE) else []

    def applications(self):
        with self._open() as database:
            if not _has(database, "streamsink_checkpoints"):
                return []
            said = "SELECT application FROM streamsink_checkpoints WHERE sequence > 0 ORDER BY 1"
            return [name for (name,) in database.execute(said)]

    def copy(self):
        with self._open() as database:
            return database.serialize() if database.execute("PRAGMA page_count").fetchone()[0] else b""

    def put_back(self, copy: bytes):
        """As ``.restore`` of SQLite's shell: whoever has the file open sees it."""
        with self._open() as database, contextlib.closing(sqlite3.connect(":memory:")) as backup:
            if copy:
                backup.deserialize(copy)
            backup.backup(database)

    def drop(self):
        self.put_back(b"")

    def delete(self, rows):
        with self._open() as database:
            if not _has(database, _TABLE):
                return []
            there = {row for (row,) in database.execute(f"SELECT id FROM {_TABLE}")}
            found = sorted(there.intersection(rows))
            database.executemany(f"DELETE FROM {_TABLE} WHERE id = ?", [(row,) for row in found])
        return found

    def add(self, rows) -> bool:
        """Another program adds rows. Returns whether there is a table."""
        with self._open() as database:
            if not _has(database, _TABLE):
                return False
            database.executemany(f"INSERT INTO {_TABLE} (id, part, n) VALUES (?, 'a', 0)", [(row,) for row in rows])
            return True

    def forget(self, application):
        with self._open() as database:
            if _has(database, "streamsink_checkpoints"):
                database.execute("DELETE FROM streamsink_checkpoints WHERE application = ?", (application,))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._strike.end_the_dead()
        with contextlib.closing(sqlite3.connect(self._file, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous=OFF")
            yield database


def _has(database: sqlite3.Connection, table: str) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None
