"""The function that ``foreachBatch`` calls when a query feeds several tables: one micro-batch, one checkpoint. DRIVER.

As ``foreach_batch.py``; only what is opened and how rows become files differs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink import events
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch, StagedFile
from streamsink.protocol.micro_batch import BatchRows
from streamsink.protocol.two_phase import Checkpoint
from streamsink.sinks.opening import Opened, open_many, open_with_letters
from streamsink.spark import write_ways
from streamsink.spark.batch_rows import TableRows, fields_of, stored
from streamsink.spark.foreach_batch import TableSink
from streamsink.spark.names import check_one, without
from streamsink.spark.position_check import PositionCheck
from streamsink.spark.routed_tasks import RoutedWriting
from streamsink.spark.runs import Run
from streamsink.spark.schema import quoted, to_fields
from streamsink.spark.tasks import Writing
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store
from streamsink.storage.together import Together
from streamsink.table.fit import check_once
from streamsink.table.routing import ROUTE, Routing


class TablesSink(TableSink):
    """What ``streamsink.to_tables`` returns: pass it to ``foreachBatch``. Not for two queries at once."""

    def __init__(
        self, route: str, routing: Routing, options: SinkOptions, listener: Callable[[events.Event], None], *,
        drop_route_column: bool = True, path: str | None = None,
    ):
        """route: name of a column, or an SQL expression, that names each row's table. path: what the query writes, when not all of the folder."""
        super().__init__(path or routing.root, options, listener)
        if not isinstance(route, str) or not route.strip():
            raise Misuse(
                f"{routing.root}: option 'route' is {route!r}, expected a column or an SQL expression", kind="option.value"
            )
        self._route = route
        self._routing = routing
        self._drop_route = drop_route_column

    def _is_like(self, known: Run) -> bool:
        return super()._is_like(known) and known.table.routing == self._routing

    def _open(self, df: DataFrame, batch: Batch) -> Opened:
        self._check(df)
        return open_many(self._io, self._routing, self.options, self._listener)

    def _rows(self, df: DataFrame, run: Run) -> BatchRows:
        self._check(df)
        return RoutedRows(df, run, self.options, self._store, self._io, route=Route(self._route, self._drop_route))

    def _check(self, df: DataFrame) -> None:
        """Raises Misuse when a column that names tables is not the only one of its name, or dead letters would have two of one name."""
        if self._route in df.columns:
            check_one(df, self._route, self._routing.root, "route", "option.route")
        if self._routing.dead_letters is not None:
            check_once(df.columns, self._routing.root)


class LettersSink(TablesSink):
    """What ``streamsink.to_table`` returns with dead letters: rows are written as into several tables, of which one is the query's."""

    def __init__(
        self, routing: Routing, options: SinkOptions, listener: Callable[[events.Event], None], *, earlier_name: str
    ):
        """routing: of one table. earlier_name: the application that earlier code took for such a query."""
        [name] = routing.listed()
        super().__init__(f"'{name}'", routing, options, listener, path=f"{routing.root}/{name}")
        self.dead_letters = routing.dead_letters
        self._earlier_name = earlier_name

    def _open(self, df: DataFrame, batch: Batch) -> Opened:
        return open_with_letters(
            self._io, self._routing, self.options, (batch.query, batch.batch_id), fields_of(df, self.path, self.options),
            earlier_name=self._earlier_name, emit=self._listener,
        )


@dataclass(frozen=True)
class Route:
    """expression: a column or SQL expression that names each row's table. drop: its column is not for the tables."""

    expression: str
    drop: bool


class RoutedRows(TableRows):
    """Rows of several tables, told apart in one pass."""

    def __init__(self, df: DataFrame, run: Run, options: SinkOptions, store: Store, file_io: FileIO, *, route: Route):
        super().__init__(df, run, options, store, file_io)
        self._route = route

    def stage(self, checkpoint: Checkpoint, written: Sequence, group: Together) -> tuple[tuple[StagedFile, ...], Mapping]:
        staged = self._run.table.stage(checkpoint, written, group)
        self._learn(staged[0])
        return staged

    def _write(self, checkpoint: Checkpoint, small: bool, group: Together) -> tuple[Sequence, str]:
        rows = self._new_rows(checkpoint)
        named = self._named(rows)
        check = PositionCheck(self._store.root, checkpoint.batch, self._options, rows)

        def writing() -> Writing:
            data = to_fields(self._for_tables(rows).schema)
            positions = to_fields(rows.select(*map(quoted, self._options.position_columns)).schema)
            return check.comparing(RoutedWriting(self._run.table.spec(checkpoint.staging, data, positions, checkpoint.batch)))

        written = write_ways.write_small(named, writing, self._io, group) if small else None
        if written is not None:
            return check.settle(written), write_ways.DRIVER
        large = write_ways.by_tasks(rows, checkpoint.batch, self._run.sizes)
        written, way = write_ways.write_large(named, writing(), self._io, self._store, large)
        return check.settle(written), way

    def _for_tables(self, rows: DataFrame) -> DataFrame:
        """The columns that tables may take."""
        taken, route = stored(rows, self._store.root, self._options), self._route
        return without(taken, [route.expression]) if route.drop and route.expression in rows.columns else taken

    def _named(self, rows: DataFrame) -> DataFrame:
        """With the column that names each row's table, evaluated in the one pass over the batch."""
        name = F.col(quoted(self._route.expression)) if self._route.expression in rows.columns else F.expr(self._route.expression)
        try:
            return rows.withColumn(ROUTE, name.cast("string"))
        except PySparkException as refused:
            raise Misuse(
                f"{self._store.root}: option 'route' is {self._route.expression!r}, which is no column of the data ({', '.join(rows.columns)}) and "
                f"no SQL expression over them ({refused.getCondition() or type(refused).__name__})",
                kind="option.route",
            ) from refused
