"""Iceberg's and Delta's streaming sinks, tuned as their guides say.
Their jars come from the registry; without them the sinks are not compared."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tools.common import SetupError, say
from tools.jars import jars

Start = Callable[[DataFrame, Path], DataStreamWriter]
ICEBERG, ICEBERG_EQUAL = "Iceberg 1.12.0 (its default, zstd 3)", "Iceberg 1.12.0 (zstd 1)"
DELTA, DELTA_EQUAL = "Delta 4.4.0 (snappy, its default)", "Delta 4.4.0 (zstd 1)"
CATALOG = "bench_iceberg"
_CONF = {
    "iceberg": {
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.cache-enabled": "false",
    },
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # With its default of 50 tasks for its own log a small batch takes many times as long.
        "spark.databricks.delta.snapshotPartitions": "2",
        # It passes on only the codec, not the codec's level.
        "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    },
}
WAREHOUSE = f"spark.sql.catalog.{CATALOG}.warehouse"


def available(wanted: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str], list[str]]:
    """The settings and jars of those kinds that the registry has. The others are reported as left out."""
    settings, found = {}, []
    for kind, its_own in wanted.items():
        try:
            found += jars(kind)
        except SetupError as why:
            say(f"not compared with {kind}: {why}")
            continue
        settings |= its_own
    return settings, found


def conf(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The settings of a session with all peers that the registry has, and their jars."""
    settings, found = available(_CONF)
    if f"spark.sql.catalog.{CATALOG}" in settings:
        settings[WAREHOUSE] = str(folder)
    return settings, found


def starts(spark, keys: tuple[str, ...]) -> dict[str, Start]:
    """The peers that this session can run, by name."""
    found: dict[str, Start] = {}
    if has_iceberg(spark):
        # It is reported here, because what Delta needs of the session would be taken for it.
        found[ICEBERG] = lambda df, at: _iceberg(df, at, keys, {"write.parquet.compression-level": "3"})
        found[ICEBERG_EQUAL] = lambda df, at: _iceberg(df, at, keys, {"write.parquet.compression-level": "1"})
    if has_delta(spark):
        found[DELTA] = lambda df, at: _delta(df, at, keys, "snappy")
        found[DELTA_EQUAL] = lambda df, at: _delta(df, at, keys, "zstd")
    return found


def has_delta(spark) -> bool:
    """Whether this session can run Delta's sink."""
    return "delta" in (spark.conf.get("spark.sql.extensions", None) or "")


def has_iceberg(spark) -> bool:
    """Whether this session can run Iceberg's sink."""
    return spark.conf.get(WAREHOUSE, None) is not None


def _iceberg(df: DataFrame, at: Path, keys: tuple[str, ...], properties: dict[str, str]) -> DataStreamWriter:
    parts = (at / "out").relative_to(df.sparkSession.conf.get(WAREHOUSE)).parts
    return iceberg(df, ".".join([CATALOG, *(f"`{part}`" for part in parts)]), keys, properties)


def iceberg(df: DataFrame, table: str, keys: tuple[str, ...], properties: dict[str, str]) -> DataStreamWriter:
    """Writers keep a file open for each partition (fanout) and nothing is shuffled: the fastest way that it offers.

    table: its name, with its catalog's. It is created if it is missing."""
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in df.schema.fields)
    listed = ", ".join(f"'{key}'='{value}'" for key, value in {"write.distribution-mode": "none", **properties}.items())
    by = f"PARTITIONED BY ({', '.join(keys)})" if keys else ""
    df.sparkSession.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg {by} TBLPROPERTIES ({listed})")
    return df.writeStream.format("iceberg").option("path", table).option("fanout-enabled", "true")


def _delta(df: DataFrame, at: Path, keys: tuple[str, ...], codec: str) -> DataStreamWriter:
    return delta(df, str(at / "out"), keys, codec)


def delta(df: DataFrame, path: str, keys: tuple[str, ...], codec: str) -> DataStreamWriter:
    """Its sink into the table at this path."""
    writer = df.writeStream.format("delta").option("path", path).option("compression", codec)
    return writer.partitionBy(*keys) if keys else writer
