"""Values of which a manifest cannot say all: their rows are committed, and a reader that filters finds them."""

import pyarrow as pa
import pytest

from streamsink.sinks.lake_tables import writing
from tests.advice.following import told
from tests.iceberg.test_tables import Query, table_of

COLUMNS = {"id": pa.int64(), "text": pa.string()}
MODE = "write.metadata.metrics.default"


def bounds(query: Query) -> list[dict]:
    """The lower bounds of each file, by the id of the column."""
    return [dict(file["lower_bounds"]) for file in query.table().inspect.files().to_pylist()]


def test_a_value_without_bounds_is_found_beside_others_that_have_some(tmp_path, monkeypatch):
    """pyarrow leaves out bounds of more than 4 KiB, and pyiceberg looks only at the row groups that have some."""
    monkeypatch.setattr(writing, "_ROW_GROUP_BYTES", 1)  # several row groups in a file
    query = Query(tmp_path)
    for texts in (["a", "z" * 5_000, None], ["a", None, "c"]):
        query.run(pa.concat_tables(table_of({"id": 1, "text": text}, columns=COLUMNS) for text in texts))
    table = query.table()
    assert [len(text) for text in table.scan(row_filter="text > 'b'").to_arrow().column("text").to_pylist()] == [
        1,
        5_000,
    ]
    assert table.scan(row_filter="text is null").to_arrow().num_rows == 2
    assert sorted(map(sorted, bounds(query))) == [[1], [1, 2]]


def odd(kind: pa.DataType, value: int) -> pa.Array:
    if pa.types.is_string(kind):  # no UTF-8, as cast(value AS STRING) leaves it
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    return pa.array([value], pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)


TIMES = [(pa.timestamp("us"), 1 << 60), (pa.timestamp("us", tz="UTC"), -(1 << 60)), (pa.date32(), 1 << 30)]


@pytest.mark.parametrize(("kind", "value"), [*TIMES, (pa.string(), 0)], ids=str)
def test_a_value_that_python_does_not_know_is_committed(tmp_path, kind, value):
    """The record is a promise: an error in its commit would be there at each start."""
    query = Query(tmp_path)
    query.run(pa.table({"id": pa.array([1], pa.int64()), "odd": odd(kind, value)}))
    assert query.table().scan().to_arrow().column("odd").combine_chunks().equals(odd(kind, value))
    assert bounds(query)[0].keys() == {1}


@pytest.mark.parametrize(("kind", "value"), TIMES, ids=str)
def test_a_partition_that_cannot_be_told_is_refused_before_its_record(tmp_path, kind, value):
    query = Query(tmp_path)
    rows = pa.table({"id": pa.array([1], pa.int64()), "odd": odd(kind, value)})
    told("iceberg.unsupported", lambda: query.run(rows, partition_by=["odd"])).says("'odd'", "Nothing was recorded")
    query.forget_batch()
    query.run(rows.set_column(1, "odd", odd(kind, 1)))
    assert query.table().scan().to_arrow().num_rows == 1


@pytest.mark.parametrize("text", ["\ud7ff" * 20, "a" * 15 + "\ud7ffb", "\U0010ffff" * 20], ids=ascii)
def test_a_text_that_no_short_bound_is_above_is_committed(tmp_path, text):
    """Before the half of a pair, which no text has; and at the end of all characters."""
    query = Query(tmp_path)
    query.run(table_of({"id": 1, "text": text}, columns=COLUMNS))
    assert query.found() == [{"id": 1, "text": text}]
    assert query.table().scan(row_filter="text > 'a'").to_arrow().num_rows == 1


@pytest.mark.parametrize("value", ["snappy", "uncompressed", "none"])
def test_a_codec_of_data_files_says_nothing_of_manifests(tmp_path, value):
    """pyiceberg takes it for theirs, and does not know each. A number that is none counts as not set."""
    query, codec = Query(tmp_path), "write.avro.compression-codec"
    options = {codec: value, "commit.manifest.min-count-to-merge": value, "commit.manifest.target-size-bytes": value}
    query.run(table_of({"id": 1, "text": "a"}, columns=COLUMNS), table_options=options)
    query.run(table_of({"id": 2, "text": "b"}, columns=COLUMNS))
    assert [row["id"] for row in query.found()] == [2, 1] and options.items() <= query.table().properties.items()


def test_a_wish_for_statistics_that_nobody_knows_stops_no_commit(tmp_path):
    """Somebody sets the property while a record waits, or has set it before."""
    query = Query(tmp_path)
    query.run(table_of({"id": 1, "text": "a"}, columns=COLUMNS), table_options={MODE: "unknown"})
    query.run(table_of({"id": 2, "text": "b"}, columns=COLUMNS))
    assert [row["id"] for row in query.found()] == [2, 1] and [set(each) for each in bounds(query)] == [{1, 2}, {1, 2}]
