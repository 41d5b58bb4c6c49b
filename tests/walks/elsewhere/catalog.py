"""What a driver of a walk asks a catalog of Iceberg tables, in a file of SQLite, and the files of such tables in the
walk's store."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.concurrent import ExecutorFactory
from sqlalchemy.exc import OperationalError

from streamsink.iceberg import IcebergSink
from streamsink.sinks.iceberg.file_io import DurableOutput
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import Mode
from tests.iceberg.store_files import StoreFileIO
from tests.walks.store import Process

# Who uses a catalog, by the property "who" of it.
USERS: dict[str, "User"] = {}


@dataclass
class User:
    """process: the driver; None for anybody else. strike: what is to go wrong at the n-th question to the catalog from
    now on; ``left`` is 0 for nothing."""

    file_io: FileIO
    process: Process | None
    strike: "Strike"

    def ask(self, name: str, ask: Callable[[], Any] = lambda: None) -> Any:
        if self.process is None:
            return ask()
        self.strike.left -= 1
        if self.strike.left == 0:
            self.process.fail_in(1, self.strike.mode)
        try:
            return self.process._do(name, ask)
        except OSError as failed:
            raise OperationalError(name, {}, failed) from failed


@dataclass
class Strike:
    left: int = 0
    mode: Mode = Mode.BEFORE


class WalkCatalog(SqlCatalog):
    """A driver may die, fail or stand still before each question, and miss the reply to a commit."""

    def __init__(self, name: str, **properties: str):
        super().__init__(name, **properties)
        commit = self.engine.dialect.do_commit
        self.engine.dialect.do_commit = lambda of: self._commit(lambda: commit(of))

    @property
    def _user(self) -> User:
        return USERS[self.properties["who"]]

    def load_table(self, identifier):
        self._user.ask("iceberg load")
        return super().load_table(identifier)

    def commit_table(self, *given):
        self._user.ask("iceberg commit")
        return super().commit_table(*given)

    def _commit(self, commit: Callable[[], None]) -> None:
        """Within it the database is locked, so nobody stands still."""
        process = self._user.process
        with process.awake() if process else contextlib.nullcontext():
            self._user.ask("iceberg exchange", commit)


class WalkFileIO(StoreFileIO):
    """pyiceberg's files in the store, by the calls of whoever uses the catalog."""

    def _io(self) -> FileIO:
        return USERS[self.properties["who"]].file_io

    def _kind(self):
        return _Durable if USERS[self.properties["who"]].process is None else DurableOutput


class _Durable(DurableOutput):
    """What others write is durable at once, data too."""

    def create(self, overwrite: bool = False):
        stream = super().create(overwrite)
        close = stream.close

        def durably() -> None:
            close()
            self._io.sync_dir(os.path.dirname(self._path))

        stream.close = durably
        return stream


class _InOrder(Executor):
    """What pyiceberg would do at once is done one after another."""

    def submit(self, function, /, *args, **named):
        done: Future = Future()
        try:
            done.set_result(function(*args, **named))
        except Exception as failed:
            done.set_exception(failed)
        return done


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Within it pyiceberg's calls come in one order."""
    theirs = ExecutorFactory._instance, ExecutorFactory._instance_pid
    ExecutorFactory._instance, ExecutorFactory._instance_pid = _InOrder(), os.getpid()
    try:
        yield
    finally:
        ExecutorFactory._instance, ExecutorFactory._instance_pid = theirs


@dataclass(frozen=True)
class WalkSink(IcebergSink):
    """strike: see ``User``. process: the driver."""

    process: Process | None = field(default=None, compare=False)
    user: "User | None" = field(default=None, compare=False)

    def open(self, file_io, options, *more):
        self.user.file_io = file_io
        return super().open(file_io, options, *more)
