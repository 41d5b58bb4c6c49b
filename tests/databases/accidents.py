"""Connections of which the n-th statement can be the last one of their driver, and a query over a numbered source."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.sinks.databases.mysql import MySql
from streamsink.sinks.databases.postgresql import PostgreSql
from streamsink.sinks.databases.sqlite import Sqlite
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.databases.places import Place

DIALECTS = {"sqlite": Sqlite, "postgresql": PostgreSql, "mariadb": MySql}
SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])
ENDS = (3, 3, 8, 12)  # the second batch is empty
QUERY = "00000000-0000-0000-0000-000000000001"
# The driver dies before or after a statement, the statement fails, or is done and its reply is lost.
BEFORE, AFTER, FAILED, LOST = "before", "after", "failed", "lost"
MODES = (BEFORE, AFTER, FAILED, LOST)


class Statements:
    """Counts the statements of one driver, and lets an accident happen at one of them.

    at: its number, from 1; 0 for none. act: called before or after that statement instead.
    """

    def __init__(self, kind: str, at: int = 0, mode: str = BEFORE, act: Callable[[], None] | None = None):
        self.kind, self.at, self.mode, self.act = kind, at, mode, act
        self.log: list[str] = []
        self.dead = False
        self.opened: list = []  # connections and cursors
        self.lock = threading.Lock()

    def do(self, name: str, action: Callable[[], object]):
        with self.lock:  # several connections may be at work
            if self.dead:
                raise InjectedCrash(name)
            self.log.append(name)
            is_here = len(self.log) == self.at
        if not is_here:
            return action()
        if self.act is not None:
            if self.mode == BEFORE:
                self.act()
            done = action()
            if self.mode == AFTER:
                self.act()
            return done
        if self.mode in (AFTER, LOST):
            action()
        self.cut()
        if self.mode in (BEFORE, AFTER):
            self.dead = True
            raise InjectedCrash(f"{name} (statement {self.at})")
        raise lost(self.kind)

    def cut(self) -> None:
        """The connections end, as with their process."""
        for each in reversed(self.opened):
            with contextlib.suppress(Exception):
                each.close()

    def wrap(self, connection) -> "Connection":
        self.opened.append(connection)
        return Connection(connection, self)


def lost(kind: str) -> Exception:
    """The error of a driver whose connection is lost."""
    module = DIALECTS[kind]().driver()
    if kind == "sqlite":
        return module.OperationalError("disk I/O error")
    return (
        module.OperationalError("injected") if kind == "postgresql" else module.err.OperationalError(2013, "injected")
    )


class Connection:
    """A connection whose statements are counted; one that the rows follow (LOAD DATA LOCAL) when all are sent."""

    def __init__(self, inner, statements: Statements):
        self._inner, self._statements, self._loading = inner, statements, ""

    def _execute_command(self, command, text):
        self._loading = text
        self._inner._execute_command(command, text)

    def _read_query_result(self):
        return self._statements.do(self._loading, self._inner._read_query_result)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    @property
    def autocommit(self):
        return self._inner.autocommit

    @autocommit.setter
    def autocommit(self, yes):
        self._inner.autocommit = yes

    def cursor(self) -> "Cursor":
        return Cursor(self._inner.cursor(), self._statements)

    def commit(self) -> None:
        self._statements.do("commit", self._inner.commit)

    def rollback(self) -> None:
        self._statements.do("rollback", self._inner.rollback)

    def close(self) -> None:
        self._inner.close()


class Cursor:
    def __init__(self, inner, statements: Statements):
        self._inner, self._statements = inner, statements
        statements.opened.append(inner)

    def execute(self, text, *parameters):
        self._statements.do(text, lambda: self._inner.execute(text, *parameters))

    def executemany(self, text, rows):
        self._statements.do(text, lambda: self._inner.executemany(text, rows))

    @contextlib.contextmanager
    def copy(self, text):
        with self._inner.copy(text) as copy:
            yield copy
        self._statements.do(text, lambda: None)

    def __iter__(self):
        return iter(self._inner)

    def __getattr__(self, name):
        return getattr(self._inner, name)


class World:
    """A query over a numbered source, its journal in memory, and a database."""

    def __init__(self, place: Place, monkeypatch, schema: pa.Schema = SCHEMA, options: dict | None = None, **of_sink):
        place.drop()
        self.options = {"commit_min_wait_ms": 0, "commit_max_wait_ms": 0, "restore": "restore-and-continue"}
        self.options |= options or {}
        self.place, self.of_sink, self.schema = place, of_sink, schema
        self.io = FileIO(MemoryCalls(), IdSource().new_id)
        self.checkpoint = SparkCheckpoint(QUERY)
        self.statements = Statements(place.kind)
        dialect = DIALECTS[place.kind]
        connect = getattr(dialect, "unwatched", dialect.connect)
        monkeypatch.setattr(dialect, "unwatched", connect, raising=False)
        monkeypatch.setattr(dialect, "connect", lambda of, address: self.statements.wrap(connect(of, address)))

    def rows(self, start: int, end: int) -> pa.RecordBatch:
        """Other words each time, as of a query that is not deterministic."""
        return pa.RecordBatch.from_pydict(
            {"id": range(start, end), "word": [IdSource().new_id() for _ in range(start, end)]}, schema=self.schema
        )

    def start(self, statements: Statements | None = None, checkpoint: SparkCheckpoint | None = None, ends=ENDS) -> None:
        """One start of the query, up to its end or its first error."""
        self.statements = statements or Statements(self.place.kind)
        world = self

        class Driver(MicroBatchDriver):
            def destination(self):
                return world.place.sink("/journal", **world.of_sink)

        driver = Driver("/journal", self.schema, self.rows, SinkOptions.of("/journal", self.options))
        driver._run_once(self.io, checkpoint or self.checkpoint, ends)

    def twin(self) -> SparkCheckpoint:
        """Spark's logs, as a second driver finds them."""
        return replace(self.checkpoint, ends=list(self.checkpoint.ends))


def write(place: Place, *batches: pa.RecordBatch, journal: FileIO | None = None, **of_sink) -> FileIO:
    """Write these batches in one start of a query. Returns the store of its journal, with which a later one goes on."""
    io, checkpoint, ends = journal or FileIO(MemoryCalls(), IdSource().new_id), SparkCheckpoint(QUERY), []
    for batch in batches:
        ends.append((ends[-1] if ends else 0) + batch.num_rows)
    by_start = dict(zip([0, *ends], batches))

    class Driver(MicroBatchDriver):
        def destination(self):
            return place.sink("/journal", **of_sink)

    driver = Driver("/journal", batches[0].schema, lambda start, end: by_start[start], SinkOptions.of("/journal", {}))
    driver._run_once(io, checkpoint, ends)
    return io
