"""Compaction beside a live stream, by streamsink and by other formats: failures, conflicts, lost work, triggers, files.

Another writer takes out a partition now and then, so each compaction loses files that it is about to replace.
"""

import contextlib
import statistics
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import data
from benchmarks.compaction.ways import PART, Rewritten, Way, ways
from benchmarks.machine import in_turns, load, slug, spread
from benchmarks.report import Table

# The first batches of a start compile and restore: they are run and not counted.
_WARM_UP = 5
_PARTITIONS, _ROWS, _READS, _CAUSES = 4, 4_000, 3, 3
# Pauses between two calls of a compaction, and between two deletions; how often the stream is looked at.
_PAUSE_S, _DELETE_S, _LOOK_S = 1.0, 10.0, 0.5
# A way that is slow gets so many seconds in a round, and fewer batches.
_LONGEST_S, _END_S = 75, 60
_COLUMNS = (
    "value id",
    "pmod(hash(value), 100000) * 1L customer",
    "pmod(xxhash64(value), 1000000007) / 1000000.0D price",
    "timestamp at",
    "element_at(array('new', 'paid', 'packed', 'sent', 'returned'), cast(value % 5 as int) + 1) status",
    "md5(cast(value as string)) note",
    f"concat('p-', value % {_PARTITIONS}) {PART}",
)


@dataclass
class _Seen:
    """What was seen of one way. calls: those of the compaction beside. wasted_s: seconds of calls that failed.

    stream, failed, refused: errors by class: of the query, of the compaction, and of the deletions.
    """

    trigger: list[float] = field(default_factory=list)
    batches: int = 0
    calls: list[Rewritten] = field(default_factory=list)
    call_s: float = 0.0
    wasted_s: float = 0.0
    deleted: int = 0
    stream: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def rivals(spark: SparkSession, folder: Path, sizes: data.Sizes) -> list[Table]:
    """Each way has one query, which is continued in every round."""
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    known = {way.name: way for way in ways(spark, folder)}
    seen: dict[str, _Seen] = defaultdict(_Seen)
    rounds = sizes.rival_rounds

    def measure(name: str, number: int) -> None:
        _round(spark, folder / "rivals" / slug(name), known[name], seen[name], sizes.rival_batches // rounds)
        print(f"  {_row(spark, folder / 'rivals' / slug(name), known[name], seen[name])}", flush=True)

    in_turns(rounds, tuple(known), measure)
    rows = [_row(spark, folder / "rivals" / slug(name), way, seen[name]) for name, way in known.items()]
    head = ("way", "batches", "trigger ms", "files", "ms to read, Spark", "errors of the stream")
    beside = ("way", "calls", "files replaced", "MB written again", "errors of the compaction", "in vain", "deletions")
    note = f"4 partitions, target size 4 MB; a partition is deleted every {_DELETE_S:.0f} s. Load {load()}."
    return [
        Table(f"Beside a live stream: micro-batches of {_ROWS:,} rows", head, [a for a, _ in rows], note),
        Table("Compaction beside these streams", beside, [b for _, b in rows], _VAIN),
    ]


_VAIN = (
    "In vain: what streamsink's event says; of Delta the files of the disk that no version names; of Iceberg, which "
    "deletes such files, those that are left. In both there are those of the batches that were under way when a round "
    "ended, as beside the plain ways. The share of the time is that of the calls that failed."
)


def _stream(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("numPartitions", 1).option("rowsPerBatch", _ROWS)
    source = source.option("startTimestamp", 1_700_000_000_000).option("advanceMillisPerBatch", 1_000)
    return source.load().selectExpr(*_COLUMNS)


def _round(spark: SparkSession, at: Path, way: Way, seen: _Seen, batches: int) -> None:
    """So many batches, with what is beside them."""
    query = way.start(_stream(spark), at).option("checkpointLocation", str(at / "checkpoint")).start()
    over = threading.Event()
    threads = list[threading.Thread]()
    if way.beside is not None:
        threads.append(threading.Thread(target=_beside, args=(spark, at, way, seen, over)))
    threads.append(threading.Thread(target=_deletions, args=(spark, at, way, seen, over)))
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    while query.isActive and time.monotonic() - begun < _LONGEST_S:
        if len(_done(query)) >= batches + _WARM_UP:
            break
        time.sleep(_LOOK_S)
    over.set()
    for thread in threads:
        thread.join()
    done = _done(query)
    failed = query.exception()
    if failed is not None:
        _count(way, seen.stream, failed)
    with contextlib.suppress(Exception):  # that the measurement is over
        if way.end is not None:
            way.end()
            query.awaitTermination(_END_S)
    with contextlib.suppress(Exception):  # a batch of the others that is under way is given up
        query.stop()
    seen.trigger += [each["triggerExecution"] for each in done[_WARM_UP:]]
    seen.batches += len(done)


def _done(query) -> list[dict]:
    took = [dict(progress["durationMs"]) for progress in query.recentProgress]
    return [durations for durations in took if "addBatch" in durations]


def _beside(spark: SparkSession, at: Path, way: Way, seen: _Seen, over: threading.Event) -> None:
    while way.beside is not None and not over.wait(_PAUSE_S):
        begun = time.monotonic()
        try:
            seen.calls.append(way.beside(spark, at))
        except Exception as failed:  # the outermost edge of this thread: errors are what is counted
            _count(way, seen.failed, failed)
            seen.wasted_s += time.monotonic() - begun
        seen.call_s += time.monotonic() - begun


def _deletions(spark: SparkSession, at: Path, way: Way, seen: _Seen, over: threading.Event) -> None:
    number = 0
    while not over.wait(_DELETE_S):
        try:
            way.delete(spark, at, f"p-{number % _PARTITIONS}")
            seen.deleted += 1
        except Exception as failed:  # the outermost edge of this thread: errors are what is counted
            _count(way, seen.refused, failed)
        number += 1


def _count(way: Way, errors: Counter[str], failed: Exception) -> None:
    """Count it, and say what the first one of its class is."""
    name = _class_of(failed)
    if name not in errors:
        print(f"  {way.name}: {name}: {' '.join(str(failed).split())[:400]}", flush=True)
    errors[name] += 1


def _class_of(failed: Exception) -> str:
    """The Java class where there is one, without its package, and those of its causes; of ours the kind."""
    java = getattr(failed, "_origin", None) or getattr(failed, "java_exception", None)
    if java is None:
        return getattr(failed, "kind", None) or type(failed).__name__
    name = java.getClass().getSimpleName()
    for _ in range(_CAUSES):
        java = java.getCause()
        if java is None:
            break
        name += f" by {java.getClass().getSimpleName()}"
    return name


def _row(spark: SparkSession, at: Path, way: Way, seen: _Seen) -> tuple[list[str], list[str]]:
    took = []
    for _ in range(_READS):
        begun = time.perf_counter()
        way.read(spark, at).selectExpr("sum(id)").collect()
        took.append((time.perf_counter() - begun) * 1000)
    files, _ = way.files(spark, at)
    vain_files, vain_bytes = way.vain(spark, at)
    calls = [*seen.calls, *([way.own(spark, at)] if way.own is not None else [])]
    again = sum(call.bytes for call in calls)
    vain = f"{vain_files} files, {vain_bytes / 1e6:.1f} MB"
    if seen.call_s:
        vain += f"; {seen.wasted_s / seen.call_s:.0%} of the time"
    first = [
        way.name,
        str(seen.batches),
        spread(seen.trigger),
        f"{files:,}",
        f"{statistics.median(took):.0f}",
        _told(seen.stream),
    ]
    failed = seen.failed + Counter({"files that it failed to replace": sum(call.failed for call in seen.calls)})
    second = [
        way.name,
        str(len(seen.calls) + sum(seen.failed.values())) if way.beside else "-",
        f"{sum(call.files_before for call in calls):,} by {sum(call.files_after for call in calls):,}",
        f"{again / 1e6:.1f}",
        _told(+failed),
        vain,
        f"{seen.deleted}, refused: {_told(seen.refused)}",
    ]
    return first, second


def _told(errors: Counter[str]) -> str:
    return "; ".join(f"{count} {name}" for name, count in errors.items()) or "0"
