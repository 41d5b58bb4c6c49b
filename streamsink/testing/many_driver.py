"""Micro-batches into several tables without Spark: what ``driver.py`` is for one table, with rules and dead letters."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from streamsink.faults import fault_point
from streamsink.options import SinkOptions
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.sinks.paimon.opening import PaimonTables, PaimonTableWithLetters
from streamsink.storage.file_io import FileIO
from streamsink.table.routed.routed_writer import RoutedFiles
from streamsink.table.routed.rules import Routing
from streamsink.testing.driver import Driven, DrivenRows, MicroBatchDriver, columns, number_of, written


class ManyTablesDriver(MicroBatchDriver):
    """One query over a numbered source that writes several tables.

    ``rows(start, end)`` returns batches with a column ``ROUTE``, which names each row's table. ``hands_over``: whether
    files are durable before the driver goes on, and handed over as text, as by the tasks of Spark.
    """

    hands_over = False

    def __init__(
        self,
        root: str,
        schema: pa.Schema,
        rows: Callable[[int, int], pa.RecordBatch],
        routing: Routing,
        options: SinkOptions,
    ):
        super().__init__(root, schema, rows, options)
        self.routing = routing

    def destination(self) -> Sink:
        return PaimonTables(self.routing)

    def driven(self, file_io: FileIO, opened: OpenSink, query: str) -> "DrivenTables":
        return DrivenTables(self, file_io, opened, query)


class LettersDriver(ManyTablesDriver):
    """One query into one table, with dead letters. ``earlier_name``: the application that earlier code used for it."""

    earlier_name = ""

    def destination(self) -> Sink:
        return PaimonTableWithLetters(self.routing, self.earlier_name)


class DrivenTables(Driven):
    """A sink of several tables."""

    def rows(self) -> BatchRows:
        return NumberedRoutes(self._driver, self._io, self.opened)


class NumberedRoutes(DrivenRows):
    """The rows of a numbered source, each for the table that its route names."""

    def __init__(self, driver: MicroBatchDriver, file_io: FileIO, opened: OpenSink):
        super().__init__(driver, file_io)
        self._opened = opened

    def write(self, checkpoint: Checkpoint, group: Group) -> list[RoutedFiles]:
        source = checkpoint.batch.sources[0]
        start, end = (number_of(side) for side in (source.start, source.end))
        writing = self._opened.writing(
            replace(checkpoint, is_small=self._driver.is_small), columns(self._driver.schema), ()
        )
        rows = self._driver.rows(start, end)
        if not getattr(self._driver, "hands_over", False):
            return written(writing, self._io, rows, group)
        with self._io.flush_group() as own:
            found = [writing.encode(item) for item in written(writing, self._io, rows, own)]
            own.flush()
        fault_point("task.end")
        return list(map(writing.decode, found))
