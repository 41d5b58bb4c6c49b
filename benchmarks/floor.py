"""The least that a batch function can do that leaves rows, a record and a snapshot on disk: no sink goes below it.

It checks nothing, recognises nothing and recovers nothing. Beside ours in one run it says how much of our time is the
price of the promise, and how much is Spark's and the disk's.
"""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamsink.spark.gateway.collecting import Collecting

COLLECTED = "foreachBatch that collects the rows"
FLOOR = "foreachBatch that collects, writes and flushes three files"
NAMED = "foreachBatch that names an empty file"


def collected(df: DataFrame, at: Path) -> DataStreamWriter:
    """The rows come to the driver in the cheapest way, and are dropped."""
    return df.writeStream.foreachBatch(lambda batch, number: _rows(batch))


def named(df: DataFrame, at: Path) -> DataStreamWriter:
    """What Spark does before it calls a batch function, and after: no row is computed."""
    out = at / "out"

    def name(batch: DataFrame, number: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"snapshot-{number}").touch()

    return df.writeStream.foreachBatch(name)


def floor(df: DataFrame, at: Path) -> DataStreamWriter:
    """One Parquet file as ours, one record and one snapshot, each flushed before the next one gets its name."""
    out = at / "out"

    def write(batch: DataFrame, number: int) -> None:
        out.mkdir(parents=True, exist_ok=True)
        rows = _rows(batch)
        if not rows:
            return
        data = out / f"data-{number}.parquet"
        with data.open("xb") as file:
            pq.write_table(rows, file, compression="zstd", compression_level=1, use_dictionary=False)
            _flush(file)
        for what, names in (("record", data.name), ("snapshot", f"record-{number}")):
            with (out / f".{what}-{number}").open("xb") as file:
                file.write(json.dumps({"names": names, "rows": rows.num_rows}).encode())
                _flush(file)
            os.link(file.name, out / f"{what}-{number}")

    return df.writeStream.foreachBatch(write)


def _rows(batch: DataFrame) -> pa.Table:
    with Collecting(batch) as collecting:
        pieces = collecting.rows()
    return pa.Table.from_batches(pieces) if pieces else pa.table({})


def _flush(file) -> None:
    file.flush()
    os.fsync(file.fileno())
