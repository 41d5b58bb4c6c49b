"""OVERWRITE and COMPACT commits and index manifests, as Paimon's Java sees them."""

import collections
import threading

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.events import SnapshotReplaced
from streamsink.format.index_manifest import (
    DELETION_VECTORS_INDEX,
    HASH_INDEX,
    DeletionVectorRange,
    IndexFileMeta,
    IndexManifestEntry,
    read_index_manifest,
)
from streamsink.format.manifest import FileKind
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.commit.changes import Changes
from streamsink.table.table import open_table
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.table.compacting import CommitMessage, Increment, commit_compaction
from tests.table.entries import commit, part

pytestmark = [pytest.mark.compat, pytest.mark.spark]

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
FIELDS = parse_ddl("id BIGINT, part STRING")
OPTIONS = SinkOptions.of("t", {})


def _rows(start, end):
    numbers = list(range(start, end))
    return pa.RecordBatch.from_pydict({"id": numbers, "part": ["ab"[n % 2] for n in numbers]}, schema=SCHEMA)


def _write(path, boundaries, **options):
    driver = MicroBatchDriver(path, SCHEMA, _rows, SinkOptions.of(path, options))
    driver.run(local_file_io(), SparkCheckpoint(IdSource().new_id()), boundaries)


def test_java_reads_an_overwritten_table_and_goes_on(java, path):
    """Our rows replace rows that Java wrote, by partition; then Java overwrites ours; and we go on."""
    java.create(path, FIELDS, ["part"])
    java.append(path, [(100, "a"), (101, "c")])
    _write(path, (4,), mode="overwrite", application="one")
    assert sorted(java.read(path)) == [(0, "a"), (1, "b"), (2, "a"), (3, "b"), (101, "c")]
    assert open_table(local_file_io(), path, for_writing=False).snapshots.latest().commit_kind == "OVERWRITE"
    java.overwrite(path, [(200, "a")])
    _write(path, (1,), mode="overwrite", overwrite_partition={"part": "a"}, application="two")
    assert sorted(java.read(path)) == [(0, "a"), (1, "b"), (3, "b"), (101, "c")]
    _write(path, (2,), mode="overwrite", overwrite_partition={}, application="three")
    assert sorted(java.read(path)) == [(0, "a"), (1, "b")]


def test_java_reads_a_compaction_of_ours_and_compacts_on(java, path):
    """Two files become one under COMPACT, with the same rows. Java's own compaction and appends go on from there."""
    java.create(path, FIELDS, ["part"], {"compaction.min.file-num": "2"})
    for n in range(3):
        java.append(path, [(n, "a")])
    table = open_table(local_file_io(), path, for_writing=True)
    old = [entry.file for entry in table.manifests.entries_of(table.snapshots.latest())][:2]
    folder = f"{path}/part=a/bucket-0"
    io = local_file_io()
    writer = TableWriter(io, WriteSpec(folder, table.latest_schema().to_json(), 2**20, 5, 2**20))
    writer.write(pa.RecordBatch.from_pydict({"id": [0, 1], "part": ["a", "a"]}, schema=SCHEMA))
    with io.flush_group() as group:
        written = writer.close(group)[0]
        group.flush()
    files = Increment(deleted=tuple(old), new=(written.meta,))
    commit_compaction(table, OPTIONS, [CommitMessage(written.partition, 0, -1, compact=files)])
    assert sorted(java.read(path)) == [(0, "a"), (1, "a"), (2, "a")] and java.file_count(path) == 2
    java.append(path, [(3, "a")])
    java.compact(path)
    assert sorted(java.read(path)) == [(0, "a"), (1, "a"), (2, "a"), (3, "a")]


def test_java_reads_our_index_manifest_and_we_read_javas(java, path):
    """It has hash indexes and deletion vectors:
    Java reads what we wrote and writes it again, and we read the same entries."""
    java.create(path, FIELDS, ["part"])
    table = open_table(local_file_io(), path, for_writing=True)
    vectors = (DeletionVectorRange("data-1.parquet", 1, 22, 3), DeletionVectorRange("data-2.parquet", 31, 40, None))
    ours = [
        IndexManifestEntry(FileKind.ADD, part("a"), 1, IndexFileMeta(HASH_INDEX, "index-1", 8, 2)),
        IndexManifestEntry(
            FileKind.ADD, part(None), 0, IndexFileMeta(DELETION_VECTORS_INDEX, "index-2", 71, 2, vectors)
        ),
    ]
    commit(table, Changes((), tuple(ours)))
    name = table.snapshots.latest().index_manifest
    again = java.copy_index_manifest(path, name)
    data = local_file_io().read(f"{path}/manifest/{again}")
    assert again != name and sorted(read_index_manifest(data, again), key=lambda e: e.file.file_name) == ours


def _race(java, path, commits) -> tuple[collections.Counter, int]:
    """Java and this process commit at the same time.
    Returns the ids in the table, and how many of Java's commits are in it."""
    java.create(path, FIELDS, ["part"], {"commit.max-retries": "1000", "commit.max-retry-wait": "50 ms"})
    theirs = threading.Thread(target=lambda: [java.append(path, [(1_000_000 + n, "j")]) for n in range(commits)])
    theirs.start()
    driver = MicroBatchDriver(path, SCHEMA, _rows, SinkOptions.of(path, {"flush": False, "commit_max_retries": 1000}))
    checkpoint, batches = SparkCheckpoint(IdSource().new_id()), 0
    while theirs.is_alive() or not batches:
        batches += 5
        driver.run(local_file_io(False), checkpoint, [2 * n for n in range(1, batches + 1)])
    theirs.join()
    # The last one may have been replaced.
    driver.run(local_file_io(False), checkpoint, [2 * n for n in range(1, batches + 2)])
    found = collections.Counter(row[0] for row in java.read(path))
    told = [e for e in driver.events if isinstance(e, SnapshotReplaced)]
    mine = {n: found[n] for n in range(2 * batches + 2)}
    assert mine == dict.fromkeys(range(2 * batches + 2), 1), f"replaced: {told}"
    kept = sum(n >= 1_000_000 for n in found)
    print(f"RESULT race with Java: ours={batches + 1} lost=0 doubled=0 java={commits} kept={kept} replaced={len(told)}")
    return found, kept


@pytest.mark.in_turn("Java beside us", 1)
def test_java_races_us_on_a_bare_disk(java, path):
    """Java's renames may replace our snapshots, but every row of ours is there once all the same.
    Java may lose its own commits."""
    found, kept = _race(java, path, 25)
    assert max(found.values()) == 1 and kept > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_java_races_us_for_long(java, path):
    _race(java, path, 1_000)
