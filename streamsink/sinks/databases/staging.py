"""One checkpoint by several connections that fill staging tables, which the main transaction moves. Driver only.

For servers that prepare no transactions, for rows with keys, and where no reader may see a part of a checkpoint: the
main transaction has all of the rows and the row that says what was committed last, as with one writer. It has the lock
on the row of the application from before the first staging table is made until it ends. So what happens to a staging
table decides nothing: whose main transaction is gone has tables that nobody will ever move, and who has the lock may
drop whatever tables it finds. The rows are in the journal. docs/design/0021-branches.md has the argument.
"""

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from streamsink.errors import Misuse, Retryable
from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.bulk.sharing import OneWriterInstead, Rows, Shared, await_all
from streamsink.sinks.databases.bulk.staging_tables import StagingTables
from streamsink.sinks.databases.changes import ROWS_AT_ONCE, Change, pieces
from streamsink.sinks.databases.dialect import Run
from streamsink.sinks.databases.remembered import Remembered
from streamsink.sinks.databases.table_info import TableInfo, misfit, said


@dataclass(frozen=True)
class Staging:
    """The staging tables of an application for one target. path: of the sink, for messages."""

    remembered: Remembered
    application: str
    address: Address
    path: str

    @property
    def tables(self) -> StagingTables:
        """Its statements."""
        tables = self.remembered.dialect.staging
        if tables is None:
            raise NotImplementedError("never called for a database that has none")
        return tables

    @property
    def error(self) -> type[Exception]:
        """Of the driver."""
        error: type[Exception] = self.remembered.dialect.driver().Error
        return error

    def quoted(self, name: str) -> str:
        """A table of the schema."""
        return self.remembered.dialect.quoted(self.remembered.schema, name)

    def begin(self) -> "Filled":
        """An attempt, with names of its own."""
        return Filled(self, self.remembered.attempt_of(self.application))

    def check(self, run: Run, info: TableInfo, names: Sequence[str], change: Change, writers: int) -> None:
        """Make a table, move its rows, which are none, and drop it. Raises Misuse when one of that cannot be done.

        run: of a transaction of its own, which is to be rolled back: a trigger may note that there was a statement.
        names: of the columns of the rows that the table has.
        """
        vague = [column.name for column in info.columns if column.name in change.keys and not column.exact]
        if vague:
            raise misfit(
                self.path,
                f"writers is {writers}, and the key {said(vague)} is of a type or collation in which different values "
                "are equal, so that rows with keys must stay in order",
                "Leave the option writers out, or give the column a type or collation in which no others are equal "
                "(utf8mb4_nopad_bin of MariaDB, utf8mb4_0900_bin of MySQL)",
            )
        user, attempt = str(run("SELECT CURRENT_USER").fetchone()[0]), self.begin()
        try:
            run(self.tables.drop([self.quoted(f"{attempt.start}0")]))  # who may not would leave tables behind
            attempt.make(run, 0, names, change)
            attempt.move(run, change, 0)
            run(self.tables.drop(attempt.names))
        except self.error as refused:
            if self.remembered.dialect.is_passing(refused):
                raise
            with contextlib.suppress(self.error):
                self.drop(run, attempt.names)
            into = self.quoted(self.remembered.target).replace("%%", "%")
            raise Misuse(
                f"{self.path}: writers is {writers}, and the user may not make, fill, read and drop tables beside the "
                f"table: {type(refused).__name__}: {self.remembered.dialect.told(refused)}. Nothing was written. Leave "
                f"the option writers out, or execute {self.tables.grants(self.remembered.schema, into, user)}",
                kind="database.options",
            ) from None

    def sweep(self, run: Run) -> None:
        """Drop the tables of attempts that are over. Only with the lock, before an own attempt begins.

        One that a driver still uses, whose main transaction is gone, is left to a later start. run: of an open
        transaction.
        """
        start = self.remembered.names_of(self.application)
        names = [str(row[0]) for row in run(self.tables.find, self.remembered.schema, len(start), start)]
        if names:
            self.drop_anew([self.quoted(name) for name in names])

    def drop_anew(self, tables: Sequence[str]) -> None:
        """Drop tables by a connection of its own, as far as that is possible."""
        with contextlib.suppress(self.error), contextlib.closing(self.remembered.dialect.connect(self.address)) as new:
            for table in tables:
                with contextlib.suppress(self.error):
                    self.drop(Run(new), [table])

    def drop(self, run: Run, tables: Sequence[str]) -> None:
        """Drop tables, as far as nobody uses them. run: of a connection without an open transaction.

        Raises the driver's errors.
        """
        try:
            run(self.tables.impatient)
            run(self.tables.drop(tables))
            run.connection.commit()
        except self.error:
            run.connection.rollback()
            raise


@dataclass
class _Part:
    """A staging table. table, columns: quoted. deletes: its rows are keys to delete. rows: so many it was given."""

    table: str
    columns: list[str]
    deletes: bool
    rows: int = 0


@dataclass
class Filled:
    """The staging tables of one main transaction. start: of their names."""

    of: Staging
    start: str
    _parts: list[_Part] = field(default_factory=list)
    _open: list[Run] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Those of the tables that were made, quoted."""
        return [part.table for part in self._parts]

    def write(self, run: Run, rows: Rows, writers: int, change: Change) -> None:
        """Let so many connections write rows into staging tables, and move these by the main transaction.

        run: of the main transaction, which has the lock. Raises OneWriterInstead when the database refuses anything;
        the driver's own errors when trying again may help, and Retryable. After any error, and behind the commit,
        ``close`` is to be called.
        """
        try:
            with ThreadPoolExecutor(writers) as pool:
                reducing = pool.submit(change.reduced, rows)  # which may read all of them
                await_all([reducing], run)
                left = reducing.result()
                shared = Shared(left.read(), left.at_once(writers, ROWS_AT_ONCE))
                running = [pool.submit(self._fill, number, shared, change) for number in range(writers)]
                try:
                    await_all(running, run)
                except BaseException:
                    shared.stop()
                    raise
            self.move(run, change, left.count)
        except self.of.error as failed:
            if self.of.remembered.dialect.is_quick(failed):
                raise
            raise OneWriterInstead(failed) from None

    def _fill(self, number: int, shared: Shared, change: Change) -> None:
        """Write one part of the rows, in a thread of its own."""
        dialect, parts = self.of.remembered.dialect, dict[bool, _Part]()
        try:
            run = Run(dialect.connect(self.of.address))
            self._open.append(run)
            for rows in pieces(shared, shared.at_once):
                if not parts:
                    names = [name for name in rows.column_names if name != change.delete_column]
                    parts = self.make(run, number, names, change)
                for is_deleted, some in change.split(rows):
                    dialect.insert(run, parts[is_deleted].table, some)
                    parts[is_deleted].rows += some.num_rows
            run.connection.commit()
        except BaseException:
            shared.stop()  # the others need not go on
            raise

    def make(self, run: Run, number: int, names: Sequence[str], change: Change) -> dict[bool, _Part]:
        """Make the tables of one writer: that of rows, and that of keys to delete where there are such."""
        of, made = self.of, dict[bool, _Part]()
        for deletes in (False, True) if change.delete_column else (False,):
            columns = [of.remembered.dialect.quoted(name) for name in (change.keys if deletes else names)]
            made[deletes] = _Part(of.quoted(f"{self.start}{number}{'-deletes' if deletes else ''}"), columns, deletes)
            self._parts.append(made[deletes])
            run(of.tables.create(made[deletes].table, of.quoted(of.remembered.target), columns))
        return made

    def move(self, run: Run, change: Change, count: int) -> None:
        """Move all rows by the main transaction. count: how many there must be. Raises Retryable."""
        of = self.of
        into, keys = of.quoted(of.remembered.target), [of.remembered.dialect.quoted(key) for key in change.keys]
        found = [int(run(f"SELECT count(*) FROM {part.table}").fetchone()[0]) for part in self._parts]
        if found != [part.rows for part in self._parts] or sum(found) != count:
            raise Retryable(
                f"{of.path}: the staging tables whose names begin with '{self.start}' have {sum(found)} rows, and "
                f"{count} were expected: somebody else has changed them. Nothing was written. Leave such tables alone, "
                "and start the query again",
                kind="database.staging",
            )
        for part in sorted(self._parts, key=lambda part: not part.deletes):  # as one writer does: deletes first
            if part.deletes:
                run(of.tables.delete(into, part.table, keys))
            elif keys:
                run(of.tables.upsert(into, part.table, part.columns, keys))
            else:
                run(of.tables.insert(into, part.table, part.columns))
        if of.tables.drops_with_rows and self._parts:
            run(of.tables.drop(self.names))

    def close(self) -> None:
        """Drop what is there of the tables, and end the connections. Where that fails a later start does it.

        Idempotent. Not before the main transaction has ended.
        """
        if self._open and self._parts:
            try:
                self.of.drop(self._open[0], self.names)
            except self.of.error:  # it may have waited for too long
                self.of.drop_anew(self.names)
        self._parts.clear()
        while self._open:
            with contextlib.suppress(self.of.error):
                self._open.pop().connection.close()
