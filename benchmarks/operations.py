"""What one commit asks of the file system, exactly, without Spark."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import Checkpoint, MicroBatchDriver

from benchmarks.data import Sizes
from benchmarks.machine import load, spread
from benchmarks.report import Table

QUERY = "00000000-0000-0000-0000-000000000001"
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_NAMES = ("open", "write", "close", "link", "rename", "unlink", "mkdir", "rmdir", "sync_dir", "read", "size", "entries")
# Merging manifests costs now and then; with it out of the way the counts are exact.
_NO_MERGE = {"manifest.merge-min-count": "1000000"}


@dataclass(frozen=True)
class Commit:
    """Calls by name; ``flushed``: files that were to be flushed."""

    calls: Counter
    bytes_written: int
    flushed: int
    ms: float

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    @property
    def fsyncs(self) -> int:
        return self.flushed + self.calls["sync_dir"]


class _Counting(CrashingCalls):
    """Counts bytes and what would be flushed too, without waiting for the disk."""

    def __init__(self):
        super().__init__(PosixCalls())
        self.bytes_written = 0
        self.flushed = 0

    def write(self, stream, data):
        self.bytes_written += memoryview(data).nbytes
        return super().write(stream, data)

    def close(self, stream, flush):
        self.flushed += flush
        return super().close(stream, False)

    def sync_dir(self, path):
        self.log.append("sync_dir")


def operations(spark, folder: Path, sizes: Sizes) -> list[Table]:
    """Counts at some snapshots, with manifest merging out of the way and as it is by default."""
    rows = []
    for what, options in (("no merging", _NO_MERGE), ("default", {})):
        at = folder / f"operations-{what.replace(' ', '-')}"
        seen = commits(at, max(sizes.snapshots), {"table_options": options})
        for number in sizes.snapshots:
            one = seen[number]
            rows.append([
                f"{what}, snapshot {number:,}", str(one.total), *(str(one.calls[name]) for name in _NAMES), str(one.fsyncs),
                f"{one.bytes_written:,}",
            ])
        for number in sizes.snapshots:
            before = [seen[n] for n in range(max(2, number - 29), number + 1)]
            rows.append([
                f"{what}, the last {len(before)} up to {number:,}", spread([c.total for c in before]), *[""] * len(_NAMES),
                spread([c.fsyncs for c in before]),
                spread([c.bytes_written for c in before]) + f"; {spread([c.ms for c in before], 1)} ms",
            ])
    head = ("commit", "calls", *_NAMES, "fsyncs", "bytes written")
    note = (
        "Calls of one micro-batch of one data file, from its admission to its end, all that the sink does on the disk "
        f"(fsyncs are those it asks for; the ms are without them). Load {load()}."
    )
    return [Table("File operations of one commit", head, rows, note)]


def commits(
    folder: Path, snapshots: int, options: dict, rows: int = 3, at_snapshot: Callable[[int, Checkpoint], None] = lambda number, checkpoint: None
) -> dict[int, Commit]:
    """A table below ``folder`` of so many commits of ``rows`` rows each; what each cost, by its snapshot.

    at_snapshot: called between two commits, with the number of the newest one and what Spark's checkpoint would say.
    """
    calls = _Counting()
    driver = numbers(folder, options, rows)
    checkpoint = Checkpoint(QUERY, [rows * number for number in range(1, snapshots + 1)])
    sink = driver.start(FileIO(calls, IdSource().new_id), checkpoint)
    seen = {}
    for batch_id in range(snapshots):
        known, written, flushed = len(calls.log), calls.bytes_written, calls.flushed
        begun = time.perf_counter()
        sink.batch(driver.describe(checkpoint, batch_id))
        took = (time.perf_counter() - begun) * 1000
        seen[batch_id + 1] = Commit(Counter(calls.log[known:]), calls.bytes_written - written, calls.flushed - flushed, took)
        at_snapshot(batch_id + 1, checkpoint)
    sink.close()
    return seen


def numbers(folder: Path, options: dict, rows: int) -> MicroBatchDriver:
    """A driver of the table below ``folder`` whose batches are ``rows`` rows; no Spark."""
    root = str(root_of(folder))
    batch = pa.RecordBatch.from_pydict({"id": list(range(rows)), "name": [f"name-{n}" for n in range(rows)]}, schema=_SCHEMA)
    return MicroBatchDriver(root, _SCHEMA, lambda start, end: batch, SinkOptions.of(root, options))


def root_of(folder: Path) -> Path:
    """Where ``commits`` has its table."""
    return folder / "shop.db" / "orders"
