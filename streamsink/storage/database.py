"""A database as a store of small files: for journals that are to lie in SQLite or PostgreSQL. Driver and executors.

``journal/file_journal.py`` needs a store with a few calls, of which one decides: a name is created whole, once. A
table with the path as its key promises that. So a journal in a database is the same journal, of the same code, and
what is true of its crashes is true here. Each call is one transaction, durable when it returns.

It is not meant for the files of tables: a file is read and written as a whole.
"""

import contextlib
import errno
import io
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse
from streamsink.storage.calls import PosixLikeCalls
from streamsink.storage.file_io import FileIO
from streamsink.storage.hold import BeatingHold, Hold

# path, folder: below the place of the database, which may get another name and stays the same database; '' for itself.
# data: NULL for a folder. file: an id that all names of one file share.
_TABLE = """
CREATE TABLE IF NOT EXISTS streamsink_files (
    path {text} NOT NULL PRIMARY KEY, folder {text} NOT NULL, file {text} NOT NULL, data {bytes})
"""
_INDEX = "CREATE INDEX IF NOT EXISTS streamsink_files_of_folder ON streamsink_files (folder)"
_WAIT_S = 60
# Servers, and what stands between, end connections that were idle for minutes. After so long one is tried before use.
_IDLE_MS = 30_000.0
_TRIES = 10
_CLOCK = Clock()
# SQLSTATEs: a right is missing; the connection is lost, or the server is ending or beginning.
_NO_RIGHT, _OF_CONNECTIONS = "42501", ("08", "57P")
# Rows of one statement: what another client has changed meanwhile is seen as if it had waited.
_ADD = (
    "INSERT INTO streamsink_files (path, folder, file, data) "
    "SELECT ?, ?, {file}, {data} FROM streamsink_files WHERE path = ? AND {what} ON CONFLICT (path) DO NOTHING"
)


class Dialect(ABC):
    """What differs between databases."""

    text: str
    bytes: str
    errors: tuple[type[Exception], ...]
    begin: str

    @abstractmethod
    def connect(self) -> Any:
        """A connection that commits each statement by itself. Raises one of ``errors``."""

    def statement(self, text: str) -> str:
        """A statement with '?' for its parameters, as the driver takes it."""
        return text

    def errno_of(self, failed: Exception, *, connecting: bool) -> int:
        """Which error of a store this one is, so that its message says what to do."""
        return errno.ETIMEDOUT if connecting else errno.EIO


class Sqlite(Dialect):
    """One file on a disk of this machine."""

    text, bytes, errors, begin = "TEXT", "BLOB", (sqlite3.Error,), "BEGIN IMMEDIATE"

    def __init__(self, root: str):
        """root: ``sqlite:/absolute/path``."""
        self._path = root.partition(":")[2]

    def connect(self) -> Any:
        connection = sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        return connection


class Postgres(Dialect):
    """A PostgreSQL server. Paths are compared byte by byte, whatever the database's language."""

    text, bytes, begin = 'TEXT COLLATE "C"', "BYTEA", "BEGIN"

    def __init__(self, root: str, options: Mapping[str, str]):
        """root: ``postgresql://user@host:port/database``. options: further parameters of libpq, such as password."""
        try:
            import psycopg
        except ImportError as missing:
            raise Misuse(
                f"{root}: a journal in PostgreSQL needs the package psycopg: pip install 'streamsink[postgresql]', on "
                "executors too",
                kind="store.extra-missing",
            ) from missing
        self._root, self._options = root, dict(options)
        self._connect = psycopg.connect
        self.errors = (psycopg.Error,)
        self._lost = psycopg.OperationalError

    def connect(self) -> Any:
        given = {"connect_timeout": str(_WAIT_S), "application_name": "streamsink", **self._options}
        # Nothing is prepared: a pooler in transaction mode (PgBouncer) gives each transaction any connection to the
        # server, where another client may have prepared its own statement under the same name.
        connection = self._connect(self._root, autocommit=True, prepare_threshold=None, **given)
        # What a call has done must be durable when it returns.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        return connection

    def statement(self, text: str) -> str:
        return text.replace("?", "%s")

    def errno_of(self, failed: Exception, *, connecting: bool) -> int:
        state = getattr(failed, "sqlstate", None) or ""
        if state == _NO_RIGHT:
            return errno.EACCES
        is_lost = isinstance(failed, self._lost) and (not state or state.startswith(_OF_CONNECTIONS))
        return errno.ETIMEDOUT if connecting or is_lost else errno.EIO


class DatabaseCalls(PosixLikeCalls):
    """The files of one database. Paths begin with ``root``, a folder that is always there."""

    def __init__(self, root: str, options: Mapping[str, str], clock: Clock = _CLOCK):
        self._root = root
        self._clock = clock
        self._dialect: Dialect = Sqlite(root) if root.startswith("sqlite:") else Postgres(root, options)
        self._lock = threading.RLock()  # held throughout a transaction of several statements
        self._connection: Any = None
        self._process = 0
        self._used_ms = 0.0
        self._in_transaction = False

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        found = self._ask("SELECT data FROM streamsink_files WHERE path = ? AND data IS NOT NULL", self._key(path))
        if not found:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(found[0][0])

    def size(self, path: str) -> int | None:
        if path == self._root:
            return 0
        self._check(path)
        found = self._ask("SELECT length(data) FROM streamsink_files WHERE path = ?", self._key(path))
        return int(found[0][0] or 0) if found else None

    def entries(self, path: str) -> list[tuple[str, int, bool]]:
        key = self._key(path)
        found = self._ask("SELECT path, length(data) FROM streamsink_files WHERE folder = ?", key)
        return [(name[len(key) + 1 :], int(size or 0), size is None) for name, size in found]

    def open_existing(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    # -- writing ---------------------------------------------------------------------------------------------------

    def mkdir(self, path: str) -> None:
        if path != self._root and not self._add(path, None) and self._is_file(path):
            raise FileExistsError(errno.EEXIST, "is a file", path)

    def open_new(self, path: str) -> BinaryIO:
        if not self._add(path, b""):
            raise FileExistsError(errno.EEXIST, "file exists", path)
        return _Stream(path)

    def close(self, stream: BinaryIO, flush: bool) -> None:
        if isinstance(stream, _Stream) and not stream.closed:
            self._do("UPDATE streamsink_files SET data = ? WHERE path = ?", stream.getvalue(), self._key(stream.path))
        stream.close()

    def write_new(self, path: str, data: bytes, flush: bool) -> None:
        if not self._add(path, data):
            raise FileExistsError(errno.EEXIST, "file exists", path)

    def link(self, source: str, target: str) -> bool:
        self._need_parent(target)
        text = _ADD.format(file="file", data="data", what="data IS NOT NULL")
        new, folder, old = map(self._key, (target, os.path.dirname(target), source))
        if self._do(text, new, folder, old):
            return True
        files = dict(self._ask("SELECT path, file FROM streamsink_files WHERE path IN (?, ?)", old, new))
        if old not in files:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        return files.get(new) == files[old]

    def check_link(self, source: str, target: str) -> None:
        if self.size(target) is None:
            raise NotADirectoryError(errno.ENOTDIR, "no folder", target)

    def rename(self, source: str, target: str) -> None:
        self._need_parent(target)
        new, folder, old = map(self._key, (target, os.path.dirname(target), source))
        with self._transaction():
            if not self._ask("SELECT 1 FROM streamsink_files WHERE path = ? AND data IS NOT NULL", old):
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
            if source != target:
                text = _ADD.format(file="file", data="data", what="data IS NOT NULL")
                text = text.replace("DO NOTHING", "DO UPDATE SET file = excluded.file, data = excluded.data")
                self._do(text, new, folder, old)
                self._do("DELETE FROM streamsink_files WHERE path = ?", old)

    def unlink(self, path: str) -> bool | None:
        return bool(self._do("DELETE FROM streamsink_files WHERE path = ? AND data IS NOT NULL", self._key(path)))

    def rmdir(self, path: str) -> None:
        self._do(
            "DELETE FROM streamsink_files WHERE path = ? AND data IS NULL "
            "AND NOT EXISTS (SELECT 1 FROM streamsink_files AS inner_files WHERE inner_files.folder = ?)",
            self._key(path),
            self._key(path),
        )

    def sync_dir(self, path: str) -> None:
        """Names are durable already."""

    def sync_file(self, path: str) -> None:
        """Files are durable already."""

    def try_hold(self, path: str) -> Callable[[], None] | None:
        raise OSError(errno.ENOTSUP, "a database has no lock that ends with a process", path)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _add(self, path: str, data: bytes | None) -> bool:
        """Whether the name was free. Raises FileNotFoundError when its folder is missing."""
        self._check(path)
        key, folder = self._key(path), self._key(os.path.dirname(path))
        if not folder:
            text = "INSERT INTO streamsink_files (path, folder, file, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            return bool(self._do(text, key, folder, IdSource().new_id(), data))
        cast = f"CAST(? AS {self._dialect.bytes})"
        text = _ADD.format(file="CAST(? AS TEXT)", data=cast, what="data IS NULL")
        for _ in range(_TRIES):
            if self._do(text, key, folder, IdSource().new_id(), data, folder):
                return True
            there = {
                name for (name,) in self._ask("SELECT path FROM streamsink_files WHERE path IN (?, ?)", key, folder)
            }
            if key in there:
                return False
            if folder not in there:
                raise FileNotFoundError(errno.ENOENT, "no such folder", os.path.dirname(path))
            # Another client has made the folder since, or has deleted the name.
        raise OSError(errno.EAGAIN, "other clients make and delete this name all the time", path)

    def _need_parent(self, path: str) -> None:
        folder = os.path.dirname(path)
        if folder != self._root and self.size(folder) is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder)

    def _is_file(self, path: str) -> bool:
        return bool(self._ask("SELECT 1 FROM streamsink_files WHERE path = ? AND data IS NOT NULL", self._key(path)))

    def _key(self, path: str) -> str:
        """The path as the table has it."""
        is_within = path == self._root or path.startswith(f"{self._root}/")
        return path[len(self._root) :] if is_within else f"elsewhere: {path}"  # which is none in the table

    def _check(self, path: str) -> None:
        """Raises PermissionError for a path that is not of this database, such as one of a destination."""
        if path != self._root and not path.startswith(f"{self._root}/"):
            raise PermissionError(errno.EACCES, f"not in the database {self._root}, which holds the journal", path)

    def _ask(self, text: str, *values: Any) -> Sequence[Any]:
        with self._statement(text, values) as cursor:
            rows: Sequence[Any] = cursor.fetchall()
            return rows

    def _do(self, text: str, *values: Any) -> int:
        with self._statement(text, values) as cursor:
            return int(cursor.rowcount)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._do(self._dialect.begin)
            self._in_transaction = True
            try:
                yield
            except BaseException:
                with contextlib.suppress(OSError):
                    self._do("ROLLBACK")
                raise
            else:
                self._do("COMMIT")
            finally:
                self._in_transaction = False

    @contextmanager
    def _statement(self, text: str, values: Sequence[Any]) -> Iterator[Any]:
        """A cursor that has executed the statement. After an error the next one connects anew."""
        with self._lock:
            connecting = True
            try:
                cursor = self._connected().cursor()
                connecting = False
                cursor.execute(self._dialect.statement(text), tuple(values))
                yield cursor
            except self._dialect.errors as failed:
                self._disconnect()
                code, said = self._dialect.errno_of(failed, connecting=connecting), " ".join(str(failed).split())
                raise OSError(code, f"{type(failed).__name__}: {said}", self._root) from failed

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._dialect.errors):
                connection.close()

    def _connected(self) -> Any:
        now_ms = self._clock.monotonic_ms()
        was_idle, self._used_ms = now_ms - self._used_ms > _IDLE_MS, now_ms
        if was_idle and not self._in_transaction and self._connection is not None and self._process == os.getpid():
            try:
                self._connection.cursor().execute("SELECT 1")
            except self._dialect.errors:
                self._disconnect()
        if self._connection is None or self._process != os.getpid():
            # A forked child has the parent's connection as well, and must not use it.
            self._connection, self._process = self._dialect.connect(), os.getpid()
            self._make_table(self._connection.cursor())
        return self._connection

    def _make_table(self, cursor: Any) -> None:
        """Create the table unless it is there. Of several clients that do so at once all but one may get an error."""
        for left in reversed(range(_TRIES)):
            try:
                cursor.execute("SELECT path FROM streamsink_files LIMIT 0")
                return
            except self._dialect.errors:
                try:
                    cursor.execute(_TABLE.format(text=self._dialect.text, bytes=self._dialect.bytes))
                    cursor.execute(_INDEX)
                except self._dialect.errors:
                    if not left:
                        raise


class _Stream(io.BytesIO):
    """A file that is being written; its bytes are in the database when it is closed by ``DatabaseCalls.close``."""

    def __init__(self, path: str):
        super().__init__()
        self.path = path


class DatabaseFileIO(FileIO):
    """A database's files. A driver holds an application by a file that it keeps changing."""

    def hold(self, folder: str) -> Hold:
        return BeatingHold(self, folder)
