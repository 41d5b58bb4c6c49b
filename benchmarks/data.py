"""The input that all sinks get: two longs, two doubles, a timestamp, three strings."""

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

DDL = "id BIGINT, customer BIGINT, price DOUBLE, discount DOUBLE, at TIMESTAMP, status STRING, city STRING, note STRING"
STATUS = ("new", "paid", "packed", "sent", "returned")
_COLUMNS = (
    "id",
    "pmod(hash(id), 100000) * 1L customer",
    "rand(1) * 1000 price",
    "(id % 20) / 100 discount",
    "timestamp_micros(1700000000000000 + id * 1000) at",
    "element_at(array('new', 'paid', 'packed', 'sent', 'returned'), cast(id % 5 as int) + 1) status",
    "concat('city-', pmod(hash(id, 7), 1000)) city",
    "md5(cast(id as string)) note",
)
_FILES = 4


@dataclass(frozen=True)
class Sizes:
    """How much is measured, and beside which further sinks (``module:function``, see ways.py).

    There are micro_rounds of micro_batches each; more_rounds is for measurements of which a round gives one value only.
    s3_delays: milliseconds by which answers of S3 are held back, without delay first.
    sink_batches of sink_rows go into Kafka, databases and several destinations, and large_rows at once into Iceberg and
    Delta tables.
    ``quick`` is for trying the program: its numbers mean nothing.
    """

    rounds: int = 3
    micro_rounds: int = 8
    micro_batches: int = 15
    batches: int = 40
    more_rounds: int = 5
    batch_rows: int = 1_000
    large_rows: int = 5_000_000
    partitioned_rows: int = 2_000_000
    road_rows: int = 2_000_000
    partitions: tuple[int, ...] = (64, 1_000)
    growth: tuple[int, ...] = (10, 1_000, 10_000)
    pending: int = 100
    live_files: int = 100_000
    snapshots: tuple[int, ...] = (10, 100, 1_000, 10_000)
    replays: int = 10
    small_files: int = 200
    compacted_batches: int = 300
    long_batches: int = 10_000
    rival_rounds: int = 1
    rival_batches: int = 40
    more_sinks: tuple[str, ...] = ()
    commits: int = 240
    freshness_s: int = 20
    s3_rounds: int = 2
    s3_batches: int = 4
    s3_delays: tuple[int, ...] = (0, 20, 50)
    s3_rows: int = 2_000_000
    sink_batches: int = 3
    sink_rows: int = 200_000
    grown_files: tuple[int, ...] = (2_500, 5_000, 10_000)
    grown_s3_files: tuple[int, ...] = (250, 500, 1_000)
    grown_partitions: tuple[int, ...] = (750, 1_500, 3_000)
    grown_live: tuple[int, ...] = (250_000, 500_000, 1_000_000)
    grown_batches: tuple[int, ...] = (2_500, 5_000, 10_000)
    grown_spark_batches: tuple[int, ...] = (100, 200, 400)

    @classmethod
    def quick(cls) -> "Sizes":
        return cls(
            rounds=2,
            micro_rounds=2,
            micro_batches=3,
            batches=3,
            more_rounds=2,
            large_rows=100_000,
            partitioned_rows=50_000,
            road_rows=50_000,
            partitions=(8, 20),
            snapshots=(3, 10),
            growth=(8, 40),
            pending=5,
            live_files=2_000,
            replays=3,
            small_files=40,
            compacted_batches=6,
            long_batches=200,
            rival_batches=10,
            commits=24,
            freshness_s=3,
            s3_rounds=1,
            s3_batches=2,
            s3_delays=(0, 20),
            s3_rows=50_000,
            sink_batches=2,
            sink_rows=5_000,
            grown_files=(20, 40, 80),
            grown_s3_files=(20, 40, 80),
            grown_partitions=(10, 20, 40),
            grown_live=(2_000, 4_000, 8_000),
            grown_batches=(10, 20, 40),
            grown_spark_batches=(2, 4, 8),
        )


def large(spark: SparkSession, folder: Path, rows: int, partitions: int = 0) -> str:
    """A folder of Parquet files; with ``partitions`` they have a ninth column of so many values, in no order."""
    target = str(folder / f"input-{rows}-{partitions}")
    if not os.path.exists(target):
        columns = [*_COLUMNS, *([f"concat('p-', pmod(hash(id, 3), {partitions})) part"] if partitions else [])]
        spark.range(0, rows, 1, _FILES).selectExpr(*columns).write.parquet(target)
    return target


def ddl(partitions: int = 0) -> str:
    return DDL + (", part STRING" if partitions else "")


def add_json(folder: Path, first: int, count: int, rows: int) -> None:
    """Add files from number ``first`` on, of ``rows`` rows each: one file becomes one micro-batch.
    Files that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        if (folder / f"{number:06}.json").exists():
            continue
        chance = random.Random(number)
        lines = [json.dumps(_row(number * rows + i, chance)) for i in range(rows)]
        hidden = folder / f".{number:06}.json"
        hidden.write_text("\n".join(lines) + "\n")
        hidden.rename(folder / f"{number:06}.json")


def json_stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(folder))


def parquet_stream(spark: SparkSession, folder: str, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).parquet(folder)


def _row(number: int, chance: random.Random) -> dict:
    return {
        "id": number,
        "customer": chance.randrange(100_000),
        "price": chance.random() * 1000,
        "discount": number % 20 / 100,
        "at": f"2024-05-{number // 86400 % 28 + 1:02}T"
        f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "status": STATUS[number % 5],
        "city": f"city-{chance.randrange(1000)}",
        "note": f"{chance.getrandbits(128):032x}",
    }
