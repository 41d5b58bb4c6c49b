"""What one start of a query writes to: its destination, journal and committer, which all callers open the same way."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from streamsink import events
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.types import DataField
from streamsink.journal.file_journal import FileJournal
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import MODE_OVERWRITE, ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.sink import OF_TABLES, Destination, Sink
from streamsink.sinks.paimon.care.background import care_of, check_care, check_tags
from streamsink.sinks.paimon.care.registering import Registering, cares_of
from streamsink.sinks.paimon.letters import TableAndLetters, TableCommitter
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.opened import OpenTable, OpenTables
from streamsink.sinks.paimon.past.earlier_name import goes_on_under
from streamsink.sinks.paimon.past.place import open_place
from streamsink.sinks.paimon.routed import RoutedTables
from streamsink.sinks.paimon.trouble import check_options
from streamsink.sinks.paimon.writing import FinalNames
from streamsink.storage.file_io import FileIO
from streamsink.table.history.deletion import delete_unrecorded
from streamsink.table.layout import Layout
from streamsink.table.routed.rules import Routing
from streamsink.table.table import Table, create_table, is_table, new_schema, open_table


@dataclass(frozen=True)
class PaimonTable(Sink):
    """One table. Any two of these are equal, because one place may be spelled in two ways."""

    path: str = field(compare=False)
    supports: ClassVar[frozenset[str]] = OF_TABLES  # type: ignore[misc]
    never_forgets: ClassVar[str] = ""  # type: ignore[misc]

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[events.Event], None],
    ) -> OpenTable:
        return open_one(file_io, self.path, options, batch.batch_id, fields, emit=emit)


@dataclass(frozen=True)
class PaimonTables(Sink):
    """The tables below one folder, as the rules name them."""

    routing: Routing

    @property
    def path(self) -> str:  # type: ignore[override]  # nobody sets what the contract names
        return self.routing.root

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[events.Event], None],
    ) -> OpenTables:
        return open_many(file_io, self.routing, options, emit)


@dataclass(frozen=True)
class PaimonTableWithLetters(Sink):
    """The one table that these rules name, with dead letters.

    earlier_name: the application that earlier code took for such a query.
    """

    routing: Routing
    earlier_name: str

    @property
    def path(self) -> str:  # type: ignore[override]  # nobody sets what the contract names
        [name] = self.routing.listed()
        return f"{self.routing.root}/{name}"

    def open(
        self,
        file_io: FileIO,
        options: SinkOptions,
        batch: Batch,
        fields: Callable[[], Sequence[Any]],
        emit: Callable[[events.Event], None],
    ) -> OpenTables:
        at = batch.query, batch.batch_id
        return open_with_letters(file_io, self.routing, options, at, fields, earlier_name=self.earlier_name, emit=emit)


def open_one(
    file_io: FileIO,
    path: str,
    options: SinkOptions,
    batch_id: int,
    fields: Callable[[], Sequence[DataField]],
    *,
    emit: Callable[[events.Event], None] = lambda event: None,
    registering: Registering | None = None,
) -> OpenTable:
    """The table at ``path``, which is created when there is none and the query is at its beginning.

    batch_id: of the batch that comes. fields(): columns of a new table. registering: where the caller registers other
    tables as well. Raises Misuse before anything is written.
    """
    registering = registering or Registering(path, options, emit)
    registering.look(path)
    file_io = under_lock(file_io, path, options)
    with file_io.proving():
        table = _open_or_create(file_io, path, options, batch_id, fields, registering=registering)
        check_tags(table, options)
    _check_partitions(table, options)
    registering.register(table)
    registering.follow(lambda: [table])
    keep = options.on_rollback == ON_ROLLBACK_REPUBLISH
    deleting = functools.partial(delete_unrecorded, file_io, functools.partial(_table_at, file_io, table))
    retain = options.journal_retain
    journal = FileJournal(
        file_io, path, options.application, retain, keep_staging=keep, deleting=deleting, of_table=True
    )
    to = Destination(path, table.table_id, is_table=True)
    care = cares_of(care_of(file_io, lambda: [path], options, emit), registering)
    return OpenTable(TableCommitter(table, options, emit=emit), journal, to, options, file_io, table, care=care)


def open_with_letters(
    file_io: FileIO,
    routing: Routing,
    options: SinkOptions,
    at: tuple[str, int],
    fields: Callable[[], Sequence[DataField]],
    *,
    earlier_name: str,
    emit: Callable[[events.Event], None],
) -> OpenTables:
    """The one table of these rules, opened as by ``open_one``, with the table for its dead letters beside it.

    at: (id of the query, id of the batch that comes). earlier_name: the application that earlier code took for such a
    query. A table that goes on under that name is opened as that code did. Raises Misuse before anything is written.
    """
    [name], letters = routing.listed(), cast(str, routing.dead_letters)  # the option is what brings a query here
    path = f"{routing.root}/{name}"
    check_options(path, options, several=False)
    if Layout(path).branch:
        raise Misuse(
            f"{path}: the option dead_letters is given for a branch, which has no table beside it. Nothing was written."
            " Leave it out, and filter the rows in the query",
            kind="branch.dead-letters",
        )
    application = goes_on_under(file_io, path, options.application, earlier_name, query=at[0], dead_letters=letters)
    if application is not None:
        opened = open_many(file_io, routing, replace(options, application=application), emit)
        return replace(opened, dead_letters=letters)
    registering = Registering(path, options, emit)
    for root in (path, f"{routing.root}/{letters}"):
        registering.look(root)
    one = open_one(file_io, path, options, at[1], fields, emit=emit, registering=registering)
    one.committer.letters.look_after(letters)
    names = FinalNames.of(one.file_io, one.journal, options)
    both = TableAndLetters(one.table, one.committer, routing.root, letters)
    tables = RoutedTables(both, routing, options, names)
    both_paths = (path, f"{routing.root}/{letters}")
    care = care_of(one.file_io, lambda: [p for p in both_paths if is_table(one.file_io, p)], options, emit)
    registering.follow(tables.opened)
    care = cares_of(care, registering)
    return OpenTables(one.committer, one.journal, one.to, options, one.file_io, tables, dead_letters=letters, care=care)


def open_many(
    file_io: FileIO, routing: Routing, options: SinkOptions, emit: Callable[[events.Event], None]
) -> OpenTables:
    """The tables below a warehouse, as the rules name them; each is created when its first rows come."""
    path = routing.root
    for key, rule in routing.rules.items():
        if rule.options.create:
            check_care(f"{path}/{key}", rule.options.table_options, options)
    registering = Registering(path, options, emit, several=True)
    for root in routing.roots():
        registering.look(root)
    place = open_place(file_io, path, options.application, IdSource().new_id)
    file_io.soon(file_io.sweep_probes)
    deleting = functools.partial(delete_unrecorded, file_io, functools.partial(_table_at, file_io, None))
    journal, reader = (
        FileJournal(file_io, path, options.application, options.journal_retain, deleting=deleting, of_table=True)
        for _ in range(2)
    )
    committer = ManyTables(place, reader, options, emit)
    tables = RoutedTables(committer, routing, options, FinalNames.of(file_io, journal, options))
    committer.expect_tables(tables.existing)
    to = Destination(path, place.journal_id, is_table=True)
    care = care_of(file_io, lambda: [m.table.root for m in list(committer.members.values())], options, emit)
    registering.follow(tables.opened)
    care = cares_of(care, registering)
    return OpenTables(committer, journal, to, options, file_io, tables, care=care)


def _table_at(file_io: FileIO, table: Table | None, root: str) -> Table | None:
    """The table at this path, None where there is none. table: one that is open, which may be it."""
    if table is not None and table.root == root:
        return table
    return Table(file_io, root) if is_table(file_io, root) else None


def _check_partitions(table: Table, options: SinkOptions) -> None:
    """Raises Misuse when an overwrite would replace other parts of the table than its user's ``partition_by`` says."""
    keys = table.known_schema.partition_keys
    if options.mode == MODE_OVERWRITE and options.partition_by and set(options.partition_by) != set(keys):
        raise Misuse(
            f"{table.root}: option 'partition_by' is {', '.join(options.partition_by)}, and the table that is there "
            f"has {'the partition columns ' + ', '.join(keys) if keys else 'no partitions'}, so that mode='overwrite' "
            "would replace something else. Nothing was written. To replace "
            f"{'partitions of these' if keys else 'the whole table'}, leave partition_by out; or write into a table "
            "that has these partitions",
            kind="overwrite.other-partitions",
        )


def _open_or_create(
    file_io: FileIO,
    path: str,
    options: SinkOptions,
    batch_id: int,
    fields: Callable[[], Sequence[DataField]],
    *,
    registering: Registering,
) -> Table:
    if not options.create or not file_io.is_distant and is_table(file_io, path):
        return open_table(file_io, path, for_writing=True)
    try:
        return open_table(file_io, path, for_writing=True)
    except Misuse as missing:
        if missing.kind != "table.missing":
            raise
    if batch_id not in (0, END_OF_INPUT, options.adopt_from_batch):
        raise Misuse(
            f"{path}: there is no table, but the query's checkpoint is past: its next batch is {batch_id}. "
            "The table was dropped, or the query wrote elsewhere before. Nothing was written. Restore the table; or, "
            "if it was moved or renamed, give its new path; or start a new checkpoint; or, for a query that moves to "
            f"streamsink, set adopt_from_batch={batch_id}",
            kind="table.gone",
        )
    check_care(path, options.table_options, options)
    schema = new_schema(fields(), options.partition_by, options.table_options)
    registering.check_new(path, schema)
    return create_table(file_io, path, schema)
