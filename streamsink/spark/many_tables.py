"""The function that ``foreachBatch`` calls when a query feeds several tables: one micro-batch, one checkpoint. DRIVER.

As ``foreach_batch.py``, whose steps it follows; only what is opened and how rows become files differs.
"""

from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink import events
from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.faults import fault_point
from streamsink.options import SinkOptions
from streamsink.protocol.admission import Verdict
from streamsink.protocol.committable import Batch
from streamsink.protocol.two_phase import Checkpoint
from streamsink.sinks.many_tables import ManyTables, open_place
from streamsink.sinks.routed import RoutedTables
from streamsink.spark import write_ways
from streamsink.spark.foreach_batch import TableSink
from streamsink.spark.routed_tasks import RoutedWriting
from streamsink.spark.runs import Run
from streamsink.spark.schema import to_fields
from streamsink.storage.pending_log import PendingLog
from streamsink.storage.together import Together
from streamsink.table.routing import ROUTE, Routing


class TablesSink(TableSink):
    """What ``streamsink.to_tables`` returns: pass it to ``foreachBatch``. Not for two queries at once."""

    def __init__(
        self, route: str, routing: Routing, options: SinkOptions, listener: Callable[[events.Event], None], *,
        drop_route_column: bool = True,
    ):
        """route: name of a column, or an SQL expression, that names each row's table."""
        super().__init__(routing.root, options, listener)
        if not isinstance(route, str) or not route.strip():
            raise Misuse(
                f"{routing.root}: option 'route' is {route!r}, expected a column or an SQL expression", kind="option.value"
            )
        self._route = route
        self._routing = routing
        self._drop_route = drop_route_column

    def _open(self, df: DataFrame, batch: Batch) -> tuple[RoutedTables, PendingLog, ManyTables]:
        options = self.options
        place = open_place(self._io, self.path, options.application, IdSource().new_id)
        journal, reader = (PendingLog(self._io, self.path, options.application, options.journal_retain) for _ in range(2))
        committer = ManyTables(place, reader, options, self._listener)
        tables = RoutedTables(committer, self._routing, options)
        committer.expect_tables(tables.existing)
        return tables, journal, committer

    def _stage(self, run: Run, df: DataFrame, checkpoint: Checkpoint, small: bool, group: Together):
        written, way = [], write_ways.DRIVER
        if checkpoint.decision.verdict is not Verdict.SEEN:
            rows = self._new_rows(df, checkpoint.decision, checkpoint.batch)
            written, way = self._write_rows(run, rows, checkpoint, small, group)
            fault_point("write.staged")
        return *run.table.stage(checkpoint.staging, checkpoint.sequence, written, group), way

    def _write_rows(self, run: Run, rows: DataFrame, checkpoint: Checkpoint, small: bool, group: Together):
        named = self._named(rows)

        def writing() -> RoutedWriting:
            data = to_fields(self._for_tables(rows).schema)
            positions = to_fields(rows.select(*(f"`{name}`" for name in self.options.position_columns)).schema)
            return RoutedWriting(run.table.spec(checkpoint.staging, data, positions, checkpoint.batch))

        written = write_ways.write_small(named, writing, self._io, group) if small else None
        if written is not None:
            return written, write_ways.DRIVER
        large = write_ways.by_tasks(rows, checkpoint.batch, run.sizes)
        return write_ways.write_large(named, writing(), self._io, self._store, large)

    def _for_tables(self, rows: DataFrame) -> DataFrame:
        """The columns that tables may take."""
        taken = self._stored(rows)
        return taken.drop(self._route) if self._drop_route and self._route in rows.columns else taken

    def _named(self, rows: DataFrame) -> DataFrame:
        """With the column that names each row's table, evaluated in the one pass over the batch."""
        name = F.col(f"`{self._route}`") if self._route in rows.columns else F.expr(self._route)
        try:
            return rows.withColumn(ROUTE, name.cast("string"))
        except PySparkException as refused:
            raise Misuse(
                f"{self.path}: option 'route' is {self._route!r}, which is no column of the data ({', '.join(rows.columns)}) and "
                f"no SQL expression over them ({refused.getCondition() or type(refused).__name__})",
                kind="option.route",
            ) from refused
