"""Writes rows through a real streaming query: a file source, availableNow, one micro-batch a file."""

import os

import pyarrow as pa
import pyarrow.parquet as pq

import streamsink


def run_query(spark, folder, path, batches: list[pa.Table], select=None, **options) -> None:
    """Each Arrow table becomes one file of the source, and one micro-batch.
    In the same folder the query goes on where it ended."""
    source = os.path.join(str(folder), "source")
    os.makedirs(source, exist_ok=True)
    done = len(os.listdir(source))
    for number, table in enumerate(batches, done):
        file = os.path.join(source, f"{number:06d}.parquet")
        pq.write_table(table, file)
        os.utime(file, (number + 1, number + 1))  # The source takes files in the order of their times.
    frame = spark.readStream.schema(spark.read.parquet(file).schema).option("maxFilesPerTrigger", 1).parquet(source)
    query = (
        (select(frame) if select else frame)
        .writeStream.foreachBatch(streamsink.to_table(path, **options))
        .option("checkpointLocation", os.path.join(str(folder), "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert not query.isActive
