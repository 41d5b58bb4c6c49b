"""A table of a database as a sink: one transaction of the database has the rows of a checkpoint, and remembers it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.events import log
from streamsink.sinks.databases.address import Address, parse
from streamsink.sinks.databases.branches import EITHER, STAGED, Attempt, Branches, are_prepared, forget, sweep
from streamsink.sinks.databases.bulk.sharing import OneWriterInstead, Rows
from streamsink.sinks.databases.changes import ROWS_AT_ONCE, Change, one_spelling, plain
from streamsink.sinks.databases.dialect import Dialect, Run
from streamsink.sinks.databases.fitting import INSERT, Fitting, check_by_asking, check_values, wrong_options
from streamsink.sinks.databases.link import Link
from streamsink.sinks.databases.mysql import MySql
from streamsink.sinks.databases.postgresql import PostgreSql
from streamsink.sinks.databases.remembered import Remembered
from streamsink.sinks.databases.sqlite import Sqlite
from streamsink.sinks.databases.staging import Filled, Staging
from streamsink.sinks.databases.table_info import Column, said
from streamsink.sinks.transactions.function import ONLY_ASKED, PendingCheckpoint, PendingTransaction
from streamsink.sinks.transactions.staged_rows import StagedRows, StagedRowsSink

_DIALECTS: dict[str, type[Dialect]] = {"postgresql": PostgreSql, "mysql": MySql, "mariadb": MySql, "sqlite": Sqlite}
# Rows of a checkpoint that are together no larger than this are read before the transaction begins, which then waits
# for nothing but the database.
_READ_BEFORE_BYTES = 16 << 20
# Fewer rows than that are written by one connection, whatever ``writers`` says.
_LEAST_ROWS = 20_000
_NOT_SEEN = "the table could not be looked at. Nothing was written"
# Keys of a session.
_LINK, _SCHEMA, _TABLE, _KEYS, _TRIED, _LETTERS = "link", "schema", "table", "keys", "tried", "letters"
_HAS_BRANCHES, _SETTLED, _ALONE, _PREPARES = "has branches", "settled", "one writer instead", "prepares"
_ASKED = "application"  # for which it was asked last what was committed


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
    writers: so many connections write a checkpoint that has many rows; 1 by default. writers_by: 'prepared' for
    transactions that are committed one after the other, so that a reader may see a part of a checkpoint; 'staged' for
    tables of which one transaction moves all rows; 'auto' for 'prepared' where mode and server have it, else 'staged'.
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
    writers: int = 1
    writers_by: str = EITHER
    create_table: bool = False
    check_rows_up_to: int = 10_000
    name: str = ""
    path: str = field(init=False, default="", compare=False)

    def __post_init__(self) -> None:
        address = self._address()
        table = f"{self.schema}.{self.table}" if self.schema else self.table
        object.__setattr__(self, "path", self.name or f"{address.place}/{table}")
        object.__setattr__(self, "keys", tuple(self.keys))
        found = wrong_options(self, address)
        if found:
            raise Misuse(f"{self.path}: {found}. Nothing was written. Correct the options", kind="database.options")
        for what, name in {"table": self.table, "schema": self.schema or "main"}.items():
            self._dialect().check_name(name, f"{self.path}: {what}")

    @property
    def writes_to(self) -> tuple[str, ...]:
        """The table, however URL and name are spelled: no two destinations of a fan-out are one."""
        return self._address().table(self.schema, self.table)

    # -- TwoPhaseCommitFunction ------------------------------------------------------------------------------------

    def identity(self, session: dict[str, Any]) -> str:
        new_id, link = IdSource().new_id(), self._link(session)
        return link.transaction(
            lambda run: self._identity(run, new_id, session),
            "the database could not be opened, or the tables streamsink_checkpoints, streamsink_identity and, for "
            "several writers, streamsink_branches not made in it. Nothing was written",
        )

    def applications(self, session: dict[str, Any]) -> Sequence[str]:
        return self._asked(session, lambda run: self._remembered(run, session).applications(run))

    def last_committed(self, application: str, session: dict[str, Any]) -> str | None:
        def ask(run: Run) -> str | None:
            branches, session[_ASKED] = self._branches(run, application, session), application
            if branches is not None:
                branches.settle(run, sweep=False)
            remembered = self._remembered(run, session)
            found = remembered.last(run, application)
            if found is None:
                remembered.check_not_renamed(run, application, self.path)
            return found

        return self._asked(session, ask)

    def forget(self, application: str, session: dict[str, Any]) -> None:
        self._link(session).transaction(
            lambda run: forget(
                run, application, self._remembered(run, session), self._branches(run, application, session)
            ),
            f"what the database remembers of application '{application}' could not be removed",
        )

    def is_there(self, session: dict[str, Any]) -> bool:
        return bool(self._asked(session, lambda run: self._remembered(run, session).is_target_there(run)))

    def check_columns(self, columns: pa.Schema, session: dict[str, Any]) -> None:
        _look(self, columns, session)
        if self.writers > 1:
            names = [name for name in columns.names if name != self.delete_column]
            check = partial(_check_staging, self, names=names, session=session)
            self._link(session).transaction(check, _NOT_SEEN, keep=False)

    def check_transactions(
        self, transactions: Sequence[PendingTransaction[StagedRows]], session: dict[str, Any]
    ) -> None:
        if not transactions:
            return
        info, dialect = session[_TABLE], self._dialect()
        for rows in self._read(transactions):
            data = _data(self, rows)
            check_values(data, info, dialect, self.path)
            check_by_asking(data, info, dialect, (self._ask(session), session.setdefault(_LETTERS, set())), self.path)
            _check_changes(self, rows)
        # Also the first rows of a start: the user may not have the right to write.
        if (info.ruled or _TRIED not in session) and sum(each.rows for each in transactions) <= self.check_rows_up_to:
            _try(self, transactions, session)
            session[_TRIED] = True

    def commit_checkpoint(self, checkpoint: PendingCheckpoint[StagedRows]) -> None:
        session, rows = checkpoint.session, sum(each.rows for each in checkpoint.transactions)
        if checkpoint.recovering and rows and _TABLE not in session:
            _look_first(self, checkpoint)
        try:
            self._commit(checkpoint, 1 if rows < _LEAST_ROWS or _ALONE in session else self.writers)
        except OneWriterInstead as instead:
            said = self._dialect().told(instead.cause)
            log.warning("%s: several writers failed (%s): from now on one writes", self.path, said)
            session[_ALONE] = True
            session.pop(_SETTLED, None)
            self._commit(checkpoint, 1)

    def _commit(self, checkpoint: PendingCheckpoint[StagedRows], writers: int) -> None:
        session, pending, attempts = checkpoint.session, checkpoint.transactions, list[Attempt | Filled]()
        small = sum(each.transaction.size for each in pending) <= _READ_BEFORE_BYTES
        read = list(self._read(pending)) if small else None
        tries = iter((lambda: None,))  # the fence was asked before the first try

        def commit(run: Run) -> None:
            next(tries, checkpoint.fence)()
            remembered = self._remembered(run, session)
            number, record_id = remembered.lock(run, checkpoint.application)
            branches = self._branches(run, checkpoint.application, session)
            while attempts:  # of an earlier try, of which nobody knows whether it was committed
                session.pop(_SETTLED, None)
                attempts.pop().close()
            is_done = record_id == checkpoint.record_id  # and its reply was lost, or a sleeper has committed it since
            if branches is not None and (is_done or _SETTLED not in session):
                branches.settle(run, sweep=True)
                session[_SETTLED] = True
            if is_done:
                return
            if number != checkpoint.expect:
                raise checkpoint.superseded(number)
            spelled = _spelled(self, run, session)
            count = sum(each.rows for each in pending)
            rows = Rows(lambda: map(spelled, self._read(pending) if read is None else read), count)
            if branches is None or writers == 1:
                self._change(run, rows.read(), session=session)
            else:
                _share(self, run, rows, (branches, attempts), session)
            remembered.store(run, checkpoint)

        named = f"record {checkpoint.number} of application '{checkpoint.application}'"
        folder = f" (the rows are in {pending[0].context.folder})" if pending else ""
        try:
            self._link(session).transaction(
                commit,
                f"{named} could not be committed; it is in the journal, each start of the query commits it again until "
                "that succeeds, and nothing after it is committed before",
                refused=f"Change the table so that it takes the rows{folder}, and start the query again",
            )
            if attempts and isinstance(decided := attempts[-1], Attempt):
                session.pop(_SETTLED)  # until that is so
                decided.commit()
                self._link(session).transaction(
                    lambda run: decided.of.settle(run, sweep=False),
                    f"{named} is committed, and readers may not see all of its rows yet; the next start of the query "
                    "sees to that first",
                )
                session[_SETTLED] = True
        finally:
            for attempt in attempts:
                attempt.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _address(self) -> Address:
        return parse(self.url, self.user, self.password_env)

    def _dialect(self) -> Dialect:
        return _DIALECTS[self._address().system]()

    def _link(self, session: dict[str, Any]) -> Link:
        if _LINK not in session:
            session[_LINK] = Link(self._dialect(), self._address(), self.path)
        return cast(Link, session[_LINK])

    def _asked(self, session: dict[str, Any], ask: Any) -> Any:
        return self._link(session).transaction(ask, "what the database remembers could not be read")

    def _ask(self, session: dict[str, Any]) -> Callable[[Callable[[Run], bool]], bool]:
        link, failed = self._link(session), "the database could not be asked for texts. Nothing was recorded"
        return lambda ask: link.transaction(ask, failed, keep=False)

    def _identity(self, run: Run, new_id: str, session: dict[str, Any]) -> str:
        _prepares(self, run, session)
        of = self._remembered(run, session)
        of.check_spelling(run, self.path)
        return of.identity(run, new_id, branches=self.writers > 1, path=self.path if ONLY_ASKED in session else "")

    def _branches(self, run: Run, application: str, session: dict[str, Any]) -> Branches | None:
        """The branches of an application; None where nobody has ever had any."""
        remembered = self._remembered(run, session)
        if _HAS_BRANCHES not in session:
            session[_HAS_BRANCHES] = remembered.has_branches(run)
        if not session[_HAS_BRANCHES]:
            return None
        return Branches(remembered, application, self._address(), self.path)

    def _remembered(self, run: Run, session: dict[str, Any]) -> Remembered:
        dialect = self._dialect()
        if _SCHEMA not in session:
            session[_SCHEMA] = dialect.schema(run, self.schema)
        return Remembered(dialect, session[_SCHEMA], self.table)

    def _fitting(self, run: Run, session: dict[str, Any]) -> Fitting:
        remembered = self._remembered(run, session)
        name = (remembered.schema, self.table)
        return Fitting(run, remembered.dialect, name, self._change_of(), self.path, create=self.create_table)

    def _change_of(self, at_once: int = ROWS_AT_ONCE) -> Change:
        return Change(self.keys, self.delete_column, self.order_by, at_once)

    def _read(self, transactions: Sequence[PendingTransaction[StagedRows]]) -> Iterator[pa.RecordBatch]:
        for each in transactions:
            yield from map(plain, self.read_rows(each))

    def _change(
        self, run: Run, batches: Iterable[pa.RecordBatch], at_once: int = ROWS_AT_ONCE, *, session: dict[str, Any]
    ) -> None:
        remembered = self._remembered(run, session)
        into, exact = remembered.dialect.quoted(remembered.schema, self.table), True
        if self.delete_column:
            exact = _is_exact(self, run, session)
        self._change_of(at_once).apply(batches, run, remembered.dialect, into, exact=exact)


def _try(sink: DatabaseSink, transactions: Sequence[PendingTransaction[StagedRows]], session: dict[str, Any]) -> None:
    """Write the rows in a transaction that is rolled back."""
    batches, application = list(sink._read(transactions)), transactions[0].context.application

    def write(run: Run) -> None:
        if _TRIED not in session:  # branches of a dead driver may have the keys of these rows
            sweep(run, sink._branches(run, application, session))
        sink._change(run, map(_spelled(sink, run, session), batches), session=session)
        sink._dialect().check_at_once(run)

    sink._link(session).transaction(
        write,
        "the database refuses rows of this batch. Nothing of it was recorded or written",
        refused="Mend the rows in the query, or change the table, and start the query again",
        keep=False,
    )


def _is_exact(sink: DatabaseSink, run: Run, session: dict[str, Any]) -> bool:
    """Whether two keys are equal only when they are the same."""
    return all(column.exact for column in _key_columns(sink, run, session))


def _spelled(sink: DatabaseSink, run: Run, session: dict[str, Any]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Brings keys that may be spelled in several ways to one, before it is looked which of them are the same."""
    found = _key_columns(sink, run, session) if sink.keys else []
    return partial(one_spelling, columns=[column.name for column in found if column.base == "uuid"])


def _key_columns(sink: DatabaseSink, run: Run, session: dict[str, Any]) -> Sequence[Column]:
    if _KEYS not in session:
        of = sink._remembered(run, session)
        info = of.dialect.describe(run, of.schema, sink.table)
        session[_KEYS] = [column for column in info.columns if column.name in sink.keys]
    return cast(Sequence[Column], session[_KEYS])


def _look(sink: DatabaseSink, columns: pa.Schema, session: dict[str, Any]) -> None:
    """Look whether rows with these columns fit into the table, which is made where it is missing. Raises Misuse."""
    look = sink._link(session).transaction
    session[_TABLE] = look(lambda run: sink._fitting(run, session).table_for(columns), _NOT_SEEN)


def _look_first(sink: DatabaseSink, checkpoint: PendingCheckpoint[StagedRows]) -> None:
    """Look at the table before a record of an earlier start is committed: somebody may have changed it since.

    Without the index of its keys MariaDB would add rows that are there, and with a further one replace others. It is
    made where it is missing: a backup may be older than it. Where several writers cannot write the rows, one does.
    """
    try:
        _look(sink, next(sink._read(checkpoint.transactions)).schema, checkpoint.session)
    except Misuse as refused:
        raise Misuse(
            f"{refused}. These rows are in the journal already, as record {checkpoint.number} of application "
            f"'{checkpoint.application}', and stay as they are: change the table, or the sink's options back, and "
            "start the query again; each start commits the record until that succeeds",
            kind=refused.kind,
        ) from None


def _prepares(sink: DatabaseSink, run: Run, session: dict[str, Any]) -> bool:
    """Whether several writers prepare transactions; else they fill staging tables. Raises Misuse."""
    if _PREPARES not in session:
        by = STAGED if sink.keys else sink.writers_by
        session[_PREPARES] = are_prepared(sink._dialect(), run, (sink.writers, by), sink.path)
    return bool(session[_PREPARES])


def _staging(sink: DatabaseSink, run: Run, application: str, session: dict[str, Any]) -> Staging:
    return Staging(sink._remembered(run, session), application, sink._address(), sink.path)


def _check_staging(sink: DatabaseSink, run: Run, names: Sequence[str], session: dict[str, Any]) -> None:
    if not _prepares(sink, run, session):
        staging = _staging(sink, run, session.get(_ASKED, ""), session)
        staging.check(run, session[_TABLE], names, sink._change_of(), writers=sink.writers)


def _share(
    sink: DatabaseSink, run: Run, rows: Rows, by: tuple[Branches, list[Attempt | Filled]], session: dict[str, Any]
) -> None:
    """Write the rows of a checkpoint by several connections. by: the branches, and where the attempt is noted."""
    branches, attempts = by
    if _prepares(sink, run, session):
        write = partial(sink._change, session=session)
        attempts.append(branches.write(run, rows, sink.writers - 1, write))
    elif sink.keys and not _is_exact(sink, run, session):  # recorded before there were several writers
        sink._change(run, rows.read(), session=session)
    else:
        filled, change = _staging(sink, run, branches.application, session).begin(), sink._change_of()
        attempts.append(filled)
        filled.write(run, rows, sink.writers, change)


def _data(sink: DatabaseSink, rows: pa.RecordBatch) -> pa.Table:
    """The rows without the column that says which of them delete."""
    table = pa.Table.from_batches([rows])
    return table.drop_columns([sink.delete_column]) if sink.delete_column else table


def _check_changes(sink: DatabaseSink, rows: pa.RecordBatch) -> None:
    needed = [*sink.keys, *([sink.delete_column] if sink.delete_column else [])]
    empty = [name for name in needed if rows[name].null_count]
    if empty:
        raise Misuse(
            f"{sink.path}: the columns {said(empty)} have nulls; a key, or whether to delete, is never null. "
            "Nothing of this batch was recorded or written. Mend the rows in the query",
            kind="database.values",
        )
