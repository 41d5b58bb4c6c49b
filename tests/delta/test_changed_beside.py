"""A table that others change while a query runs, and one that cannot be: errors before the batch is recorded."""

import datetime
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streamsink.delta import DeltaSink
from streamsink.testing.conformance import SCHEMA
from tests.advice.following import told
from tests.delta.world import Between, World, rows


def overwritten(world, schema):
    """Another writer replaces the rows and the columns."""
    table = pa.table({field.name: pa.array([7], field.type) for field in schema}, schema=schema)
    write_deltalake(world.path, table, mode="overwrite", schema_mode="overwrite")


def not_null(*names):
    return pa.schema([pa.field(name, pa.int64(), nullable=False) for name in names])


def records(world):
    names = os.listdir(f"{world.path}/_streamsink/streamsink/streamsink")
    return sorted(name for name in names if name.startswith("record-"))


@pytest.mark.parametrize(
    "kind, said, change",
    [
        ("delta.unsupported", "check constraint", lambda world: world.table().alter.add_constraint({"x": "id >= 0"})),
        ("delta.columns", "the rows have a column 'version'", lambda world: overwritten(world, SCHEMA.remove(1))),
        ("delta.columns", "'more'", lambda world: overwritten(world, not_null("id", "version", "more"))),
    ],
)
def test_what_others_change_between_two_batches_is_found_before_the_record(tmp_path, kind, said, change):
    """A record that no commit can follow would stop the query for good."""
    world = World(tmp_path)
    world.checkpoint = Between(2, lambda: change(world))
    told(kind, lambda: world.run(3, 5, 9)).says(said, "Nothing was written")
    assert records(world) == ["record-1.json", "record-2.json"]


@pytest.mark.parametrize("feature", ["somethingNew", "catalogManaged"])
def test_a_table_that_deltalake_cannot_read_any_more_is_no_passing_failure(tmp_path, feature):
    """Somebody has switched a feature on. Each start said that the query goes on when it is started again."""
    world = World(tmp_path)
    world.run(3)
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    entry = Path(world.path, "_delta_log", f"{world.table().version() + 1:020}.json")
    entry.write_text(json.dumps({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}))
    told("delta.unsupported", lambda: world.run(3, 5)).says("Nothing was written", "Take it off the table")
    entry.unlink()
    world.run(3, 5)
    assert world.ids() == list(range(5))


def test_a_nullable_column_that_others_add_does_not_stop_a_query(tmp_path):
    """Its rows have nulls there. A restart asks for add_columns=True."""
    world = World(tmp_path)
    more = pa.schema([*SCHEMA, ("more", pa.string())])
    table = pa.table({"id": [100], "version": [0], "more": ["x"]}, schema=more)
    world.checkpoint = Between(2, lambda: write_deltalake(world.path, table, mode="append", schema_mode="merge"))
    world.run(3, 5, 9, 11)
    assert world.ids() == [*range(11), 100]
    told("delta.columns", lambda: world.run(3, 5, 9, 11, 12)).says("add_columns=True")
    world.run(3, 5, 9, 11, 12, add_columns=True)
    assert world.ids() == [*range(12), 100]


def test_nulls_come_into_no_column_that_takes_none_by_then(tmp_path):
    """Others made it so while the rows were written."""
    world = World(tmp_path)

    def make(first, end):
        if first == 5:
            overwritten(world, not_null("id", "version"))
            nulls = [None] * (end - first)
            return pa.RecordBatch.from_pydict({"id": list(range(first, end)), "version": nulls}, schema=SCHEMA)
        return rows(first, end)

    world._make = make
    told("delta.changed", lambda: world.run(3, 5, 9)).says("takes no nulls", "Nothing was committed")
    assert world.table().to_pyarrow_table().column("version").null_count == 0


def test_columns_are_added_while_others_are_left_out(tmp_path):
    world = World(tmp_path)
    world.run(3)
    world._schema = pa.schema([("id", pa.int64()), ("more", pa.int64())])
    world._make = lambda first, end: pa.RecordBatch.from_pydict(
        {"id": list(range(first, end)), "more": [1] * (end - first)}, schema=world._schema
    )
    world.run(3, 5, add_columns=True)
    assert world.ids() == list(range(5))
    assert [field.name for field in world.table().schema().fields] == ["id", "version", "more"]


IN_A_MAP = [
    (pa.map_(pa.string(), pa.timestamp("us")), [("a", datetime.datetime(2026, 1, 2))]),
    (
        pa.struct([("m", pa.list_(pa.map_(pa.timestamp("us"), pa.string())))]),
        {"m": [[(datetime.datetime(1, 1, 1), "a")]]},
    ),
]


@pytest.mark.parametrize(("kind", "value"), IN_A_MAP, ids=["a map", "within"])
def test_times_without_a_zone_in_a_map_make_no_table_that_nobody_can_read(tmp_path, kind, value):
    """deltalake adds such a column without the feature that readers ask for. It cannot create such a table."""
    world = World(tmp_path)
    world._schema = pa.schema([("id", pa.int64()), ("more", kind)])
    world._make = lambda first, end: pa.RecordBatch.from_arrays(
        [pa.array(range(first, end)), pa.array([value] * (end - first), kind)], schema=world._schema
    )
    said = told("delta.columns", lambda: world.run(3)).says("'more'", "Nothing was written", "Cast them in the query")
    assert not os.path.exists(world.path)
    DeltaTable.create(world.path, SCHEMA)
    world.run(3, 5, add_columns=said.option("add_columns"))
    assert world.ids() == list(range(5))
    assert world.table().to_pyarrow_table().column("more").to_pylist() == [value] * 5


@pytest.mark.parametrize(
    "name, value",
    [
        ("delta.columnMapping.mode", "name"),
        ("delta.setTransactionRetentionDuration", "interval 1 day"),
        ("delta.enableRowTracking", "true"),
        ("delta.nonsense", "1"),
    ],
)
def test_a_table_that_could_not_be_written_to_is_not_created(tmp_path, name, value):
    world = World(tmp_path)
    said = told("delta.unsupported", lambda: world.run(3, table_options={name: value}))
    said.says(name, "Nothing was written", "Leave out of table_options")
    assert not os.path.exists(world.path)
    world.run(3)
    assert world.ids() == [0, 1, 2]


@pytest.mark.parametrize("name", ["a%20b", "a\\b", "a\tb"])
def test_a_path_that_is_taken_for_another_one_is_refused(tmp_path, name):
    """deltalake reads the log of 'a b' for a table in 'a%20b'."""
    world = World(tmp_path / "a b")
    DeltaTable.create(world.path, SCHEMA)
    odd = DeltaSink(str(Path(tmp_path, name, "table")))
    told("delta.unsupported", lambda: world.run(3, sink=odd)).says("Give the table a path", "Nothing was written")
    assert os.listdir(tmp_path) == ["a b"] and world.table().version() == 0
