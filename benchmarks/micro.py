"""Micro-batches of 1,000 rows, a replayed batch, and where the driver's time goes."""

import cProfile
import pstats
import statistics
import time
from collections import defaultdict
from pathlib import Path
from types import FunctionType

import streamsink
from benchmarks import data, floor, peers
from benchmarks.machine import files_and_bytes, in_turns, load, measured, slug, spread
from benchmarks.report import Bar, Goal, Table, at_most
from benchmarks.ways import ASYNC, NAIVE, NOOP, NOTHING, OURS, RIVALS, SNAPPY, SPARK, TASKS, UNFLUSHED, Ways, ended
from streamsink.events import BatchSkipped
from streamsink.journal.file_journal import FileJournal
from streamsink.protocol.run.two_phase import TwoPhaseCommit
from streamsink.sinks.paimon.committer import PaimonCommitter
from streamsink.sinks.paimon.opened import OpenTable
from streamsink.spark.gateway import running
from streamsink.spark.gateway.collecting import Collecting
from streamsink.spark.query.foreach_batch import BatchFunction
from streamsink.spark.rows import write_ways
from streamsink.table.write.writer import TableWriter

WAYS = (
    NOOP,
    NOTHING,
    floor.COLLECTED,
    floor.FLOOR,
    SNAPPY,
    SPARK,
    NAIVE,
    peers.ICEBERG,
    peers.ICEBERG_EQUAL,
    peers.DELTA_EQUAL,
    OURS,
    ASYNC,
    UNFLUSHED,
    TASKS,
)
# The first batches of a query's start compile and restore: they are run and not counted. Neither is a whole round
# before all others.
WARM_UP = 2


def micro(spark, folder: Path, sizes: data.Sizes) -> list:
    """The time of a trigger, as the query's own progress says.
    Each sink has one query, which is continued in every round."""
    sinks, source = Ways(spark, more=sizes.more_sinks), folder / "micro-in"
    ways = sinks.among(*WAYS)
    trigger, add, cpu, medians = (defaultdict(list) for _ in range(4))
    each = sizes.micro_batches + WARM_UP

    def measure(way: str, number: int) -> None:
        data.add_json(source, number * each, each, sizes.batch_rows)
        with measured() as cost:
            done = ended(sinks.start(way, data.json_stream(spark, source), folder / "micro" / slug(way)))
        if number == 0:
            return
        trigger[way] += [took["triggerExecution"] for took in done[WARM_UP:]]
        medians[way].append(statistics.median(trigger[way][-len(done) + WARM_UP :]))
        add[way] += [took["addBatch"] for took in done[WARM_UP:]]
        cpu[way].append(cost.cpu_s * 1000 / len(done))

    in_turns(sizes.micro_rounds + 1, ways, measure)
    over = {way: [mine - noop for mine, noop in zip(medians[way], medians[NOOP])] for way in ways}
    base = statistics.median(trigger[SPARK])
    rows = [
        [
            way,
            spread(trigger[way]),
            spread(add[way]),
            spread(over[way]),
            spread(cpu[way]),
            f"{statistics.median(trigger[way]) / base:.2f}",
            *files_and_bytes(folder / "micro" / slug(way) / "out"),
        ]
        for way in ways
    ]
    head = (
        "sink",
        "trigger ms",
        "addBatch ms",
        "ms over noop, by round",
        "CPU ms a batch",
        "against Spark's (zstd)",
        "files",
        "MB",
    )
    title = f"{len(trigger[NOOP])} micro-batches of {sizes.batch_rows:,} rows, JSON files, one file a trigger"
    least = " and ".join(f"{_overhead(took, floor.FLOOR) / _best(took):.2f}x" for took in (trigger, add))
    note = (
        "Median [min..max]; CPU by round, all processes, start of the query included. Over noop, the one that flushes "
        f"three files takes {least} of the best of the others, by trigger and addBatch. Load {load()}."
    )
    chart = f"micro-batch of {sizes.batch_rows:,} rows: ms over noop (less is better)"
    bars = [Bar(chart, way, over[way]) for way in ways if way != NOOP]
    return [Table(title, head, rows, note), *_goals(trigger, add), *bars]


def _goals(trigger: dict[str, list[float]], add: dict[str, list[float]]) -> list[Goal]:
    """Goals from the medians of all batches. Our side flushes everything, the others nothing.
    ``addBatch`` is the sink's part of a trigger."""
    what = "micro-batches, flushed: time over noop against the best of the others"
    return [
        at_most(f"{what}; by {by}{way.removeprefix(OURS)}", _overhead(took, way) / _best(took), 0.3)
        for way in (OURS, ASYNC)
        for by, took in (("trigger", trigger), ("addBatch", add))
    ]


def _best(took: dict[str, list[float]]) -> float:
    return min(_overhead(took, way) for way in RIVALS if way in took)


def _overhead(took: dict[str, list[float]], way: str) -> float:
    return statistics.median(took[way]) - statistics.median(took[NOOP])


def replay(spark, folder: Path, sizes: data.Sizes) -> list:
    """Spark forgets that the last batch was committed and runs it again:
    our time, and the Spark jobs that we started."""
    source, at = folder / "replay-in", folder / "replay"
    data.add_json(source, 0, 3, sizes.batch_rows)
    seen, calls, jobs = [], [], []
    sink = streamsink.to_table(str(at / "out"), seen.append)
    tracker = spark.sparkContext.statusTracker()

    def timed(batch, number: int) -> None:
        group = batch.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        before, begun = len(tracker.getJobIdsForGroup(group)), time.perf_counter()
        sink(batch, number)
        calls.append((time.perf_counter() - begun) * 1000)
        jobs.append(len(tracker.getJobIdsForGroup(group)) - before)

    def run() -> None:
        stream = data.json_stream(spark, source).writeStream.foreachBatch(timed)
        ended(stream.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start())

    run()
    calls.clear(), jobs.clear()
    for _ in range(sizes.replays):
        for name in ("2", ".2.crc"):
            (at / "checkpoint" / "commits" / name).unlink(missing_ok=True)
        run()
    skipped = sum(isinstance(event, BatchSkipped) for event in seen)
    if skipped != sizes.replays:
        raise SystemExit(f"{skipped} of {sizes.replays} replays were recognised")
    rows = [["after a restart: open the table, claim, restore, recognise, skip", spread(calls, 1), str(max(jobs))]]
    title = f"A replayed batch, {len(calls)} times"
    goals = [
        at_most("a replayed batch after a restart, our time", statistics.median(calls), 50, "{:.0f} ms"),
        at_most("a replayed batch, Spark jobs", max(jobs), 0, "{}"),
    ]
    return [Table(title, ("", "ms of our time", "Spark jobs"), rows, f"Load {load()}."), *goals]


# (what, functions): the cumulative time of each, none inside another.
_PARTS: tuple[tuple[str, tuple[FunctionType, ...]], ...] = (
    ("what Spark says of the batch: ids, offsets, watermark", (running.describe, running.run_id)),
    ("open, claim, restore (once)", (BatchFunction._restored,)),
    ("admit: newest snapshot, owner", (TwoPhaseCommit.admit,)),
    ("schema of the batch, and whether it fits (while the job runs)", (OpenTable.writing,)),
    ("which way: Spark's estimate", (write_ways.is_small,)),
    ("waiting for the rows: Spark's own work, the same job as noop's", (Collecting.rows,)),
    ("data file: conform, stats, encode", (TableWriter.write, TableWriter.close)),
    ("manifest, staged", (OpenTable.stage,)),
    ("pre-commit: the journal's record; all of it flushed", (TwoPhaseCommit.pre_commit,)),
    ("commit: place, lists, snapshot, publish", (PaimonCommitter.publish,)),
    ("mark published, forget staging", (FileJournal.mark_published, FileJournal.forget)),
)


def inside(spark, folder: Path, sizes: data.Sizes) -> list[Table]:
    """A cProfile of our function over the batches; fsync is listed by itself."""
    source, at = folder / "inside-in", folder / "inside"
    count = sizes.micro_batches * sizes.micro_rounds
    data.add_json(source, 0, count + WARM_UP, sizes.batch_rows)
    profile, walls = cProfile.Profile(), []
    sink = streamsink.to_table(str(at / "out"), lambda event: None)

    def profiled(batch, number: int) -> None:
        if number < WARM_UP:
            return sink(batch, number)
        begun = time.perf_counter()
        profile.runcall(sink, batch, number)
        walls.append((time.perf_counter() - begun) * 1000)

    stream = data.json_stream(spark, source).writeStream.foreachBatch(profiled)
    took = ended(stream.option("checkpointLocation", str(at / "checkpoint")).trigger(availableNow=True).start())[
        WARM_UP:
    ]
    stats = pstats.Stats(profile).stats
    number = len(walls)
    rows = [
        [what, f"{sum(_cumulative(stats, function) for function in functions) * 1000 / number:.1f}", ""]
        for what, functions in _PARTS
    ]
    syncs = [value for (_, _, name), value in stats.items() if "posix.fsync" in name]
    asked = [
        value
        for (path, _, name), value in stats.items()
        if name == "send_command" and path.endswith("/clientserver.py")
    ]
    rows += [
        ["**our function, in all**", f"**{statistics.mean(walls):.1f}**", f"median {statistics.median(walls):.1f}"],
        [
            "of it fsync, wherever it is called",
            f"{sum(v[2] for v in syncs) * 1000 / number:.1f}",
            f"{sum(v[0] for v in syncs) / number:.0f} calls a batch",
        ],
        [
            "of it waiting for the JVM (py4j), collecting's among it",
            f"{sum(v[3] for v in asked) * 1000 / number:.1f}",
            f"{sum(v[0] for v in asked) / number:.0f} calls a batch",
        ],
        [
            "the whole trigger",
            f"{statistics.mean(t['triggerExecution'] for t in took):.1f}",
            f"median {statistics.median(t['triggerExecution'] for t in took):.1f}",
        ],
    ]
    note = f"Mean of {number} batches under cProfile, which makes Python look dearer than it is. Load {load()}."
    return [Table("Where a micro-batch's time goes (driver's way)", ("part", "ms a batch", ""), rows, note)]


def _cumulative(stats: dict, function: FunctionType) -> float:
    """Seconds in this function and in what it called; 0.0 when it never ran while the profile was taken."""
    code = function.__code__
    return stats.get((code.co_filename, code.co_firstlineno, code.co_name), [0.0] * 4)[3]
