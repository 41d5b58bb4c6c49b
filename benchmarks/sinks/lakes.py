"""Into Iceberg and Delta tables: our sinks beside the formats' own ones of Spark."""

import dataclasses
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks import peers
from benchmarks.data import Sizes
from benchmarks.report import Goal, at_least, at_most
from benchmarks.sinks import turns
from benchmarks.ways import NOOP
from streamsink.delta import DeltaSink
from streamsink.iceberg import IcebergSink
from streamsink.protocol.sink import Sink
from streamsink.sink import to_sink

# Beside Iceberg's own catalog of files: one in a database, as ours has it.
JDBC = "Iceberg 1.12.0 (zstd 1), JDBC catalog in SQLite"
ICEBERG, DELTA = "IcebergSink, SQL catalog in SQLite", "DeltaSink"
_CATALOG, _NAMESPACE = "lakes_jdbc", "bench"


def iceberg(spark: SparkSession, folder: Path, sizes: Sizes) -> list:
    """In a catalog of the same database as the peer's."""
    folder /= "iceberg"
    folder.mkdir()
    return _beside(spark, folder, sizes, "Iceberg", ICEBERG, _iceberg(spark, folder))


def delta(spark: SparkSession, folder: Path, sizes: Sizes) -> list:
    """On a local disk."""
    return _beside(spark, folder / "delta", sizes, "Delta", DELTA, _delta(spark))


def _beside(spark: SparkSession, folder: Path, sizes: Sizes, *of: Any) -> list:
    """of: the format, the name of our way, all ways. Ours flush what they write, the others do not."""
    name, ours, ways = of
    sizes = dataclasses.replace(sizes, sink_batches=1, sink_rows=sizes.large_rows)
    place = turns.Place(
        f"Into {name} tables", ways, lambda table: None, lambda table: 0, shape=lambda rows: rows, base=NOOP
    )
    micro = turns.micro(spark, folder, place, sizes)
    large = turns.large(spark, folder, place, sizes)
    return [large.table, micro.table, *_goals(name, ours, micro, large)]


def _goals(name: str, ours: str, micro: turns.Found, large: turns.Found) -> list[Goal]:
    """Against the best of the format's own ways; none without its jars."""
    rivals = [way for way in micro.values if not way.startswith((NOOP, ours))]
    if not rivals:
        return []
    what = f"{name}Sink, {{}} against {name}'s own sink"

    def ratio(rounds: Mapping[str, list[float]], way: str) -> float:
        taken = {each: statistics.median(turns.over(rounds, each, NOOP)) for each in (way, *rivals)}
        return taken[way] / min(taken[rival] for rival in rivals)

    found = [
        at_most(what.format("micro-batch: ms over noop"), ratio(micro.rounds, ours), 0.5),
        at_most(what.format("micro-batch: processor time over noop"), ratio(micro.cpu, ours), 0.5),
    ]
    best = max(rivals, key=lambda rival: statistics.median(large.values[rival]))
    found.append(at_least(what.format("large batch: rows/s"), turns.ratio(large.values, ours, best), 1.0))
    least = min(rivals, key=lambda rival: statistics.median(large.cpu[rival]))
    found.append(at_most(what.format("large batch: processor time"), turns.ratio(large.cpu, ours, least), 1.0))
    return found


def _iceberg(spark: SparkSession, folder: Path) -> dict[str, turns.Way]:
    named = {"type": "sql", "uri": f"sqlite:///{folder}/ours.db", "warehouse": f"file://{folder}/ours"}

    def ours(table: str) -> IcebergSink:
        return IcebergSink(f"{_NAMESPACE}.{table}", "ours", named)

    def count(at: Path, table: str) -> int:
        return ours(table).named().load().scan().count()

    def by_jdbc(df: DataFrame, at: Path, table: str) -> DataStreamWriter:
        return peers.iceberg(df, f"{_CATALOG}.{_NAMESPACE}.{table}", (), {"write.parquet.compression-level": "1"})

    theirs = {}
    if peers.has_iceberg(spark):
        theirs[peers.ICEBERG_EQUAL] = _theirs(spark, peers.ICEBERG_EQUAL, "iceberg")
        if "sqlite-jdbc" in spark.conf.get("spark.jars", ""):
            _jdbc_catalog(spark, folder)
            theirs[JDBC] = turns.Way(
                by_jdbc, count=lambda at, table: spark.table(f"{_CATALOG}.{_NAMESPACE}.{table}").count()
            )
    return {NOOP: _NOOP, **theirs, ICEBERG: _ours(lambda at, table: ours(table), count)}


def _delta(spark: SparkSession) -> dict[str, turns.Way]:
    def count(at: Path, table: str) -> int:
        from deltalake import DeltaTable

        return DeltaTable(str(at / "out")).count()

    theirs = {peers.DELTA_EQUAL: _theirs(spark, peers.DELTA_EQUAL, "delta")} if peers.has_delta(spark) else {}
    return {NOOP: _NOOP, **theirs, DELTA: _ours(lambda at, table: DeltaSink(str(at / "out")), count)}


_NOOP = turns.Way(lambda df, at, table: df.writeStream.format("noop"), count=lambda at, table: None)


def _ours(sink: Callable[[Path, str], Sink], count: Callable[[Path, str], int | None]) -> turns.Way:
    begun = []

    def start(df: DataFrame, at: Path, table: str) -> DataStreamWriter:
        begun[:] = [to_sink(sink(at, table), lambda event: None, application=table)]
        return df.writeStream.foreachBatch(begun[0])

    return turns.Way(start, lambda: begun[0].close(), count)


def _theirs(spark: SparkSession, name: str, kind: str) -> turns.Way:
    start = peers.starts(spark, ())[name]

    def count(at: Path, table: str) -> int:
        return spark.read.format(kind).load(str(at / "out")).count()

    return turns.Way(lambda df, at, table: start(df, at), count=count)


def _jdbc_catalog(spark: SparkSession, folder: Path) -> None:
    jvm = spark.sparkContext._jvm
    # A driver of an added jar is not found by itself.
    jvm.java.lang.Class.forName("org.sqlite.JDBC", True, jvm.Thread.currentThread().getContextClassLoader())
    spark.conf.set(f"spark.sql.catalog.{_CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {
        "cache-enabled": "false",
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder}/theirs.db",
        "jdbc.schema-version": "V1",
        "warehouse": str(folder / "theirs"),
    }.items():
        spark.conf.set(f"spark.sql.catalog.{_CATALOG}.{key}", value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_CATALOG}.{_NAMESPACE}")
