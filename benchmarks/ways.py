"""The sinks that are compared, by name: each turns a streaming DataFrame into a query that is ready to start."""

import importlib
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamsink
from benchmarks import floor, peers
from benchmarks.peers import Start

# The level that streamsink writes with; Spark's own default would be 3.
ZSTD = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
NOOP, SNAPPY, SPARK, OURS = (
    "noop",
    "Spark parquet sink (snappy, its default)",
    "Spark parquet sink (zstd)",
    "streamsink",
)
NOTHING, NAIVE = "foreachBatch that does nothing", "naive foreachBatch parquet (zstd)"
OURS_SNAPPY, UNFLUSHED, TASKS = "streamsink (snappy)", "streamsink, flush=False", "streamsink, tasks"
ASYNC, WRITER = 'streamsink, publish="async"', "streamsink, Spark's writer"
# The sinks that our goals are measured against: those that keep each row once, as far as they do.
RIVALS = (SNAPPY, SPARK, peers.ICEBERG, peers.ICEBERG_EQUAL, peers.DELTA, peers.DELTA_EQUAL)


class Ways:
    """Sinks by name, with an optional partition column. ``more``: ``module:function``, a function from (streaming
    DataFrame, an empty folder) to a DataStreamWriter, whose files belong into the folder's ``out``."""

    def __init__(self, spark, partition_by: tuple[str, ...] = (), more: tuple[str, ...] = ()):
        self._partition_by = partition_by
        self.all: dict[str, Start] = {
            NOOP: lambda df, at: df.writeStream.format("noop"),
            NOTHING: lambda df, at: df.writeStream.foreachBatch(lambda batch, number: None),
            floor.COLLECTED: floor.collected,
            floor.FLOOR: floor.floor,
            floor.NAMED: floor.named,
            SNAPPY: lambda df, at: self._files(df, at, {}),
            SPARK: lambda df, at: self._files(df, at, ZSTD),
            NAIVE: self._naive,
            OURS: lambda df, at: self._ours(df, at),
            OURS_SNAPPY: lambda df, at: self._ours(df, at, table_options={"file.compression": "snappy"}),
            ASYNC: lambda df, at: self._ours(df, at, publish="async"),
            UNFLUSHED: lambda df, at: self._ours(df, at, flush=False),
            WRITER: lambda df, at: self._ours(df, at, large_batches="spark"),
            TASKS: lambda df, at: self._ours(df, at, driver_max_rows=0, large_batches="tasks"),
            **peers.starts(spark, partition_by),
            **{name: _named(name) for name in more},
        }
        self._more = more

    def among(self, *names: str) -> tuple[str, ...]:
        """Those of ``names`` that this session can run, and all that were asked for by ``module:function``."""
        return (*(name for name in names if name in self.all), *self._more)

    def start(self, way: str, df: DataFrame, at: Path) -> StreamingQuery:
        """Start the query over what is there now; it ends after that."""
        writer = self.all[way](df, at).option("checkpointLocation", str(at / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def _files(self, df: DataFrame, at: Path, options: dict) -> DataStreamWriter:
        writer = df.writeStream.format("parquet").options(**options).option("path", str(at / "out"))
        return writer.partitionBy(*self._partition_by) if self._partition_by else writer

    def _naive(self, df: DataFrame, at: Path) -> DataStreamWriter:
        out = str(at / "out")
        keys = self._partition_by

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("append").options(**ZSTD).parquet(out, partitionBy=list(keys) or None)

        return df.writeStream.foreachBatch(write)

    def _ours(self, df: DataFrame, at: Path, **options) -> DataStreamWriter:
        table = str(at / "out")
        sink = streamsink.to_table(table, lambda event: None, partition_by=self._partition_by, **options)
        return df.writeStream.foreachBatch(sink)


def _named(name: str) -> Start:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def ended(query: StreamingQuery) -> list[dict]:
    """Wait for the query's end. Returns durationMs of each batch that ran, in order."""
    query.awaitTermination()
    took = [dict(progress["durationMs"]) for progress in query.recentProgress]
    return [durations for durations in took if "addBatch" in durations]
