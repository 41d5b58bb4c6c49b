"""One checkpoint by several connections: branches, which are prepared transactions beside the main one. Driver only.

The main transaction decides: with it the checkpoint is committed, or is not. It has the lock on the row of the
application, the names of its branches, and the row that says what was committed last. docs/design/0021-branches.md
says why each row is there once. ``streamsink_branches`` has a row for each branch that is decided (``DECIDED``), which
the main transaction writes, and one that the branch itself has written (``WRITTEN``), so that nobody has to believe
that it was committed.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.bulk.prepared import Prepared
from streamsink.sinks.databases.bulk.sharing import OneWriterInstead, Rows, Shared, await_all
from streamsink.sinks.databases.changes import ROWS_AT_ONCE
from streamsink.sinks.databases.dialect import BRANCHES, Dialect, Run
from streamsink.sinks.databases.remembered import Remembered
from streamsink.sinks.databases.staging import Staging
from streamsink.sinks.databases.table_info import said

DECIDED, WRITTEN = "decided", "written"
# A branch that another connection is about to commit, or has until the server notices that it ended.
_LOOKS, _PAUSE_MS = 40, 250
# Writes rows, of which so many are given to the database at once.
Write = Callable[[Run, Iterable[pa.RecordBatch], int], None]


PREPARED, STAGED, EITHER = "prepared", "staged", "auto"


def are_prepared(dialect: Dialect, run: Run, wanted: tuple[int, str], path: str) -> bool:
    """Whether several writers prepare transactions; else they fill staging tables.

    wanted: how many writers, and by which of both ways. run: of an open transaction. Raises Misuse when transactions
    are to be prepared and the server has them not.
    """
    (writers, by), prepared = wanted, dialect.prepared
    if prepared is None or writers == 1 or by == STAGED:
        return False
    refused = prepared.refused(run, writers - 1)
    if refused and by == PREPARED:
        raise Misuse(
            f"{path}: writers is {writers}, for which {writers - 1} transactions are prepared at a time: {refused}. Or "
            "set writers_by='staged', for which the server needs no such transactions, or leave the option writers "
            "out. Nothing was written",
            kind="database.options",
        )
    return not refused


def forget(run: Run, application: str, remembered: Remembered, branches: "Branches | None") -> None:
    """Remove what is remembered of an application, with branches that no later start of it would look for.

    run: of an open transaction. Raises as ``Branches.settle``.
    """
    sweep(run, branches)
    remembered.forget(run, application)


def sweep(run: Run, branches: "Branches | None") -> None:
    """Settle the branches of an application, and roll back what is not decided. run, raises: as ``forget``."""
    if branches is not None:
        branches.remembered.lock(run, branches.application)
        branches.settle(run, sweep=True)


@dataclass(frozen=True)
class Branches:
    """The branches of an application into one target, of a database that has such. path: of the sink, for messages."""

    remembered: Remembered
    application: str
    address: Address
    path: str

    @property
    def prepared(self) -> Prepared:
        """Its statements."""
        prepared = self.remembered.dialect.prepared
        if prepared is None:
            raise NotImplementedError("never called for a database that has none")
        return prepared

    @property
    def error(self) -> type[Exception]:
        """Of the driver."""
        error: type[Exception] = self.remembered.dialect.driver().Error
        return error

    def connect(self) -> Run:
        """A further connection, each statement of which is one of its own."""
        connection = self.remembered.dialect.connect(self.address)
        self.prepared.commits_by_itself(connection)
        return Run(connection)

    def write(self, run: Run, rows: Rows, count: int, write: Write) -> "Attempt":
        """Write rows by the main transaction and ``count`` branches, which are prepared then, and note their names.

        run: of the main transaction, which has the lock. Raises OneWriterInstead when the database refuses anything;
        then, and after every other error, the branches are rolled back, as far as that is possible.
        """
        attempt_id = self.remembered.attempt_of(self.application)
        attempt = Attempt(self, tuple(f"{attempt_id}{number}" for number in range(1, count + 1)))
        shared = Shared(rows.read(), rows.at_once(count + 1, ROWS_AT_ONCE))
        try:
            with ThreadPoolExecutor(count) as pool:
                list(pool.map(attempt.open, attempt.names))  # all begin at the same time
                running = [pool.submit(attempt.prepare, name, shared, write) for name in attempt.names]
                try:
                    write(run, shared, shared.at_once)
                    # What a commit would refuse, when the branches are prepared and nobody rolls them back.
                    self.remembered.dialect.check_at_once(run)
                    await_all(running, run)
                except BaseException:
                    shared.stop()
                    raise
            for name in attempt.names:
                self.note(run, name, DECIDED)
        except self.error as failed:
            attempt.drop()
            raise OneWriterInstead(failed) from None
        except BaseException:
            attempt.drop()
            raise
        return attempt

    def settle(self, run: Run, *, sweep: bool) -> None:
        """Commit the branches that are decided, and forget them. Idempotent; anybody may do it.

        run: of an open transaction. sweep: roll the others back, and drop staging tables, too; only with the lock on
        the application's row, under which no other driver has any that may come to be decided. Raises Corrupt and
        Retryable.
        """
        table, mark = self._table(), self.remembered.dialect.mark
        ask = f"SELECT name FROM {table} WHERE kind = {mark} AND target = {mark} AND application = {mark}"
        names = [row[0] for row in run(ask, DECIDED, self.remembered.target, self.application)]
        open_ones = [name for name in names if not self._is_written(run, name)]
        if open_ones or sweep:
            self._end(open_ones, names, sweep)
        for name in names:
            run(f"DELETE FROM {table} WHERE name = {mark}", name)
        if sweep:
            Staging(self.remembered, self.application, self.address, self.path).sweep(run)

    def _end(self, open_ones: Sequence[str], decided: Sequence[str], sweep: bool) -> None:
        control = self.connect()
        with contextlib.closing(control.connection):
            absent = [name for name in open_ones if not self._is_committed(control, name)]
            start = self.remembered.names_of(self.application)
            # Where there can be none the user may have no right to ask for them.
            asks = absent or (sweep and not self.prepared.refused(control, 0))
            there = self.prepared.names(control, start) if asks else []
            for name in there if sweep else ():
                if name not in decided:
                    self._roll_back(control, name)
        if absent:
            raise self._held(absent) if set(absent).intersection(there) else self._lost(absent)

    def _is_committed(self, control: Run, name: str) -> bool:
        """Commit a branch, and look whether that has happened: some other connection may be doing the same."""
        for _ in range(_LOOKS):
            if self._is_written(control, name):
                return True
            try:
                self.prepared.commit(control, name)
            except self.error as failed:
                self._raise_unless_absent(failed, name, "COMMIT")
                Clock().sleep_ms(_PAUSE_MS)
        return self._is_written(control, name)

    def _held(self, names: Sequence[str]) -> Retryable:
        return Retryable(
            f"{self.path}: another connection has prepared transactions of a checkpoint that is committed: "
            f"{said(names)}. They are free when that connection ends; nothing after it is committed before. End the "
            "driver that has it, and start the query again",
            kind="database.unavailable",
        )

    def _lost(self, names: Sequence[str]) -> Corrupt:
        return Corrupt(
            f"{self.path}: parts of a checkpoint that is committed are lost: the prepared transactions {said(names)} "
            "are not there any more, and what they wrote is not there either. Somebody has rolled them back by hand, "
            "or the database was restored without them. Nothing was written. Restore the database as it was; or, to "
            f"go on without these rows, DELETE FROM {self._table().replace('%%', '%')} WHERE name IN ({said(names)})",
            kind="database.branch-lost",
        )

    def _roll_back(self, control: Run, name: str) -> None:
        # One that a connection has still is never decided, and is rolled back by a later start.
        try:
            self.prepared.roll_back(control, name)
        except self.error as failed:
            self._raise_unless_absent(failed, name, "ROLLBACK")

    def _raise_unless_absent(self, failed: Exception, name: str, end: str) -> None:
        if self.prepared.is_forbidden(failed):
            raise Misuse(
                f"{self.path}: the prepared transaction '{name}' of this application was made by another user of the "
                f"database than '{self.address.user}', who may not end it. It keeps its locks. Nothing was written. "
                f"Start the query once as that user; or execute {end} PREPARED '{name}' in this database as that user "
                "or as a superuser, and start the query again",
                kind="database.refused",
            ) from None
        if not self.prepared.is_absent(failed):
            raise failed

    def _is_written(self, control: Run, name: str) -> bool:
        mark = self.remembered.dialect.mark
        ask = f"SELECT 1 FROM {self._table()} WHERE name = {mark} AND kind = {mark}"
        return control(ask, name, WRITTEN).fetchone() is not None

    def note(self, run: Run, name: str, kind: str) -> None:
        """Add a row for a branch."""
        mark = self.remembered.dialect.mark
        run(
            f"INSERT INTO {self._table()} (name, kind, target, application) VALUES ({mark}, {mark}, {mark}, {mark})",
            *(name, kind, self.remembered.target, self.application),
        )

    def _table(self) -> str:
        return self.remembered.dialect.quoted(self.remembered.schema, BRANCHES)


@dataclass
class Attempt:
    """The branches of one main transaction that may become committed."""

    of: Branches
    names: tuple[str, ...]
    _open: dict[str, Run] = field(default_factory=dict)

    def open(self, name: str) -> None:
        """Connect for a branch."""
        self._open[name] = self.of.connect()

    def prepare(self, name: str, rows: Shared, write: Write) -> None:
        """Write a branch, in a thread of its own."""
        try:
            run = self._open[name]
            self.of.prepared.begin(run, name)
            write(run, rows, rows.at_once)
            self.of.note(run, name, WRITTEN)
            self.of.prepared.prepare(run, name)
        except BaseException:
            rows.stop()  # the others need not go on
            raise

    def commit(self) -> None:
        """Commit all, when the main transaction is committed. Where that fails it is left to ``Branches.settle``."""
        for name, run in self._open.items():
            with contextlib.suppress(self.of.error):
                self.of.prepared.commit(run, name)
        self.close()

    def drop(self) -> None:
        """Roll all back. Where that fails it is left to ``Branches.settle``."""
        for name, run in self._open.items():
            with contextlib.suppress(self.of.error):
                self.of.prepared.roll_back(run, name)
        self.close()

    def close(self) -> None:
        """End the connections: what is prepared stays, and is free for others. Idempotent."""
        while self._open:
            _, run = self._open.popitem()
            with contextlib.suppress(self.of.error):
                run.connection.close()
