"""Micro-batches into several tables without Spark: as ``driver.py``, with rules and dead letters."""

from collections.abc import Callable

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.faults import fault_point
from streamsink.options import SinkOptions
from streamsink.protocol.admission import Verdict
from streamsink.protocol.committable import Batch
from streamsink.protocol.two_phase import Destination, TwoPhaseCommit
from streamsink.sinks.many_tables import ManyTables, open_place
from streamsink.sinks.routed import RoutedTables
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog
from streamsink.table.creation import to_fields
from streamsink.table.routed_write import RoutedWriter
from streamsink.table.routing import ROUTE, Routing
from streamsink.testing.driver import Checkpoint, Driven, MicroBatchDriver


class ManyTablesDriver(MicroBatchDriver):
    """One query over a numbered source. ``rows(start, end)`` makes batches with a column ``ROUTE`` that names each row's table."""

    def __init__(self, root: str, schema: pa.Schema, rows: Callable[[int, int], pa.RecordBatch], routing: Routing,
                 options: SinkOptions):
        super().__init__(root, schema, rows, options)
        self.routing = routing

    def start(self, file_io: FileIO, checkpoint: Checkpoint) -> "DrivenTables":
        return DrivenTables(self, file_io, checkpoint.query)


class DrivenTables(Driven):
    """What the sink of several tables is under Spark: the six calls of a micro-batch."""

    def __init__(self, driver: ManyTablesDriver, file_io: FileIO, query: str):
        options = driver.options
        self._driver = driver
        self._io = file_io
        place = open_place(file_io, driver.root, options.application, IdSource().new_id)
        journal, reader = (PendingLog(file_io, driver.root, options.application, options.journal_retain) for _ in range(2))
        committer = ManyTables(place, reader, options, driver.events.append)
        self._tables = RoutedTables(committer, driver.routing, options)
        committer.expect_tables(self._tables.existing)
        to = Destination(driver.root, place.journal_id)
        super().__init__(TwoPhaseCommit(to, journal, committer, options, driver.events.append), query)

    def batch(self, batch: Batch) -> None:
        """One micro-batch, exactly once."""
        decision = self.protocol.admit(batch)
        if decision.verdict is Verdict.SKIP:
            return
        checkpoint = self.protocol.begin(batch, decision)
        fields = [field for field in to_fields(self._driver.schema) if field.name != ROUTE]
        writer = RoutedWriter(self._io, self._tables.spec(checkpoint.staging, fields, (), batch))
        with self._io.together() as group:
            try:
                start, end = (side["t"]["0"] for side in (batch.sources[0].start, batch.sources[0].end))
                writer.write(self._driver.rows(start, end))
                written = writer.close(group)
                fault_point("write.staged")
                files, payload = self._tables.stage(checkpoint.staging, checkpoint.sequence, written, group)
            except BaseException:
                writer.abort()
                self.protocol.abort(checkpoint, group)
                raise
            self.protocol.pre_commit(checkpoint, files, payload, group)
        self.protocol.commit()
