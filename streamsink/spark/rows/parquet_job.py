"""A large batch as one job of Spark's own Parquet writer, whose files are adopted. No row leaves the JVM.

Runs on the driver.

Spark's committer lets one attempt of each task through, and Spark's own count of the rows is compared with that of the
files before any file is named in a record. ``can_write`` says which tables can be written this way; all others are
written by ``tasks.py``.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType as SparkType
from pyspark.sql.types import TimestampType

from streamsink.errors import Retryable
from streamsink.format.evolution import widens
from streamsink.format.iceberg_options import makes_iceberg
from streamsink.format.schema import TableSchema
from streamsink.format.types import MAX_LENGTH, AtomicType, DataField, DataType
from streamsink.spark.gateway import running
from streamsink.spark.gateway.running import with_settings
from streamsink.spark.names import are_alike
from streamsink.spark.rows.flush_ahead import FlushAhead
from streamsink.spark.rows.position_proof import OUTSIDE
from streamsink.spark.types import quoted, to_spark
from streamsink.storage.file_io import FileIO
from streamsink.table.write.adopted import adopt_files
from streamsink.table.write.spec import WrittenFile

FOLDER = "spark"
_ROWS, _OUTSIDE = "rows", "outside"
_FIELD_ID = "parquet.field.id"
_MICROSECONDS = 6
_CODECS = ("zstd", "snappy", "gzip", "none")
_PLAIN = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "DATE")
# What Spark takes from the session and not from the job: the types and values that Paimon's readers expect, and the
# committer that renames files.
_SESSION = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}
_JOB = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "parquet.writer.version": "v1",
}


def can_write(given: Sequence[DataField], schema: TableSchema, file_io: FileIO) -> bool:
    """Whether Spark's files of a DataFrame with the columns ``given`` would be what this library's own files are.

    The table must have no partitions and lie on a disk that the driver shares with the executors. Spark must write the
    type of each column as Paimon's readers expect it, and the DataFrame must have the same type or a narrower one. No
    two names may be the same name for Spark's writer. Files for readers of Iceberg must say the ids of their fields.
    """
    types = {field.name: field.type for field in given}
    return (
        file_io.takes_files_of_others
        and not schema.partition_keys
        and not makes_iceberg(schema.options)
        and _codec(schema) in _CODECS
        and not are_alike(schema.field_names)
        and all(_is_stored_alike(f.type) and _fits(types.get(f.name), f.type) for f in schema.fields)
    )


def _is_stored_alike(t: DataType) -> bool:
    if not isinstance(t, AtomicType):
        return False
    if t.root in ("VARCHAR", "VARBINARY"):
        return t.length == MAX_LENGTH
    if t.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return t.precision == _MICROSECONDS
    return t.root in _PLAIN


def _fits(given: DataType | None, wanted: DataType) -> bool:
    if given is None:
        return wanted.nullable
    return given.as_nullable(True) == wanted.as_nullable(True) or widens(given, wanted)


class Judge(Protocol):
    """Judges by counts whether the rows of a batch are what they must be."""

    def judge(self, rows: int, outside: int) -> None:
        """rows: the number of rows of the batch. outside: the number of those for which the column ``OUTSIDE`` is true.

        Raises Misuse when the batch must not be recorded.
        """


@dataclass(frozen=True)
class ParquetJob:
    """The job of one batch.

    staging: the absolute path of the staging folder. rows_a_file: the number of rows after which a task begins its next
    file.
    """

    schema: TableSchema
    staging: str
    rows_a_file: int

    def write(self, df: DataFrame, file_io: FileIO, check: Judge) -> list[WrittenFile]:
        """Write all rows into staged files, flushed, and return the files.

        Raises what Spark raises, and what ``check`` and ``adopt_files`` raise; Retryable when Spark does not tell how
        many rows it has written.
        """
        folder = os.path.join(self.staging, FOLDER)
        counted = Observation()
        counts = {_ROWS: "count(1)"}
        if OUTSIDE in df.columns:
            counts[_OUTSIDE] = f"count_if({OUTSIDE})"
        told = df.observe(counted, *(F.expr(f"{sql} AS {name}") for name, sql in counts.items()))
        rows = running.select(told, self._columns(df))
        with with_settings(df.sparkSession, _SESSION), FlushAhead(file_io, folder):
            rows.write.options(**self._options()).parquet(f"file:{folder}")
        count = running.observed(counted, _ROWS)
        outside = running.observed(counted, _OUTSIDE) if _OUTSIDE in counts else 0
        if count is None or outside is None:
            raise Retryable(
                f"{self.staging}: Spark has written the batch and does not say how many rows it had: its listeners "
                "are behind, or lost events. Nothing was published and nothing is lost: the batch is replayed after "
                "a restart. Raise spark.scheduler.listenerbus.eventqueue.capacity, or set large_batches='tasks'",
                kind="spark.not-counted",
            )
        if _OUTSIDE in counts:
            check.judge(count, outside)
        return adopt_files(file_io, folder, self.schema, count)

    def _columns(self, df: DataFrame) -> list[running.Selected]:
        """The columns of the table, in its order and types. A column that the DataFrame lacks is null."""
        given, columns = set(df.columns), []
        for field, target in zip(self.schema.fields, to_spark(self.schema, self.staging)):
            source = quoted(field.name) if field.name in given else "NULL"
            columns.append(
                running.Selected(f"CAST({source} AS {_in_sql(target.dataType)})", field.name, {_FIELD_ID: field.id})
            )
        return columns

    def _options(self) -> dict[str, str]:
        return {
            **_JOB,
            "compression": _codec(self.schema),
            "maxRecordsPerFile": str(self.rows_a_file),
            "parquet.compression.codec.zstd.level": self.schema.options.get("file.compression.zstd-level", "1"),
        }


def _in_sql(kind: SparkType) -> str:
    """The type as SQL spells it. What TIMESTAMP alone means is a setting of the session."""
    return "TIMESTAMP_LTZ" if isinstance(kind, TimestampType) else kind.simpleString()


def _codec(schema: TableSchema) -> str:
    return schema.options.get("file.compression", "zstd").lower()
