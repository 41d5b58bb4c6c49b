"""Into several destinations: a fan-out, beside one destination after another in one batch function."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamsink
from benchmarks.data import Sizes
from benchmarks.report import at_least, at_most
from benchmarks.sinks import turns
from streamsink.databases import DatabaseSink
from streamsink.protocol.sink import Sink
from streamsink.sink import FanOut, FileSink, PaimonTable, to_sink

FAN_OUT = "FanOut"
ONE_BY_ONE, CACHED = "three sinks, one after another", "three sinks, one after another, rows cached"
_TABLE = "orders"


def several(spark: SparkSession, folder: Path, sizes: Sizes) -> list:
    """Each row into a Paimon table, a directory of Parquet files and a table of SQLite."""
    folder /= "several"
    place = turns.Place(
        "Into a Paimon table, Parquet files and SQLite",
        {FAN_OUT: _fan_out(spark), ONE_BY_ONE: _one_by_one(spark, cached=False), CACHED: _one_by_one(spark, True)},
        make=lambda name: None,
        count=lambda name: 0,
        shape=lambda rows: rows,
    )
    large = turns.large(spark, folder, place, sizes)
    micro = turns.micro(spark, folder, place, sizes)
    found: list = [large.table, micro.table]
    for way, what in ((ONE_BY_ONE, "one destination after another"), (CACHED, "the same, rows cached")):
        found += [
            at_least(f"fan-out, large batches: rows/s against {what}", turns.ratio(large.values, FAN_OUT, way), 1.0),
            at_most(f"fan-out, micro-batch: ms against {what}", turns.ratio(micro.values, FAN_OUT, way), 1.0),
            at_most(f"fan-out, micro-batch: processor time against {what}", turns.ratio(micro.cpu, FAN_OUT, way), 1.0),
        ]
    return found


def _destinations(at: Path) -> dict[str, Sink]:
    at.mkdir(parents=True, exist_ok=True)
    return {
        "lake": PaimonTable(str(at / "lake")),
        "files": FileSink(str(at / "files"), format="parquet"),
        "db": DatabaseSink(f"sqlite:{at}/shop.db", _TABLE, journal=str(at / "rows-for-db"), create_table=True),
    }


def _fan_out(spark: SparkSession) -> turns.Way:
    begun = []

    def start(df: DataFrame, at: Path, name: str) -> DataStreamWriter:
        destination = FanOut(_destinations(at), journal=str(at / "journal"))
        begun[:] = [to_sink(destination, lambda event: None, application=name)]
        return df.writeStream.foreachBatch(begun[0])

    return turns.Way(start, lambda: begun[0].close(), _counted(spark))


def _one_by_one(spark: SparkSession, cached: bool) -> turns.Way:
    begun = []

    def publish(batch: DataFrame, number: int) -> None:
        for sink in begun:
            sink(batch, number)

    def publish_cached(batch: DataFrame, number: int) -> None:
        batch.persist()
        try:
            publish(batch, number)
        finally:
            batch.unpersist()

    def start(df: DataFrame, at: Path, name: str) -> DataStreamWriter:
        begun[:] = [to_sink(sink, lambda event: None, application=name) for sink in _destinations(at).values()]
        return df.writeStream.foreachBatch(publish_cached if cached else publish)

    def close() -> None:
        for sink in begun:
            sink.close()

    return turns.Way(start, close, _counted(spark))


def _counted(spark: SparkSession) -> Callable[[Path, str], int]:
    def count(at: Path, name: str) -> int:
        """The rows of each destination, when all have as many."""
        with closing(sqlite3.connect(at / "shop.db")) as db:
            found = {"db": db.execute(f"SELECT count(*) FROM {_TABLE}").fetchone()[0]}
        found["lake"] = streamsink.read(spark, str(at / "lake")).count()
        found["files"] = spark.read.parquet(str(at / "files")).count()
        if len(set(found.values())) > 1:
            raise SystemExit(f"{name}: the destinations have different numbers of rows: {found}")
        return found["db"]

    return count
