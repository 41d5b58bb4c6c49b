"""Planning a scan of very many files,
beside reading the same manifests with fastavro alone, and the memory that it takes."""

import gc
import io
import json
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import fastavro

from benchmarks.data import Sizes
from benchmarks.machine import in_turns, load, own_peak, spread
from benchmarks.report import Table, at_most
from streamsink import col
from streamsink.format.binary_row import encode_row
from streamsink.format.data_file import DataFileMeta
from streamsink.format.manifest import FileKind, ManifestEntry, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.simple_stats import SimpleStats
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.table_commit import CommitRequest, TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.read.scan import plan
from streamsink.table.table import Table as PaimonTable
from streamsink.table.table import create_table, new_schema, open_table

_DDL = "day STRING, id BIGINT, customer BIGINT, price DOUBLE, at TIMESTAMP, city STRING"
_FILES_A_COMMIT = 5_000
_MIB = 1024  # KiB
_PLAIN, _KEPT = "fastavro.reader, kept in lists", "fastavro.reader"
_MOST_TIME, _MOST_MIB = 1.2, 200


def planning(spark, folder: Path, sizes: Sizes) -> list:
    """The processor time of the whole plan, of pruned plans, and of reading the manifests;
    then the memory, in fresh processes."""
    root = str(folder / "planning.db" / "files")
    commits = max(1, sizes.live_files // _FILES_A_COMMIT)
    memory = {f"{commits} commits that make the table": _fresh("make", root, commits)}
    last = commits - 1
    wanted = {
        "plan()": None,
        "plan(), one day of them": col("day") == _day(last),
        "plan(), by the stats of id": col("id") >= last * _FILES_A_COMMIT * 100,
        "plan(), by the stats of id, none left": col("id") < 0,
    }
    ways = {_KEPT: lambda table: _read(table, keep=False), _PLAIN: lambda table: _read(table, keep=True)}
    ways |= {name: lambda table, where=where: len(plan(table, where=where)[1]) for name, where in wanted.items()}
    took, found = defaultdict(list), {}

    def measure(way: str, number: int) -> None:
        table = open_table(local_file_io(flush=False), root, for_writing=False)
        gc.collect()
        begun = time.process_time()
        found[way] = ways[way](table)
        took[way].append((time.process_time() - begun) * 1000)

    in_turns(sizes.rounds + 2, tuple(ways), measure)
    times = _times(took, found, commits)
    memory["plan()"] = _fresh("plan", root, commits)
    memory["one commit more, with full merging"] = _fresh("merge", root, commits)
    rows = [[what, f"{base / _MIB:.0f}", f"{(peak - base) / _MIB:.0f}"] for what, (base, peak) in memory.items()]
    held = Table(
        "Peak memory of it",
        ("", "base MiB", "over it MiB"),
        rows,
        "High-water mark of a fresh process over that after its imports.",
    )
    goals = [
        at_most(
            "time of planning against reading the manifests into lists",
            min(took["plan()"]) / min(took[_PLAIN]),
            _MOST_TIME,
        )
    ]
    goals += [
        at_most(f"peak memory: {what}", (peak - base) / _MIB, _MOST_MIB, "{:.0f} MiB")
        for what, (base, peak) in memory.items()
    ]
    return [times, held, *goals]


def _times(took: dict[str, list[float]], found: dict[str, int], commits: int) -> Table:
    """The processor times of all ways, and how many files each has found."""
    rows = [
        [
            way,
            f"{found[way]:,}",
            spread(took[way]),
            f"{min(took[way]) / min(took[_PLAIN]):.2f}",
            f"{min(took[way]) / min(took[_KEPT]):.2f}",
        ]
        for way in took
    ]
    note = (
        f"CPU ms of this process, median [min..max]; ratios of the least, rounds in turns. {commits} manifests. "
        f"Load {load()}."
    )
    head = ("", "files", "CPU ms", "against reading into lists", "against reading")
    return Table(f"Planning a scan of {commits * _FILES_A_COMMIT:,} files", head, rows, note)


def _day(number: int) -> str:
    return f"day-{number:04}"


def _read(table: PaimonTable, keep: bool) -> int:
    """All records of the snapshot's manifests, by the library alone."""
    count = 0
    for meta in table.manifests.all_of(table.snapshots.latest()):
        records = fastavro.reader(io.BytesIO(table.file_io.read(table.layout.manifest(meta.file_name))))
        count += len(list(records)) if keep else sum(1 for _ in records)
    return count


def _make(root: str, commits: int) -> None:
    fields = parse_ddl(_DDL)
    table = create_table(
        local_file_io(flush=False), root, new_schema(fields, ["day"], {"manifest.merge-min-count": "1000"})
    )
    commit = TableCommit(table, SinkOptions.of(root, {}))
    for number in range(commits):
        _commit(table, commit, number, _FILES_A_COMMIT)


def _commit(table: PaimonTable, commit: TableCommit, number: int, files: int) -> None:
    """Commit files of one day that only the manifests know, with stats as a writer makes them."""
    types = [field.type for field in table.latest_schema().fields]
    partition = encode_row([_day(number)], types[:1])

    def entry(i: int) -> ManifestEntry:
        at = number * _FILES_A_COMMIT + i
        low = [_day(number), at * 100, at * 7919 % 99991, at / 7, at * 10**9, f"city-{at % 1000:03}"]
        high = [
            _day(number),
            at * 100 + 99,
            at * 7919 % 99991 + 5,
            at / 7 + 1,
            at * 10**9 + 10**6,
            f"city-{at % 1000:03}-x",
        ]
        stats = SimpleStats(encode_row(low, types), encode_row(high, types), (0,) * len(types))
        name = f"data-{at * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}-0.parquet"
        file = DataFileMeta.for_append(
            file_name=name,
            file_size=at + 1000,
            row_count=100,
            schema_id=0,
            value_stats=stats,
            value_stats_cols=None,
            creation_time=1_700_000_000_000 + at,
        )
        return ManifestEntry(FileKind.ADD, partition, 0, -1, file)

    entries = tuple(entry(i) for i in range(files))
    name, content = f"manifest-planning-{number}", write_manifest(entries)
    table.file_io.write(table.layout.manifest(name), content)
    meta = ManifestFileMeta.of(name, len(content), entries, types[:1])
    request = CommitRequest("planning", number, Changes(entries), f"planning-{number}", manifests=(meta,))
    commit.commit(request, Guard())


def _fresh(what: str, root: str, commits: int) -> tuple[int, int]:
    """(base, peak) in KiB of a new process that does this."""
    command = [sys.executable, "-m", "benchmarks.planning", what, root, str(commits)]
    return tuple(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def _watched(what: str, root: str, commits: int) -> None:
    """Runs in a process of its own and prints its memory in KiB."""
    base = own_peak()
    if what == "make":
        _make(root, commits)
    else:
        table = open_table(local_file_io(flush=False), root, for_writing=True)
        if what == "plan":
            plan(table)
        else:
            metas = table.manifests.all_of(table.snapshots.latest())
            table.manifests.merge(metas, {"manifest.full-compaction-threshold-size": "1 b"}, f"planning-{what}")
    print(json.dumps([base, own_peak()]))


if __name__ == "__main__":
    _watched(sys.argv[1], sys.argv[2], int(sys.argv[3]))
