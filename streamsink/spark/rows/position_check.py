"""Checks that each row of a batch lies in the batch's own positions. Runs on the driver.

Where this is found out depends on the way of writing. On the driver the rows are there as Arrow data, and are compared
there. For tasks and for Spark's own Parquet writer the JVM compares them and adds a column of one bit, so that columns
which the table does not keep need not leave the JVM. A writer for several tables is given the position columns in any
case.
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.sink import Writing
from streamsink.sinks.paimon import row_positions
from streamsink.spark.names import without
from streamsink.spark.rows import position_columns
from streamsink.spark.rows.position_proof import OUTSIDE, Proven, ProvenWriting
from streamsink.table.write.position_ranges import PositionRanges


class PositionCheck:
    """The check of one batch. When there is nothing to compare, each method returns what it was given."""

    def __init__(self, table: str, batch: Batch, options: SinkOptions, rows: DataFrame, kept: DataFrame | None = None):
        """rows: with the position columns, of types that ``check_positions`` accepts. kept: those columns of the rows
        that are for the writer inside; None when all of them are.
        """
        self._told = (table, batch, options)
        self._rows = rows
        self._kept = rows if kept is None else kept
        self._ranges: PositionRanges | None = row_positions.ranges_of(table, batch, options)

    @property
    def sql(self) -> str | None:
        """A condition that is true for rows that do not lie in the batch's positions; None when nothing is compared."""
        return None if self._ranges is None else position_columns.outside(self._ranges)

    @property
    def kept(self) -> DataFrame:
        """The rows with the columns that are for the writer inside."""
        return self._kept

    def carried(self) -> DataFrame:
        """The rows for a writer that compares the position columns itself."""
        return self._kept if self._ranges is None else self._rows

    def told(self) -> DataFrame:
        """The rows for a writer to which the JVM tells which rows lie outside."""
        sql = self.sql
        return self._kept if sql is None else without(self._rows.withColumn(OUTSIDE, F.expr(sql)), self._left_out())

    def comparing(self, writing: Writing) -> Writing:
        """A writer of the rows that ``carried`` returns."""
        return writing if self._ranges is None else ProvenWriting(writing, self._ranges, self._left_out())

    def being_told(self, writing: Writing) -> Writing:
        """A writer of the rows that ``told`` returns."""
        return writing if self._ranges is None else ProvenWriting(writing, None, (OUTSIDE,))

    def settle(self, written: list[Any]) -> list[Any]:
        """What the writers inside handed back, when all rows of all of them lie in the batch's positions.

        written: what the writers of ``comparing`` or ``being_told`` handed back. Raises Misuse when a row lies outside.
        """
        if self._ranges is None:
            return written
        proven: list[Proven] = written
        self.judge(sum(each.rows for each in proven), sum(each.outside for each in proven))
        return [inner for each in proven for inner in each.written]

    def judge(self, rows: int, outside: int) -> None:
        """Raises Misuse unless none of the batch's rows lies outside."""
        table, batch, options = self._told
        types = (
            {name: self._rows.schema[name].dataType.simpleString() for name in options.position_columns}
            if outside
            else {}
        )
        row_positions.judge(table, batch, options, types, (rows, outside))

    def _left_out(self) -> tuple[str, ...]:
        kept = set(self._kept.columns)
        return tuple(name for name in self._rows.columns if name not in kept)
