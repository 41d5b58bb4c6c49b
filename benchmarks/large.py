"""One large batch, and one of many partitions."""

import shutil
import statistics
from collections import defaultdict
from pathlib import Path

from benchmarks import data
from benchmarks.machine import in_turns, load, measured, spread
from benchmarks.report import Table
from benchmarks.ways import Ways, ended

_SNAPPY, _ZSTD = "Spark parquet sink (snappy, its default)", "Spark parquet sink (zstd)"
WAYS = ("noop", _SNAPPY, _ZSTD, "streamsink", "streamsink (snappy)")
PARTITIONED_WAYS = ("noop", _ZSTD, "streamsink")


def large(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """5,000,000 rows of 8 columns in one batch."""
    source = data.large(spark, folder, sizes.large_rows)
    title = f"One batch of {sizes.large_rows:,} rows x 8 columns, from Parquet"
    return [_compare(spark, folder / "large", (source, data.DDL, ()), WAYS, (title, sizes.large_rows, sizes.rounds))]


def partitioned(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """2,000,000 rows in no order over 64 partitions: ours keeps files open, Spark's sorts."""
    source = data.large(spark, folder, sizes.partitioned_rows, sizes.partitions)
    title = f"One batch of {sizes.partitioned_rows:,} unsorted rows over {sizes.partitions} partitions"
    what = (source, data.ddl(sizes.partitions), ("part",))
    return [_compare(spark, folder / "partitioned", what, PARTITIONED_WAYS, (title, sizes.partitioned_rows, sizes.rounds))]


def _compare(spark, at: Path, what, ways, told) -> Table:
    (source, schema, keys), (title, count, rounds) = what, told
    sinks = Ways(keys)
    trigger, add, cpu, python, size = (defaultdict(list) for _ in range(5))

    def measure(way: str, number: int) -> None:
        shutil.rmtree(at, ignore_errors=True)
        with measured() as cost:
            took = ended(sinks.start(way, data.parquet_stream(spark, source, schema), at))
        if number == 0:
            return  # warms up
        trigger[way].append(took[0]["triggerExecution"] / 1000)
        add[way].append(took[0]["addBatch"] / 1000)
        cpu[way].append(cost.cpu_s)
        python[way].append(cost.python_s)
        size[way].append(sum(p.stat().st_size for p in (at / "out").rglob("*.parquet")))

    in_turns(rounds + 1, ways, measure)
    shutil.rmtree(at, ignore_errors=True)
    base = {name: statistics.median(values[_ZSTD]) for name, values in (("wall", trigger), ("cpu", cpu))}
    rows = [
        [way, spread([count / s / 1000 for s in trigger[way]]), spread(trigger[way], 2), spread(add[way], 2),
         spread(cpu[way], 1), f"{statistics.median(python[way]):.1f}", f"{statistics.median(size[way]) / 1e6:.0f}",
         f"{statistics.median(trigger[way]) / base['wall']:.2f}", f"{statistics.median(cpu[way]) / base['cpu']:.2f}"]
        for way in ways
    ]
    head = ("sink", "1000 rows/s", "trigger s", "addBatch s", "CPU s", "of it Python", "MB", "time against Spark's (zstd)",
            "CPU against")
    return Table(title, head, rows, f"Median [min..max] of {rounds} rounds. Load {load()}.")
