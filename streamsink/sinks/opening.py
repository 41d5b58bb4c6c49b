"""What one start of a query writes to: its destination, its journal and its committer, opened the same way by every caller."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamsink import events
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.types import DataField
from streamsink.locks.creation import lock_creations
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committing import Beside, Step
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.sink import Destination
from streamsink.protocol.two_phase import TwoPhaseCommit
from streamsink.sinks.many_tables import ManyTables, open_place
from streamsink.sinks.paimon import PaimonCommitter
from streamsink.sinks.routed import RoutedTables
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog
from streamsink.table.routing import Routing
from streamsink.table.table import Table, create_table, is_table, new_schema, open_table


@dataclass(frozen=True)
class Opened:
    """tables: the open table, or the tables of a query that writes several."""

    tables: Table | RoutedTables
    journal: PendingLog
    committer: PaimonCommitter | ManyTables
    to: Destination

    def protocol(
        self, options: SinkOptions, emit: Callable[[events.Event], None], beside: Callable[[Step], Beside]
    ) -> TwoPhaseCommit:
        """The protocol of one start of a query over them."""
        return TwoPhaseCommit(self.to, self.journal, self.committer, options, emit, beside=beside)


def open_one(
    file_io: FileIO, path: str, options: SinkOptions, batch_id: int, fields: Callable[[], Sequence[DataField]]
) -> Opened:
    """The table at ``path``, which is created when there is none and the query is at its beginning.

    batch_id: of the batch that comes. fields: columns of a new table. Raises Misuse before anything is written.
    """
    lock_creations(file_io, path, options)
    table = _open_or_create(file_io, path, options, batch_id, fields)
    keep = options.on_rollback == ON_ROLLBACK_REPUBLISH
    journal = PendingLog(file_io, path, options.application, options.journal_retain, keep)
    return Opened(table, journal, PaimonCommitter(table, options), Destination(path, table.table_id))


def open_many(file_io: FileIO, routing: Routing, options: SinkOptions, emit: Callable[[events.Event], None]) -> Opened:
    """The tables below a warehouse, as the rules name them; each is created when its first rows come."""
    path = routing.root
    place = open_place(file_io, path, options.application, IdSource().new_id)
    journal, reader = (PendingLog(file_io, path, options.application, options.journal_retain) for _ in range(2))
    committer = ManyTables(place, reader, options, emit)
    tables = RoutedTables(committer, routing, options)
    committer.expect_tables(tables.existing)
    return Opened(tables, journal, committer, Destination(path, place.journal_id))


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
