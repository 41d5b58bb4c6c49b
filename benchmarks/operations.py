"""What one commit asks of the file system, exactly, without Spark."""

import time
from collections import Counter
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

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_NAMES = ("open", "write", "close", "link", "rename", "unlink", "mkdir", "rmdir", "sync_dir", "read", "size", "entries")
# Merging manifests costs now and then; with it out of the way the counts are exact.
_NO_MERGE = {"manifest.merge-min-count": "1000000"}


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
        seen = _run(folder / f"operations-{what.replace(' ', '-')}", max(sizes.snapshots), options)
        for number in sizes.snapshots:
            calls, written, flushed, _ = seen[number]
            rows.append([
                f"{what}, snapshot {number:,}", str(sum(calls.values())), *(str(calls[name]) for name in _NAMES),
                str(flushed + calls["sync_dir"]), f"{written:,}",
            ])
        for number in sizes.snapshots:
            before = [seen[n] for n in range(max(2, number - 29), number + 1)]
            totals, took = [sum(s[0].values()) for s in before], [s[3] for s in before]
            rows.append([
                f"{what}, the last {len(before)} up to {number:,}", spread(totals), *[""] * len(_NAMES),
                spread([s[2] + s[0]["sync_dir"] for s in before]), spread([s[1] for s in before]) + f"; {spread(took, 1)} ms",
            ])
    head = ("commit", "calls", *_NAMES, "fsyncs", "bytes written")
    note = (
        "Calls of one micro-batch of one data file, from its admission to its end, all that the sink does on the disk "
        f"(fsyncs are those it asks for; the ms are without them). Load {load()}."
    )
    return [Table("File operations of one commit", head, rows, note)]


def _run(folder: Path, snapshots: int, table_options: dict) -> dict[int, tuple[Counter, int, int, float]]:
    """snapshot -> (calls by name, bytes written, files flushed, ms)."""
    calls = _Counting()
    root = str(folder / "shop.db" / "orders")
    options = SinkOptions.of(root, {"table_options": table_options})
    rows = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "name": ["a", "b", "c"]}, schema=_SCHEMA)
    driver = MicroBatchDriver(root, _SCHEMA, lambda start, end: rows, options)
    checkpoint = Checkpoint("00000000-0000-0000-0000-000000000001", list(range(1, snapshots + 1)))
    sink = driver.start(FileIO(calls, IdSource().new_id), checkpoint)
    seen = {}
    for batch_id in range(snapshots):
        known, written, flushed = len(calls.log), calls.bytes_written, calls.flushed
        begun = time.perf_counter()
        sink.batch(driver.describe(checkpoint, batch_id))
        took = (time.perf_counter() - begun) * 1000
        seen[batch_id + 1] = (Counter(calls.log[known:]), calls.bytes_written - written, calls.flushed - flushed, took)
    sink.close()
    return seen
