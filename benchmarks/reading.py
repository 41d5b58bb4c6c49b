"""streamsink.read beside spark.read.parquet on the same files."""

import time
from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import streamsink
from benchmarks import data
from benchmarks.machine import in_turns, load, spread
from benchmarks.report import Table
from benchmarks.ways import Ways, ended

_OURS, _FILES, _FOLDER = "streamsink.read", "spark.read.parquet(files)", "spark.read.schema(..).parquet(folder)"


def reading(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """A large table of few files, and a table of many small ones."""
    large = folder / "read-large"
    source = data.large(spark, folder, sizes.large_rows)
    ended(Ways(spark).start("streamsink", data.parquet_stream(spark, source, data.DDL), large))
    small = folder / "read-small"
    pieces = spark.read.schema(data.DDL).parquet(source).limit(sizes.small_files * 100).repartition(sizes.small_files)
    streamsink.write(pieces, str(small / "out"), "benchmark", lambda event: None, driver_max_rows=0)
    rows = []
    for what, root in (("large", large / "out"), ("small files", small / "out")):
        rows += _compare(spark, what, root, sizes.rounds)
    head = ("table", "reader", "DataFrame and physical plan ms", "count ms", "sums of two columns ms")
    return [
        Table(
            "Reading the newest snapshot",
            head,
            rows,
            f"Median [min..max] of {sizes.rounds} rounds, paired. Load {load()}.",
        )
    ]


def _compare(spark, what: str, root: Path, rounds: int) -> list[list[str]]:
    files = sorted(str(path) for path in root.rglob("data-*.parquet") if "/streamsink/" not in str(path))
    frames = {
        _OURS: lambda: streamsink.read(spark, str(root)),
        _FILES: lambda: spark.read.parquet(*files),
        _FOLDER: lambda: spark.read.schema(data.DDL).parquet(str(root / "bucket-0")),
    }
    plan, count, total = defaultdict(list), defaultdict(list), defaultdict(list)

    def measure(way: str, number: int) -> None:
        plan_ms, frame = _timed(lambda: _planned(frames[way]()))
        count_ms, _ = _timed(frame.count)
        total_ms, _ = _timed(lambda: frame.agg(F.sum("price"), F.sum("customer")).collect())
        if number:  # The first round warms up.
            plan[way].append(plan_ms), count[way].append(count_ms), total[way].append(total_ms)

    in_turns(rounds + 1, tuple(frames), measure)
    return [
        [f"{what}, {len(files)} files", way, spread(plan[way]), spread(count[way]), spread(total[way])]
        for way in frames
    ]


def _planned(frame: DataFrame) -> DataFrame:
    frame._jdf.queryExecution().executedPlan()
    return frame


def _timed(action):
    begun = time.perf_counter()
    result = action()
    return (time.perf_counter() - begun) * 1000, result
