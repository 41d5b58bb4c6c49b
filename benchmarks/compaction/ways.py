"""The tables whose small files are compacted beside a live stream, each by its own format's means."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

import streamsink
from benchmarks import peers
from benchmarks.compaction.found import WITH, WITHOUT, Found, live

# All tables are partitioned by this column, and have this target size.
PART, TARGET_BYTES = "part", 4 * 2**20
_EACH_LOOK_MS = 1_000
_TARGET = {"target-file-size": "4 mb"}


class Ended(Exception):
    """The measurement is over."""


@dataclass(frozen=True)
class Rewritten:
    """What one call of a compaction says of itself. failed: files of parts that it says it could not replace."""

    files_before: int = 0
    files_after: int = 0
    bytes: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Way:
    """One sink with one kind of compaction, over a table of its own in the folder ``at``.

    start(rows, at): the query. read(spark, at): its rows. files(spark, at): live files and their bytes. vain(spark,
    at): data files of the disk that no version of the table names or has named, and their bytes. delete(spark, at,
    part): another writer takes out the rows of a partition.
    end: the query ends by itself before its next batch, where that can be told to it.
    beside(spark, at): one call of a compaction; None where the sink compacts by itself, or nothing does.
    own(spark, at): what a sink that compacts by itself says of all it has compacted.
    """

    name: str
    start: Callable[[DataFrame, Path], DataStreamWriter]
    read: Callable[[SparkSession, Path], DataFrame]
    files: Callable[[SparkSession, Path], tuple[int, int]]
    vain: Callable[[SparkSession, Path], tuple[int, int]]
    delete: Callable[[SparkSession, Path, str], None]
    end: Callable[[], None] | None = None
    beside: Callable[[SparkSession, Path], Rewritten] | None = None
    own: Callable[[SparkSession, Path], Rewritten] | None = None


def ways(spark: SparkSession, folder: Path) -> list[Way]:
    """Ours, and those of the peers that this session can run. Each format's first one compacts nothing."""
    return [*_ours(), *(_delta(spark) if peers.has_delta(spark) else ()), *(_iceberg(spark, folder))]


def _on_disk(at: Path) -> dict[str, int]:
    """Sizes of all data files below the table, by their names."""
    return {
        path.name: path.stat().st_size for path in (at / "out").rglob("*.parquet") if "_delta_log" not in path.parts
    }


def _without(at: Path, named: set[str]) -> tuple[int, int]:
    left = [size for name, size in _on_disk(at).items() if name not in named]
    return len(left), sum(left)


# -- ours ------------------------------------------------------------------------------------------------------------


def _ours() -> Iterator[Way]:
    for name, options in ((WITHOUT, {}), (WITH, {"compaction": True, "compaction_interval_ms": _EACH_LOOK_MS})):
        found, over = Found(name), threading.Event()

        def start(df: DataFrame, at: Path, options=options, found=found, over=over) -> DataStreamWriter:
            sink = streamsink.to_table(
                str(at / "out"), found.listen, partition_by=[PART], table_options=_TARGET, **options
            )
            over.clear()
            _known[str(at)] = df.schema

            def batch(rows: DataFrame, number: int) -> None:
                if over.is_set():
                    raise Ended  # nothing of this batch has begun
                sink(rows, number)

            return df.writeStream.foreachBatch(batch)

        def own(spark: SparkSession, at: Path, found=found) -> Rewritten:
            totals = found.totals
            return Rewritten(totals.files_before, totals.files_after, totals.bytes_before, totals.conflicts)

        yield Way(
            name,
            start,
            lambda spark, at: streamsink.read(spark, str(at / "out")),
            lambda spark, at: _counted([entry.file.file_size for entry in live(str(at / "out"))]),
            lambda spark, at, found=found: (found.totals.conflicts, found.totals.bytes_lost),
            _delete_ours,
            end=over.set,
            own=own if options else None,
        )


# Schemas of the rows that go into a table, with their NOT NULL, by the table's folder.
_known: dict[str, StructType] = {}


def _delete_ours(spark: SparkSession, at: Path, part: str) -> None:
    """It has no DELETE: another application replaces the partition by nothing."""
    table = str(at / "out")
    rows = spark.createDataFrame([], _known[str(at)])
    run = os.urandom(8).hex()
    streamsink.write(rows, table, run, mode="overwrite", overwrite_partition={PART: part}, partition_by=[PART])


def _counted(sizes: list[int]) -> tuple[int, int]:
    return len(sizes), sum(sizes)


# -- Delta -----------------------------------------------------------------------------------------------------------


def _delta(spark: SparkSession) -> Iterator[Way]:
    for setting, value in (
        ("autoCompact.maxFileSize", TARGET_BYTES),
        ("optimize.maxFileSize", TARGET_BYTES),
        ("optimize.minFileSize", TARGET_BYTES),
        ("autoCompact.minNumFiles", 8),  # its default is 50, which so few batches do not bring to a partition
    ):
        spark.conf.set(f"spark.databricks.delta.{setting}", str(value))
    auto, optimize_write = "delta.autoOptimize.autoCompact", "delta.autoOptimize.optimizeWrite"
    for what, properties, beside in (
        ("", {}, None),
        (", autoCompact", {auto: "true"}, None),
        (", autoCompact and optimizeWrite", {auto: "true", optimize_write: "true"}, None),
        (", OPTIMIZE beside", {}, _optimize),
    ):
        yield Way(
            f"Delta 4.4.0{what}",
            lambda df, at, properties=properties: _start_delta(df, at, properties),
            lambda spark, at: spark.read.format("delta").load(str(at / "out")),
            _files_of_delta,
            lambda spark, at: _without(at, set(_added(at))),
            lambda spark, at, part: spark.sql(f"DELETE FROM delta.`{at / 'out'}` WHERE {PART} = '{part}'"),
            beside=beside,
            own=_auto_compacted if auto in properties else None,
        )


def _start_delta(df: DataFrame, at: Path, properties: dict[str, str]) -> DataStreamWriter:
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in df.schema.fields)
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    df.sparkSession.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{at / 'out'}` ({columns}) USING delta PARTITIONED BY ({PART})"
        + (f" TBLPROPERTIES ({listed})" if listed else "")
    )
    return peers.delta(df, str(at / "out"), (PART,), "zstd")


def _optimize(spark: SparkSession, at: Path) -> Rewritten:
    [row] = spark.sql(f"OPTIMIZE delta.`{at / 'out'}`").collect()
    metrics = row["metrics"]
    return Rewritten(metrics["numFilesRemoved"], metrics["numFilesAdded"], metrics["filesRemoved"]["totalSize"])


def _auto_compacted(spark: SparkSession, at: Path) -> Rewritten:
    """By the table's history, which has an OPTIMIZE for each."""
    rows = spark.sql(f"DESCRIBE HISTORY delta.`{at / 'out'}`").where("operation = 'OPTIMIZE'").collect()
    found = [row["operationMetrics"] for row in rows]
    return Rewritten(
        sum(int(each.get("numRemovedFiles", 0)) for each in found),
        sum(int(each.get("numAddedFiles", 0)) for each in found),
        sum(int(each.get("numRemovedBytes", 0)) for each in found),
    )


def _files_of_delta(spark: SparkSession, at: Path) -> tuple[int, int]:
    row = spark.sql(f"DESCRIBE DETAIL delta.`{at / 'out'}`").collect()[0]
    return row["numFiles"], row["sizeInBytes"]


def _added(at: Path) -> Iterator[str]:
    """Names of all files that a version of its log has added."""
    for path in (at / "out" / "_delta_log").glob("*.json"):
        for line in path.read_text().splitlines():
            added = json.loads(line).get("add")
            if added:
                yield added["path"].rpartition("/")[2]


# -- Iceberg ---------------------------------------------------------------------------------------------------------


def _iceberg(spark: SparkSession, folder: Path) -> Iterator[Way]:
    if not peers.has_iceberg(spark):
        return
    for what, options in (
        ("", None),
        (", rewrite_data_files beside", {}),
        (", the same, partial progress", {"partial-progress.enabled": "true"}),
    ):
        yield Way(
            f"Iceberg 1.12.0{what}",
            lambda df, at: peers.iceberg(
                df, _name(df.sparkSession, at), (PART,), {"write.metadata.previous-versions-max": "10"}
            ),
            lambda spark, at: spark.table(_name(spark, at)),
            _files_of_iceberg,
            _vain_of_iceberg,
            lambda spark, at, part: spark.sql(f"DELETE FROM {_name(spark, at)} WHERE {PART} = '{part}'"),
            beside=None if options is None else lambda spark, at, options=options: _rewrite(spark, at, options),
        )


def _name(spark: SparkSession, at: Path) -> str:
    parts = (at / "out").relative_to(spark.conf.get(peers.WAREHOUSE)).parts
    return ".".join([peers.CATALOG, *(f"`{part}`" for part in parts)])


def _rewrite(spark: SparkSession, at: Path, options: dict[str, str]) -> Rewritten:
    given = {"target-file-size-bytes": str(TARGET_BYTES), **options}
    listed = ", ".join(f"'{key}', '{value}'" for key, value in given.items())
    table = _name(spark, at).removeprefix(f"{peers.CATALOG}.")
    [row] = spark.sql(
        f"CALL {peers.CATALOG}.system.rewrite_data_files(table => '{table}', options => map({listed}))"
    ).collect()
    return Rewritten(
        row["rewritten_data_files_count"],
        row["added_data_files_count"],
        row["rewritten_bytes_count"],
        row["failed_data_files_count"],
    )


def _files_of_iceberg(spark: SparkSession, at: Path) -> tuple[int, int]:
    return _counted([row[0] for row in spark.sql(f"SELECT file_size_in_bytes FROM {_name(spark, at)}.files").collect()])


def _vain_of_iceberg(spark: SparkSession, at: Path) -> tuple[int, int]:
    """It deletes what it has written in vain, as far as it comes to that: only what is left is counted."""
    rows = spark.sql(f"SELECT file_path FROM {_name(spark, at)}.all_data_files").collect()
    return _without(at, {row[0].rpartition("/")[2] for row in rows})
