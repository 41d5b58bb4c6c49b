"""A Spark stream that ``streamsink demo --spark`` kills, and that ``streamsink bench --spark`` measures.

The source is Spark's own generator, whose batch of a number has the same rows whenever it is planned: what a batch that
is repeated does to a table is seen by counting.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import streamsink
from streamsink.clock import Clock

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "streamsink.spark.worker_daemon",
}
_POLL_MS, _MOST_POLLS = 50, 6_000  # 300 s
_FIRST = 2  # batches in which the JVM compiles, which are not counted


def session(name: str) -> SparkSession:
    """A local session with two cores that says nothing but errors."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master("local[2]")
    for key, value in _QUIET.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def numbers(spark: SparkSession, rows: int) -> DataFrame:
    """A stream with so many rows a batch, which are numbered in the column id."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
    return stream.selectExpr("value as id", "cast(value % 3 as string) as dt", "value / 4 as amount")


def until(query: StreamingQuery, batches: int) -> list[dict[str, Any]]:
    """Wait until so many batches are done, and stop the query. Returns the progress of each that Spark remembers.

    Raises what has ended the query.
    """
    for _ in range(_MOST_POLLS):
        last = query.lastProgress
        if not query.isActive or last is not None and last["batchId"] >= batches - 1:
            break
        Clock().sleep_ms(_POLL_MS)
    failed = query.exception()
    if failed is not None:
        raise failed
    query.stop()
    return [dict(each) for each in query.recentProgress]


def demo(folder: str, batches: int, size: int) -> None:
    """Write the stream into the table in this folder, and append the same batches to plain Parquet files.

    That append is what a batch function does that knows nothing of repeated batches.
    """
    spark = session("streamsink demo")
    table = os.path.join(folder, "lake", "shop.db", "orders")
    sink = streamsink.to_table(table, partition_by=["dt"], restore="restore-and-continue")

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("append").parquet(os.path.join(folder, "plain"))
        sink(batch, batch_id)

    started = numbers(spark, size).writeStream.foreachBatch(write)
    until(started.option("checkpointLocation", os.path.join(folder, "checkpoint")).start(), batches)
    spark.stop()


def bench(folder: str, batches: int, size: int) -> None:
    """Print how long the micro-batches of Spark's own file sink and of streamsink take, in ms, as JSON."""
    spark = session("streamsink bench")
    plain, table = os.path.join(folder, "plain"), os.path.join(folder, "bench.db", "spark")
    sink = streamsink.to_table(table, partition_by=["dt"])

    def took(name: str, start: Callable[[Any], Any]) -> list[int]:
        writer = numbers(spark, size).writeStream.option(
            "checkpointLocation", os.path.join(folder, f"checkpoint-{name}")
        )
        done = until(start(writer), batches + _FIRST)
        return [each["durationMs"]["triggerExecution"] for each in done if each["batchId"] >= _FIRST][:batches]

    of_files = took("files", lambda writer: writer.format("parquet").partitionBy("dt").start(plain))
    of_ours = took("ours", lambda writer: writer.foreachBatch(sink).start())
    spark.stop()
    print(json.dumps({"spark_files_ms": of_files, "streamsink_ms": of_ours}))


def main() -> None:
    """What the command line runs in a process of its own, with words behind it: what, folder, batches, rows."""
    what, folder, batches, size = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    {"demo": demo, "bench": bench}[what](folder, int(batches), int(size))
