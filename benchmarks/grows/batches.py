"""Thousands of micro-batches in one driver: its threads, open files, references to JVM objects, and memory.

Without Spark, and as a real query, whose batches take longer, so that there are fewer of them.
"""

import gc
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import streamsink
from benchmarks import data
from benchmarks.grows.grown import Grown, report
from benchmarks.machine import load
from benchmarks.operations import QUERY, numbers
from benchmarks.ways import ended
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint

_MIB = 1024  # KiB
# What the allocator keeps, more or less, of a process that takes nothing.
MOST_MORE_MIB = 8.0
# Threads that look now and then whether a query has ended hold some objects while they ask.
MOST_MORE = 4
_OPTIONS = {"journal_retain": 5}
# Spark's thread of a foreachBatch callback, and others that come and go with a batch.
WARM_UP = 2
_LOOKS, _LOOK_S, _OF_NOW, _PATIENCE_S = 20, 0.5, 1, 60


@dataclass(frozen=True)
class Held:
    """What this process holds. java: objects of the JVM that Python refers to. memory: resident, in MiB.

    frames: DataFrames of batches that live in the JVM; 0 without Spark.
    """

    threads: int
    files: int
    java: int
    frames: int
    memory: float

    @classmethod
    def now(cls, frames: int = 0) -> "Held":
        """As of now, without what only waits to be collected."""
        gc.collect()
        lines = Path("/proc/self/status").read_text().splitlines()
        kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        return cls(threading.active_count(), len(os.listdir("/proc/self/fd")), java_objects(), frames, kib / _MIB)


def java_objects() -> int:
    """Objects of the JVM that Python's side of py4j keeps alive: each has a finalizer until Python lets go of it."""
    from py4j.finalizer import ThreadSafeFinalizer

    return len(ThreadSafeFinalizer.finalizers)


class Frames:
    """Remembers the DataFrames of all batches without keeping them alive."""

    def __init__(self, spark):
        self._jvm = spark._jvm
        self._known = self._jvm.java.util.ArrayList()

    def add(self, df) -> None:
        """Remember the rows of one batch."""
        self._known.add(self._jvm.java.lang.ref.WeakReference(df._jdf))

    def _tell_the_jvm(self) -> None:
        """Wait until a thread of py4j has told the JVM what Python has let go of: it does so for one object at a time,
        which on a machine with other work takes long for all that other tests have left."""
        untold = self._jvm._gateway_client.finalizer_deque
        until = time.monotonic() + _PATIENCE_S
        while untold and time.monotonic() < until:
            time.sleep(_LOOK_S)
        time.sleep(_LOOK_S)  # for the last one

    def alive(self) -> int:
        """How many of them the JVM keeps after a collection."""
        found = self._known.size()
        for _ in range(_LOOKS):
            gc.collect()
            self._tell_the_jvm()
            self._jvm.System.gc()
            alive = sum(self._known.get(number).get() is not None for number in range(self._known.size()))
            found = min(found, alive)
            if found <= _OF_NOW:
                break
        return found


def batches(spark, folder: Path, sizes: data.Sizes) -> list:
    """Both kinds of driver."""
    alone = without_spark(folder / "batches", sizes.grown_batches)
    query = of_a_query(spark, folder, sizes.grown_spark_batches)
    return [
        *_report("Micro-batches in one driver, without Spark", alone),
        *_report("Micro-batches of one query", query),
    ]


def _report(title: str, held: Mapping[int, Held]) -> list:
    def flat(what: str, value: Callable[[Held], float], limit: float = 0, how: str = "{:,.0f}") -> Grown:
        return Grown(what, {number: value(each) for number, each in held.items()}, limit, "flat", how)

    grown = [
        flat("threads", lambda each: each.threads, MOST_MORE),
        flat("open files", lambda each: each.files, MOST_MORE),
        flat("objects of the JVM that Python holds", lambda each: each.java, MOST_MORE),
        flat("DataFrames that live in the JVM", lambda each: each.frames, MOST_MORE),
        flat("resident memory, MiB", lambda each: each.memory, MOST_MORE_MIB, "{:,.1f}"),
    ]
    return report(title, "batches", grown, f"After a collection. Load {load()}.")


def without_spark(folder: Path, marks: Sequence[int]) -> dict[int, Held]:
    """What is held after each of these numbers of batches."""
    driver = numbers(folder, _OPTIONS, 10)
    checkpoint = SparkCheckpoint(QUERY, [10 * number for number in range(1, max(marks) + 1)])
    sink, found = driver.start(local_file_io(flush=False), checkpoint), {}
    for number in range(max(marks)):
        sink.batch(driver.describe(checkpoint, number))
        driver.events.clear()
        if number + 1 in marks:
            found[number + 1] = Held.now()
            print(f"  {number + 1:,} batches (load {load()})", flush=True)
    sink.close()
    shutil.rmtree(folder)
    return found


def of_a_query(spark, folder: Path, marks: Sequence[int], rows=None, **options) -> dict[int, Held]:
    """What the driver of a real query holds after each of these numbers of batches, in the middle of a batch.

    rows: a stream of ``WARM_UP`` batches more; without it the rows come from JSON files.
    """
    at, found = folder / "query", {}
    if rows is None:
        data.add_json(at / "in", 0, max(marks) + WARM_UP, 10)
        rows = data.json_stream(spark, at / "in").selectExpr("id", "note name")
    sink = streamsink.to_table(str(at / "shop.db" / "orders"), lambda event: None, journal_retain=5, **options)

    frames = Frames(spark)

    def batch(df, batch_id: int) -> None:
        sink(df, batch_id)
        frames.add(df)
        if batch_id + 1 - WARM_UP in marks:
            found[batch_id + 1 - WARM_UP] = Held.now(frames.alive())
            print(f"  {batch_id + 1:,} batches of a query (load {load()})", flush=True)

    ended(
        rows.writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(at / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    sink.close()
    shutil.rmtree(at)
    return found


def check_flat(early: Held, late: Held, marks: Sequence[int]) -> None:
    """Raises AssertionError when something came with every second batch between these two, or ten of it came."""
    most = min(10, (marks[1] - marks[0]) // 2)
    for what in ("threads", "files", "java", "frames"):
        before, after = getattr(early, what), getattr(late, what)
        if after >= before + most:
            raise AssertionError(f"{what}: {before} after {marks[0]} batches, {after} after {marks[1]}")
