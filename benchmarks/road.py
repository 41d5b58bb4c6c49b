"""The large batch's road through Arrow, stage by stage and lever by lever;
and Spark's own writer, whose files are adopted."""

import json
import os
import shutil
import statistics
from collections import defaultdict
from pathlib import Path

from benchmarks import data, stages
from benchmarks.machine import in_turns, load, measured, spread
from benchmarks.report import Table
from benchmarks.stages import Variant
from benchmarks.ways import ZSTD
from streamsink.options import SinkOptions
from streamsink.spark import worker_daemon
from streamsink.spark.rows.parquet_job import ParquetJob
from streamsink.spark.types import to_fields
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import new_schema
from streamsink.table.write.spec import WriteSpec

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NOOP, _SPARK, _ADOPT = (
    "noop",
    "Spark's writer (zstd), df.write.parquet",
    "Spark's writer, its files adopted (the sink's way)",
)
_NUMBERS, _STRINGS = ("id", "customer", "price", "discount", "at"), ("status", "city", "note")
STAGES = (
    Variant("hand-over only (count)", "count"),
    Variant("hand-over of the five numbers", "count", columns=_NUMBERS),
    Variant("hand-over of the three strings", "count", columns=_STRINGS),
    Variant("+ conform and route", "conform"),
    Variant("+ statistics", "statistics"),
    Variant("+ Parquet encoding, file written", flush=False),
    Variant("all, flushed"),
)
# The rows of one file are as many as its task has.
_NO_END = 0
_SPARKS_DAEMON = "pyspark.daemon"
_AS_IS = Variant("as it is")
LEVERS = (
    _AS_IS,
    Variant("50,000 rows an Arrow batch", conf=((_ROWS, "50000"),)),
    Variant("2,500 rows an Arrow batch", conf=((_ROWS, "2500"),)),
    Variant("encoding in a second thread", thread=True),
    Variant("no statistics for the manifest", keep_statistics=False),
    Variant("no statistics in Parquet", writer=(("write_statistics", False),)),
    Variant("dictionary for all columns", writer=(("use_dictionary", True),)),
    Variant("dictionary for none", writer=(("use_dictionary", False),)),
    Variant("row groups of 16 MB", row_group_bytes=16 * 2**20),
    Variant("row groups of 128 MB", row_group_bytes=128 * 2**20),
    Variant("pages of 4 MB", writer=(("data_page_size", 4 * 2**20),)),
    Variant("write_batch_size 16,384", writer=(("write_batch_size", 16_384),)),
    Variant("snappy", writer=(("compression", "snappy"), ("compression_level", None))),
    Variant("lz4", writer=(("compression", "lz4"), ("compression_level", None))),
    Variant("no compression", writer=(("compression", "none"), ("compression_level", None))),
)


class _Road:
    """Runs the variants over one input, in turns."""

    def __init__(self, spark, folder: Path, rows: int):
        self._spark = spark
        self._source = data.large(spark, folder, rows)
        self._staging = folder / "road"
        self.wall, self.cpu, self.python, self.parts = (defaultdict(list) for _ in range(4))
        for variant in (Variant(_SPARK), STAGES[-1]):
            self.run(variant, counted=False)

    def run(self, variant: Variant, counted: bool = True) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        frame = self._spark.read.schema(data.DDL).parquet(self._source)
        with measured() as cost:
            results = self._action(variant, frame)
        if not counted:
            return
        self.wall[variant.name].append(cost.wall_s)
        self.cpu[variant.name].append(cost.cpu_s)
        self.python[variant.name].append(cost.python_s)
        total = defaultdict(float)
        for result in results:
            for part, seconds in json.loads(result)["times"].items():
                total[part] += seconds
        for part, seconds in total.items():
            self.parts[part].append(seconds)

    def _action(self, variant: Variant, frame) -> list[str]:
        if variant.name == _NOOP:
            frame.write.format("noop").mode("append").save()
            return []
        if variant.name == _SPARK:
            frame.write.options(**ZSTD).parquet(str(self._staging))
            return []
        if variant.name == _ADOPT:
            os.makedirs(self._staging)
            job = ParquetJob(_spec(frame, self._staging).schema(), str(self._staging), _NO_END)
            job.write(frame, local_file_io(), check=None)  # Without position columns it asks nobody.
            return []
        os.makedirs(self._staging)
        if variant.columns:
            frame = frame.select(*variant.columns)
        for key, value in variant.conf:
            self._spark.conf.set(key, value)
        try:
            rows = frame.mapInArrow(stages.task(variant, _spec(frame, self._staging)), stages.RESULT).collect()
        finally:
            for key, _ in variant.conf:
                self._spark.conf.unset(key)
        return [row.result for row in rows]

    def row(self, name: str, base: str) -> list[str]:
        def against(values) -> str:
            return f"{statistics.median(values[name]) / statistics.median(values[base]):.2f}"

        return [
            name,
            spread(self.wall[name], 2),
            spread(self.cpu[name], 1),
            f"{statistics.median(self.python[name]):.1f}",
            against(self.wall),
            against(self.cpu),
        ]


def road(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """The road stage by stage; then what Python's part of the processor time is."""
    ways = _Road(spark, folder, sizes.road_rows)
    steps = {variant.name: variant for variant in (Variant(_NOOP), Variant(_SPARK), Variant(_ADOPT), *STAGES)}
    in_turns(sizes.rounds, tuple(steps), lambda name, _: ways.run(steps[name]))
    head = ("step", "wall s", "CPU s", "of it Python", "time against Spark's writer", "CPU against")
    rows = [ways.row(name, _SPARK) for name in steps]
    note = f"{sizes.road_rows:,} rows, batch jobs, median [min..max] of {sizes.rounds}. Load {load()}."
    parts = [[part, spread(values, 2)] for part, values in ways.parts.items()]
    return [
        Table("Where a large batch's time goes (tasks)", head, rows, note),
        Table(
            "Processor seconds inside the Python workers, of those steps that have the part", ("part", "CPU s"), parts
        ),
    ]


def levers(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """Each lever alone, against the writer as it is."""
    ways = _Road(spark, folder, sizes.road_rows)
    by_name = {variant.name: variant for variant in LEVERS}
    in_turns(sizes.rounds, tuple(by_name), lambda name, _: ways.run(by_name[name]))
    head = ("lever", "wall s", "CPU s", "of it Python", "time against as it is", "CPU against")
    note = f"{sizes.road_rows:,} rows, median [min..max] of {sizes.rounds}. Load {load()}."
    return [Table("Levers of the large batch", head, [ways.row(name, _AS_IS.name) for name in by_name], note)]


def worker(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """A Python task of 1,000 rows under Spark's own daemon,
    under the same with our tasks' cleaning, and under our daemon."""
    frame = spark.read.schema(data.DDL).parquet(data.large(spark, folder, sizes.road_rows)).limit(1000).coalesce(1)
    kept = spark.createDataFrame(frame.toArrow()).coalesce(1)
    ways = {
        "noop": (worker_daemon.MODULE, lambda: kept.write.format("noop").mode("append").save()),
        "mapInArrow, Spark's daemon": (_SPARKS_DAEMON, lambda: kept.mapInArrow(stages.count, stages.RESULT).collect()),
        "mapInArrow, Spark's daemon, zip importers out of the cache": (
            _SPARKS_DAEMON,
            lambda: kept.mapInArrow(stages.lean(stages.count), stages.RESULT).collect(),
        ),
        "mapInArrow, our daemon": (
            worker_daemon.MODULE,
            lambda: kept.mapInArrow(stages.count, stages.RESULT).collect(),
        ),
    }
    took, cpu = defaultdict(list), defaultdict(list)
    environment, conf = spark.sparkContext.environment, spark._jvm.org.apache.spark.SparkEnv.get().conf()

    def measure(way: str, number: int) -> None:
        daemon, action = ways[way]
        conf.set("spark.python.daemon.module", daemon)
        environment["STREAMSINK_BENCHMARK"] = way  # It has a daemon and workers of its own.
        action()  # What is left in a worker helps its next task.
        with measured() as cost:
            for _ in range(sizes.replays):
                action()
        took[way].append(cost.wall_s * 1000 / sizes.replays)
        cpu[way].append(cost.cpu_s * 1000 / sizes.replays)

    in_turns(sizes.rounds, tuple(ways), measure)
    del environment["STREAMSINK_BENCHMARK"]
    conf.set("spark.python.daemon.module", worker_daemon.MODULE)
    rows = [[way, spread(took[way]), spread(cpu[way])] for way in ways]
    note = f"Mean of {sizes.replays} jobs, median [min..max] of {sizes.rounds} rounds. Load {load()}."
    return [Table("One small Python task", ("job", "wall ms", "CPU ms"), rows, note)]


def _spec(frame, staging: Path) -> WriteSpec:
    options = SinkOptions()
    schema = new_schema(to_fields(frame.schema), (), {})
    return WriteSpec(
        str(staging), schema.to_json(), options.target_file_bytes, options.max_open_writers, options.writer_memory_bytes
    )
