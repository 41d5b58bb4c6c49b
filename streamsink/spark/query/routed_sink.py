"""Several tables, or one table with dead letters, as a batch function writes to them. Runs on the driver."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Writing
from streamsink.sinks.paimon.opening import PaimonTables, PaimonTableWithLetters
from streamsink.spark.names import check_one, without
from streamsink.spark.query.spark_sink import SparkSink
from streamsink.spark.rows import write_ways
from streamsink.spark.rows.frame_rows import FrameRows
from streamsink.spark.rows.kept_columns import stored
from streamsink.spark.rows.position_check import PositionCheck
from streamsink.spark.runs import Run
from streamsink.spark.sizes import DRIVER
from streamsink.spark.types import quoted, to_fields
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.write.fit import check_once


@dataclass(frozen=True)
class Route:
    """How each row names its table.

    expression: a column or an SQL expression. drop: the column is not written into the tables.
    """

    expression: str
    drop: bool


class RoutedSink(SparkSink):
    """Several tables, or one table with dead letters. Each row is written into the table that its route names."""

    def __init__(self, sink: PaimonTables | PaimonTableWithLetters, options: SinkOptions, route: Route):
        """Raises Misuse when the route is not text."""
        super().__init__(sink, options)
        if not isinstance(route.expression, str) or not route.expression.strip():
            raise Misuse(
                f"{sink.routing.root}: option 'route' is {route.expression!r}, expected a column or an SQL expression",
                kind="option.value",
            )
        self._routing = sink.routing
        self._route = route

    def check(self, df: DataFrame) -> None:
        """Raises Misuse when another column has the name of the column that names tables, or when dead letters would
        have two columns of one name.
        """
        if self._route.expression in df.columns:
            check_one(df, self._route.expression, self._routing.root, "route", "option.route")
        if self._routing.dead_letters is not None:
            check_once(df.columns, self._routing.root)

    def rows(self, df: DataFrame, run: Run) -> "RoutedRows":
        return RoutedRows(df, run, self.options, self._store, self.io, route=self._route)


def tables_sink(route: str, routing: Routing, options: SinkOptions, drop_route_column: bool = True) -> RoutedSink:
    """A sink of several tables.

    route: the name of a column, or an SQL expression, that names each row's table. drop_route_column: that column is
    not written into the tables.
    """
    return RoutedSink(PaimonTables(routing), options, Route(route, drop_route_column))


def letters_sink(routing: Routing, options: SinkOptions, earlier_name: str) -> RoutedSink:
    """A sink of one table with dead letters.

    routing: of the one table. earlier_name: the application that earlier code used for such a query.
    """
    [name] = routing.listed()
    return RoutedSink(PaimonTableWithLetters(routing, earlier_name), options, Route(f"'{name}'", drop=True))


class RoutedRows(FrameRows):
    """Rows of several tables, which are told apart in one pass over the batch."""

    def __init__(self, df: DataFrame, run: Run, options: SinkOptions, store: Store, file_io: FileIO, *, route: Route):
        super().__init__(df, run, options, store, file_io)
        self._route = route

    def computing(self, batch: Batch) -> AbstractContextManager[None]:
        """Nothing: which columns are collected depends on the tables that the look finds."""
        return nullcontext()

    def _write(self, checkpoint: Checkpoint, given: write_ways.Given, group: Group) -> tuple[Sequence[Any], str]:
        rows = self._new_rows(checkpoint, given.df)
        named = self._named(rows)
        check = PositionCheck(self._store.root, checkpoint.batch, self._options, rows)

        def writing() -> Writing:
            fields = self._run.fields(self._for_tables(rows).schema)
            positions = to_fields(rows.select(*map(quoted, self._options.position_columns)).schema)
            return check.comparing(self._run.to.writing(checkpoint, fields, positions))

        written = self._write_small(named, writing, group) if given.small else None
        if written is not None:
            return check.settle(written), DRIVER
        large = write_ways.by_tasks(rows, checkpoint.batch, self._run.sizes)
        written, way = write_ways.write_large(named, writing(), self._io, self._store, large)
        return check.settle(written), way

    def _for_tables(self, rows: DataFrame) -> DataFrame:
        """Only the columns that tables may take."""
        taken, route = stored(rows, self._store.root, self._options), self._route
        return without(taken, [route.expression]) if route.drop and route.expression in rows.columns else taken

    def _named(self, rows: DataFrame) -> DataFrame:
        """With the column that names each row's table, which is evaluated in the one pass over the batch."""
        name = (
            F.col(quoted(self._route.expression))
            if self._route.expression in rows.columns
            else F.expr(self._route.expression)
        )
        try:
            return rows.withColumn(ROUTE, name.cast("string"))
        except PySparkException as refused:
            raise Misuse(
                f"{self._store.root}: option 'route' is {self._route.expression!r}, which is no column of the data "
                f"({', '.join(rows.columns)}) and no SQL expression over them "
                f"({refused.getCondition() or type(refused).__name__})",
                kind="option.route",
            ) from refused
