"""The sinks that are compared, by name: each turns a streaming DataFrame into a query that is ready to start."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamsink

# The level that streamsink writes with; Spark's own default would be 3.
ZSTD = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}
Start = Callable[[DataFrame, Path], DataStreamWriter]


class Ways:
    """Sinks by name, with an optional partition column."""

    def __init__(self, partition_by: tuple[str, ...] = ()):
        self._partition_by = partition_by
        self.all: dict[str, Start] = {
            "noop": lambda df, at: df.writeStream.format("noop"),
            "foreachBatch that does nothing": lambda df, at: df.writeStream.foreachBatch(lambda batch, number: None),
            "Spark parquet sink (snappy, its default)": lambda df, at: self._files(df, at, {}),
            "Spark parquet sink (zstd)": lambda df, at: self._files(df, at, ZSTD),
            "naive foreachBatch parquet (zstd)": self._naive,
            "streamsink": lambda df, at: self._ours(df, at),
            "streamsink (snappy)": lambda df, at: self._ours(df, at, table_options={"file.compression": "snappy"}),
            "streamsink, flush=False": lambda df, at: self._ours(df, at, flush=False),
            "streamsink, tasks": lambda df, at: self._ours(df, at, driver_max_rows=0),
        }

    def start(self, way: str, df: DataFrame, at: Path) -> StreamingQuery:
        """The query runs over what is there now and ends."""
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


def ended(query: StreamingQuery) -> list[dict]:
    """Wait for the end; durationMs of each batch that ran, in order."""
    query.awaitTermination()
    took = [dict(progress["durationMs"]) for progress in query.recentProgress]
    return [durations for durations in took if "addBatch" in durations]
