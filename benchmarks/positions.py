"""What it costs to prove each row's position columns, and to filter over many recorded partitions:
with and without, in turns."""

import shutil
import statistics
import time
from collections import defaultdict
from pathlib import Path

from benchmarks import data
from benchmarks.data import Sizes
from benchmarks.machine import in_turns, load, measured, slug, spread
from benchmarks.report import Table, at_most
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.spark.query.foreach_batch import BatchFunction
from streamsink.spark.query.spark_sink import SparkSink
from streamsink.spark.rows.position_check import PositionCheck
from streamsink.spark.rows.position_columns import recorded

_COLUMNS = ("topic", "partition", "offset")
_WITH, _WITHOUT = "with position_columns", "without"
_LARGE = {
    "tasks": {"driver_max_rows": 0, "large_batches": "tasks"},
    "Spark's own writer": {"driver_max_rows": 0, "large_batches": "spark"},
}
_PARTITIONS, _TASKS = 3, 3
_RECORDED = (3, 3_000)
_MOST_SHARE, _MOST_MS, _MOST_PLAN_MS = 1.01, 1.0, 1_000


def positions(spark, folder: Path, sizes: Sizes) -> list:
    """Micro-batches on the driver, large batches in both other ways, and the filter of an overlap."""
    return [*_micro(spark, folder, sizes), *_large(spark, folder, sizes), *_filter(spark, sizes)]


def _positions_of(partitions: int) -> tuple[str, ...]:
    """Position columns like Kafka's, for rows that are numbered by ``id``."""
    return ("'orders' AS topic", f"CAST(id % {partitions} AS INT) AS partition", f"id DIV {partitions} AS offset")


def _sink(table: str, way: str, **options) -> BatchFunction:
    given = {**options, **({"position_columns": _COLUMNS} if way == _WITH else {})}
    return BatchFunction(SparkSink(PaimonTable(table), SinkOptions.of(table, given)), lambda event: None)


def _batch(number: int, start: int, end: int) -> Batch:
    """A batch like one of Kafka's, with ``start`` and ``end`` in each partition."""
    first, last = ({"orders": {str(part): offset for part in range(_PARTITIONS)}} for offset in (start, end))
    return Batch(number, "benchmark", "benchmark", (SourceRange(first, last),))


def _micro(spark, folder: Path, sizes: Sizes) -> list:
    each = sizes.batch_rows // _PARTITIONS + 1
    took = defaultdict(list)

    def measure(way: str, number: int) -> None:
        table = str(folder / f"positions-micro-{slug(way)}-{number}")
        sink = _sink(table, way)
        for batch_id in range(sizes.micro_batches):
            first = batch_id * each * _PARTITIONS
            rows = spark.range(first, first + each * _PARTITIONS, 1, _TASKS).selectExpr(
                "id", "CAST(id AS STRING) name", *_positions_of(_PARTITIONS)
            )
            given = rows if way == _WITH else rows.drop(*_COLUMNS)
            begun = time.perf_counter()
            sink._micro_batch(given, _batch(batch_id, batch_id * each, (batch_id + 1) * each))
            if batch_id:
                took[way].append((time.perf_counter() - begun) * 1000)
        sink.close()
        shutil.rmtree(table)

    in_turns(sizes.micro_rounds, (_WITHOUT, _WITH), measure)
    rows = [[way, spread(values, 1), f"{min(values):.1f}"] for way, values in took.items()]
    alone = _alone(spark, each, sizes.replays * 10)
    rows.append(["the proof alone, CPU of the driver's Python", spread(alone, 2), f"{min(alone):.2f}"])
    note = (
        f"ms, median [min..max]. {each * _PARTITIONS} rows of {_TASKS} tasks, without Spark's stream around them. "
        f"Load {load()}."
    )
    table = Table("Position columns of a micro-batch, on the driver", ("", "ms", "least"), rows, note)
    return [
        table,
        at_most(
            "proving the positions of a micro-batch, median of the proof alone",
            statistics.median(alone),
            _MOST_MS,
            "{:.2f} ms",
        ),
    ]


class _Nothing:
    """A writer that takes rows and does nothing with them."""

    def open(self, file_io) -> "_Nothing":
        return self

    def write(self, batch) -> None:
        return

    def close(self, group) -> list:
        return []


def _alone(spark, each: int, times: int) -> list[float]:
    """Milliseconds of this thread's processor time for everything that a batch does in addition: ranges, types, the
    columns of each piece, the sum."""
    rows = spark.range(0, each * _PARTITIONS, 1, _TASKS).selectExpr(
        "id", "CAST(id AS STRING) name", *_positions_of(_PARTITIONS)
    )
    pieces = rows.toArrow().to_batches()
    options, batch, took = SinkOptions(position_columns=_COLUMNS), _batch(0, 0, each), []
    for _ in range(times):
        begun = time.thread_time()
        check = PositionCheck("table", batch, options, rows)
        writer = check.comparing(_Nothing()).open(None)
        for piece in pieces:
            writer.write(piece)
        check.settle(writer.close(None))
        took.append((time.thread_time() - begun) * 1000)
    return took[times // 10 :]


def _large(spark, folder: Path, sizes: Sizes) -> list:
    source = str(folder / "positions-input")
    spark.read.parquet(data.large(spark, folder, sizes.large_rows)).selectExpr(
        "*", *_positions_of(_PARTITIONS)
    ).write.parquet(source)
    end = sizes.large_rows // _PARTITIONS + 1
    cpu, wall = defaultdict(list), defaultdict(list)
    ways = [f"{way}, {what}" for way in _LARGE for what in (_WITHOUT, _WITH)]

    def measure(name: str, number: int) -> None:
        way, what = name.split(", ")
        table = str(folder / f"positions-large-{slug(name)}-{number}")
        # A source of messages makes the columns whether they are asked for or not.
        rows = spark.read.parquet(source).where("topic <> '' AND partition >= 0 AND offset >= 0")
        sink = _sink(table, what, **_LARGE[way])
        given = rows if what == _WITH else rows.drop(*_COLUMNS)
        with measured() as cost:
            sink._micro_batch(given, _batch(0, 0, end))
        sink.close()
        shutil.rmtree(table)
        cpu[name].append(cost.cpu_s)
        wall[name].append(cost.wall_s)

    in_turns(sizes.rounds + 1, ways, measure)
    rows = [[name, spread(cpu[name], 2), spread(wall[name], 2)] for name in ways]
    note = (
        f"Seconds, median [min..max]: processor time of all processes, and on the clock. {sizes.large_rows:,} "
        f"rows. Load {load()}."
    )
    table = Table("Position columns of a large batch", ("", "CPU s", "s"), rows, note)
    goals = [
        at_most(
            f"proving the positions of a large batch, {way}: CPU, least against least",
            min(cpu[f"{way}, {_WITH}"]) / min(cpu[f"{way}, {_WITHOUT}"]),
            _MOST_SHARE,
        )
        for way in _LARGE
    ]
    return [table, *goals]


def _filter(spark, sizes: Sizes) -> list:
    plans, cpu = defaultdict(list), defaultdict(list)

    def measure(way: str, number: int) -> None:
        count = int(way)
        below = {"orders": {str(part): 10 for part in range(count)}}
        end = {"orders": {str(part): sizes.large_rows for part in range(count)}}
        rows = spark.range(0, sizes.large_rows, 1, _TASKS).selectExpr("id", *_positions_of(count))
        batch = Batch(0, "query", "run", (SourceRange(None, end),))
        options = SinkOptions(position_columns=_COLUMNS)
        begun = time.perf_counter()
        kept = rows.where(
            f"NOT {recorded('table', _COLUMNS, below)} OR {PositionCheck('table', batch, options, rows).sql}"
        )
        kept._jdf.queryExecution().executedPlan()
        plans[way].append((time.perf_counter() - begun) * 1000)
        with measured() as cost:
            kept.write.format("noop").mode("overwrite").save()
        cpu[way].append(cost.cpu_s / sizes.large_rows * 1e9)

    ways = [str(count) for count in _RECORDED]
    in_turns(sizes.rounds + 2, ways, measure)
    rows = [[f"{int(way):,}", spread(plans[way]), spread(cpu[way])] for way in ways]
    note = f"median [min..max]; the rows are made and filtered, and written nowhere. Load {load()}."
    table = Table("An overlap over recorded partitions", ("partitions", "planning, ms", "a row, ns of CPU"), rows, note)
    few, many = ways
    return [
        table,
        at_most("planning a filter over 3,000 recorded partitions", min(plans[many]), _MOST_PLAN_MS, "{:.0f} ms"),
        at_most("a row's filter over 3,000 recorded partitions against 3, CPU", min(cpu[many]) / min(cpu[few]), 1.2),
    ]
