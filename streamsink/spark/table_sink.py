"""One table, as a batch function writes to it. DRIVER."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from streamsink import events
from streamsink.protocol.committable import Batch
from streamsink.sinks.opening import OpenTable, open_one
from streamsink.spark.batch_rows import TableRows, fields_of
from streamsink.spark.foreach_batch import SparkSink
from streamsink.spark.runs import Run


class TableSink(SparkSink):
    """The table at ``path``."""

    def open(self, df: DataFrame, batch: Batch, emit: Callable[[events.Event], None]) -> OpenTable:
        return open_one(self.io, self.path, self.options, batch.batch_id, fields_of(df, self.path, self.options), emit=emit)

    def rows(self, df: DataFrame, run: Run) -> TableRows:
        return TableRows(df, run, self.options, self.store, self.io)
