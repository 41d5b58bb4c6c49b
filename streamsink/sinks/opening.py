"""What one start of a query writes to: its destination, its journal and its committer, opened the same way by every caller."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from streamsink import events
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.types import DataField
from streamsink.locks.creation import lock_creations
from streamsink.options import MODE_OVERWRITE, ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committing import Beside, Step
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.sink import Destination
from streamsink.protocol.two_phase import TwoPhaseCommit
from streamsink.sinks.earlier_name import goes_on_under
from streamsink.sinks.letters import TableAndLetters, TableCommitter
from streamsink.sinks.many_tables import ManyTables, check_options, open_place
from streamsink.sinks.routed import RoutedTables
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog
from streamsink.table.routing import Routing
from streamsink.table.table import Table, create_table, is_table, new_schema, open_table


@dataclass(frozen=True)
class Opened:
    """tables: the open table, or the tables of a query that writes several, or one with dead letters.

    application: what the query is called here; None for the name in its options. dead_letters: the table for them, None without.
    """

    tables: Table | RoutedTables
    journal: PendingLog
    committer: TableCommitter | ManyTables
    to: Destination
    application: str | None = None
    dead_letters: str | None = None

    def known_as(self, options: SinkOptions) -> str:
        """The name under which tables know the query."""
        return self.committer.place.key if isinstance(self.committer, ManyTables) else options.application

    def protocol(
        self, options: SinkOptions, emit: Callable[[events.Event], None], beside: Callable[[Step], Beside]
    ) -> TwoPhaseCommit:
        """The protocol of one start of a query over them."""
        options = options if self.application is None else replace(options, application=self.application)
        return TwoPhaseCommit(self.to, self.journal, self.committer, options, emit, beside=beside)


def open_one(
    file_io: FileIO, path: str, options: SinkOptions, batch_id: int, fields: Callable[[], Sequence[DataField]], *,
    emit: Callable[[events.Event], None] = lambda event: None,
) -> Opened:
    """The table at ``path``, which is created when there is none and the query is at its beginning.

    batch_id: of the batch that comes. fields: columns of a new table. Raises Misuse before anything is written.
    """
    lock_creations(file_io, path, options)
    table = _open_or_create(file_io, path, options, batch_id, fields)
    _check_partitions(table, options)
    keep = options.on_rollback == ON_ROLLBACK_REPUBLISH
    journal = PendingLog(file_io, path, options.application, options.journal_retain, keep)
    return Opened(table, journal, TableCommitter(table, options, emit=emit), Destination(path, table.table_id))


def open_with_letters(
    file_io: FileIO, routing: Routing, options: SinkOptions, at: tuple[str, int], fields: Callable[[], Sequence[DataField]], *,
    earlier_name: str, emit: Callable[[events.Event], None],
) -> Opened:
    """The one table of these rules, as ``open_one``, with the table for its dead letters beside it.

    at: the query's id, and the batch that comes. earlier_name: the application that earlier code took for it. A table that goes on under that name
    is opened as that code did. Raises Misuse before anything is written.
    """
    [name] = routing.listed()
    path = f"{routing.root}/{name}"
    check_options(path, options, several=False)
    application = goes_on_under(file_io, path, options.application, earlier_name, query=at[0], dead_letters=routing.dead_letters)
    if application is not None:
        opened = open_many(file_io, routing, replace(options, application=application), emit)
        return replace(opened, application=application, dead_letters=routing.dead_letters)
    opened = open_one(file_io, path, options, at[1], fields, emit=emit)
    opened.committer.look_after(routing.dead_letters)
    tables = RoutedTables(TableAndLetters(opened.tables, opened.committer, routing), routing, options)
    return replace(opened, tables=tables, dead_letters=routing.dead_letters)


def open_many(file_io: FileIO, routing: Routing, options: SinkOptions, emit: Callable[[events.Event], None]) -> Opened:
    """The tables below a warehouse, as the rules name them; each is created when its first rows come."""
    path = routing.root
    place = open_place(file_io, path, options.application, IdSource().new_id)
    journal, reader = (PendingLog(file_io, path, options.application, options.journal_retain) for _ in range(2))
    committer = ManyTables(place, reader, options, emit)
    tables = RoutedTables(committer, routing, options)
    committer.expect_tables(tables.existing)
    return Opened(tables, journal, committer, Destination(path, place.journal_id))


def _check_partitions(table: Table, options: SinkOptions) -> None:
    """Raises Misuse when an overwrite would replace other parts of the table than those by which its user divides it."""
    keys = table.schema.partition_keys
    if options.mode == MODE_OVERWRITE and options.partition_by and set(options.partition_by) != set(keys):
        raise Misuse(
            f"{table.root}: option 'partition_by' is {', '.join(options.partition_by)}, and the table that is there has "
            f"{'the partition columns ' + ', '.join(keys) if keys else 'no partitions'}, so that mode='overwrite' would replace something else. "
            f"Nothing was written. To replace {'partitions of these' if keys else 'the whole table'}, leave partition_by out; or write into a table that has "
            "these partitions",
            kind="overwrite.other-partitions",
        )


def _open_or_create(
    file_io: FileIO, path: str, options: SinkOptions, batch_id: int, fields: Callable[[], Sequence[DataField]]
) -> Table:
    if is_table(file_io, path) or not options.create:
        return open_table(file_io, path, for_writing=True)
    if batch_id not in (0, END_OF_INPUT, options.adopt_from_batch):
        raise Misuse(
            f"{path}: there is no table, but the query's checkpoint is past: its next batch is {batch_id}. "
            "The table was dropped, or the query wrote elsewhere before. Nothing was written. Restore the table; or "
            "start a new checkpoint; or, for a query that moves to streamsink, set "
            f"adopt_from_batch={batch_id}",
            kind="table.gone",
        )
    return create_table(file_io, path, new_schema(fields(), options.partition_by, options.table_options))
