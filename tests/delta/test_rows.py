"""What is in a table: values, partitions, statistics, columns; and what is refused by name before a row is written."""

import datetime
import glob
import json
import os
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from streamsink.errors import Misuse
from tests.advice.following import Advice, follows, told
from tests.delta.world import World

UTC = datetime.timezone.utc
ALL = pa.schema(
    [
        ("id", pa.int64()),
        ("yes", pa.bool_()),
        ("tiny", pa.int8()),
        ("real", pa.float64()),
        ("money", pa.decimal128(10, 2)),
        ("large", pa.decimal128(38, 4)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("a", pa.string()), ("b", pa.int64())])),
    ]
)
ROWS = [
    {
        "id": 1,
        "yes": True,
        "tiny": -3,
        "real": 1.5,
        "money": Decimal("-12.50"),
        "large": Decimal("12345678901234567890123456789012.3456"),
        "text": "ü" * 40,
        "bytes": b"\x00\xff",
        "day": datetime.date(2026, 11, 27),
        "at": datetime.datetime(2026, 11, 27, 1, 2, 3, 123456, tzinfo=UTC),
        "wall": datetime.datetime(1, 1, 1, 0, 0, 0, 1),
        "list": [1, None],
        "map": [("a", 1)],
        "inner": {"a": "x", "b": None},
    },
    {"id": 2, "real": float("nan"), "text": "a", "money": Decimal("7.00")},
    {"id": 3},
]


def of(schema, found):
    """Batches of these rows, of which the ends of a run choose."""
    return lambda first, end: pa.RecordBatch.from_pylist(found[first:end], schema)


def world_of(folder, found, schema=ALL) -> World:
    return World(folder, schema, of(schema, found))


def stats(world) -> list[dict]:
    """The statistics of the newest commit."""
    version = world.table().version()
    with open(f"{world.path}/_delta_log/{version:020}.json") as file:
        actions = [json.loads(line) for line in file]
    return [json.loads(each["add"]["stats"], parse_float=Decimal) for each in actions if "add" in each]


def refused(world, kind, *ends, **options) -> Advice:
    """What the error of this kind says, with which a start must end."""
    said = told(kind, lambda: world.run(*ends, **options))
    assert "Nothing" in said.message
    return said


def test_values_come_back_as_they_were(tmp_path):
    world = world_of(tmp_path, ROWS)
    world.run(3)
    found = world.table().to_pyarrow_table().select(ALL.names).sort_by("id")
    expected = pa.Table.from_pylist(ROWS, ALL)
    for name in ALL.names:
        mine, theirs = found.column(name).to_pylist(), expected.column(name).to_pylist()
        assert str(mine) == str(theirs), name


def test_statistics_hold_for_all_readers(tmp_path):
    """Texts are cut off upwards, times rounded outwards to milliseconds, and NaN takes the upper bound away."""
    world = world_of(tmp_path, ROWS)
    world.run(3)
    (found,) = stats(world)
    assert found["numRecords"] == 3
    low, high, nulls = found["minValues"], found["maxValues"], found["nullCount"]
    assert (low["id"], high["id"], nulls["id"], nulls["text"], nulls["tiny"]) == (1, 3, 0, 1, 2)
    assert (low["money"], high["money"]) == (Decimal("-12.50"), Decimal("7.00"))
    assert high["large"] == Decimal("12345678901234567890123456789012.3456")
    assert low["text"] == "a" and high["text"] == "ü" * 32 + "\U0010ffff"
    assert low["real"] == Decimal("1.5") and "real" not in high
    (file,) = glob.glob(f"{world.path}/**/*.parquet", recursive=True)
    footer = pq.read_metadata(file).row_group(0)
    bounded = {footer.column(at).path_in_schema: footer.column(at).statistics.has_min_max for at in (0, 3, 4)}
    assert bounded == {"id": True, "real": False, "money": True}  # Spark skips row groups by these
    assert (low["day"], high["day"]) == ("2026-11-27", "2026-11-27")
    assert (low["at"], high["at"]) == ("2026-11-27T01:02:03.123Z", "2026-11-27T01:02:03.124Z")
    assert (low["wall"], high["wall"]) == ("0001-01-01T00:00:00.000", "0001-01-01T00:00:00.001")
    assert not {"bytes", "list", "map"} & low.keys() and low["inner"] == high["inner"] == {}


def test_statistics_are_of_the_columns_that_the_table_wants(tmp_path):
    schema = pa.schema(
        [("id", pa.int64()), ("inner", pa.struct([("id", pa.int64()), ("b", pa.int64())])), ("other", pa.int64())]
    )
    found = [{"id": 5, "inner": {"id": 50, "b": 51}, "other": 500}]
    for number, (options, expected) in enumerate(
        [
            ({}, {"id": 5, "other": 500}),
            ({"delta.dataSkippingNumIndexedCols": "1"}, {"id": 5}),
            ({"delta.dataSkippingNumIndexedCols": "0"}, {}),
            ({"delta.dataSkippingStatsColumns": "other"}, {"other": 500}),
        ]
    ):
        world = world_of(tmp_path / str(number), found, schema)
        world.run(1, table_options=options)
        assert stats(world)[0]["maxValues"] == {**expected, "inner": {}}


PARTITIONS = [
    ("text", pa.string(), ["a b", "ü/%:\n\"x'=", "..", None, "NULL", "__HIVE_DEFAULT_PARTITION__"]),
    ("day", pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    (
        "at",
        pa.timestamp("us", "UTC"),
        [datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), datetime.datetime(1, 1, 1, 0, 0, tzinfo=UTC), None],
    ),
    ("wall", pa.timestamp("us"), [datetime.datetime(2026, 1, 2, 3, 4, 5, 6), None]),
    ("yes", pa.bool_(), [True, False, None]),
    ("money", pa.decimal128(10, 2), [Decimal("12.50"), Decimal("0.00"), None]),
    ("small", pa.int8(), [-128, 127, None]),
    ("real", pa.float64(), [1.5, 1e300, -0.25, None]),
]


@pytest.mark.parametrize("name, kind, values", PARTITIONS, ids=[each[0] for each in PARTITIONS])
def test_values_of_partitions_come_back_as_they_were(tmp_path, name, kind, values):
    schema = pa.schema([("id", pa.int64()), (name, kind)])
    found = [{"id": number, name: value} for number, value in enumerate(values * 2)]
    world = world_of(tmp_path, found, schema)
    world.run(len(found), partition_by=[name])
    seen = world.table().to_pyarrow_table().sort_by("id").to_pylist()
    assert [str(row[name]) for row in seen] == [str(value) for value in values * 2]
    assert len(world.table().file_uris()) == len(values)


@follows("delta.partition-value")
@pytest.mark.parametrize(
    "kind, good, bad", [(pa.string(), "a", ""), (pa.decimal128(4, 2), Decimal("1.50"), Decimal("-1.50"))]
)
def test_values_that_readers_take_for_others_are_no_partitions(tmp_path, kind, good, bad):
    """An empty text for null; and with a negative decimal deltalake reads nothing of the table any more."""
    schema = pa.schema([("id", pa.int64()), ("by", kind)])
    world = world_of(tmp_path, [{"id": 1, "by": good}, {"id": 2, "by": bad}], schema)
    world.run(1, partition_by=["by"])
    refused(world, "delta.partition-value", 1, 2, partition_by=["by"]).says("Mend or filter such rows in the query")
    assert world.table().version() == 1 and len(world.unnamed()) == 0
    world._make = of(schema, [{"id": 1, "by": good}, {"id": 2, "by": None}])
    world.run(1, 2, partition_by=["by"])
    assert world.ids() == [1, 2]


@follows("delta.columns")
def test_columns_are_added_where_an_option_says_so(tmp_path):
    small = pa.schema([("id", pa.int64())])
    more = pa.schema([("id", pa.int64()), ("text", pa.string()), ("inner", pa.struct([("a", pa.int32())]))])
    found = [{"id": 1}, {"id": 2, "text": "x", "inner": {"a": 1}}, {"id": 3}]
    world = world_of(tmp_path, found, small)
    world.run(1)
    world._schema, world._make = more, of(more, found)
    world.run(1, 2, add_columns=refused(world, "delta.columns", 1, 2).option("add_columns"))
    world._schema, world._make = small, of(small, found)
    refused(world, "delta.columns", 1, 2, 3)
    world.run(1, 2, 3, add_columns=True)
    seen = world.table().to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["text"] for row in seen] == [None, "x", None]


@pytest.mark.parametrize(
    "column, theirs, kind",
    [
        ("id", "integer", "delta.columns"),
        ("ID", "long", "delta.columns"),
        ("id", "string", "delta.columns"),
        ("other", "long", "delta.columns"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path, column, theirs, kind):
    world = world_of(tmp_path, [{"id": 1}], pa.schema([("id", pa.int64())]))
    text = {"type": "struct", "fields": [{"name": column, "type": theirs, "nullable": True, "metadata": {}}]}
    DeltaTable.create(world.path, Schema.from_json(json.dumps(text)))
    refused(world, kind, 1, add_columns=column == "ID")
    assert world.table().version() == 0


def test_a_table_of_others_may_have_odd_names(tmp_path):
    """Only names that would be new are looked at."""
    schema = pa.schema([("an id", pa.int64()), ("a=b;c", pa.string())])
    world = world_of(tmp_path, [{"an id": 1, "a=b;c": "x"}], schema)
    DeltaTable.create(world.path, schema)
    world.run(1)
    assert world.table().to_pyarrow_table().to_pylist() == [{"an id": 1, "a=b;c": "x"}]


def test_narrower_numbers_are_brought_to_the_table(tmp_path):
    world = world_of(tmp_path, [{"id": 1}], pa.schema([("id", pa.int16())]))
    DeltaTable.create(world.path, pa.schema([("id", pa.int64())]))
    world.run(1)
    assert world.table().to_pyarrow_table().to_pylist() == [{"id": 1}]


def test_a_null_in_a_column_that_has_none_is_refused(tmp_path):
    world = world_of(tmp_path, [{"id": 1}, {"id": None}], pa.schema([("id", pa.int64())]))
    text = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": False, "metadata": {}}]}
    DeltaTable.create(world.path, Schema.from_json(json.dumps(text)))
    world.run(1)
    with pytest.raises(Misuse, match="NOT NULL"):
        world.run(1, 2)
    assert world.table().version() == 1


@pytest.mark.parametrize("limit", ["varchar(3)", "char(3)"])
def test_a_text_that_is_longer_than_its_column_is_refused(tmp_path, limit):
    """Spark keeps such a column as one of texts, says in its metadata what it holds, and refuses longer ones."""
    world = world_of(tmp_path, [{"text": "äöü"}, {"text": "four"}], pa.schema([("text", pa.string())]))
    metadata = {"__CHAR_VARCHAR_TYPE_STRING": limit}
    text = {"type": "struct", "fields": [{"name": "text", "type": "string", "nullable": True, "metadata": metadata}]}
    DeltaTable.create(world.path, Schema.from_json(json.dumps(text)))
    world.run(1)
    with pytest.raises(Misuse, match=r"VARCHAR\(3\), found a value of 4 characters"):
        world.run(1, 2)
    assert world.table().version() == 1


@follows("delta.changed")
def test_a_table_that_was_changed_under_a_record_is_an_error(tmp_path, monkeypatch):
    """The record was made for other columns. Each start commits it, once the table is as it was."""
    from streamsink.sinks.delta.committer import DeltaCommitter
    from streamsink.testing.faults import InjectedCrash

    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    world = world_of(tmp_path, [{"id": n, "text": "a"} for n in range(4)], schema)
    world.run(1)
    with monkeypatch.context() as patched:
        patched.setattr(DeltaCommitter, "_committed", lambda *given: (_ for _ in ()).throw(InjectedCrash("here")))
        with pytest.raises(InjectedCrash):
            world.run(1, 2)
    version = world.table().version()
    other = pa.table({"id": pa.array([9], pa.int64())})
    write_deltalake(world.path, other, mode="overwrite", schema_mode="overwrite")
    refused(world, "delta.changed", 1, 2).says("Change the table back")
    world.table().restore(version)
    world.run(1, 2, 3)
    assert sorted(world.table().to_pyarrow_table().column("id").to_pylist()) == [0, 1, 2]


def manual(world, protocol, configuration=None, metadata=None, kind="long"):
    """A table that another program has made."""
    os.makedirs(f"{world.path}/_delta_log")
    field = {"name": "id", "type": kind, "nullable": True, "metadata": metadata or {}}
    actions = [
        {"commitInfo": {"timestamp": 1, "operation": "CREATE TABLE", "operationParameters": {}}},
        {"protocol": protocol},
        {
            "metaData": {
                "id": "an-id",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": [field]}),
                "partitionColumns": [],
                "createdTime": 1,
                "configuration": configuration or {},
            }
        },
    ]
    with open(f"{world.path}/_delta_log/{0:020}.json", "w") as file:
        file.write("\n".join(map(json.dumps, actions)))


def features(*names, reader=()):
    more = {"readerFeatures": list(reader)} if reader else {}
    return {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7, "writerFeatures": list(names), **more}


OLD = {"minReaderVersion": 1, "minWriterVersion": 2}


@pytest.mark.parametrize(
    "protocol, configuration, metadata, said",
    [
        (features("rowTracking", "domainMetadata"), {}, {}, "rowTracking"),
        (features("clustering", "domainMetadata"), {}, {}, "clustering"),
        (features("inCommitTimestamp"), {}, {}, "inCommitTimestamp"),
        (features("icebergCompatV2"), {}, {}, "icebergCompatV2"),
        (features("identityColumns"), {}, {}, "identityColumns"),
        (features("typeWidening", reader=["typeWidening"]), {}, {}, "typeWidening"),
        (features("somethingNew"), {}, {}, "somethingNew"),
        ({"minReaderVersion": 1, "minWriterVersion": 6}, {}, {}, "writer version 6"),
        (OLD | {"minWriterVersion": 3}, {"delta.constraints.positive": "id > 0"}, {}, "check constraint positive"),
        (OLD, {}, {"delta.invariants": "{}"}, "an invariant: 'id'"),
        (OLD | {"minWriterVersion": 4}, {}, {"delta.generationExpression": "1"}, "a generated column: 'id'"),
        (OLD, {"delta.setTransactionRetentionDuration": "interval 1 day"}, {}, "setTransactionRetentionDuration"),
        (
            {"minReaderVersion": 2, "minWriterVersion": 5},
            {"delta.columnMapping.mode": "name"},
            {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"},
            "column mapping",
        ),
    ],
)
def test_what_a_table_asks_of_writers_and_this_one_does_not_is_refused(
    tmp_path, protocol, configuration, metadata, said
):
    world = world_of(tmp_path, [{"id": 1}], pa.schema([("id", pa.int64())]))
    manual(world, protocol, configuration, metadata)
    refused(world, "delta.unsupported", 1).says(said)
    assert os.listdir(f"{world.path}/_delta_log") == [f"{0:020}.json"]
    assert os.listdir(world.path) == ["_delta_log"]


@pytest.mark.parametrize(
    "protocol, configuration",
    [
        (OLD, {"delta.appendOnly": "true"}),
        ({"minReaderVersion": 1, "minWriterVersion": 4}, {"delta.enableChangeDataFeed": "true"}),
        (features("appendOnly", "invariants", "checkConstraints", "generatedColumns"), {}),
        (features("deletionVectors", reader=["deletionVectors"]), {"delta.enableDeletionVectors": "true"}),
        (features("timestampNtz", reader=["timestampNtz"]), {}),
        (features("v2Checkpoint", reader=["v2Checkpoint"]), {"delta.checkpointPolicy": "v2"}),
    ],
)
def test_what_asks_nothing_of_who_only_adds_is_taken(tmp_path, protocol, configuration):
    world = world_of(tmp_path, [{"id": 1}], pa.schema([("id", pa.int64())]))
    manual(world, protocol, configuration)
    world.run(1)
    assert world.ids() == [1]


@follows("delta.unsupported")
def test_a_feature_that_comes_while_a_record_is_pending_is_refused_at_the_commit(tmp_path):
    world = world_of(tmp_path, [{"id": n} for n in range(3)], pa.schema([("id", pa.int64())]))

    def make(first, end):
        if first == 1:
            world.table().alter.add_constraint({"low": "id < 2"})
        return of(world._schema, [{"id": n} for n in range(3)])(first, end)

    world._make = make
    refused(world, "delta.unsupported", 1, 2).says("Take it off the table")
    assert world.ids() == [0]
    world._make = of(world._schema, [{"id": n} for n in range(3)])
    world.table().alter.drop_constraint("low")
    world.run(1, 2)
    assert world.ids() == [0, 1]


def test_partition_by_of_a_table_that_is_there_must_be_its_own(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    world = world_of(tmp_path, [{"id": 1}, {"id": 2}], schema)
    world.run(1, partition_by=["day"])
    refused(world, "table.created-differently", 1, 2, partition_by=["id"])
    world.run(1, 2)
    assert world.table().metadata().partition_columns == ["day"]


@pytest.mark.parametrize(
    "partition_by, schema",
    [
        (["nothing"], pa.schema([("id", pa.int64())])),
        (["id"], pa.schema([("id", pa.int64())])),
        (["bytes"], pa.schema([("id", pa.int64()), ("bytes", pa.binary())])),
        ([], pa.schema([("id", pa.int64()), ("a b", pa.int64())])),
        ([], pa.schema([("id", pa.int64()), ("a\0b", pa.int64())])),
        ([], pa.schema([("id", pa.int64()), ("ID", pa.int64())])),
        ([], pa.schema([("id", pa.time32("ms"))])),
    ],
)
def test_a_table_that_cannot_be_is_not_created(tmp_path, partition_by, schema):
    world = world_of(tmp_path, [{}], schema)
    refused(world, "delta.columns", 1, partition_by=partition_by)
    assert not os.path.exists(world.path)


def test_create_false_wants_a_table(tmp_path):
    world = world_of(tmp_path, [{"id": 1}], pa.schema([("id", pa.int64())]))
    refused(world, "table.missing", 1, create=False)
    assert not os.path.exists(world.path)
