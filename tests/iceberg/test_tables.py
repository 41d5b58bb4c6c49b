"""Tables as they are created, found and changed: types, partitions, schemas, and what is refused by name."""

import datetime
import decimal
import io
import json
import pickle
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType

from streamsink.errors import Retryable
from streamsink.iceberg import IcebergSink
from streamsink.options import SinkOptions
from streamsink.storage.stores import store_of
from streamsink.testing.conformance import ROOT
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.advice.following import advice, follows, told
from tests.iceberg.lake import TABLE, Lake

DAY = datetime.date(2026, 11, 27)
UTC = datetime.timezone.utc
COLUMNS = {
    "id": pa.int64(),
    "small": pa.int16(),
    "real": pa.float32(),
    "double": pa.float64(),
    "is": pa.bool_(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
    "price": pa.decimal128(9, 2),
    "wide": pa.decimal128(38, 4),
    "tags": pa.list_(pa.string()),
    "named": pa.map_(pa.string(), pa.int32()),
    "inner": pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int64()))]),
}
ROW = {
    "id": 1,
    "small": -3,
    "real": 0.5,
    "double": float("-inf"),
    "is": True,
    "text": "é/%'\u0000",
    "bytes": b"\xff\x00",
    "day": DAY,
    "at": datetime.datetime(2026, 11, 27, 1, 2, 3, 456789, UTC),
    "local": datetime.datetime(1969, 12, 31, 23, 59, 59, 1),
    "price": decimal.Decimal("-12345.67"),
    "wide": decimal.Decimal("1234567890123456789012345678901234.5678"),
    "tags": ["a", None],
    "named": [("k", 1), ("n", None)],
    "inner": {"a": None, "b": [1, 2]},
}


class Query:
    """A query of any columns into a table on a disk, in a catalog of SQLite."""

    def __init__(self, folder, **of_sink):
        self.folder, self.of_sink, self.checkpoint = folder, of_sink, SparkCheckpoint("query")
        folder.mkdir(exist_ok=True)
        self.meanwhile: Callable[[], None] = lambda: None  # called once, when the rows of a batch are asked for
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": str(folder / "ware house"),
        }

    def sink(self) -> IcebergSink:
        return IcebergSink(**{"table": TABLE, "catalog": "lake", "catalog_properties": self.properties, **self.of_sink})

    def run(self, *batches: pa.Table, **options) -> None:
        """Write these batches behind those that were written."""
        first = self.checkpoint.ends[-1] if self.checkpoint.ends else 0
        ends = [*self.checkpoint.ends]
        by_start = {}
        for batch in batches:
            by_start[first] = batch
            first += batch.num_rows
            ends.append(first)
        schema = batches[0].schema

        def rows(start: int, end: int) -> pa.RecordBatch:
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
            return by_start[start].combine_chunks().to_batches()[0]

        options = {"restore": "restore-and-continue", **options}
        driver = MicroBatchDriver(TABLE, schema, rows, SinkOptions.of(TABLE, options))
        driver.destination = self.sink
        driver.run(store_of(self.sink().journal, driver.options.store_options).open(), self.checkpoint, ends)

    def forget_batch(self) -> None:
        """The batch that was refused was planned, and comes again with other rows."""
        self.checkpoint.ends = self.checkpoint.ends[: self.checkpoint.committed]

    def table(self):
        return self.sink().named().load()

    def found(self) -> list[dict]:
        """All rows as pyiceberg reads them."""
        return self.table().scan().to_arrow().to_pylist()


def table_of(*rows: dict, columns=COLUMNS) -> pa.Table:
    return pa.Table.from_pylist(list(rows), pa.schema(list(columns.items())))


def empty_row(number: int) -> dict:
    return {name: number if name == "id" else None for name in COLUMNS}


def test_every_type_comes_back(tmp_path):
    """As pyiceberg reads it, row for row; also nulls alone."""
    query = Query(tmp_path)
    query.run(table_of(ROW, empty_row(2)), table_of(empty_row(3)))
    assert sorted(query.found(), key=lambda row: row["id"]) == [ROW, empty_row(2), empty_row(3)]
    assert len(query.table().scan(row_filter="price < 0").to_arrow()) == 1
    assert len(query.table().scan(row_filter="text is null").to_arrow()) == 2


@pytest.mark.in_turn("partitions of an Iceberg table", 3)
@pytest.mark.parametrize("by", ["small", "is", "text", "bytes", "day", "at", "local", "price", "wide"])
def test_each_partition_has_its_rows(tmp_path, by):
    """Partitioned by columns as they are; pyiceberg reads a partition by its value, and what is null by itself."""
    query = Query(tmp_path)
    query.run(table_of(ROW, empty_row(2), {**ROW, "id": 3}), partition_by=["id", by])
    spec = query.table().spec()
    assert [(str(field.transform), field.name) for field in spec.fields] == [("identity", "id"), ("identity", by)]
    values = {str(entry["partition"][by]) for entry in query.table().inspect.partitions().to_pylist()}
    assert len(values) == 2 and "None" in values
    assert [row["id"] for row in query.table().scan(row_filter="id = 3").to_arrow().to_pylist()] == [3]
    assert query.table().scan(row_filter=f"{by} is null").to_arrow().column("id").to_pylist() == [2]
    assert len(query.found()) == 3


def test_a_table_has_other_partitions_than_the_option_says(tmp_path):
    """The option is for the table that is created; it was left out of account in silence."""
    query = Query(tmp_path)
    query.run(table_of(ROW), partition_by=["id"])
    query.run(table_of({**ROW, "id": 2}))
    said = told("table.created-differently", lambda: query.run(table_of({**ROW, "id": 3}), partition_by=["day"]))
    query.run(table_of({**ROW, "id": 3}), partition_by=[said.find(r"is partitioned by \['(\w+)'\]")])
    assert sorted(row["id"] for row in query.found()) == [1, 2, 3]


def test_bounds_and_counts_are_those_that_pyiceberg_writes(tmp_path):
    """By them readers leave files out: a wrong one would hide rows."""
    query = Query(tmp_path)
    low = {
        **ROW,
        "id": -5,
        "real": float("nan"),
        "text": "a" * 40,
        "bytes": b"\x00" * 20,
        "at": ROW["local"].replace(tzinfo=UTC),
    }
    rows = table_of(ROW, empty_row(7), low)
    query.run(rows)
    query.table().append(rows.cast(query.table().schema().as_arrow()))
    theirs, mine = sorted(
        query.table().inspect.files().to_pylist(), key=lambda file: "streamsink-" in file["file_path"]
    )
    for name in ("record_count", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
        assert dict(mine[name]) == dict(theirs[name]) if isinstance(mine[name], list) else mine[name] == theirs[name]
    assert len(mine["lower_bounds"]) > 10


def test_columns_are_found_by_their_ids_after_a_rename(tmp_path):
    """And a column that was dropped and added again under its name has none of the old values."""
    query, columns = Query(tmp_path), {"id": pa.int64(), "text": pa.string(), "x": pa.int32()}
    query.run(table_of({"id": 1, "text": "a", "x": 7}, columns=columns))
    with query.table().update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("text", "words").delete_column("x")
    with query.table().update_schema() as update:
        update.add_column("x", IntegerType())
    renamed = {"id": pa.int64(), "words": pa.string(), "x": pa.int32()}
    query.run(table_of({"id": 2, "words": "b", "x": 8}, columns=renamed))
    assert sorted(query.found(), key=lambda row: row["id"]) == [
        {"id": 1, "words": "a", "x": None},
        {"id": 2, "words": "b", "x": 8},
    ]


def test_a_partition_may_have_another_name_than_its_column(tmp_path):
    """As after a rename of the column, or as its creator has named it."""
    query, columns = Query(tmp_path), {"id": pa.int64(), "day": pa.date32()}
    query.run(table_of({"id": 1, "day": DAY}, columns=columns), partition_by=["day"])
    with query.table().update_schema() as update:
        update.rename_column("day", "date")
    with query.table().update_spec() as spec:
        spec.add_field("id", "identity", "number")
    renamed = {"id": pa.int64(), "date": pa.date32()}
    query.run(table_of({"id": 2, "date": DAY}, {"id": 3, "date": None}, columns=renamed))
    assert [field.name for field in query.table().spec().fields] == ["day", "number"]
    assert query.table().scan(row_filter="date is null").to_arrow().to_pylist() == [{"id": 3, "date": None}]
    assert sorted(row["id"] for row in query.table().scan(row_filter=f"date = '{DAY}'").to_arrow().to_pylist()) == [
        1,
        2,
    ]


@follows("schema.evolution", "schema.missing-column")
def test_a_schema_changes_by_the_options_of_all_tables(tmp_path):
    """Without them rows that do not fit are refused, and nothing of them is written."""
    query = Query(tmp_path)
    query.run(table_of({"id": 1, "n": 5}, columns={"id": pa.int64(), "n": pa.int32()}))
    wider = table_of({"id": 2, "n": 1 << 40}, columns={"id": pa.int64(), "n": pa.int64()})
    said = told("schema.evolution", lambda: query.run(wider)).says("column 'n'", "Nothing was written")
    query.forget_batch()
    query.run(wider, widen_types=said.option("widen_types"))
    more = table_of({"id": 3, "n": 1, "new": "x"}, columns={"id": pa.int64(), "n": pa.int64(), "new": pa.string()})
    said = told("schema.evolution", lambda: query.run(more)).says("column 'new'")
    query.forget_batch()
    query.run(more, add_columns=said.option("add_columns"))
    fewer = table_of({"id": 4}, columns={"id": pa.int64()})
    said = told("schema.missing-column", lambda: query.run(fewer)).says("column 'n'")
    query.forget_batch()
    query.run(fewer, add_columns=said.option("add_columns"))
    assert sorted(query.found(), key=lambda row: row["id"]) == [
        {"id": 1, "n": 5, "new": None},
        {"id": 2, "n": 1 << 40, "new": None},
        {"id": 3, "n": 1, "new": "x"},
        {"id": 4, "n": None, "new": None},
    ]


def test_a_change_that_iceberg_does_not_allow_is_refused(tmp_path):
    query = Query(tmp_path)
    query.run(table_of({"id": 1}, columns={"id": pa.int64()}))
    text = table_of({"id": "x"}, columns={"id": pa.string()})
    told("schema.evolution", lambda: query.run(text, widen_types=True, add_columns=True)).says("cast the column")


def test_a_record_is_published_although_the_table_was_changed_meanwhile():
    """Its files are of the schema and the partitions that were then."""
    lake = Lake()
    lake.run((3,), partition_by=["version"])
    lake.record((3, 6))
    with lake.table().update_spec() as spec:
        spec.remove_field("version").add_identity("id")
    with lake.table().update_schema(allow_incompatible_changes=True) as schema:
        schema.rename_column("version", "older")
    lake.run((3, 6))
    assert lake.ids() == [0, 1, 2, 3, 4, 5]
    specs = {file["spec_id"] for file in lake.table().inspect.files().to_pylist()}
    assert len(specs) == 1 and specs != {lake.table().spec().spec_id}


def test_a_record_is_published_although_its_schema_was_removed():
    """As cleaning of metadata does with schemas that no snapshot has."""
    lake = Lake()
    lake.record((3,))
    with lake.table().update_schema() as schema:
        schema.add_column("new", IntegerType())
    table = lake.table()
    metadata = json.loads(lake.io().read(table.metadata_location))
    metadata["schemas"] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    cleaned = table.metadata_location.replace("/0000", "/0009")
    lake.io().write(cleaned, json.dumps(metadata).encode())
    lake.catalog().register_table(TABLE, cleaned)
    lake.run((3, 6), add_columns=True)
    assert lake.ids() == [0, 1, 2, 3, 4, 5]


@follows("iceberg.unsupported")
@pytest.mark.parametrize("what", ["transform", "inner", "version", "newer", "type", "encryption"])
def test_what_is_not_honoured_is_refused_before_anything_is_written(tmp_path, what):
    query = Query(tmp_path)
    named = query.sink().named()
    named.catalog.create_namespace_if_not_exists("shop")
    more = {"type": pa.uuid(), "inner": pa.struct([("a", pa.int32())])}.get(what)
    schema = pa.schema([("id", pa.int64()), *([("u", more)] if more is not None else [])])
    properties = {"version": {"format-version": "1"}, "encryption": {"encryption.key-id": "key"}}.get(what, {})
    table = named.catalog.create_table(TABLE, schema, properties=properties)
    if what == "transform":
        with table.update_spec() as spec:
            spec.add_field("id", BucketTransform(4), "id_bucket")
    if what == "inner":
        with table.update_spec() as spec:
            spec.add_identity("u.a")
    if what == "newer":
        _of_version_3(table)
    rows = table_of({"id": 1}, columns={"id": pa.int64()})
    said = told("iceberg.unsupported", lambda: query.run(rows)).says("Nothing was written", "table")
    assert not list((tmp_path / "ware house").rglob("_streamsink")) and said
    named.catalog.drop_table(TABLE)
    query.forget_batch()
    query.run(rows)
    assert query.found() == [{"id": 1}]


def _of_version_3(table) -> None:
    """pyiceberg reads such metadata, and does not write it."""
    newer = table.metadata_location.replace("/0000", "/0009")
    with table.io.new_input(table.metadata_location).open() as stream:
        metadata = {**json.loads(stream.read()), "format-version": 3, "next-row-id": 0}
    with table.io.new_output(newer).create() as stream:
        stream.write(json.dumps(metadata).encode())
    table.catalog.drop_table(TABLE)
    table.catalog.register_table(TABLE, newer)


def test_a_table_is_looked_at_again_behind_a_change_of_its_schema():
    """Another program has given it a transform at the same time: no row is recorded as if that were a column."""
    lake = Lake()
    lake.catalog().create_table_transaction(TABLE, pa.schema([("id", pa.int64())])).commit_transaction()

    def exchange(action):
        action()
        if "version" in lake.table().schema().column_names:
            lake.tables.exchange = lambda action: action()
            with lake.table().update_spec() as spec:
                spec.add_field("id", BucketTransform(4), "id_bucket")

    lake.tables.exchange = exchange
    told("iceberg.unsupported", lambda: lake.run((3,), add_columns=True)).says("bucket[4]", "Nothing was written")
    assert not [path for path in lake.io().files_below(f"{ROOT}/streamsink") if "record-" in path]


@follows("iceberg.options", "table.missing")
def test_a_wrong_name_or_option_is_told(tmp_path):
    query, rows = Query(tmp_path), table_of({"id": 1}, columns={"id": pa.int64()})
    told("iceberg.options", lambda: IcebergSink("orders")).says(
        "expected a namespace and a name", "Nothing was written"
    )
    told("iceberg.options", lambda: query.run(rows, partition_by=["day"])).says("partition_by", "Nothing was written")
    query.forget_batch()
    said = told("table.missing", lambda: query.run(rows, create=False)).says("Nothing was written")
    query.forget_batch()
    query.run(rows, create=said.option("create"))
    query.of_sink = {"location": str(tmp_path / "elsewhere")}
    told("iceberg.options", lambda: query.run(rows)).says("expected at", "Leave 'location' out")
    wrong = {**query.properties, "uri": "nosuchdatabase:///x"}
    told("iceberg.options", lambda: IcebergSink(TABLE, "lake", wrong)).says("Look whether the catalog's name")


@follows("iceberg.unavailable")
def test_a_catalog_that_does_not_answer_is_asked_again_by_a_later_start():
    """What is recorded waits."""
    lake = Lake()
    lake.record((3,))
    known, lake.tables.newest = lake.tables.newest, Unreachable()
    with pytest.raises(Retryable) as said:
        lake.sink().named().load()
    advice(said.value, "iceberg.unavailable").says("safe in the journal", "started again")
    lake.tables.newest = known
    lake.run((3, 6))
    assert lake.ids() == [0, 1, 2, 3, 4, 5]


class Unreachable(dict):
    def get(self, *args):
        raise TimeoutErrorOfADriver("nobody answers at user:secret@host")


class TimeoutErrorOfADriver(Exception):
    """What comes of a database's driver."""


def test_a_journal_of_another_table_is_not_taken(tmp_path):
    """What to do about a table that was dropped would be the wrong thing here. A table may be renamed."""
    rows, journal = table_of({"id": 1}, columns={"id": pa.int64()}), str(tmp_path / "journals")
    first, second = Query(tmp_path, journal=journal), Query(tmp_path, journal=journal, table="shop.others")
    first.run(rows)
    told("journal.other-destination", lambda: second.run(rows)).says("lake.shop.orders", "application='...'")
    second.forget_batch()
    second.run(rows, application="second")
    first.sink().named().catalog.rename_table(TABLE, "shop.renamed")
    first.of_sink["table"] = "shop.renamed"
    first.run(table_of({"id": 2}, columns={"id": pa.int64()}))
    assert (len(first.found()), len(second.found())) == (2, 1)


def test_a_journal_of_its_own_and_a_place_that_is_given(tmp_path):
    """Orphan cleaning of Iceberg leaves '_streamsink' alone; what travels is the name of the catalog."""
    rows = table_of({"id": 1}, columns={"id": pa.int64()})
    beside = Query(tmp_path / "a")
    assert beside.sink().journal == f"{tmp_path}/a/ware house/shop/orders/_streamsink"
    given = Query(tmp_path / "b", location=f"file://{tmp_path}/b/place")
    assert given.sink().journal == f"{tmp_path}/b/place/_streamsink"
    own = Query(tmp_path / "c", journal=str(tmp_path / "journals"))
    for query in (beside, given, own):
        query.run(rows)
        assert query.found() == [{"id": 1}]
        assert pickle.loads(pickle.dumps(query.sink())) == query.sink()
        [path] = query.table().inspect.files().column("file_path").to_pylist()
        assert path.startswith(query.table().location())
        assert pq.read_table(io.BytesIO(query.table().io.new_input(path).open().read())).num_rows == 1
    assert "secret" not in repr(IcebergSink(TABLE, "lake", {"password": "secret"}, journal="/j"))
