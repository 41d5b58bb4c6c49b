"""Compaction of ours before Paimon's Java and pypaimon: the same plan, the same rows, and they go on from there."""

import random

import pyarrow as pa
import pytest

from streamsink import maintenance, read_arrow, verify
from streamsink.clock import IdSource
from streamsink.compaction.compactor import Compactor
from streamsink.compaction.plan import pack
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.compat.rows import NESTED, PRIMITIVES, columns, random_rows

pytestmark = [pytest.mark.compat, pytest.mark.spark]

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
FIELDS = parse_ddl("id BIGINT, part STRING")


def _rows(start, end):
    numbers = list(range(start, end))
    return pa.RecordBatch.from_pydict({"id": numbers, "part": ["ab"[n % 2] for n in numbers]}, schema=SCHEMA)


def _query(path):
    driver = MicroBatchDriver(path, SCHEMA, _rows, SinkOptions.of(path, {"flush": False}))
    checkpoint = SparkCheckpoint(IdSource().new_id())
    return lambda ends: driver.run(local_file_io(False), checkpoint, ends)


def _expire(java, path, keep: int) -> int:
    """Let all snapshots but the newest ones expire, as Java does. Returns how many have."""
    table, _ = java._open(path)
    builder = java._paimon.options.ExpireConfig.builder().snapshotRetainMin(keep).snapshotRetainMax(keep)
    config = builder.snapshotTimeRetain(java._jvm.java.time.Duration.ZERO).build()
    return table.newExpireSnapshots().config(config).expire()


def _plan(java, path) -> list[list[str]]:
    """Names of the files of each task that Java's own job would do."""
    tasks = java._paimon.append.AppendCompactCoordinator(java._open(path)[0], False).run()
    return [[file.fileName() for file in task.compactBefore()] for task in tasks]


def test_java_and_pypaimon_read_what_we_compact_and_java_goes_on(java, pypaimon, path):
    """Appends, a compaction and an expiry of Java's follow on ours; our stream and a compaction follow on these."""
    java.create(path, FIELDS, ["part"], {"compaction.min.file-num": "3"})
    java.append(path, [(1000, "a"), (1001, "b")])
    run = _query(path)
    run([10, 20, 30])
    done = maintenance.compact(path)
    wanted = [(n, "ab"[n % 2]) for n in range(30)] + [(1000, "a"), (1001, "b")]
    assert (done.files_before, done.files_after) == (8, 2) and java.file_count(path) == 2
    assert sorted(java.read(path)) == sorted(wanted)
    assert sorted(java.read(path, [("greater_or_equal", "id", 1000)])) == [(1000, "a"), (1001, "b")]
    found = pypaimon.read(path)
    assert sorted(zip(found["id"].to_pylist(), found["part"].to_pylist())) == sorted(wanted)
    for n in range(3):
        java.append(path, [(2000 + n, "a")])
    assert java.compact(path) == 1
    assert _expire(java, path, 1) > 5
    run([10, 20, 30, 40])
    maintenance.compact(path, full=True)
    wanted += [(n, "ab"[n % 2]) for n in range(30, 40)] + [(2000 + n, "a") for n in range(3)]
    assert sorted(java.read(path)) == sorted(wanted) and java.file_count(path) == 2
    assert sorted(read_arrow(path)["id"].to_pylist()) == sorted(n for n, _ in wanted)
    assert verify(path, contents=True).ok


def test_the_plan_is_javas(java, path, rng: random.Random):
    """The same files in the same tasks, by Java's coordinator and by ours, of files of many sizes."""
    options = {"compaction.min.file-num": "3", "target-file-size": "12 kb", "source.split.open-file-cost": "1 kb"}
    java.create(path, FIELDS, ["part"], options)
    run, ends = _query(path), []
    for _ in range(25):
        ends.append((ends[-1] if ends else 0) + rng.choice([1, 30, 300, 3_000, 6_000]))
    run(ends)
    table = open_table(local_file_io(), path, for_writing=True)
    compactor = Compactor(table, SinkOptions.of(path, {}))
    compactor.settle()
    tasks = compactor.plan(pack)
    live = table.manifests.entries_of(table.snapshots.latest())
    sizes = {entry.file.file_name: entry.file.file_size for entry in live}
    ours = sorted(sorted(sizes[e.file.file_name] for e in task.files) for task in tasks)
    # Of files of one size Java takes any one first.
    assert ours == sorted(sorted(sizes[name] for name in task) for task in _plan(java, path)) and len(ours) > 1


def test_all_that_java_writes_stays_what_it_is(java, path, rng: random.Random):
    """Columns of every type. Nanoseconds of Java's are left to Java: Arrow would take some of its times for others."""
    fields = columns(f"{PRIMITIVES}, {NESTED}, mixed ROW<u TIMESTAMP(6), v TIMESTAMP_LTZ(3), w ARRAY<INT NOT NULL>>")
    java.create(path, fields, [], {})
    for _ in range(4):
        java.append(path, random_rows(rng, fields, 30))
    before = sorted(map(repr, java.read(path)))
    assert maintenance.compact(path, full=True).files_before == 4 and java.file_count(path) == 1
    assert sorted(map(repr, java.read(path))) == before and verify(path, contents=True).ok
    fine, times = f"{path}_fine", [-(10**9) * 86_400 * 365, 7 * 10**9, 253_402_300_799 * 10**9, -62_135_596_800 * 10**9]
    java.create(fine, columns("id INT, t TIMESTAMP(9), r ROW<s TIMESTAMP_LTZ(7)>"), [], {})
    for n, time in enumerate(times):
        java.append(fine, [(n, time, (time,))])
    before = sorted(map(repr, java.read(fine)))
    assert maintenance.compact(fine, full=True).snapshots == () and verify(fine, contents=True).ok
    assert sorted(map(repr, java.read(fine))) == before
