"""Several tables, or one with dead letters, as a batch function writes to them. DRIVER."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink import events
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.sink import Writing
from streamsink.protocol.states import Checkpoint
from streamsink.sinks.opening import OpenTables, open_many, open_with_letters
from streamsink.spark import write_ways
from streamsink.spark.batch_rows import TableRows, fields_of, stored
from streamsink.spark.foreach_batch import SparkSink
from streamsink.spark.names import check_one, without
from streamsink.spark.position_check import PositionCheck
from streamsink.spark.runs import Run
from streamsink.spark.schema import quoted, to_fields
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store
from streamsink.storage.together import Together
from streamsink.table.fit import check_once
from streamsink.table.routing import ROUTE, Routing


class TablesSink(SparkSink):
    """Tables below one folder, to which each row goes by its route."""

    def __init__(self, route: str, routing: Routing, options: SinkOptions, *, drop_route_column: bool = True, path: str | None = None):
        """route: name of a column, or an SQL expression, that names each row's table. path: what the query writes, when not all of the folder."""
        super().__init__(path or routing.root, options)
        if not isinstance(route, str) or not route.strip():
            raise Misuse(
                f"{routing.root}: option 'route' is {route!r}, expected a column or an SQL expression", kind="option.value"
            )
        self.routing = routing
        self._route = Route(route, drop_route_column)

    def identity(self) -> tuple:
        return *super().identity(), self.routing

    def open(self, df: DataFrame, batch: Batch, emit: Callable[[events.Event], None]) -> OpenTables:
        self._check(df)
        return open_many(self.io, self.routing, self.options, emit)

    def rows(self, df: DataFrame, run: Run) -> "RoutedRows":
        self._check(df)
        return RoutedRows(df, run, self.options, self.store, self.io, route=self._route)

    def _check(self, df: DataFrame) -> None:
        """Raises Misuse when a column that names tables is not the only one of its name, or dead letters would have two of one name."""
        if self._route.expression in df.columns:
            check_one(df, self._route.expression, self.routing.root, "route", "option.route")
        if self.routing.dead_letters is not None:
            check_once(df.columns, self.routing.root)


class LettersSink(TablesSink):
    """One table with dead letters: rows are written as into several tables, of which one is the query's."""

    def __init__(self, routing: Routing, options: SinkOptions, *, earlier_name: str):
        """routing: of one table. earlier_name: the application that earlier code took for such a query."""
        [name] = routing.listed()
        super().__init__(f"'{name}'", routing, options, path=f"{routing.root}/{name}")
        self._earlier_name = earlier_name

    def open(self, df: DataFrame, batch: Batch, emit: Callable[[events.Event], None]) -> OpenTables:
        return open_with_letters(
            self.io, self.routing, self.options, (batch.query, batch.batch_id), fields_of(df, self.path, self.options),
            earlier_name=self._earlier_name, emit=emit,
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

    def _write(self, checkpoint: Checkpoint, small: bool, group: Together) -> tuple[Sequence, str]:
        rows = self._new_rows(checkpoint)
        named = self._named(rows)
        check = PositionCheck(self._store.root, checkpoint.batch, self._options, rows)

        def writing() -> Writing:
            fields = self._run.fields(self._for_tables(rows).schema)
            positions = to_fields(rows.select(*map(quoted, self._options.position_columns)).schema)
            return check.comparing(self._run.to.writing(checkpoint, fields, positions))

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
