"""A snapshot as a DataFrame: Spark's own Parquet reader reads the live files. Runs on the driver."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.types import ArrayType, DataField, DataType, MapType, RowType
from streamsink.spark.gateway import running
from streamsink.spark.names import check_apart
from streamsink.spark.types import quoted, to_spark, type_in_spark
from streamsink.storage.store_failures import told_of
from streamsink.storage.stores import Store, store_of
from streamsink.table.read.evolved import check_casts
from streamsink.table.read.scan import by_schema, plan
from streamsink.table.table import open_table

# Spark takes every path for a glob pattern. With these characters escaped it is the name of one file.
_GLOB = re.compile(r"[\[\]{}*?\\]")
# What a session may have set for other files: times before 1900 would be shifted, and rows of files that are gone or
# damaged would be missing without a word.
_AS_THEY_ARE = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
_PARALLEL_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    snapshot_id: int | None = None,
    store_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a snapshot as a DataFrame with the columns of the newest schema.

    snapshot_id: the newest snapshot unless it is given. store_options: options of the store, as
    ``SinkOptions.store_options``.

    Files of older schemas are converted: columns that were added later are null, and values of widened columns are
    cast. Timestamps of more than microseconds are cut to microseconds, because Spark has no finer ones. Raises Misuse
    when the path is no table, the snapshot does not exist, or Spark lacks the type of a column; Corrupt for damaged
    metadata.
    """
    store = store_of(path, store_options)
    with told_of(store.root, "read"):
        return _read(spark, store, snapshot_id)


def _read(spark: SparkSession, store: Store, snapshot_id: int | None) -> DataFrame:
    table = open_table(store.open(), store.root, for_writing=False)
    if store.root.startswith(("s3://", "s3a://")):
        running.check_file_system(spark, "s3a", table.root)
    _, files = plan(table, snapshot_id)
    schema = table.latest_schema()
    check_apart(schema.field_names, spark, table.root)
    parts = []
    for schema_id, group in by_schema(files).items():
        written = table.schemas.load(schema_id)
        _check_spelled([file.path for file in group], table.root)
        check_casts(written, schema, table.root)
        frame = parquet_files(spark, [file.path for file in group], to_spark(written, table.root))
        parts.append(frame if written.fields == schema.fields else _evolved(frame, written, schema))
    if not parts:
        return spark.createDataFrame([], to_spark(schema, table.root))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole


def _check_spelled(paths: Sequence[str], table: str) -> None:
    """Raises Misuse for files that Spark would not find, because its JVM cannot spell their paths."""
    if running.not_spelled(path for path in paths if path.startswith("/")):
        encoding = running.encoding_of_locale()
        raise Misuse(
            f"{table}: Spark's JVM was started in a locale with the encoding {encoding}, which cannot spell the paths "
            "of data files, so Spark would not find files that are there. Set LC_ALL=C.UTF-8, or another locale with "
            "UTF-8, in the environment in which the driver and the executors start; or read the table with "
            "streamsink.read_arrow",
            kind="read.locale",
        )


def parquet_files(spark: SparkSession, paths: Sequence[str], schema: spark_types.StructType | None = None) -> DataFrame:
    """Return the rows of these files of a table.

    paths: absolute paths or URLs. schema: the columns to read; by default those that the files themselves name.
    """
    reader = spark.read.options(**_AS_THEY_ARE)
    reader = reader if schema is None else reader.schema(schema)
    with _listing_on_the_driver(spark, len(paths)):
        return reader.parquet(*[_GLOB.sub(r"\\\g<0>", _for_spark(path)) for path in paths])


def _for_spark(path: str) -> str:
    """Spark reads from S3 under the scheme s3a."""
    return "s3a://" + path[len("s3://") :] if path.startswith("s3://") else path


@contextlib.contextmanager
def _listing_on_the_driver(spark: SparkSession, files: int) -> Iterator[None]:
    """While this is open, Spark looks at as many as ``files`` paths on the driver.

    Otherwise Spark starts a job of its own to look at many paths, which takes seconds; the manifests have named the
    files already.
    """
    before = spark.conf.get(_PARALLEL_LISTING) or "0"  # Spark has a default, so it is never None
    spark.conf.set(_PARALLEL_LISTING, str(max(int(before), files)))
    try:
        yield
    finally:
        spark.conf.set(_PARALLEL_LISTING, before)


def _evolved(frame: DataFrame, written: TableSchema, wanted: TableSchema) -> DataFrame:
    by_id = {field.id: field for field in written.fields}
    return frame.select([_column(field, by_id.get(field.id)).alias(field.name) for field in wanted.fields])


def _column(field: DataField, before: DataField | None) -> Column:
    """before: the column as the file has it; None when the file was written without it."""
    target = type_in_spark(field.type, field.name, "")
    if before is None:
        return F.lit(None).cast(target)
    return _convert(F.col(quoted(before.name)), before.type, field.type)


def _convert(column: Column, old: DataType, new: DataType) -> Column:
    """An expression that turns a value of the old type into the new type. Nested fields are matched by their ids."""
    if isinstance(new, RowType) and isinstance(old, RowType):
        by_id = {field.id: field for field in old.fields}
        parts = []
        for field in new.fields:
            before = by_id.get(field.id)
            missing = F.lit(None).cast(type_in_spark(field.type, field.name, ""))
            part = missing if before is None else _convert(column.getField(before.name), before.type, field.type)
            parts.append(part.alias(field.name))
        return F.when(column.isNotNull(), F.struct(*parts))
    if isinstance(new, ArrayType) and isinstance(old, ArrayType):
        return F.transform(column, lambda item: _convert(item, old.element, new.element))
    if isinstance(new, MapType) and isinstance(old, MapType):
        return F.transform_values(column, lambda _, value: _convert(value, old.value, new.value))
    return column.cast(type_in_spark(new, "", ""))
