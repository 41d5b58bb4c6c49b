"""Files that stay as they are, because their rows would not: what other engines write, and have deleted."""

import glob
import json
import logging
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamsink
from streamsink import maintenance
from streamsink.compaction.compactor import Compactor
from streamsink.compaction.plan import pack_all
from streamsink.compaction.rewrite import Rewriting
from streamsink.errors import Misuse
from streamsink.format.index_manifest import (
    DELETION_VECTORS_INDEX,
    DeletionVectorRange,
    IndexFileMeta,
    IndexManifestEntry,
)
from streamsink.format.manifest import FileKind
from streamsink.format.snapshot import OVERWRITE
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.commit.changes import Changes
from streamsink.table.history import integrity
from streamsink.table.table import open_table
from streamsink.table.write.folders import Folders
from tests.advice.following import follows, told
from tests.compaction.beside import BEFORE, compact, compact_beside, files_of, left, opened, small_files
from tests.compaction.test_by_hand import Query, files_of_path
from tests.crash.world import expected
from tests.table.entries import commit

# 9999-12-31 23:59:59, in microseconds: for many tables this means "never".
NEVER = 253_402_300_799_000_000


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db" / "orders")


def _says(path, change):
    """The table's only schema becomes what another engine would have made of it before the rows were written."""
    with open(f"{path}/schema/schema-0", encoding="utf-8") as file:
        schema = json.load(file)
    change(schema["fields"])
    with open(f"{path}/schema/schema-0", "w", encoding="utf-8") as file:
        json.dump(schema, file)


def _text_of_three(fields):
    fields[1]["type"] = "VARCHAR(3)"


def _no_null_inside(fields):
    fields[1]["type"]["fields"][0]["type"] = "INT NOT NULL"


@pytest.mark.parametrize(
    "kind, value, fitting, change, words",
    [
        (pa.string(), "four", "one", _text_of_three, "VARCHAR(3), found a value of 4"),
        (pa.struct([("a", pa.int32())]), {"a": None}, {"a": 1}, _no_null_inside, "NOT NULL in the table"),
    ],
)
def test_rows_that_the_table_would_not_take_from_us_stay_where_they_are(
    path, caplog, kind, value, fitting, change, words
):
    """Other writers do not look at lengths, or at nulls inside. That is no reason to stop a query: the other files are
    compacted, and such files are read once.
    """
    values = {0: fitting, 1: value, 2: fitting, 3: fitting, 4: value}
    query = Query(path, pa.schema([("id", pa.int32()), ("part", kind)]), partition_by=())
    query.row = lambda n: (n, values[n // 10])
    query.write(5)
    _says(path, change)
    before, reads = streamsink.read_arrow(path), []
    compactor = Compactor(_opened(path), SinkOptions.of(path, {}), pace=lambda: reads.append(1))
    with caplog.at_level(logging.WARNING, "streamsink"):
        for _ in range(2):
            compactor.settle()
            compactor.do(compactor.plan(pack_all))
    assert (compactor.totals.files_before, compactor.totals.files_after, len(compactor.totals.snapshots)) == (3, 1, 1)
    after = streamsink.read_arrow(path)
    assert after.sort_by("id").equals(before.sort_by("id")) and len(files_of_path(path)) == 3
    assert caplog.text.count("2 file(s) are not compacted") == 1 and words in caplog.text
    assert len(reads) == 1 + 3 + 3, "the first try, the search, and the second try"
    assert not glob.glob(f"{path}/streamsink/compact-*")


def _opened(path):
    return open_table(local_file_io(False), path, for_writing=True)


@follows("read.time-range")
def test_times_that_arrow_cannot_hold_in_nanoseconds_stay_what_they_are(path):
    """Java writes any time into a TIMESTAMP(9). Read as nanoseconds, the year 9999 would be 1816."""
    schema = pa.schema([("id", pa.int32()), ("until", pa.timestamp("ns")), ("all", pa.list_(pa.timestamp("ns")))])
    query = Query(path, schema, lambda n: (n, (n - 35) * 10**16 + n, [(n - 30) * 10**17 + n]), partition_by=())
    query.write(4)
    files = sorted(glob.glob(f"{path}/bucket-0/*.parquet"))
    plain = {file: pq.read_table(file, coerce_int96_timestamp_unit="us") for file in files}
    _as_java(files[0], plain[files[0]], pa.array([NEVER] * 10, pa.timestamp("us")), plain[files[0]]["all"])
    inside = pa.array([[0, NEVER]] * 10, pa.list_(pa.timestamp("us")))
    _as_java(files[1], plain[files[1]], plain[files[1]]["until"], inside)
    kept = pq.read_table(files[0], coerce_int96_timestamp_unit="us")
    assert str(kept["until"][0]) == "9999-12-31 23:59:59"
    assert maintenance.compact(path, full=True).files_before == 2
    assert len(files_of_path(path)) == 3
    [new] = glob.glob(f"{path}/bucket-0/data-compact-*")
    found = pq.read_table(new)
    assert found["until"].cast(pa.int64()).to_pylist() == [(n - 35) * 10**16 + n for n in found["id"].to_pylist()]
    assert pq.read_table(files[0], coerce_int96_timestamp_unit="us").equals(kept)
    told("read.time-range", lambda: streamsink.read_arrow(path)).says("Leave the column out")
    assert sorted(streamsink.read_arrow(path, columns=["id"])["id"].to_pylist()) == list(range(40))


def test_a_time_that_arrow_cannot_hold_is_no_damage(path, monkeypatch):
    Query(path).write(1)

    def refuses(*_):
        raise Misuse("9999", kind="read.time-range")

    monkeypatch.setattr(integrity, "read_file", refuses)
    assert streamsink.verify(path, contents=True).ok


def _as_java(file, found, until, every):
    """Put these columns into the data file, as INT96."""
    rows = pa.table([found["id"], until, every], names=["id", "until", "all"])
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)


def _vector(entry):
    """What deletes the first row of this file."""
    meta = IndexFileMeta(
        DELETION_VECTORS_INDEX, "index-1", 24, 1, dv_ranges=(DeletionVectorRange(entry.file.file_name, 1, 22, 1),)
    )
    return IndexManifestEntry(FileKind.ADD, entry.partition, entry.bucket, meta)


def _deletes_a_row(world):
    """Another engine deletes a row of the first file by a deletion vector. Returns the file's entry."""
    table = opened(world)
    entry = next(iter(table.manifests.entries_of(table.snapshots.latest())))
    commit(table, Changes((), (_vector(entry),)), kind=OVERWRITE)
    return entry


def test_a_file_of_which_rows_were_deleted_stays_with_its_deletion_vector():
    """In a new file these rows would be back."""
    world = small_files()
    entry = _deletes_a_row(world)
    totals = compact(world).totals
    assert (totals.files_before, totals.conflicts) == (8, 0) and sorted(files_of(world).values()) == [1, 1, 2]
    table = opened(world)
    newest = table.snapshots.latest()
    assert entry.identity in {e.identity for e in table.manifests.entries_of(newest)}
    assert [e.file.dv_ranges[0].data_file for e in table.manifests.index_of(newest)] == [entry.file.file_name]
    assert world.ids() == expected(BEFORE), "as a reader without vectors sees it"


def test_rows_that_are_deleted_while_a_compaction_works_cost_the_work_of_that_partition_only():
    world = small_files()
    compactor = compact_beside(world, lambda: _deletes_a_row(world))
    assert (compactor.totals.conflicts, compactor.totals.files_before) == (1, 6)
    assert world.ids() == expected(BEFORE) and left(world) == []
    compactor.settle()
    assert len(compactor.plan(pack_all)[0].files) == 2, "the two other files of the partition"


def test_a_search_that_others_disturb_is_followed_by_a_look(path):
    """A file is gone while it is looked for rows that do not fit: the caller tries again, and sees what it is."""
    query = Query(path, partition_by=())
    query.write(2)
    compactor = Compactor(_opened(path), SinkOptions.of(path, {}))
    compactor.settle()
    tasks = compactor.plan(pack_all)
    how, failed = Rewriting("", (0, ""), compactor._table.known_schema, 1), Misuse("no job", kind="spark.stopped")
    assert not compactor._left_alone.find(tasks, how, failed)
    os.remove(glob.glob(f"{path}/bucket-0/*.parquet")[0])
    assert compactor._left_alone.find(tasks, how, failed)


def test_a_partition_in_which_no_name_fits_stays_as_it_is(monkeypatch, caplog):
    """Java's names of files are shorter than ours, and so its partitions may have longer names."""
    world, of = small_files(), Folders.of

    def refuses(self, key):
        if key.values == ("a",):
            raise Misuse("too long", kind="partition.name-too-long")
        return of(self, key)

    monkeypatch.setattr(Folders, "of", refuses)
    assert compact(world).totals.files_before == 6 and "too long" in caplog.text
    assert world.ids() == expected(BEFORE) and left(world) == []
