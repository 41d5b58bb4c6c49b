"""``streamsink.maintenance.compact``, on a disk: types, schemas that have changed, and what it says."""

import ast
import datetime
import decimal
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamsink
from streamsink import maintenance
from streamsink.clock import IdSource
from streamsink.compaction import rewrite
from streamsink.compaction.compactor import Compactor
from streamsink.compaction.plan import pack_all
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.advice.following import follows, told

SCHEMA = pa.schema([("id", pa.int32()), ("part", pa.string())])


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db" / "orders")


class Query:
    """One query that writes batches of ten rows, whose columns may change."""

    def __init__(self, path, schema=SCHEMA, row=lambda n: (n, "ab"[n % 2]), **options):
        options = {"partition_by": ("part",), "add_columns": True, "widen_types": True, "flush": False, **options}
        self.driver = MicroBatchDriver(path, schema, self._rows, SinkOptions.of(path, options))
        self.checkpoint = SparkCheckpoint(IdSource().new_id())
        self.row = row
        self.ends = []

    def _rows(self, start, end):
        columns = list(zip(*(self.row(n) for n in range(start, end))))
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, self.driver.schema)],
            schema=self.driver.schema,
        )

    def write(self, batches):
        for _ in range(batches):
            self.ends.append((self.ends[-1] if self.ends else 0) + 10)
        self.driver.run(local_file_io(False), self.checkpoint, self.ends)


def files_of_path(path):
    table = open_table(local_file_io(), path, for_writing=False)
    return [entry.file for entry in table.manifests.entries_of(table.snapshots.latest())]


def test_it_says_what_it_has_done_and_what_it_would_do(path):
    query = Query(path)
    query.write(4)
    few = maintenance.compact(path)
    assert (few.files_before, few.snapshots) == (0, ()) and "nothing was compacted" in str(few)
    query.write(1)
    dry = maintenance.compact(path, dry_run=True)
    assert (dry.files_before, dry.rows, dry.snapshots) == (10, 50, ()) and "10 small files" in str(dry)
    assert len(files_of_path(path)) == 10
    done = maintenance.compact(path)
    assert (done.files_before, done.files_after, done.rows, len(done.snapshots)) == (10, 2, 50, 1)
    assert done.bytes_after == sum(file.file_size for file in files_of_path(path)) and str(done).startswith(path)
    query.write(1)
    one = maintenance.compact(path, [{"part": "a"}], full=True)
    assert (one.files_before, one.files_after, len(files_of_path(path))) == (2, 1, 3)
    report = streamsink.verify(path, contents=True)
    assert report.ok, report
    assert sorted(streamsink.read_arrow(path).column("id").to_pylist()) == list(range(60))


@follows("compact.partitions")
def test_partitions_are_given_as_the_error_says(path):
    """One dictionary without a list around it is refused, by an example of what is right."""
    query = Query(
        path,
        pa.schema([("id", pa.int32()), ("dt", pa.string())]),
        lambda n: (n, f"2026-11-2{n % 2}"),
        partition_by=("dt",),
    )
    query.write(2)
    for given in ({"dt": "2026-11-21"}, "2026-11-21"):
        advised = told("compact.partitions", lambda given=given: maintenance.compact(path, given))
    example = ast.literal_eval(advised.find(r"such as (.*\])\."))
    assert maintenance.compact(path, example, full=True).files_before == 2


def test_a_column_that_is_no_partition_is_named(path):
    Query(path).write(1)
    with pytest.raises(Misuse, match="partitions names id; .*are part") as refused:
        maintenance.compact(path, [{"id": 1}])
    assert refused.value.kind == "option.overwrite-partition"


def test_files_of_older_schemas_become_files_of_the_newest_one(path):
    """A column was added, one was widened; statistics and position ranges are of all rows."""
    query = Query(path, partition_by=())
    query.write(2)
    query.driver.schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("more", pa.float64())])
    query.row = lambda n: (n, "ab"[n % 2], n / 2)
    query.write(3)
    before = streamsink.read_arrow(path)
    maintenance.compact(path)
    assert streamsink.read_arrow(path).equals(before)
    [file] = files_of_path(path)
    assert (file.schema_id, file.row_count) == (1, 50)
    assert streamsink.read_arrow(path, where=streamsink.col("id") > 45).num_rows == 4
    assert streamsink.read_arrow(path, where=streamsink.col("more").is_null()).num_rows == 20


def test_all_kinds_of_columns_stay_what_they_are(path):
    """Nanoseconds beside microseconds, decimals, bytes, and nested columns with nulls."""
    inner = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("fine", pa.timestamp("ns")),
            ("coarse", pa.timestamp("us")),
            ("day", pa.date32()),
            ("price", pa.decimal128(12, 3)),
            ("raw", pa.binary()),
            ("inner", inner),
            ("names", pa.map_(pa.string(), pa.int32())),
        ]
    )

    def row(n):
        nested = None if n % 3 == 0 else {"a": None if n % 2 else n, "b": None if n % 5 == 0 else ["x", None][: n % 3]}
        return (
            n,
            None if n % 7 == 0 else n * 1_000_003,
            datetime.datetime(2026, 1, 1) + datetime.timedelta(microseconds=n),
            datetime.date(2026, 1, 1 + n % 28),
            decimal.Decimal(n).scaleb(-3),
            bytes([n % 256]),
            nested,
            None if n % 4 == 0 else [("k", n), ("l", None)],
        )

    query = Query(path, schema, row, partition_by=())
    query.write(6)
    before = streamsink.read_arrow(path)
    assert maintenance.compact(path).files_after == 1
    assert streamsink.read_arrow(path).equals(before)


def test_files_that_may_have_nulls_where_the_newest_schema_takes_none_stay(path, caplog):
    """They are no reason to stop a query: those that were written since are compacted."""
    query = Query(path, partition_by=(), row=lambda n: (n, None))
    query.write(3)
    schema = json.loads(_read(f"{path}/schema/schema-0"))
    schema["id"], schema["fields"][1]["type"] = 1, "STRING NOT NULL"
    with open(f"{path}/schema/schema-1", "w", encoding="utf-8") as file:
        json.dump(schema, file)
    query.row = lambda n: (n, "x")
    query.driver.schema = pa.schema([("id", pa.int32()), pa.field("part", pa.string(), nullable=False)])
    query.write(3)
    assert maintenance.compact(path, full=True).files_before == 3
    assert sorted(file.schema_id for file in files_of_path(path)) == [0, 0, 0, 1]
    assert "'part' is NOT NULL now" in caplog.text and streamsink.read_arrow(path)["part"].null_count == 30


def test_a_codec_that_was_changed_is_that_of_the_new_files(path):
    """Java has two names for none."""
    query = Query(path, partition_by=())
    query.write(2)
    schema = json.loads(_read(f"{path}/schema/schema-0"))
    schema["id"], schema["options"]["file.compression"] = 1, "uncompressed"
    with open(f"{path}/schema/schema-1", "w", encoding="utf-8") as file:
        json.dump(schema, file)
    assert maintenance.compact(path, full=True).files_after == 1
    [file] = files_of_path(path)
    footer = pq.ParquetFile(f"{path}/bucket-0/{file.file_name}").metadata
    assert footer.row_group(0).column(0).compression == "UNCOMPRESSED"


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_orphan_cleaning_leaves_alone_what_a_compaction_may_yet_publish(path, monkeypatch):
    """It may sleep for as long as a day between its files and its snapshot. What it forgets is cleaned."""
    query = Query(path, partition_by=())
    query.write(5)
    before, publish, cleaned = streamsink.read_arrow(path), Compactor._publish, []

    def sleeps(compactor, attempt, done, **how):
        for folder, _, names in os.walk(path):
            for name in names:
                os.utime(f"{folder}/{name}", (1, 1))
        cleaned.append(maintenance.remove_orphan_files(path, dry_run=False).paths)
        publish(compactor, attempt, done, **how)

    monkeypatch.setattr(Compactor, "_publish", sleeps)
    assert maintenance.compact(path).files_after == 1
    assert cleaned == [()] and streamsink.read_arrow(path).equals(before)
    left = f"{path}/bucket-0/data-compact-{IdSource().new_id()}-0.parquet"
    with open(left, "wb"):
        os.utime(left, (1, 1))
    assert maintenance.remove_orphan_files(path).paths == (left,)


def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Pieces of 65,536 rows are read, and a row group is written when enough of them wait. Rows keep their order."""
    most = [_most_memory(str(tmp_path / f"shop.db/orders{count}"), count) for count in (2, 8)]
    assert most[1] < 1.3 * most[0], most


def test_pieces_become_smaller_with_larger_rows(path, monkeypatch):
    """Rows of 20 KB, which compress well: a small file of them would be gigabytes in memory if it were read at once."""
    monkeypatch.setattr(rewrite, "_PIECE_BYTES", 2**18)
    query = Query(path, partition_by=(), row=lambda n: (n, f"{n:04}" * 5_000))
    query.ends = [100, 200]
    query.driver.run(local_file_io(False), query.checkpoint, query.ends)
    before, pieces = streamsink.read_arrow(path), []
    table = open_table(local_file_io(False), path, for_writing=True)
    compactor = Compactor(table, query.driver.options, pace=lambda: pieces.append(1))
    compactor.settle()
    compactor.do(compactor.plan(pack_all))
    assert 14 <= len(pieces) <= 20, "two files of 2 MB"
    assert streamsink.read_arrow(path).equals(before) and len(files_of_path(path)) == 1


def _most_memory(path: str, files: int) -> int:
    """The most bytes of Arrow data while so many files of 100,000 rows become one, or a few."""
    query = Query(path, partition_by=(), row=lambda n: (n, "x" * 50), table_options={"target-file-size": "2 mb"})
    query.ends = [100_000 * n for n in range(1, files + 1)]
    query.driver.run(local_file_io(False), query.checkpoint, query.ends)
    before, seen = pa.total_allocated_bytes(), [0]
    table = open_table(local_file_io(False), path, for_writing=True)
    compactor = Compactor(table, query.driver.options, pace=lambda: seen.append(pa.total_allocated_bytes() - before))
    compactor.settle()
    compactor.do(compactor.plan(pack_all))
    assert compactor.totals.files_before == files
    found = streamsink.read_arrow(path).column("id").to_pylist()
    assert found == list(range(100_000 * files))
    return max(seen)
