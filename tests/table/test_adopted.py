"""Files of another program become files of a checkpoint: they are checked, flushed and named, or refused as a whole."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.format.binary_row import decode_row
from streamsink.format.types import parse_ddl
from streamsink.storage.file_io import FileIO
from streamsink.table.table import new_schema
from streamsink.table.write.adopted import adopt_files
from streamsink.testing.memory import MemoryCalls

STAGING, FOLDER = "/t/staging/1-1", "/t/staging/1-1/spark"
SCHEMA = new_schema(parse_ddl("id BIGINT NOT NULL, at TIMESTAMP(6), name STRING"), (), {})
ARROW = pa.schema([pa.field("id", pa.int64(), False), ("at", pa.timestamp("us")), ("name", pa.string())])


class Place:
    """A store in memory with the other program's folder."""

    def __init__(self):
        self.calls = MemoryCalls()
        self.io = FileIO(self.calls, IdSource().new_id)
        self.io.make_dir(FOLDER)

    def put(self, name: str, rows: pa.Table | bytes, **how) -> None:
        """Put a file into the folder without flushing it."""
        stream = self.io.open_output(f"{FOLDER}/{name}")
        if isinstance(rows, bytes):
            stream.write(rows)
        else:
            pq.write_table(rows, stream, **how)
        stream.close()


@pytest.fixture
def place():
    return Place()


def rows(*ids: int, schema: pa.Schema = ARROW) -> pa.Table:
    at = datetime.datetime(2026, 11, 21)
    return pa.Table.from_pylist([{"id": n, "at": at, "name": f"n{n}"} for n in ids], schema=schema)


def test_files_are_named_in_staging_and_survive_a_power_failure(place):
    """Their bytes are flushed. Empty files, checksums and marks are deleted with the folder."""
    place.put("part-00000-x-c000.zstd.parquet", rows(1, 2))
    place.put(".part-00000-x-c000.zstd.parquet.crc", b"crc")
    place.put("part-00001-x-c000.zstd.parquet", rows())
    place.put("part-00002-x-c000.zstd.parquet", rows(3, 4, 5), row_group_size=2)
    place.put("_SUCCESS", b"")
    place.io.make_dir(f"{FOLDER}/_temporary/0")
    written = adopt_files(place.io, FOLDER, SCHEMA, 5)
    place.io.sync_dir(STAGING)
    place.calls.power_failure()
    assert [entry.name for entry in place.io.entries(STAGING)] == sorted(file.meta.file_name for file in written)
    found = [pq.read_table(pa.BufferReader(place.io.read(file.staged))).column("id").to_pylist() for file in written]
    assert found == [[1, 2], [3, 4, 5]]
    for file, ids in zip(written, found):
        assert file.final == f"bucket-0/{file.meta.file_name}" and file.partition == bytes(12)
        assert (file.meta.row_count, file.meta.file_size) == (len(ids), place.io.size(file.staged))
        types = [field.type for field in SCHEMA.fields]
        assert decode_row(file.meta.value_stats.min_values, types)[0] == min(ids)
        assert decode_row(file.meta.value_stats.max_values, types)[0::2] == (max(ids), f"n{max(ids)}")


@pytest.mark.parametrize("count", [4, 6, 0])
def test_other_rows_than_were_given_are_refused(place, count):
    """With one row too few or too many nothing gets a name."""
    place.put("part-0.parquet", rows(1, 2, 3))
    place.put("part-1.parquet", rows(4, 5))
    with pytest.raises(Corrupt, match=f"given {count} rows, and its files hold 5.*large_batches='tasks'") as refused:
        adopt_files(place.io, FOLDER, SCHEMA, count)
    assert refused.value.kind == "spark.row-count"
    assert [entry.name for entry in place.io.entries(STAGING)] == ["spark"]


NANOS = pa.schema([ARROW.field(0), ("at", pa.timestamp("ns")), ARROW.field(2)])


@pytest.mark.parametrize(
    "bad",
    [
        rows(1).select(["id", "name"]),
        rows(1).select(["at", "id", "name"]),
        rows(1).rename_columns(["id", "at", "Name"]),
        rows(1).cast(NANOS),
        b"PAR1 and no more",
        b"",
    ],
    ids=["fewer", "order", "name", "nanoseconds", "torn", "empty"],
)
def test_another_form_than_the_table_s_is_refused(place, bad):
    """The form may be INT96, for example, of a setting that was not honoured."""
    place.put("part-0.parquet", rows(1))
    place.put("part-1.parquet", bad)
    with pytest.raises(Corrupt, match="part-1.parquet") as refused:
        adopt_files(place.io, FOLDER, SCHEMA, 2)
    assert refused.value.kind == "spark.file"


def test_int96_is_refused(place):
    """Java reads it as nanoseconds, and a filter over it fails."""
    place.put("part-0.parquet", rows(1), use_deprecated_int96_timestamps=True)
    with pytest.raises(Corrupt, match=r"at timestamp\[ns\]"):
        adopt_files(place.io, FOLDER, SCHEMA, 1)


@pytest.mark.parametrize("statistics", [True, False], ids=["counted", "uncounted"])
def test_a_null_where_the_table_has_not_null_is_refused(place, statistics):
    """This holds even when the file does not say how many nulls it has."""
    optional = pa.schema([("id", pa.int64()), *list(ARROW)[1:]])
    data = pa.Table.from_pylist([{"id": 1}, {"id": None}], schema=optional)
    place.put("part-0.parquet", data, write_statistics=statistics)
    with pytest.raises(Misuse, match="'id' is NOT NULL") as refused:
        adopt_files(place.io, FOLDER, SCHEMA, 2)
    assert refused.value.kind == "data.null"


def test_stats_modes_of_the_table_are_kept(place):
    """They hold as for files of our own."""
    schema = new_schema(
        parse_ddl("id BIGINT, name STRING"), (), {"metadata.stats-mode": "counts", "fields.name.stats-mode": "none"}
    )
    place.put("part-0.parquet", rows(1, 2).select(["id", "name"]))
    (file,) = adopt_files(place.io, FOLDER, schema, 2)
    assert file.meta.value_stats_cols == ("id",) and file.meta.value_stats.null_counts == (0,)
    assert decode_row(file.meta.value_stats.min_values, [schema.fields[0].type]) == (None,)


def test_unknown_statistics_are_no_statistics(place):
    """A file that has none gets no bound and no count of nulls, so that no reader skips it."""
    schema = new_schema(parse_ddl("id BIGINT, name STRING"), (), {})
    place.put("part-0.parquet", rows(1, 2).select(["id", "name"]), write_statistics=["id"])
    (file,) = adopt_files(place.io, FOLDER, schema, 2)
    types = [field.type for field in schema.fields]
    assert file.meta.value_stats.null_counts == (0, None)
    assert decode_row(file.meta.value_stats.min_values, types) == (1, None)


@pytest.mark.parametrize(
    "ddl, values",
    [
        ("d DOUBLE", pa.array([1.0, 2.0, 3.0, float("nan")])),
        ("s STRING", pa.array([b"a", b"b", b"c", b"\xff"]).view(pa.string())),
    ],
    ids=["nan", "not-utf-8"],
)
def test_one_row_group_without_bounds_leaves_none_to_the_file(place, ddl, values):
    """The second of two row groups has a NaN that the program's bounds leave out, or a text whose bound is none."""
    schema = new_schema(parse_ddl(ddl), (), {})
    place.put("part-0.parquet", pa.table({ddl[0]: values}), row_group_size=2)
    (file,) = adopt_files(place.io, FOLDER, schema, 4)
    types = [schema.fields[0].type]
    assert (
        decode_row(file.meta.value_stats.min_values, types)
        == decode_row(file.meta.value_stats.max_values, types)
        == (None,)
    )


@pytest.mark.parametrize(
    "made_by, known",
    [
        ("mr version 1.17.9 (build xy)", True),
        ("mr version 1.18.0 (build xy)", False),
        ("mr version 2.0.0 (build xyz)", False),
        ("rs version 54.2.1 (b. xyz)", False),
    ],
)
def test_bounds_of_floats_are_taken_only_from_a_version_that_does_not_hide_nan(place, made_by, known):
    """parquet-mr from 1.18 on leaves a NaN out of its bounds, as writers that we do not know may do:
    a filter would miss the row."""
    schema = new_schema(parse_ddl("d DOUBLE, f FLOAT, id BIGINT"), (), {})
    written = pa.BufferOutputStream()
    rows = {"d": pa.array([1.0, 3.0]), "f": pa.array([2.0, 5.0], pa.float32()), "id": pa.array([1, 2])}
    pq.write_table(pa.table(rows), written, store_schema=False)
    data = written.getvalue().to_pybytes()
    ours = pq.read_metadata(pa.BufferReader(data)).created_by.encode()
    place.put("part-0.parquet", data.replace(ours, f"parquet-{made_by}".ljust(len(ours))[: len(ours)].encode()))
    (file,) = adopt_files(place.io, FOLDER, schema, 2)
    types = [field.type for field in schema.fields]
    assert decode_row(file.meta.value_stats.min_values, types) == ((1.0, 2.0, 1) if known else (None, None, 1))
    assert decode_row(file.meta.value_stats.max_values, types) == ((3.0, 5.0, 2) if known else (None, None, 2))
