"""A table of a database as a sink: one transaction of the database has the rows of a checkpoint, and remembers it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.sinks.databases.address import Address, parse
from streamsink.sinks.databases.changes import Change, plain
from streamsink.sinks.databases.dialect import CHECKPOINTS, IDENTITY, Dialect, Run
from streamsink.sinks.databases.fitting import Fitting
from streamsink.sinks.databases.link import Link
from streamsink.sinks.databases.mysql import MySql
from streamsink.sinks.databases.postgresql import PostgreSql
from streamsink.sinks.databases.remembered import Remembered
from streamsink.sinks.databases.sqlite import Sqlite
from streamsink.sinks.databases.table_info import said
from streamsink.sinks.databases.values import check_values
from streamsink.sinks.transactions.function import PendingCheckpoint, PendingTransaction
from streamsink.sinks.transactions.staged_rows import StagedRows, StagedRowsSink

INSERT, UPSERT = "insert", "upsert"
_DIALECTS: dict[str, type[Dialect]] = {"postgresql": PostgreSql, "mysql": MySql, "mariadb": MySql, "sqlite": Sqlite}
# Rows of a checkpoint that are together no larger than this are read before the transaction begins, which then waits
# for nothing but the database.
_READ_BEFORE_BYTES = 16 << 20
# Files that SQLite makes, and opens, beside a database have its name with these behind.
_OF_SQLITE = ("-journal", "-wal", "-shm")
# Keys of a session.
_LINK, _SCHEMA, _TABLE, _EXACT, _TRIED = "link", "schema", "table", "exact", "tried"


@dataclass(frozen=True)
class DatabaseSink(StagedRowsSink):
    """A table in PostgreSQL, MariaDB, MySQL or SQLite; see docs/DATABASES.md.

    url: 'postgresql://host:5432/database', 'mysql://...', 'mariadb://...' or 'sqlite:/absolute/path'. table: its whole
    name, as the database has it; it is never taken apart. journal: a folder for the journal, and for rows until they
    are committed, which the driver and all executors share. schema: of the table; '' for the default one.
    user: '' for the default of the driver. password_env: the environment variable of the driver with the password.

    mode: 'insert' adds rows; 'upsert' replaces those with the same ``keys``, of which the table has a unique index.
    delete_column: a boolean column of the rows, which the table does not have: where it is true, the row with these
    keys is deleted. order_by: a column: of several rows of a batch with the same keys that with the greatest value
    counts; '' where the last one does.
    create_table: create the table where it is missing. check_rows_up_to: batches of at most so many rows are tried in
    the database before they are recorded; 0 for none. name: of the destination in messages and in the journal; by
    default the URL and the table. Give the name that it had when the URL changes, for instance after a failover.

    Raises Misuse for options that do not go together.
    """

    remembers = True
    commits_again = True

    url: str
    table: str
    journal: str = ""
    schema: str = ""
    user: str = ""
    password_env: str = ""
    mode: str = INSERT
    keys: tuple[str, ...] = ()
    delete_column: str = ""
    order_by: str = ""
    create_table: bool = False
    check_rows_up_to: int = 10_000
    name: str = ""
    path: str = field(init=False, default="", compare=False)

    def __post_init__(self) -> None:
        address = self._address()
        table = f"{self.schema}.{self.table}" if self.schema else self.table
        object.__setattr__(self, "path", self.name or f"{address.place}/{table}")
        object.__setattr__(self, "keys", tuple(self.keys))
        found = ""
        if self.mode not in (INSERT, UPSERT):
            found = f"mode is {self.mode!r}, expected 'insert' or 'upsert'"
        elif isinstance(self.keys, str) or (self.mode == UPSERT) != bool(self.keys):
            found = f"mode is {self.mode!r} and keys are {self.keys!r}: 'upsert' needs keys, and 'insert' has none"
        elif (self.delete_column or self.order_by) and self.mode != UPSERT:
            found = "delete_column and order_by are for mode='upsert' with keys"
        elif self.table in (CHECKPOINTS, IDENTITY):
            found = f"the table is {self.table}, which is the sink's own"
        elif address.system == "sqlite" and self.journal in [f"{address.database}{end}" for end in _OF_SQLITE]:
            found = f"the journal is {self.journal}, which is SQLite's own file beside the database"
        elif len({*self.keys, self.delete_column}) != len(self.keys) + 1:
            found = f"keys are {self.keys!r} and delete_column {self.delete_column!r}: a column is named twice"
        if found:
            raise Misuse(f"{self.path}: {found}. Nothing was written. Correct the options", kind="database.options")
        names = {"table": self.table, "schema": self.schema or "main"}
        for what, name in names.items():
            self._dialect().check_name(name, f"{self.path}: {what}")

    # -- TwoPhaseCommitFunction ------------------------------------------------------------------------------------

    def identity(self, session: dict[str, Any]) -> str:
        new_id, link = IdSource().new_id(), self._link(session)
        return link.transaction(
            lambda run: self._remembered(run, session).identity(run, new_id),
            "the database could not be opened, or the tables streamsink_checkpoints and streamsink_identity not made "
            "in it. Nothing was written",
        )

    def applications(self, session: dict[str, Any]) -> Sequence[str]:
        return self._asked(session, lambda run: self._remembered(run, session).applications(run))

    def last_committed(self, application: str, session: dict[str, Any]) -> str | None:
        return self._asked(session, lambda run: self._remembered(run, session).last(run, application))

    def forget(self, application: str, session: dict[str, Any]) -> None:
        self._link(session).transaction(
            lambda run: self._remembered(run, session).forget(run, application),
            f"what the database remembers of application '{application}' could not be removed",
        )

    def check_columns(self, columns: pa.Schema, session: dict[str, Any]) -> None:
        session[_TABLE] = self._link(session).transaction(
            lambda run: self._fitting(run, session).table_for(columns),
            "the table could not be looked at. Nothing was written",
        )

    def check_transactions(
        self, transactions: Sequence[PendingTransaction[StagedRows]], session: dict[str, Any]
    ) -> None:
        if not transactions:
            return
        info, dialect = session[_TABLE], self._dialect()
        for rows in self._read(transactions):
            check_values(self._data(rows), info, dialect, self.path)
            self._check_changes(rows)
        # Also the first rows of a start: the user may not have the right to write.
        if (info.ruled or _TRIED not in session) and sum(each.rows for each in transactions) <= self.check_rows_up_to:
            self._try(transactions, session)
            session[_TRIED] = True

    def commit_checkpoint(self, checkpoint: PendingCheckpoint[StagedRows]) -> None:
        session, pending = checkpoint.session, checkpoint.transactions
        small = sum(each.transaction.size for each in pending) <= _READ_BEFORE_BYTES
        read = list(self._read(pending)) if small else None

        tries = iter((lambda: None,))  # the fence was asked before the first try

        def commit(run: Run) -> None:
            next(tries, checkpoint.fence)()
            remembered = self._remembered(run, session)
            number, record_id = remembered.lock(run, checkpoint.application)
            if record_id == checkpoint.record_id:
                return  # committed, and its reply was lost
            if number != checkpoint.expect:
                raise checkpoint.superseded(number)
            self._change(run, self._read(pending) if read is None else read, session)
            remembered.store(run, checkpoint)

        folder = f" (the rows are in {pending[0].context.folder})" if pending else ""
        self._link(session).transaction(
            commit,
            f"record {checkpoint.number} of application '{checkpoint.application}' could not be committed; it is in "
            "the journal, each start of the query commits it again until that succeeds, and nothing after it is "
            "committed before",
            refused=f"Change the table so that it takes the rows{folder}, and start the query again",
        )

    # -- parts -----------------------------------------------------------------------------------------------------

    def _address(self) -> Address:
        return parse(self.url, self.user, self.password_env)

    def _dialect(self) -> Dialect:
        return _DIALECTS[self._address().system]()

    def _link(self, session: dict[str, Any]) -> Link:
        if _LINK not in session:
            session[_LINK] = Link(self._dialect(), self._address(), self.path)
        link: Link = session[_LINK]
        return link

    def _asked(self, session: dict[str, Any], ask: Any) -> Any:
        return self._link(session).transaction(ask, "what the database remembers could not be read")

    def _remembered(self, run: Run, session: dict[str, Any]) -> Remembered:
        dialect = self._dialect()
        if _SCHEMA not in session:
            session[_SCHEMA] = dialect.schema(run, self.schema)
        return Remembered(dialect, session[_SCHEMA], self.table)

    def _fitting(self, run: Run, session: dict[str, Any]) -> Fitting:
        remembered = self._remembered(run, session)
        return Fitting(
            run,
            remembered.dialect,
            (remembered.schema, self.table),
            self._change_of(),
            self.path,
            create=self.create_table,
        )

    def _change_of(self) -> Change:
        return Change(self.keys, self.delete_column, self.order_by)

    def _read(self, transactions: Sequence[PendingTransaction[StagedRows]]) -> Iterator[pa.RecordBatch]:
        for each in transactions:
            yield from map(plain, self.read_rows(each))

    def _data(self, rows: pa.RecordBatch) -> pa.Table:
        """The rows without the column that says which of them delete."""
        table = pa.Table.from_batches([rows])
        return table.drop_columns([self.delete_column]) if self.delete_column else table

    def _change(self, run: Run, batches: Iterable[pa.RecordBatch], session: dict[str, Any]) -> None:
        remembered = self._remembered(run, session)
        into = remembered.dialect.quoted(remembered.schema, self.table)
        self._change_of().apply(batches, run, remembered.dialect, into, exact=self._is_exact(run, remembered, session))

    def _is_exact(self, run: Run, remembered: Remembered, session: dict[str, Any]) -> bool:
        if not self.delete_column:
            return True
        if _EXACT not in session:
            info = remembered.dialect.describe(run, remembered.schema, self.table)
            session[_EXACT] = all(column.exact for column in info.columns if column.name in self.keys)
        return bool(session[_EXACT])

    def _try(self, transactions: Sequence[PendingTransaction[StagedRows]], session: dict[str, Any]) -> None:
        """Write the rows in a transaction that is rolled back."""
        batches = list(self._read(transactions))

        def write(run: Run) -> None:
            self._change(run, batches, session)
            self._dialect().check_at_once(run)

        self._link(session).transaction(
            write,
            "the database refuses rows of this batch. Nothing of it was recorded or written",
            refused="Mend the rows in the query, or change the table, and start the query again",
            keep=False,
        )

    def _check_changes(self, rows: pa.RecordBatch) -> None:
        needed = [*self.keys, *([self.delete_column] if self.delete_column else [])]
        empty = [name for name in needed if rows[name].null_count]
        if empty:
            raise Misuse(
                f"{self.path}: the columns {said(empty)} have nulls; a key, or whether to delete, is never null. "
                "Nothing of this batch was recorded or written. Mend the rows in the query",
                kind="database.values",
            )
