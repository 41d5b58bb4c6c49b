"""A table of a million live files: planning with a condition on its partitions, commits of one file, and the memory.

Only the manifests know the files. They are as large as merging makes them, and are written by the library's writer.
"""

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.data import Sizes
from benchmarks.grows.grown import Grown, report
from benchmarks.machine import load, own_peak
from streamsink import col
from streamsink.clock import IdSource
from streamsink.format.binary_row import encode_row
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.simple_stats import SimpleStats
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.table_commit import CommitRequest, TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.history.whole import Whole
from streamsink.table.read.scan import plan
from streamsink.table.table import Table, create_table, new_schema, open_table
from streamsink.testing.crashing import MeteredCalls

FIELDS = parse_ddl("day STRING, id BIGINT, customer BIGINT, price DOUBLE, at TIMESTAMP, city STRING")
# So many files make one day's partition, and so many a manifest, which then has its target size of 8 MB.
_FILES_A_DAY, _FILES_A_MANIFEST = 5_000, 160_000
_COMMITS = 40  # two of them merge manifests
MOST_PLAN_MS, MOST_MORE_BYTES, MOST_MIB = 1_000.0, 0.01, 100.0
_MIB = 1024  # KiB


def make(root: str) -> Table:
    """An empty table that is partitioned by day."""
    return create_table(local_file_io(flush=False), root, new_schema(FIELDS, ["day"], {}))


def add(table: Table, first: int, end: int, a_day: int = _FILES_A_DAY, a_manifest: int = _FILES_A_MANIFEST) -> None:
    """Commit the files of these numbers."""
    commit = TableCommit(table, SinkOptions.of(table.root, {}))
    for number in range(first, end, a_manifest):
        entries = [entry(at, a_day) for at in range(number, min(number + a_manifest, end))]
        _commit(table, commit, number, entries)


def entry(number: int, a_day: int = _FILES_A_DAY) -> ManifestEntry:
    """A file with statistics as a writer makes them."""
    types, day = [field.type for field in FIELDS], f"day-{number // a_day:06}"
    city = f"city-{number % 1000:03}"
    low = [day, number * 100, number * 7919 % 99991, number / 7, number * 10**9, city]
    high = [day, number * 100 + 99, number * 7919 % 99991 + 5, number / 7 + 1, number * 10**9 + 10**6, f"{city}-x"]
    file = DataFileMeta.for_append(
        file_name=f"data-{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}-0.parquet",
        file_size=number + 1000,
        row_count=100,
        schema_id=0,
        value_stats=SimpleStats(encode_row(low, types), encode_row(high, types), (0,) * len(types)),
        value_stats_cols=None,
        creation_time=1_700_000_000_000 + number,
    )
    return ManifestEntry(FileKind.ADD, encode_row([day], types[:1]), 0, -1, file)


def _commit(table: Table, commit: TableCommit, number: int, entries: list[ManifestEntry]) -> None:
    name, content = f"manifest-{IdSource().new_id()}-0", write_manifest(entries)
    table.file_io.write(table.layout.manifest(name), content)
    meta = ManifestFileMeta.of(name, len(content), entries, [FIELDS[0].type])
    request = CommitRequest("growing", number, Changes(tuple(entries)), IdSource().new_id(), manifests=(meta,))
    commit.commit(request, Guard())


def planned(root: str, day: int) -> tuple[int, float]:
    """(files of that day, processor ms of planning a scan of them)."""
    table = open_table(local_file_io(flush=False), root, for_writing=False)
    begun = time.process_time()
    found = len(plan(table, where=col("day") == f"day-{day:06}")[1])
    return found, (time.process_time() - begun) * 1000


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one commit of one file asks of the store; ms: of processor time."""

    calls: Counter
    read: int
    written: int
    ms: float


def commits(root: str, first: int, count: int, a_day: int = _FILES_A_DAY) -> list[Cost]:
    """Commit one file after another, by production's committer with its look whether the table is whole."""
    calls = MeteredCalls(PosixCalls())
    table = open_table(FileIO(calls, IdSource().new_id, flush=False), root, for_writing=True)
    commit = TableCommit(table, SinkOptions.of(root, {}), Whole(table, started=True))
    found = []
    for number in range(first, first + count + 1):
        known, read, written, begun = len(calls.log), calls.bytes_read, calls.bytes_written, time.process_time()
        _commit(table, commit, number, [entry(number, a_day)])
        ms = (time.process_time() - begun) * 1000
        found.append(Cost(Counter(calls.log[known:]), calls.bytes_read - read, calls.bytes_written - written, ms))
    return found[1:]  # the first one reads the lists


def plain(costs: list[Cost]) -> list[Cost]:
    """Those that do not merge manifests."""
    least = min(cost.calls.total() for cost in costs)
    return [cost for cost in costs if cost.calls.total() == least]


def live(folder: Path, sizes: Sizes) -> list:
    """Grow one table to each of the sizes, and measure in a process of its own."""
    root, known = str(folder / "live.db" / "files"), 0
    table = make(root)
    found: dict[str, dict[int, float]] = {}
    for size in sizes.grown_live:
        add(table, known, size, *_layout(sizes))
        command = [sys.executable, "-m", "benchmarks.grows.live", root, str(size), str(_layout(sizes)[0])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        for name, value in json.loads(done.stdout).items():
            found.setdefault(name, {})[size] = value
        known = size + _COMMITS + 1
        print(f"  {size:,} live files (load {load()})", flush=True)
    grown = [
        Grown("planning one day: processor ms", found["plan_ms"], MOST_PLAN_MS),
        Grown("a commit of one file: calls", found["calls"], 0, "flat", "{:,.0f}"),
        Grown("a commit of one file: bytes read", found["read"], MOST_MORE_BYTES, "slope", "{:,.0f}"),
        Grown("a commit of one file: bytes written", found["written"], MOST_MORE_BYTES, "slope", "{:,.0f}"),
        Grown("a commit of one file: processor ms", found["commit_ms"], 1.0, "flat"),
        Grown("peak memory of planning over the base: MiB", found["plan_mib"], MOST_MIB),
        Grown(f"the same with {_COMMITS} commits: MiB", found["commit_mib"], MOST_MIB),
    ]
    note = (
        f"{_FILES_A_DAY:,} files a day, 8 MB a manifest, which is read and searched; commits: median of those of "
        f"{_COMMITS} that merge no manifests. Load {load()}."
    )
    return report("A table of many live files", "live files", grown, note)


def _layout(sizes: Sizes) -> tuple[int, int]:
    """Files a day and files a manifest; fewer for a table that is small on purpose."""
    small = max(sizes.grown_live) < _FILES_A_MANIFEST
    return (100, 500) if small else (_FILES_A_DAY, _FILES_A_MANIFEST)


def _watched(root: str, size: int, a_day: int) -> None:
    """Runs in a process of its own."""
    base = own_peak()
    planned(root, 0)  # imports and caches of code
    files, ms = planned(root, size // a_day // 2)
    if files != a_day:
        raise ValueError(f"{files} files of a day, expected {a_day}")
    plan_peak = own_peak()
    costs = commits(root, size, _COMMITS, a_day)
    between = plain(costs)
    found = {
        "plan_ms": ms,
        "plan_mib": (plan_peak - base) / _MIB,
        "commit_mib": (own_peak() - base) / _MIB,
        "calls": statistics.median(cost.calls.total() for cost in between),
        "read": statistics.median(cost.read for cost in between),
        "written": statistics.median(cost.written for cost in between),
        "commit_ms": statistics.median(cost.ms for cost in between),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    _watched(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
