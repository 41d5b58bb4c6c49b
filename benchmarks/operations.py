"""Counts exactly what one commit asks of the file system, without Spark."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.data import Sizes
from benchmarks.machine import load, spread
from benchmarks.report import Table
from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import MeteredCalls
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

QUERY = "00000000-0000-0000-0000-000000000001"
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_NAMES = ("open", "write", "close", "link", "rename", "unlink", "mkdir", "rmdir", "sync_dir", "read", "size", "entries")
# Merging manifests costs something now and then; without it the counts are exact.
_TWO_CYCLES = 60
# Without merging each commit writes a list of all commits before it.
_MOST_UNMERGED = 1_000
_NO_MERGE = {"manifest.merge-min-count": "1000000"}


@dataclass(frozen=True)
class Commit:
    """Calls by name. ``flushed``: how many files were to be flushed."""

    calls: Counter
    bytes_read: int
    bytes_written: int
    flushed: int
    ms: float

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def fsyncs(self) -> int:
        return self.flushed + self.calls["sync_dir"]


class _Counting(MeteredCalls):
    """Also counts what would be flushed, without waiting for the disk."""

    def __init__(self):
        super().__init__(PosixCalls())
        self.flushed = 0

    def close(self, stream, flush):
        self.flushed += flush
        return super().close(stream, False)

    def sync_dir(self, path):
        self.log.append("sync_dir")


def operations(spark, folder: Path, sizes: Sizes) -> list[Table]:
    """The counts at some snapshots, without manifest merging and with the default."""
    rows, cycles = [], []
    for what, options, most in (("no merging", _NO_MERGE, _MOST_UNMERGED), ("default", {}, max(sizes.snapshots))):
        at = folder / f"operations-{what.replace(' ', '-')}"
        counted = [number for number in sizes.snapshots if number <= most]
        seen = commits(at, counted[-1], {"table_options": options})
        for number in counted:
            one = seen[number]
            rows.append(
                [
                    f"{what}, snapshot {number:,}",
                    str(one.total),
                    *(str(one.calls[name]) for name in _NAMES),
                    str(one.fsyncs),
                    f"{one.bytes_read:,}",
                    f"{one.bytes_written:,}",
                ]
            )
        for number in counted:
            before = [seen[n] for n in range(max(2, number - _TWO_CYCLES + 1), number + 1)]
            read, written = ([getattr(c, of) for c in before] for of in ("bytes_read", "bytes_written"))
            cycles.append(
                [
                    f"{what}, the last {len(before)} up to {number:,}",
                    spread([c.total for c in before]),
                    spread([c.fsyncs for c in before]),
                    f"{sum(read) / len(read):,.0f}",
                    f"{max(read):,}",
                    f"{sum(written) / len(written):,.0f}",
                    f"{max(written):,}",
                    spread([c.ms for c in before], 1),
                ]
            )
    note = (
        "Calls of one micro-batch of one data file, from its admission to its end, all that the sink does on the disk "
        f"(fsyncs are those it asks for; the ms are without them). Load {load()}."
    )
    head = ("commit", "calls", *_NAMES, "fsyncs", "bytes read", "bytes written")
    cycle_head = ("commits", "calls", "fsyncs", "bytes read, mean", "most", "bytes written, mean", "most", "ms")
    cycle_note = (
        "Manifests are merged about every thirtieth commit, so these are two cycles; median [min..max] where "
        "no mean is named."
    )
    return [
        Table("File operations of one commit", head, rows, note),
        Table("Over two cycles of merging manifests", cycle_head, cycles, cycle_note),
    ]


def commits(
    folder: Path,
    snapshots: int,
    options: dict,
    rows: int = 3,
    at_snapshot: Callable[[int, SparkCheckpoint], None] = lambda number, checkpoint: None,
) -> dict[int, Commit]:
    """Make a table below ``folder`` of so many commits of ``rows`` rows each. Returns what each cost, by its snapshot.

    at_snapshot: called between two commits, with the number of the newest snapshot and what Spark's checkpoint would
    say.
    """
    calls = _Counting()
    driver = numbers(folder, options, rows)
    checkpoint = SparkCheckpoint(QUERY, [rows * number for number in range(1, snapshots + 1)])
    sink = driver.start(FileIO(calls, IdSource().new_id), checkpoint)
    seen = {}
    for batch_id in range(snapshots):
        known, read, written, flushed = len(calls.log), calls.bytes_read, calls.bytes_written, calls.flushed
        begun = time.perf_counter()
        sink.batch(driver.describe(checkpoint, batch_id))
        took = (time.perf_counter() - begun) * 1000
        spent = calls.bytes_read - read, calls.bytes_written - written, calls.flushed - flushed
        seen[batch_id + 1] = Commit(Counter(calls.log[known:]), *spent, took)
        at_snapshot(batch_id + 1, checkpoint)
    sink.close()
    return seen


def numbers(folder: Path, options: dict, rows: int) -> MicroBatchDriver:
    """A driver of the table below ``folder`` whose batches have ``rows`` rows, without Spark."""
    root = str(root_of(folder))
    batch = pa.RecordBatch.from_pydict(
        {"id": list(range(rows)), "name": [f"name-{n}" for n in range(rows)]}, schema=_SCHEMA
    )
    return MicroBatchDriver(root, _SCHEMA, lambda start, end: batch, SinkOptions.of(root, options))


def root_of(folder: Path) -> Path:
    """The root of the table that ``commits`` makes."""
    return folder / "shop.db" / "orders"
