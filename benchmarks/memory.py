"""Peak memory of a task that writes (over what its worker takes anyway),
and of a driver whose table has many live files."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import streamsink
from benchmarks import data, stages
from benchmarks.machine import own_peak, python_workers
from benchmarks.operations import QUERY, numbers
from benchmarks.report import Table, at_most
from streamsink.format.manifest import write_manifest
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.storage.file_io import local_file_io
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.table_commit import CommitRequest, TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint

_MIB = 1024  # KiB
_MOST_TASK_MIB, _MOST_DRIVER_MIB = 256, 200
_ENTRIES_A_MANIFEST = 5_000
_ROWS = 10
# More than manifest.merge-min-count, so that the driver merges manifests while it is watched.
_COMMITS = 40


def memory(spark, folder: Path, sizes: data.Sizes) -> list:
    """Both peaks, as the kernel's high-water mark of resident memory."""
    rows, goals = [], []
    inputs = [(sizes.large_rows, 0), *((sizes.partitioned_rows, count) for count in sizes.partitions)]
    for count, partitions in inputs:
        what = f"a writer's task, {count:,} rows" + (f" over {partitions:,} partitions" if partitions else "")
        base, peak = _tasks(spark, folder, count, partitions)
        rows.append([what, f"{base / _MIB:.0f}", f"{peak / _MIB:.0f}", f"{(peak - base) / _MIB:.0f}"])
        goals.append(
            at_most(f"peak memory over the worker's base: {what}", (peak - base) / _MIB, _MOST_TASK_MIB, "{:.0f} MiB")
        )
    base, peak = _driver(folder / "live", sizes.live_files)
    what = f"the driver, {sizes.live_files:,} live files: restore, {_COMMITS} commits"
    rows.append([what, f"{base / _MIB:.0f}", f"{peak / _MIB:.0f}", f"{(peak - base) / _MIB:.0f}"])
    goals.append(at_most(f"peak memory of {what}", (peak - base) / _MIB, _MOST_DRIVER_MIB, "{:.0f} MiB"))
    note = (
        "High-water mark of resident memory. Base of a task: the same workers after counting 1,000 rows; of the "
        "driver: after its imports."
    )
    return [Table("Peak memory", ("", "base MiB", "peak MiB", "over it MiB"), rows, note), *goals]


def _tasks(spark, folder: Path, count: int, partitions: int) -> tuple[int, int]:
    """(base, peak) in KiB of the workers of one large write; of each the greatest."""
    environment = spark.sparkContext.environment
    environment["STREAMSINK_BENCHMARK"] = f"memory-{partitions}"  # These workers run nothing else.
    known = set(python_workers())
    frame = spark.read.schema(data.ddl(partitions)).parquet(data.large(spark, folder, count, partitions))
    frame.limit(1_000).repartition(4).mapInArrow(stages.count, stages.RESULT).collect()
    base = max(peak for pid, peak in python_workers().items() if pid not in known)
    at = folder / "memory"
    keys = ("part",) if partitions else ()
    streamsink.write(
        frame, str(at), "memory", lambda event: None, partition_by=keys, driver_max_rows=0, large_batches="tasks"
    )
    peak = max(peak for pid, peak in python_workers().items() if pid not in known)
    shutil.rmtree(at)
    del environment["STREAMSINK_BENCHMARK"]
    return base, peak


def _driver(folder: Path, live_files: int) -> tuple[int, int]:
    """(base, peak) in KiB of a process that opens the table and commits."""
    _many_files(folder, live_files)
    command = [sys.executable, "-m", "benchmarks.memory", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    shutil.rmtree(folder)
    found = json.loads(done.stdout)
    return found["base"], found["peak"]


def _many_files(folder: Path, live_files: int) -> None:
    """A table of one real file and very many that are links to it: a sink looks for some of them when it starts."""
    driver, file_io = numbers(folder, {}, _ROWS), local_file_io(flush=False)
    checkpoint = SparkCheckpoint(QUERY, [_ROWS])
    sink = driver.start(file_io, checkpoint)
    sink.batch(driver.describe(checkpoint, 0))
    sink.close()
    table = open_table(file_io, driver.root, for_writing=True)
    newest = table.snapshots.latest()
    (entry,) = table.manifests.entries_of(newest)
    application = driver.options.application
    state = table.states.read(newest).by_application[application]
    commit = TableCommit(table, driver.options)
    for first in range(0, live_files, _ENTRIES_A_MANIFEST):
        numbered = range(first, min(first + _ENTRIES_A_MANIFEST, live_files))
        entries = tuple(
            dataclasses.replace(entry, file=dataclasses.replace(entry.file, file_name=f"data-{number:036}-0.parquet"))
            for number in numbered
        )
        for made in entries:
            os.symlink(
                data_file_path(table, table.latest_schema(), entry), data_file_path(table, table.latest_schema(), made)
            )
        name, content = f"manifest-{first:036}-0", write_manifest(entries)
        file_io.write(table.layout.manifest(name), content)
        meta = ManifestFileMeta.of(name, len(content), entries, [])
        request = CommitRequest(
            "benchmark",
            first,
            Changes(entries),
            f"many-{first}",
            manifests=(meta,),
            application=application,
            state=state,
        )
        commit.commit(request, Guard())


def _watched(folder: Path) -> None:
    """Runs in a process of its own: opens, restores, commits, and prints its memory in KiB."""
    import pyspark.sql  # noqa: F401 - what a driver has loaded before the sink takes anything

    driver = numbers(folder, {}, _ROWS)
    base = own_peak()
    checkpoint = SparkCheckpoint(QUERY, [_ROWS * number for number in range(1, _COMMITS + 2)], 1)
    sink = driver.start(local_file_io(flush=False), checkpoint)
    for batch_id in range(1, _COMMITS + 1):
        sink.batch(driver.describe(checkpoint, batch_id))
    sink.close()
    print(json.dumps({"base": base, "peak": own_peak()}))


if __name__ == "__main__":
    _watched(Path(sys.argv[1]))
