"""Micro-batches into several tables without Spark: as ``driver.py``, with rules and dead letters."""

from collections.abc import Callable

import pyarrow as pa

from streamsink.options import SinkOptions
from streamsink.protocol.micro_batch import BatchRows
from streamsink.protocol.states import Checkpoint as Opening
from streamsink.sinks.opening import OpenTables, open_many, open_with_letters
from streamsink.storage.file_io import FileIO
from streamsink.storage.together import Together
from streamsink.table.creation import to_fields
from streamsink.table.routed_write import RoutedFiles
from streamsink.table.routing import Routing
from streamsink.testing.driver import Checkpoint, Driven, DrivenRows, MicroBatchDriver, columns, written


class ManyTablesDriver(MicroBatchDriver):
    """One query over a numbered source. ``rows(start, end)`` makes batches with a column ``ROUTE`` that names each row's table."""

    def __init__(self, root: str, schema: pa.Schema, rows: Callable[[int, int], pa.RecordBatch], routing: Routing,
                 options: SinkOptions):
        super().__init__(root, schema, rows, options)
        self.routing = routing

    def start(self, file_io: FileIO, checkpoint: Checkpoint) -> "DrivenTables":
        opened = open_many(file_io, self.routing, self.options, self.events.append)
        return DrivenTables(self, file_io, opened, checkpoint.query)


class LettersDriver(ManyTablesDriver):
    """One query into one table, with dead letters. ``earlier_name``: the application that earlier code took for it."""

    earlier_name = ""

    def start(self, file_io: FileIO, checkpoint: Checkpoint) -> "DrivenTables":
        at = checkpoint.query, checkpoint.committed
        opened = open_with_letters(
            file_io, self.routing, self.options, at, lambda: to_fields(self.schema), earlier_name=self.earlier_name, emit=self.events.append,
        )
        return DrivenTables(self, file_io, opened, checkpoint.query)


class DrivenTables(Driven):
    """A sink of several tables."""

    def rows(self) -> BatchRows:
        return NumberedRoutes(self._driver, self._io, self.opened)


class NumberedRoutes(DrivenRows):
    """Rows of a numbered source, each in the table that its route names."""

    def __init__(self, driver: ManyTablesDriver, file_io: FileIO, opened: OpenTables):
        super().__init__(driver, file_io)
        self._opened = opened

    def write(self, checkpoint: Opening, group: Together) -> list[RoutedFiles]:
        fields = columns(self._driver.schema)
        start, end = (side["t"]["0"] for side in (checkpoint.batch.sources[0].start, checkpoint.batch.sources[0].end))
        return written(self._opened.writing(checkpoint, fields, ()), self._io, self._driver.rows(start, end), group)
