"""What a commit and a scan cost as the table grows: calls and bytes per commit, memory of planning and merging."""

import collections
import os
import tracemalloc

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.simple_stats import EMPTY_ROW
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.table_commit import CommitRequest, TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.read.scan import plan
from streamsink.table.table import create_table, new_schema, open_table
from streamsink.testing.crashing import MeteredCalls
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

MIB = 2**20
SCHEMA = pa.schema([("id", pa.int64())])


class Metered(MeteredCalls):
    """Also remembers which folders were listed."""

    def __init__(self, inner):
        super().__init__(inner)
        self.listed: set[str] = set()

    def entries(self, path):
        self.listed.add(os.path.basename(path))
        return super().entries(path)

    def names(self, path):
        self.listed.add(os.path.basename(path))
        return super().names(path)


Cost = collections.namedtuple("Cost", "calls read written")


def costs_of(root, calls, commits) -> list[Cost]:
    """What each of so many micro-batches of one row asked of the store, from its admission to its end."""
    options = SinkOptions.of(root, {"journal_retain": 3})
    driver = MicroBatchDriver(
        root, SCHEMA, lambda start, end: pa.RecordBatch.from_pydict({"id": [0]}, schema=SCHEMA), options
    )
    checkpoint = SparkCheckpoint(IdSource().new_id(), list(range(1, commits + 1)))
    file_io = FileIO(calls, IdSource().new_id, flush=False)
    sink = driver.start(file_io, checkpoint)
    costs = []
    for number in range(commits):
        known, read, written = len(calls.log), calls.bytes_read, calls.bytes_written
        calls.listed.clear()
        sink.batch(driver.describe(checkpoint, number))
        spent = collections.Counter(calls.log[known:])
        assert not number or not calls.listed & {"snapshot", "manifest", "schema", "bucket-0"}, (
            "a folder that grows was listed"
        )
        costs.append(Cost(spent, calls.bytes_read - read, calls.bytes_written - written))
    sink.close()
    return costs


def split(costs: list[Cost]) -> tuple[list[Cost], list[Cost]]:
    """The commits that only append, and those that merge manifests, which open more files."""
    fewest = min(sum(cost.calls.values()) for cost in costs)
    plain = [cost for cost in costs if sum(cost.calls.values()) == fewest]
    return plain, [cost for cost in costs if sum(cost.calls.values()) > fewest]


@pytest.mark.parametrize("late", [500, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_the_cost_of_a_commit_does_not_grow(tmp_path, late):
    """Snapshots 100 to 160 are compared with 500 to 560 (10,000 to 10,060): two whole cycles of manifest merging.

    A commit between merges makes exactly the same calls. It reads and writes the same bytes except for longer numbers
    and the tiers of merged manifests in its list. A merging commit opens as many files. Over a whole cycle the bytes
    stay the same too.
    """
    costs = costs_of(str(tmp_path / "shop.db" / "orders"), Metered(PosixCalls()), late + 61)
    windows = [costs[first : first + 60] for first in (100, late)]
    (plain, merging), (late_plain, late_merging) = (split(window) for window in windows)
    assert {tuple(sorted(cost.calls.items())) for cost in plain + late_plain} == {tuple(sorted(plain[0].calls.items()))}
    assert sum(plain[0].calls.values()) < 120
    assert len(merging) == len(late_merging) == 2
    assert max(sum(c.calls.values()) for c in late_merging) <= max(sum(c.calls.values()) for c in merging) + 2
    for of in ("read", "written"):
        before, after = ([getattr(cost, of) for cost in some] for some in (plain, late_plain))
        assert max(after) <= 1.1 * max(before), of
        before, after = (sum(getattr(cost, of) for cost in window) / 60 for window in windows)
        print(f"{of} per commit over two cycles: {before:.0f} bytes at 100, {after:.0f} at {late}")
        assert after <= 1.5 * before, of


def many_files(root: str, commits: int, files: int, options=None):
    """A table of files that only its manifests know: so many commits of so many files each."""
    schema = new_schema(
        parse_ddl("id BIGINT, name STRING"), (), {"manifest.merge-min-count": "1000", **(options or {})}
    )
    table = create_table(local_file_io(flush=False), root, schema)
    commit = TableCommit(table, SinkOptions.of(root, {}))
    for number in range(commits):
        entries = tuple(
            ManifestEntry(
                FileKind.ADD,
                EMPTY_ROW,
                0,
                -1,
                DataFileMeta.for_append(
                    file_name=f"data-{number:04}-{i:036}.parquet", file_size=1000, row_count=10, schema_id=0
                ),
            )
            for i in range(files)
        )
        name, data = f"manifest-many-{number}", write_manifest(entries)
        table.file_io.write(table.layout.manifest(name), data)
        meta = ManifestFileMeta.of(name, len(data), entries, [])
        request = CommitRequest("many", number, Changes(entries), f"many-{number}", manifests=(meta,))
        commit.commit(request, Guard())
    return table


def peak_of(action) -> float:
    """The MiB of Python's own memory that the action held at most."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


@pytest.mark.in_turn("memory", 1)
def test_memory_of_planning_and_merging_is_bounded(tmp_path):
    """The whole metadata of 20,000 live files would take some 60 MiB.
    A plan takes a few short values a file, and the rest is streamed."""
    root = str(tmp_path / "t")
    many_files(root, 10, 2_000)
    table = open_table(local_file_io(flush=False), root, for_writing=True)
    newest = table.snapshots.latest()
    files = []
    assert peak_of(lambda: files.extend(plan(table)[1])) < 16
    assert len(files) == 20_000
    assert peak_of(lambda: sum(1 for _ in table.manifests.entries_of(newest))) < 4
    metas = table.manifests.all_of(newest)
    for options in ({"manifest.full-compaction-threshold-size": "1 b"}, {"manifest.merge-min-count": "2"}):
        merged = []
        assert (
            peak_of(
                lambda: merged.extend(table.manifests.merge(metas, options, f"x{len(options)}{list(options)[0][-4:]}"))
            )
            < 4
        )
        assert len(merged) == 1 and merged[0].num_added_files == 20_000
