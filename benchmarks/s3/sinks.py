"""The sinks that are compared on S3, by name, and what a session needs for them."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamsink
from benchmarks import peers
from benchmarks.ways import NOOP, ZSTD
from tests.services.s3 import ACCESS_KEY, REGION, SECRET_KEY

# (input, name of the table) -> the query, ready to start but for its checkpoint.
Start = Callable[[DataFrame, str], DataStreamWriter]
OURS, ASYNC = "streamsink", 'streamsink, publish="async"'
SPARK = "Spark parquet sink, s3a"
ICEBERG = "Iceberg 1.12.0, JDBC catalog, S3FileIO"
HADOOP = "Iceberg 1.12.0, hadoop catalog, s3a"
DELTA = "Delta 4.4.0, s3a"
RIVALS = (SPARK, ICEBERG, HADOOP, DELTA)
# Tables lie below it, each in a folder of its name.
PREFIX = "bench"
# As everywhere in the benchmarks where codecs are equal.
_ZSTD_1 = {"write.parquet.compression-level": "1"}
_JDBC, _HADOOP = "s3_jdbc", "s3_hadoop"


def jars() -> list[str]:
    """The jars that a session needs for the peers' way to S3; none where the registry lacks some of them."""
    return peers.available({"s3a": {}, "jdbc": {}})[1]


def sinks(spark: SparkSession, bucket: str, options: dict[str, str], folder: Path) -> dict[str, Start]:
    """Those that this session can run.

    options: as a table's ``store_options``. folder: a local one, for the database of Iceberg's catalog.
    """
    found: dict[str, Start] = {
        NOOP: lambda df, name: df.writeStream.format("noop"),
        OURS: lambda df, name: _ours(df, f"s3://{bucket}/{PREFIX}/{name}", options),
        ASYNC: lambda df, name: _ours(df, f"s3://{bucket}/{PREFIX}/{name}", options, publish="async"),
    }
    there = spark.conf.get("spark.jars", "")
    if "hadoop-aws" not in there:
        return found
    _hadoop_conf(spark, options["s3.endpoint"])
    found[SPARK] = lambda df, name: (
        df.writeStream.format("parquet").options(**ZSTD).option("path", f"s3a://{bucket}/{PREFIX}/{name}/out")
    )
    if peers.has_iceberg(spark):
        if "sqlite-jdbc" in there:
            _jdbc_catalog(spark, f"s3://{bucket}/{PREFIX}", options["s3.endpoint"], folder)
            found[ICEBERG] = lambda df, name: _iceberg(df, _JDBC, name)
        _hadoop_catalog(spark, f"s3a://{bucket}/{PREFIX}")
        found[HADOOP] = lambda df, name: _iceberg(df, _HADOOP, name)
    if peers.has_delta(spark):
        found[DELTA] = lambda df, name: peers.delta(df, f"s3a://{bucket}/{PREFIX}/{name}/out", (), "zstd")
    return found


def _ours(df: DataFrame, root: str, options: dict[str, str], **settings) -> DataStreamWriter:
    sink = streamsink.to_table(f"{root}/shop.db/orders", lambda event: None, store_options=options, **settings)
    return df.writeStream.foreachBatch(sink)


def _iceberg(df: DataFrame, catalog: str, name: str) -> DataStreamWriter:
    df.sparkSession.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.`{name}`")
    return peers.iceberg(df, f"{catalog}.`{name}`.out", (), _ZSTD_1)


def _hadoop_conf(spark: SparkSession, endpoint: str) -> None:
    """What S3A has to know; a file system is kept for the life of the JVM, so this is done before its first use."""
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in {
        "endpoint": endpoint,
        "endpoint.region": REGION,
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }.items():
        conf.set(f"fs.s3a.{name}", value)


def _jdbc_catalog(spark: SparkSession, warehouse: str, endpoint: str, folder: Path) -> None:
    """A catalog in SQLite, the fastest database that there is here; its tables' files are written by S3FileIO."""
    jvm = spark.sparkContext._jvm
    # A driver of an added jar is not found by itself.
    jvm.java.lang.Class.forName("org.sqlite.JDBC", True, jvm.Thread.currentThread().getContextClassLoader())
    _catalog(
        spark,
        _JDBC,
        {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{folder}/iceberg.db",
            "jdbc.schema-version": "V1",
            "warehouse": warehouse,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": endpoint,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.path-style-access": "true",
            "client.region": REGION,
            # Its default wants a newer SDK than S3A has.
            "http-client.type": "urlconnection",
        },
    )


def _hadoop_catalog(spark: SparkSession, warehouse: str) -> None:
    _catalog(spark, _HADOOP, {"type": "hadoop", "warehouse": warehouse})


def _catalog(spark: SparkSession, name: str, settings: dict[str, str]) -> None:
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {"cache-enabled": "false", **settings}.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
