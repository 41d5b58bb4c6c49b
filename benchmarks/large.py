"""One large batch, and one of many partitions."""

import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data, peers
from benchmarks.machine import files_and_bytes, in_turns, load, measured, slug, spread
from benchmarks.report import Bar, Table, at_least, at_most
from benchmarks.ways import NOOP, OURS, OURS_SNAPPY, RIVALS, SNAPPY, SPARK, WRITER, Ways, ended

WAYS = (
    NOOP,
    SNAPPY,
    SPARK,
    peers.ICEBERG,
    peers.ICEBERG_EQUAL,
    peers.DELTA,
    peers.DELTA_EQUAL,
    OURS,
    OURS_SNAPPY,
    WRITER,
)
PARTITIONED_WAYS = (NOOP, SPARK, peers.ICEBERG_EQUAL, OURS)
# Iceberg keeps a file open for each partition: with 3 GB of heap its writers run out of memory at 1,000 partitions, and
# the session ends.
_MOST_ICEBERG_PARTITIONS = 100
# The first round, which is not counted, writes so many rows.
_WARM_UP_ROWS = 500_000


@dataclass(frozen=True)
class _Input:
    """``partitions``: how many values the partition column has, 0 for no such column."""

    rows: int
    rounds: int
    partitions: int = 0

    def stream(self, spark, folder: Path, rows: int):
        source = data.large(spark, folder, rows, self.partitions)
        return data.parquet_stream(spark, source, data.ddl(self.partitions))


@dataclass
class _Seen:
    """For each sink one value a round."""

    trigger_s: dict[str, list[float]]
    add_s: dict[str, list[float]]
    cpu_s: dict[str, list[float]]
    python_s: dict[str, list[float]]
    output: dict[str, tuple[str, str]]

    def ratio(self, values: dict[str, list[float]], way: str, base: str) -> float:
        return statistics.median(values[way]) / statistics.median(values[base])


def large(spark, folder: Path, sizes: data.Sizes) -> list:
    """5,000,000 rows of 8 columns in one batch."""
    given = _Input(sizes.large_rows, sizes.more_rounds)
    title = f"One batch of {given.rows:,} rows x 8 columns, from Parquet"
    seen = _compare(spark, folder, given, WAYS, sizes)
    best = min((way for way in RIVALS if way in seen.trigger_s), key=lambda way: statistics.median(seen.trigger_s[way]))
    goals = [
        at_least(
            f"one batch of {given.rows:,} rows: rows/s against the best of the others",
            1 / seen.ratio(seen.trigger_s, OURS, best),
            1.0,
        ),
        at_most(
            f"one batch of {given.rows:,} rows: processor time against Spark's own (zstd)",
            seen.ratio(seen.cpu_s, OURS, SPARK),
            1.1,
        ),
    ]
    return [_table(title, seen, given), *goals, *_bars(f"one batch of {given.rows:,} rows", seen, given)]


def partitioned(spark, folder: Path, sizes: data.Sizes) -> list:
    """2,000,000 rows in no order over 64 and over 1,000 partitions: ours keeps files open, Spark's sorts."""
    found = []
    for partitions in sizes.partitions:
        given = _Input(sizes.partitioned_rows, sizes.rounds, partitions)
        what = f"{given.rows:,} unsorted rows over {partitions:,} partitions"
        names = tuple(
            way for way in PARTITIONED_WAYS if way != peers.ICEBERG_EQUAL or partitions <= _MOST_ICEBERG_PARTITIONS
        )
        seen = _compare(spark, folder, given, names, sizes)
        found += [
            _table(f"One batch of {what}", seen, given),
            at_least(
                f"{what}: rows/s against Spark's partitionBy (zstd)", 1 / seen.ratio(seen.trigger_s, OURS, SPARK), 1.0
            ),
            *_bars(what, seen, given),
        ]
    return found


def _compare(spark, folder: Path, given: _Input, names: tuple[str, ...], sizes: data.Sizes) -> _Seen:
    sinks = Ways(spark, ("part",) if given.partitions else (), sizes.more_sinks)
    ways = sinks.among(*names)
    # They keep the order of the ways, whichever ran first.
    seen = _Seen(*({way: [] for way in ways} for _ in range(4)), {})

    def measure(way: str, number: int) -> None:
        # Each has a place of its own, because Delta remembers tables by path.
        at = folder / f"large-{given.partitions}-{number}" / slug(way)
        stream = given.stream(spark, folder, given.rows if number else min(given.rows, _WARM_UP_ROWS))
        spark._jvm.System.gc()  # This sink does not have to clear away what the one before has left.
        with measured() as cost:
            took = ended(sinks.start(way, stream, at))
        if number:
            seen.trigger_s[way].append(took[0]["triggerExecution"] / 1000)
            seen.add_s[way].append(took[0]["addBatch"] / 1000)
            seen.cpu_s[way].append(cost.cpu_s)
            seen.python_s[way].append(cost.python_s)
            seen.output[way] = files_and_bytes(at / "out")
        shutil.rmtree(at.parent, ignore_errors=True)

    in_turns(given.rounds + 1, ways, measure)
    return seen


def _table(title: str, seen: _Seen, given: _Input) -> Table:
    rows = [
        [
            way,
            spread([given.rows / s / 1000 for s in took]),
            spread(took, 2),
            spread(seen.add_s[way], 2),
            spread(seen.cpu_s[way], 1),
            f"{statistics.median(seen.python_s[way]):.1f}",
            *seen.output[way],
            f"{seen.ratio(seen.trigger_s, way, SPARK):.2f}",
            f"{seen.ratio(seen.cpu_s, way, SPARK):.2f}",
        ]
        for way, took in seen.trigger_s.items()
    ]
    head = (
        "sink",
        "1000 rows/s",
        "trigger s",
        "addBatch s",
        "CPU s",
        "of it Python",
        "files",
        "MB",
        "time against Spark's (zstd)",
        "CPU against",
    )
    return Table(title, head, rows, f"Median [min..max] of {given.rounds} rounds. Load {load()}.")


def _bars(what: str, seen: _Seen, given: _Input) -> list[Bar]:
    shown = [way for way in seen.trigger_s if way != NOOP]
    speed = [
        Bar(f"{what}: 1000 rows/s (more is better)", way, [given.rows / s / 1000 for s in seen.trigger_s[way]])
        for way in shown
    ]
    return speed + [Bar(f"{what}: processor seconds (less is better)", way, seen.cpu_s[way]) for way in shown]
