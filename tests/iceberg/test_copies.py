"""Properties that were copied or set back, and what else a table or a catalog has forgotten."""

import json
import re

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table.update import SetLocationUpdate

from streamsink.testing.conformance import ROOT, SCHEMA
from streamsink.testing.crashing import dies_at
from tests.advice.following import told
from tests.iceberg.lake import TABLE, Lake
from tests.iceberg.test_accidents import STATE, all_of, expire, snapshots
from tests.iceberg.test_tables import Query, table_of


def set_state(lake, text: str) -> None:
    with lake.table().transaction() as changing:
        changing.set_properties({STATE: text})


def forget_journal(lake) -> None:
    lake.io().delete_tree(f"{ROOT}/streamsink")


@pytest.mark.parametrize("lost", [False, True])
def test_a_property_that_was_set_back_is_noticed(lost):
    """A script has saved all properties of the table and set them again, a batch too late; with the journal or without
    it, where Spark gives that batch once more."""
    lake = Lake()
    lake.run((3, 6))
    older = lake.table().properties[STATE]
    lake.run((3, 6, 9))
    set_state(lake, older)
    if lost:
        forget_journal(lake)
        lake.checkpoint.committed -= 1
    said = told("iceberg.state-removed", lambda: lake.run((3, 6, 9, 12)))
    said.says("record 3", "set back to an older value", "Nothing was written")
    text = lake.io().read(said.find(r"the newest of these is (\S+)\.")).decode()
    set_state(lake, json.loads(re.search(r'"streamsink\.app\.streamsink":("(?:[^"\\]|\\.)*")', text)[1]))
    lake.run((3, 6, 9, 12))
    assert lake.ids() == all_of(12)


@pytest.mark.parametrize("expired", [False, True])
def test_properties_that_were_copied_from_another_table_say_nothing(expired):
    """SHOW CREATE TABLE has them. Where others have written since, and all that is old has expired, an error says
    which way is left."""
    lake = Lake()
    lake.run((3, 6))
    old = lake.table()
    lake.catalog().drop_table(TABLE)
    lake.catalog().create_table_transaction(TABLE, old.schema(), properties=old.properties).commit_transaction()
    forget_journal(lake)
    lake.begin_anew()
    if not expired:
        lake.run((3, 6))
        assert lake.ids() == all_of(6)
        return
    for number in range(100, 105):
        lake.append(number, number + 1)
    expire(lake, *snapshots(lake)[:-1])
    said = told("table.rolled-back-too-far", lambda: lake.run((3, 6)))
    said.says("another name (application='...') and a new checkpoint")
    lake.run((3, 6), application="second")
    assert lake.ids() == [*all_of(6), *range(100, 105)]


def test_a_catalog_in_memory_is_refused(tmp_path):
    """Its table would be gone with the process; the rows were nowhere."""
    query, rows = Query(tmp_path), table_of({"id": 1}, columns={"id": pa.int64()})
    lasting = query.properties
    for more in ({"type": "in-memory"}, {"type": "sql", "uri": "sqlite:///:memory:"}):
        query.properties = {**more, "warehouse": lasting["warehouse"]}
        told("iceberg.options", lambda: query.run(rows)).says("memory of this process", "No row was written")
        query.forget_batch()
    query.properties = lasting
    query.run(rows)
    assert query.found() == [{"id": 1}]


def test_a_table_that_may_not_be_written_is_told_before_any_record():
    """Trying again would be of no use."""
    lake = Lake()
    lake.catalog().create_table_transaction(TABLE, SCHEMA).commit_transaction()

    def refuse(action):
        raise ForbiddenError("no rights")

    lake.tables.exchange = refuse
    told("iceberg.options", lambda: lake.run((3,))).says("whether the table may be written", "Nothing was written")
    assert not [path for path in lake.io().files_below(f"{ROOT}/streamsink") if "record-" in path]
    lake.tables.exchange = lambda action: action()
    lake.run((3,))
    assert lake.ids() == all_of(3)


@pytest.mark.parametrize(
    ("name", "value"), [("format-version", "1"), ("encryption.key-id", "key"), ("write.data.path", "s3://bucket/x")]
)
def test_no_table_is_created_that_would_be_refused(tmp_path, name, value):
    """It would be there, and be refused by each start, whatever table_options says by then."""
    query = Query(tmp_path)
    rows = table_of({"id": 1}, columns={"id": pa.int64()})
    said = told("iceberg.unsupported", lambda: query.run(rows, table_options={name: value}))
    said.says(name, "Nothing was written", "Leave that out of table_options")
    assert query.table() is None
    query.forget_batch()
    query.run(rows)
    assert query.found() == [{"id": 1}]


def test_a_record_whose_partition_spec_was_removed_is_told_the_way():
    """As cleaning of metadata does with specs that no manifest has."""
    lake = Lake()
    lake.record((3,), partition_by=["version"])
    with lake.table().update_spec() as spec:
        spec.remove_field("version")
    table = lake.table()
    metadata = json.loads(lake.io().read(table.metadata_location))
    specs = metadata["partition-specs"]
    metadata["partition-specs"] = [each for each in specs if each["spec-id"] == metadata["default-spec-id"]]
    cleaned = table.metadata_location.replace("/0000", "/0009")
    lake.io().write(cleaned, json.dumps(metadata).encode())
    lake.catalog().register_table(TABLE, cleaned)
    told("iceberg.unsupported", lambda: lake.run((3, 6))).says("by version", "Partition the table so again")
    with lake.table().update_spec() as spec:
        spec.add_identity("id")
    with lake.table().update_spec() as spec:
        spec.remove_field("id").add_identity("version")
    lake.run((3, 6))
    assert lake.ids() == all_of(6)
    # The id of the removed one was given again, to a partition by 'id'.
    assert set(lake.table().inspect.files().column("spec_id").to_pylist()) == {lake.table().spec().spec_id} == {2}


def changed_metadata(lake: Lake, change) -> None:
    """Another program has changed the metadata of the table."""
    table = lake.table()
    metadata = json.loads(lake.io().read(table.metadata_location))
    change(metadata)
    changed = table.metadata_location.replace("/0000", "/0009")
    lake.io().write(changed, json.dumps(metadata).encode())
    lake.catalog().register_table(TABLE, changed)


def test_a_number_that_a_partition_by_a_transform_was_given_is_not_that_of_a_record():
    """The spec of its files was removed. Readers would look for their rows in buckets where they are not."""
    lake = Lake()
    lake.record((3,), partition_by=["version"])

    def change(metadata: dict) -> None:
        bucket = {"source-id": 2, "field-id": 1001, "transform": "bucket[4]", "name": "version_bucket"}
        metadata["partition-specs"] = [{"spec-id": 0, "fields": [bucket]}, {"spec-id": 1, "fields": []}]
        metadata |= {"default-spec-id": 1, "last-partition-id": 1001}

    changed_metadata(lake, change)
    told("iceberg.unsupported", lambda: lake.run((3, 6))).says("by version", "Partition the table so again")
    assert lake.ids() == []


@pytest.mark.parametrize("names", [("version", "id"), ("number", "version")], ids=str)
def test_a_number_that_another_schema_was_given_is_not_that_of_a_record(names):
    """The schema of its files was removed. By the bounds of other columns readers would leave the files out; and where
    a column is missing no start could publish the record."""
    lake = Lake()
    lake.record((3,))

    def change(metadata: dict) -> None:
        [schema] = metadata["schemas"]
        fields = [{**field, "name": name} for field, name in zip(schema["fields"], names, strict=True)]
        metadata["schemas"] = [{**schema, "fields": fields}, {**schema, "schema-id": 1}]
        metadata["current-schema-id"] = 1

    changed_metadata(lake, change)
    lake.run((3, 6))
    assert lake.ids() == all_of(6)
    bounds = lake.table().inspect.files().column("lower_bounds").to_pylist()
    assert sorted(len(each or ()) for each in bounds) == [0, 2]


@pytest.mark.parametrize("way", [{"publish_every_batches": 3}, {}])
def test_records_that_wait_in_the_journal_of_the_location_before_are_named(way):
    """Somebody has changed the table's location. A batch that was recorded there was not committed, and would be lost;
    where all is committed, the query goes on at the new place."""
    lake = Lake(journal="")
    lake.run((3, 6), **way)
    if way:
        assert dies_at("batch.end", 1, lake.calls, lambda calls: lake.run((3, 6, 9), calls, **way))
        lake.calls.process_death()
        lake.io()
    before = lake.table().location()
    with lake.table().transaction() as changing:
        changing._apply((SetLocationUpdate(location=f"{before}-moved"),))
    lake.append(100, 101)
    if way:
        assert lake.checkpoint.committed == 2 and len(lake.checkpoint.ends) == 3
        lake.checkpoint.committed = 3  # Spark has noted the batch
        said = told("iceberg.options", lambda: lake.run((3, 6, 9, 12), **way)).says("Nothing was written")
        lake.of_sink["journal"] = said.option("journal")
        assert lake.of_sink["journal"].startswith(before)
    lake.run((3, 6, 9, 12), **way)
    assert lake.ids() == [*range(12), 100]
