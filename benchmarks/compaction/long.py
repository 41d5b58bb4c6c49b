"""Ten thousand micro-batches into one table, with compaction and without: files at any time, and their cost.

The driver is that of ``streamsink.testing``, so all but Spark runs: staging, journal, commit, files of a disk. The
compaction is the one of a query. In ``long`` and ``more`` it looks behind so many batches instead of in its thread, so
the files do not depend on the load of the machine; ``live`` has the thread, and batches at a steady rate. ``query.py``
has the times of Spark's triggers, ``rivals.py`` conflicts.

It can be run alone: ``python -m benchmarks.compaction.long [batches]``.
"""

import dataclasses
import functools
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import data, report
from benchmarks.compaction.found import WITH, WITHOUT, Found, live, read_ms
from benchmarks.machine import load, spread
from streamsink.compaction.beside import Beside
from streamsink.compaction.compactor import Compactor
from streamsink.compaction.plan import Task
from streamsink.format.binary_row import encode_row
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import Table, open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("price", pa.float64()),
        ("status", pa.string()),
        ("note", pa.string()),
        ("part", pa.string()),
    ]
)
_STRING = parse_ddl("part STRING")[0].type
_STATUS = pa.array(data.STATUS)
_QUERY = "00000000-0000-0000-0000-00000000000{}"
# Behind so many batches, at most, the files are counted, at each point between two looks. Where a batch takes two
# seconds, a look each 20 s, which is the default, comes behind ten.
_COUNT, _EVERY = 97, 10
# The same for batches at a steady rate: ten a second, and a look each second.
_PACE_MS, _LOOK_MS = 100, 1_000
_TOLD = 1_000


@dataclass(frozen=True)
class Case:
    """One table. target: its target-file-size. partitions: each batch adds ``rows`` rows to each of them.

    is_paired: whether the same is done without compaction. overwrites: whether another writer replaces a partition
    whenever the files are counted. is_live: whether the thread of a query compacts, with a query's share of a core,
    beside batches at a steady rate.
    """

    what: str
    target: str
    partitions: int
    batches: int
    rows: int = 2_000
    is_paired: bool = False
    has_goals: bool = False
    overwrites: bool = False
    is_live: bool = False

    @property
    def count(self) -> int:
        """Batches between two counts of the files."""
        return max(1, min(_COUNT, self.batches // 10))


@dataclass
class _Way:
    """One of the two tables, and what was seen of it."""

    driver: MicroBatchDriver
    checkpoint: SparkCheckpoint
    found: Found
    overwritten: int = 0
    took_s: float = 0

    def run(self, case: Case) -> None:
        """All batches, from first to last."""
        root, options = self.driver.root, self.driver.options
        beside = Beside(lambda: [root], _open, options, is_over=lambda: False, tell=self.found.tell)
        sink, begun = self.driver.start(_io(), self.checkpoint), time.monotonic()
        for number in range(case.batches):
            sink.batch(self.driver.describe(self.checkpoint, number))
            if case.is_live:
                if number == 0 and options.compaction:
                    beside.start()
                time.sleep(max(0.0, begun + (number + 1) * _PACE_MS / 1000 - time.monotonic()))
                beside.check()
            if number % case.count == case.count - 1:
                self.driver.events.clear()
                self.found.live.append(len(live(root)))
                self.overwritten += _overwrite(root, case, number // case.count) if case.overwrites else 0
            if options.compaction and not case.is_live and number % _EVERY == _EVERY - 1:
                beside.round()
            if number % _TOLD == _TOLD - 1:
                print(f"  {case.what}, {self.found.way}: {number + 1:,} batches (load {load()})", flush=True)
        self.took_s = time.monotonic() - begun
        beside.stop()
        sink.close()

    @property
    def came(self) -> int:
        """Bytes that the batches have brought: a compaction leaves fewer than it takes."""
        totals, now = self.found.totals, sum(entry.file.file_size for entry in live(self.driver.root))
        return now + totals.bytes_before - totals.bytes_after + self.overwritten


def long(spark, folder: Path, sizes: data.Sizes) -> list:
    """The case of the goals. spark is not needed."""
    most = sizes.long_batches
    return of_case(folder / "long", Case("1 partition, 4 mb", "4 mb", 1, most, is_paired=True, has_goals=True))


def live_thread(spark, folder: Path, sizes: data.Sizes) -> list:
    """The case of the goals beside the thread of a query. spark is not needed."""
    case = Case("1 partition, 4 mb, 10 batches a second beside the thread", "4 mb", 1, sizes.long_batches, is_live=True)
    return of_case(folder / "live", dataclasses.replace(case, has_goals=True))


def more(spark, folder: Path, sizes: data.Sizes) -> list:
    """Of several partitions, and of files of the default size. spark is not needed."""
    most = sizes.long_batches
    cases = (
        Case("10 partitions, 4 mb, some overwritten", "4 mb", 10, most // 20, overwrites=True),
        Case("1 partition, 256 mb", "256 mb", 1, most // 4),
    )
    items: list = []
    for number, case in enumerate(cases):
        items += of_case(folder / f"long-{number}", case)
        print(f"\n{report.text(items)}\n", flush=True)
    return items


def of_case(folder: Path, case: Case) -> list:
    """A table of what was found, and for a pair the goals."""
    names = {WITH: "with", **({WITHOUT: "without"} if case.is_paired else {})}
    ways = {way: _way(folder / name, case, is_with=way == WITH) for way, name in names.items()}
    for each in ways.values():
        each.run(case)
    return _report(case, ways)


def _way(at: Path, case: Case, *, is_with: bool) -> _Way:
    root = str(at / "shop.db" / "orders")
    settings = {"table_options": {"target-file-size": case.target}, "journal_retain": 5}
    keys = {"partition_by": ["part"]} if case.partitions > 1 else {}
    # A thread has the share of a core that is the default.
    beside = {"compaction_interval_ms": _LOOK_MS} if case.is_live else {"compaction_core_percent": 100}
    own = {"compaction": True, **beside} if is_with else {}
    options = SinkOptions.of(root, {**settings, **keys, **own})
    driver = MicroBatchDriver(root, _SCHEMA, functools.partial(_rows, case.partitions), options)
    each = case.rows * case.partitions
    checkpoint = SparkCheckpoint(_QUERY.format(1), [each * (number + 1) for number in range(case.batches)])
    return _Way(driver, checkpoint, Found(WITH if is_with else WITHOUT))


def _rows(partitions: int, start: int, end: int) -> pa.RecordBatch:
    """About 30 bytes a row that cannot be compressed."""
    chance, count = np.random.default_rng(start), end - start
    ids = np.arange(start, end)
    notes = chance.bytes(16 * count).hex()
    columns = [
        pa.array(ids),
        pa.array(chance.integers(0, 100_000, count)),
        pa.array(chance.random(count) * 1000),
        _STATUS.take(pa.array(ids % len(_STATUS))),
        pa.array([notes[32 * number : 32 * number + 32] for number in range(count)]),
        pa.array([f"part-{number}" for number in range(partitions)]).take(pa.array(ids % partitions)),
    ]
    return pa.record_batch(columns, schema=_SCHEMA)


def _overwrite(root: str, case: Case, number: int) -> int:
    """Another writer replaces a partition by a few rows, while a compaction may be at its files. Returns the bytes of
    that partition before.
    """
    part = number % case.partitions
    key = encode_row([f"part-{part}"], [_STRING])
    before = sum(entry.file.file_size for entry in live(root) if entry.partition == key)
    settings = {"application": "other", "mode": "overwrite", "overwrite_partition": {"part": f"part-{part}"}}
    options = SinkOptions.of(root, {**settings, "partition_by": ["part"], "restore": "restore-and-continue"})

    def rows(start: int, end: int) -> pa.RecordBatch:
        whole = _rows(1, start, end)
        return whole.set_column(5, "part", pa.array([f"part-{part}"] * (end - start)))

    driver = MicroBatchDriver(root, _SCHEMA, rows, options)
    ends = [10 * (batch + 1) for batch in range(number + 1)]
    checkpoint = SparkCheckpoint(_QUERY.format(2), ends, committed=number)
    sink = driver.start(_io(), checkpoint)
    sink.batch(driver.describe(checkpoint, number))
    sink.close()
    return before


def _io():
    return local_file_io(flush=False)


def _open(root: str) -> Table:
    return open_table(_io(), root, for_writing=True)


def _as_one_job(root: str, options: SinkOptions) -> int:
    """Files that one writer for each partition leaves of all rows. The table has them from then on."""
    partitions: dict[bytes, list] = {}
    for entry in live(root):
        partitions.setdefault(entry.partition, []).append(entry)
    compactor = Compactor(_open(root), options)
    compactor.settle()
    compactor.plan(lambda partition, files, sizes: [])  # it looks at the newest snapshot
    compactor.do([Task(partition, tuple(entries)) for partition, entries in partitions.items()])
    return len(live(root))


def _report(case: Case, ways: dict[str, _Way]) -> list:
    mine, came = ways[WITH].found, ways[WITH].came
    for each in ways.values():
        each.found.read_ms = read_ms(each.driver.root)
    rows = [
        [
            each.found.way,
            f"{each.found.live[-1]:,}",
            f"{statistics.mean(each.found.live):,.0f}",
            spread(each.found.read_ms),
        ]
        for each in ways.values()
    ]
    job = _as_one_job(ways[WITH].driver.root, ways[WITH].driver.options)
    rows.append(["one batch job", f"{job:,}", "-", spread(read_ms(ways[WITH].driver.root))])
    # The job of what had come until then has as many files in proportion, but one for each partition at least.
    every = [max(case.partitions, round(job * (n + 1) / len(mine.live))) for n in range(len(mine.live))]
    ratios = [live_files / of_job for live_files, of_job in zip(mine.live, every)]
    half = ratios[len(ratios) // 2 :]
    again = mine.totals.bytes_before / came
    most = max(of_live - of_job for of_live, of_job in zip(mine.live, every))
    said = (
        f"Files against those of one batch job: last {ratios[-1]:.2f}x, in the second half "
        f"{statistics.mean(half):.2f}x in the mean and {max(half):.2f}x at the worst, at most {most} more. "
        f"{mine.said(came)} Load {load()}."
    )
    if case.is_live:
        due_s = case.batches * _PACE_MS / 1000
        said = f"The batches took {ways[WITH].took_s / due_s:.2f} times as long as their rate asks for. {said}"
    head = ("way", "files, last", "files, mean", "ms to read ids, pyarrow")
    title = f"Without Spark: {case.batches:,} micro-batches of {case.rows * case.partitions:,} rows, {case.what}"
    table = report.Table(title, head, rows, said)
    if not case.has_goals:
        return [table]
    what = f"compaction {'by the thread ' if case.is_live else ''}over {case.batches:,} batches"
    return [
        table,
        report.at_most(f"{what}: files against those of one batch job, second half, mean", statistics.mean(half), 1.2),
        report.at_most(f"{what}: the same, last", ratios[-1], 1.2),
        report.at_most(f"{what}: bytes written again for each byte", again, 2.0),
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="streamsink-long-") as name:
        chosen = dataclasses.replace(data.Sizes(), **({"long_batches": int(sys.argv[1])} if sys.argv[1:] else {}))
        print(report.text(long(None, Path(name), chosen)))
