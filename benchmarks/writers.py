"""Commits a second of 1, 2, 4 and 8 processes that write to one table at once, without Spark."""

import multiprocessing
import statistics
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.data import Sizes
from benchmarks.machine import in_turns, load, spread
from benchmarks.report import Table
from streamsink.events import CheckpointPublished
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

WRITERS = (1, 2, 4, 8)
_SCHEMA = pa.schema([("id", pa.int64()), ("writer", pa.int64())])
# Eight writers on two cores lose the race for many numbers in a row.
_RETRIES = 1_000


def writers(spark, folder: Path, sizes: Sizes) -> list[Table]:
    """Every writer is a process with an application of its own. Counting begins when all have restored."""
    rates, waits, tries = {n: [] for n in WRITERS}, {n: [] for n in WRITERS}, {n: [] for n in WRITERS}

    def measure(count: int, number: int) -> None:
        root = str(folder / "writers" / f"{number}-{count}" / "shop.db" / "orders")
        commits = sizes.commits // count
        took, latencies, attempts = _race(root, count, commits)
        rates[count].append(commits * count / took)
        waits[count] += latencies
        tries[count] += attempts
        published = open_table(local_file_io(), root, for_writing=False).snapshots.latest().id
        if published != commits * count + count:  # The first commit of each writer is its warm-up.
            raise SystemExit(f"{root}: {published} snapshots, expected {commits * count + count}")

    in_turns(sizes.rounds, WRITERS, measure)
    rows = [
        [
            str(n),
            spread(rates[n], 1),
            spread(waits[n], 1),
            f"{statistics.quantiles(waits[n], n=100)[94]:.0f}",
            f"{statistics.mean(tries[n]):.2f}",
            str(max(tries[n])),
        ]
        for n in WRITERS
    ]
    head = ("writers", "commits/s, all together", "ms a batch", "95 of 100 within ms", "tries a commit", "most tries")
    note = (
        f"Batches of 10 rows, each one data file and one snapshot, everything flushed; {sizes.commits} commits a "
        f"round. Median [min..max]. Load {load()}."
    )
    return [Table("Concurrent writers on one table, local disk", head, rows, note)]


def _race(root: str, count: int, commits: int) -> tuple[float, list[float], list[int]]:
    """The seconds from the common start to the last end; and the ms and the tries of each commit."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(count + 1), context.Queue()
    processes = [context.Process(target=_write, args=(root, n, commits, start, results)) for n in range(count)]
    for process in processes:
        process.start()
    start.wait()
    begun = time.perf_counter()
    found = [results.get() for _ in processes]
    took = time.perf_counter() - begun
    for process in processes:
        process.join()
    return took, [ms for latencies, _ in found for ms in latencies], [n for _, attempts in found for n in attempts]


def _write(root: str, number: int, commits: int, start, results) -> None:
    options = SinkOptions.of(root, {"application": f"writer-{number}", "commit_max_retries": _RETRIES})
    driver = MicroBatchDriver(root, _SCHEMA, lambda begin, end: _rows(number, begin, end), options)
    checkpoint = SparkCheckpoint(f"00000000-0000-0000-0000-{number:012}", [10 * (n + 1) for n in range(commits + 1)])
    sink = driver.start(local_file_io(), checkpoint)
    sink.batch(driver.describe(checkpoint, 0))
    driver.events.clear()
    latencies = []
    start.wait()
    for batch_id in range(1, commits + 1):
        begun = time.perf_counter()
        sink.batch(driver.describe(checkpoint, batch_id))
        latencies.append((time.perf_counter() - begun) * 1000)
    sink.close()
    results.put((latencies, [e.attempts for e in driver.events if isinstance(e, CheckpointPublished)]))


def _rows(writer: int, begin: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": range(begin, end), "writer": [writer] * (end - begin)}, schema=_SCHEMA)
