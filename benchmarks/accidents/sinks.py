"""The sinks that meet the accidents:
how each is started, how its table is read, and how a user's own batch function calls it."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamsink
from benchmarks import peers

POSITIONS = ("topic", "partition", "offset")
APPLICATION, REJECTED = "orders", "rejected"
_PAIMON = "bench_paimon"
Put = Callable[[DataFrame, int], None]
# Each is made for one Spark minor version, so it may be available only for another Spark.
_MORE = {
    "hudi": {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    },
    "paimon-spark": {f"spark.sql.catalog.{_PAIMON}": "org.apache.paimon.spark.SparkCatalog"},
}


@dataclass(frozen=True)
class Sink:
    """One column of the table.

    start: the writer of a streaming query into the folder ``out``, partitioned by ``keys``. read: the table as any
    reader sees it. put: what a user's own batch function calls, where the sink can be called, with the name of the
    application. run: a bounded job with an id. only: the situations that it is for.
    """

    name: str
    start: Callable[[DataFrame, Path, tuple[str, ...]], DataStreamWriter]
    read: Callable[[SparkSession, Path], DataFrame]
    put: Callable[..., Put] | None = None
    run: Callable[[Path, DataFrame, int], None] | None = None
    only: str = ""

    @property
    def ours(self) -> bool:
        return self.name.startswith("streamsink")

    def rows(self, spark: SparkSession, at: Path, columns: tuple[str, ...]) -> Counter:
        """How often each row is there; empty where there is no table yet."""
        if not (at / "out").exists():
            return Counter()
        return Counter(tuple(row) for row in self.read(spark, at).select(*columns).collect())


def settings(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The settings of a session with every peer that there is for this Spark, and the peers' jars."""
    (found, paths), (more, more_paths) = peers.conf(folder), peers.available(_MORE)
    found |= more
    paths += more_paths
    if f"spark.sql.catalog.{_PAIMON}" in found:
        found[f"spark.sql.catalog.{_PAIMON}.warehouse"] = str(folder / "paimon")
    return found, paths


def sinks(spark: SparkSession) -> Iterator[Sink]:
    """The sinks of this session."""
    yield Sink("Spark file sink", _files, lambda spark, at: spark.read.parquet(f"{at}/out"))
    if "delta" in (spark.conf.get("spark.sql.extensions", None) or ""):
        yield Sink("Delta sink", _peer(peers.DELTA), _delta)
        yield Sink("Delta txnAppId", _each_batch(_put_delta), _delta, _put_delta, _run_delta)
    if spark.conf.get("spark.sql.catalog.bench_iceberg", None):
        yield Sink(
            "Iceberg sink", _peer(peers.ICEBERG), lambda spark, at: spark.read.format("iceberg").load(f"{at}/out")
        )
    there = spark.conf.get("spark.jars", "")
    if "hudi-spark" in there:
        yield Sink("Hudi sink", _hudi, lambda spark, at: spark.read.format("hudi").load(f"{at}/out"))
    if "paimon-spark" in there:
        yield Sink("Paimon Spark sink", _paimon, lambda spark, at: spark.read.format("paimon").load(f"{at}/out"))
    yield Sink("streamsink", _ours, _read_ours, _put_ours, _run_ours)
    yield Sink("streamsink, dead_letters", _ours_with_dead_letters, _read_ours, only="S18")


def _files(df: DataFrame, at: Path, keys: tuple[str, ...]) -> DataStreamWriter:
    writer = df.writeStream.format("parquet").option("path", f"{at}/out")
    return writer.partitionBy(*keys) if keys else writer


def _peer(name: str):
    return lambda df, at, keys: peers.starts(df.sparkSession, keys)[name](df, at)


def _delta(spark: SparkSession, at: Path) -> DataFrame:
    return spark.read.format("delta").load(f"{at}/out")


def _put_delta(at: Path, name: str = APPLICATION, keys: tuple[str, ...] = ()) -> Put:
    """Write as Delta's guide says, with the application's name and Spark's batch id."""

    def put(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("delta").mode("append").option("txnAppId", name).option("txnVersion", number)
        (writer.partitionBy(*keys) if keys else writer).save(f"{at}/out")

    return put


def _run_delta(at: Path, df: DataFrame, number: int) -> None:
    _put_delta(at)(df, number)


def _each_batch(put):
    return lambda df, at, keys: df.writeStream.foreachBatch(put(at, keys=keys))


def _hudi(df: DataFrame, at: Path, keys: tuple[str, ...]) -> DataStreamWriter:
    """Rows without keys are inserted, which is what an append stream is."""
    options = {
        "path": f"{at}/out",
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.operation": "insert",
        "hoodie.datasource.write.partitionpath.field": ",".join(keys),
        "hoodie.metadata.enable": "false",
    }
    return df.writeStream.format("hudi").options(**options)


def _paimon(df: DataFrame, at: Path, keys: tuple[str, ...]) -> DataStreamWriter:
    """Its table has to be there before. A catalog creates it, and the folder is moved to its place."""
    if not (at / "out").exists():
        spark = df.sparkSession
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in df.schema.fields)
        by = f"PARTITIONED BY ({', '.join(keys)})" if keys else ""
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {_PAIMON}.made")
        spark.sql(f"CREATE TABLE {_PAIMON}.made.`{uuid.uuid4().hex}` ({columns}) {by}")
        [made] = Path(spark.conf.get(f"spark.sql.catalog.{_PAIMON}.warehouse"), "made.db").iterdir()
        at.mkdir(parents=True, exist_ok=True)
        made.rename(at / "out")
    return df.writeStream.format("paimon").option("path", f"{at}/out")


def _table_sink(at: Path, columns: list[str], keys: tuple[str, ...] = (), name: str = APPLICATION, **options):
    if set(POSITIONS) <= set(columns):
        options["position_columns"] = POSITIONS
    return streamsink.to_table(
        f"{at}/out", listener=lambda event: None, application=name, flush=False, partition_by=list(keys), **options
    )


def _ours(df: DataFrame, at: Path, keys: tuple[str, ...]) -> DataStreamWriter:
    return df.writeStream.foreachBatch(_table_sink(at, df.columns, keys))


def _ours_with_dead_letters(df: DataFrame, at: Path, keys: tuple[str, ...]) -> DataStreamWriter:
    return df.writeStream.foreachBatch(_table_sink(at, df.columns, keys, dead_letters=REJECTED))


def _put_ours(at: Path, name: str = APPLICATION) -> Put:
    return _table_sink(at, [], name=name)


def _run_ours(at: Path, df: DataFrame, number: int) -> None:
    streamsink.write(df, f"{at}/out", str(number), listener=lambda event: None, flush=False)


def _read_ours(spark: SparkSession, at: Path) -> DataFrame:
    return streamsink.read(spark, f"{at}/out")
