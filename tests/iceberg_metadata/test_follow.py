"""Iceberg's metadata of a table has the rows of its newest snapshot, whatever was committed, as pyiceberg reads it."""

import dataclasses
import decimal
import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamsink
from streamsink import maintenance
from streamsink.errors import Misuse
from streamsink.storage.file_io import local_file_io
from streamsink.storage.stores import table_path
from streamsink.table.care.expire_snapshots import Retention, expire
from streamsink.table.care.removal import Needed
from tests.iceberg_metadata.mirrored import (
    AT_TABLE,
    STORAGE,
    Query,
    check,
    folder_of,
    hinted,
    iceberg,
    metadata_of,
    named_files,
    rows_of,
)

MERGED_OFTEN = {"metadata.iceberg.compaction.min.file-num": "2", "metadata.iceberg.compaction.max.file-num": "3"}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db" / "orders")


@pytest.mark.parametrize("options", [{}, MERGED_OFTEN], ids=["plain", "merged"])
def test_each_batch_is_read_and_nothing_else_is_left(path, options):
    """Also an empty batch, and where manifests are merged."""
    query = Query(path, table_options=options)
    for rows in (10, 0, 7, 3, 12):
        query.write(rows=rows)
        check(path)
    assert set(os.listdir(folder_of(path))) == named_files(folder_of(path))
    said = metadata_of(folder_of(path))
    assert [snapshot["summary"]["total-records"] for snapshot in said["snapshots"]] == ["10", "10", "17", "20", "32"]


def test_overwritten_and_compacted(path):
    """What a snapshot removes is gone, and what it keeps is there; pyiceberg reads each of them."""
    query = Query(path, table_options=MERGED_OFTEN)
    query.write(6)
    maintenance.compact(path)
    check(path)
    query.driver.options = dataclasses.replace(query.driver.options, mode="overwrite")
    query.row = lambda n: (n, "b")
    query.write()
    check(path)
    query.driver.options = dataclasses.replace(query.driver.options, mode="append")
    query.write(2)
    check(path)
    kinds = [snapshot["summary"]["operation"] for snapshot in metadata_of(folder_of(path))["snapshots"]]
    assert kinds == ["append"] * 6 + ["replace", "overwrite", "append", "append"]


def evolving(path):
    """A query, as its columns become more and wider; nested ones too. It is given after each change."""
    narrow = pa.schema([("id", pa.int32()), ("part", pa.string()), ("f", pa.float32()), ("d", pa.decimal128(5, 2))])
    item = pa.struct([("x", pa.int32())])
    wide = pa.schema(
        [
            ("id", pa.int64()),
            ("part", pa.string()),
            ("f", pa.float64()),
            ("d", pa.decimal128(12, 2)),
            ("items", pa.list_(item)),
            ("tags", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ]
    )
    wider = wide.set(4, pa.field("items", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())]))))
    query = Query(path, narrow, lambda n: (n, "a", n / 2, decimal.Decimal(n)))
    query.write(2)
    yield query
    query.driver.schema = wide
    query.row = lambda n: (n, "b", n / 2, decimal.Decimal(n), [{"x": n}], [("k", [n, None])])
    query.write(2)
    yield query
    query.driver.schema = wider
    query.row = lambda n: (n, None, n / 2, decimal.Decimal(n), [{"x": n, "y": "z"}], [("k", [n])])
    query.write(1)
    yield query


def test_columns_that_are_added_and_widened(path):
    """Nested ones too: their ids are Paimon's, in the metadata and in the files."""
    for query in evolving(path):
        check(path)
        newest = query.table().latest_schema().id
    assert metadata_of(folder_of(path))["current-schema-id"] == newest == 2


def test_files_without_ids_are_read_by_the_names_of_their_columns(path):
    """Those from before the table's option was set."""
    query = Query(path, table_options={STORAGE: "disabled"})
    query.write(3)
    assert not os.path.exists(folder_of(path))
    table = query.table(for_writing=True)
    schema = table.latest_schema()
    table.schemas.add(dataclasses.replace(schema, id=schema.id + 1, options={**schema.options, **AT_TABLE}))
    query.write(2)
    check(path)
    files = [task.file.file_path for task in iceberg(folder_of(path)).scan().plan_files()]
    ids = [_ids(file) for file in files]
    assert None in ids and [0, 1] in ids


def _ids(file):
    said = [(field.metadata or {}).get(b"PARQUET:field_id") for field in pq.read_schema(file)]
    return [int(number) for number in said] if all(said) else None


def test_a_catalog_has_the_metadata_in_its_own_folder(tmp_path):
    """<warehouse>/iceberg/<database>/<table>, as Iceberg's Hadoop catalogs have it; a table elsewhere is refused."""
    options = {STORAGE: "hadoop-catalog", "metadata.iceberg.manifest-legacy-version": "true"}
    query = Query(str(tmp_path / "shop.db" / "orders"), table_options=options)
    query.write(2)
    check(query.path, str(tmp_path / "iceberg" / "shop" / "orders" / "metadata"))
    assert not os.path.exists(folder_of(query.path))
    with pytest.raises(Misuse, match=r"expected a table at <warehouse>/<database>\.db/<table>"):
        Query(str(tmp_path / "plain" / "orders"), table_options=options).write()
    assert not os.path.exists(tmp_path / "plain")


def test_a_table_that_is_created_anew_has_metadata_of_its_own(tmp_path):
    """What the dropped one has left in a catalog's folder is no base for it."""
    path, folder = str(tmp_path / "shop.db" / "orders"), str(tmp_path / "iceberg" / "shop" / "orders" / "metadata")
    for number in (3, 2):
        Query(path, table_options={STORAGE: "hadoop-catalog"}).write(number)
        check(path, folder)
        ids, before = metadata_of(folder)["table-uuid"], locals().get("ids")
        assert ids != before
        if number == 3:
            local_file_io(False).delete_tree(path)
    assert set(os.listdir(folder)) == named_files(folder)


def test_the_metadata_of_another_iceberg_table_is_left_alone(tmp_path, caplog):
    """A Hadoop catalog may have a table of this name already. The rows are written, and the log says what to do."""
    folder = tmp_path / "iceberg" / "shop" / "orders" / "metadata"
    folder.mkdir(parents=True)
    said = {"format-version": 2, "location": str(folder.parent), "current-snapshot-id": 77}
    for number in (1, 9):
        (folder / f"v{number}.metadata.json").write_text(json.dumps(said))
    query = Query(str(tmp_path / "shop.db" / "orders"), table_options={STORAGE: "hadoop-catalog"})
    query.write(2)
    assert query.table().snapshots.latest().id == 2
    assert sorted(os.listdir(folder)) == ["v1.metadata.json", "v9.metadata.json"]
    assert json.loads((folder / "v1.metadata.json").read_text()) == said
    assert "holds the metadata of a table of Iceberg's own, expected the metadata of the Paimon table" in caplog.text


def test_a_commit_of_iceberg_into_it_is_replaced(path):
    """Readers must not write: the metadata follows the table."""
    query = Query(path)
    query.write(2)
    said = metadata_of(folder_of(path))
    foreign = {**said["snapshots"][-1], "snapshot-id": 77}
    with open(f"{folder_of(path)}/v3.metadata.json", "w") as file:
        json.dump({**said, "current-snapshot-id": 77, "snapshots": [*said["snapshots"], foreign]}, file)
    query.write()
    check(path)
    query.write()
    check(path)


def test_snapshots_expire_with_those_of_the_table_and_before_their_files(path):
    """The metadata never names a file that is deleted; lists and manifests of expired ones go."""
    query = Query(path, table_options={"snapshot.num-retained.min": "1"})
    query.write(6)
    table = query.table(for_writing=True)
    seen = []
    unlink = table.file_io._calls.unlink

    def watched(path):
        seen.append((os.path.basename(path), len(metadata_of(folder_of(path_of_table))["snapshots"])))
        unlink(path)

    path_of_table, table.file_io._calls.unlink = path, watched
    expire(table, Retention(2, 2, 0), Needed)
    assert table.snapshots.ids() == [5, 6]
    assert {count for name, count in seen if name.startswith(("snapshot-", "manifest-", "data-"))} == {2}
    check(path)
    assert set(os.listdir(folder_of(path))) == named_files(folder_of(path))
    query.write(2)
    check(path)
    assert set(os.listdir(folder_of(path))) == named_files(folder_of(path))


def test_old_snapshots_leave_the_metadata_by_the_options_of_the_table_alone(path):
    """As Paimon's own writer has it, whether anybody lets them expire or not."""
    Query(path, table_options={"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"}).write(6)
    assert [snapshot["snapshot-id"] for snapshot in metadata_of(folder_of(path))["snapshots"]] == [4, 5, 6]
    check(path)
    assert set(os.listdir(folder_of(path))) == named_files(folder_of(path))


def test_old_metadata_files_stay_as_the_option_says(path):
    Query(path, table_options={"metadata.iceberg.previous-versions-max": "2"}).write(5)
    versions = sorted(name for name in os.listdir(folder_of(path)) if name.endswith(".json"))
    assert versions == [f"v{number}.metadata.json" for number in (3, 4, 5)]


def test_tags_are_refs(path):
    """From when they are made until they are deleted, or their snapshot expires."""
    query = Query(path)
    query.write(3)
    maintenance.create_tag(path, "noon", 2)
    assert metadata_of(folder_of(path))["refs"].keys() == {"noon"}
    found = iceberg(folder_of(path))
    assert found.scan(snapshot_id=found.metadata.refs["noon"].snapshot_id).to_arrow().num_rows == 20
    query.write()
    assert metadata_of(folder_of(path))["refs"].keys() == {"noon"}
    check(path)
    maintenance.delete_tag(path, "noon")
    assert metadata_of(folder_of(path))["refs"] == {}
    check(path)


def test_a_rollback_and_a_drop_of_partitions(path):
    """Both are commits, and the metadata follows."""
    query = Query(path)
    query.write(3)
    maintenance.rollback_to(path, 1)
    check(path)
    query.write(2)
    check(path)
    os.unlink(next(iter(iceberg(folder_of(path)).scan().plan_files())).file.file_path)
    streamsink.drop_missing(path)
    check(path)


def test_a_rollback_of_paimon_that_deletes_snapshots(path):
    """Numbers come again, and what was made of the snapshots that had them is replaced; readers are not led to it."""
    query = Query(path)
    query.write(5)
    uuid = metadata_of(folder_of(path))["table-uuid"]
    table = query.table()
    for number in (3, 4, 5):
        table.file_io.delete(table.layout.snapshot(number))
    table.file_io.replace(table.layout.latest_hint, b"2", "x")
    other = Query(path, application="other")
    other.write()
    assert hinted(folder_of(path)) == 3
    check(path)
    assert metadata_of(folder_of(path))["table-uuid"] == uuid
    assert [name for name in os.listdir(folder_of(path)) if name.endswith(".json")] == ["v3.metadata.json"]


@pytest.mark.parametrize("by", ["orphans", "orphans, cannot be made", "a tag", "a tag, cannot be made"])
def test_what_a_rollback_of_paimon_took_out_is_not_deleted_under_readers(path, monkeypatch, by):
    """Nobody has committed since, so readers of Iceberg are led to it still: first the metadata follows."""
    query = Query(path)
    query.write(4)
    maintenance.create_tag(path, "noon", 4)
    before = iceberg(folder_of(path)).scan().to_arrow()
    table = query.table()
    for number in (3, 4):
        table.file_io.delete(table.layout.snapshot(number))
    table.file_io.replace(table.layout.latest_hint, b"2", "x")
    if "a tag" not in by:
        os.unlink(f"{path}/tag/tag-noon")
        shutil.rmtree(f"{path}/streamsink")
        for folder, _, names in os.walk(path):
            for name in names:
                os.utime(f"{folder}/{name}", (0, 0))
    with monkeypatch.context() as patch:
        if "cannot be made" in by:
            patch.setattr("streamsink.table.iceberg_metadata.mirror.columns_of", _fail)
        if "a tag" in by:
            maintenance.delete_tag(path, "noon")
            assert not os.path.exists(f"{path}/tag/tag-noon")
        else:
            maintenance.remove_orphan_files(path, dry_run=False, without_journals=("streamsink",))
    if "cannot be made" in by:
        assert rows_of(iceberg(folder_of(path)).scan().to_arrow()) == rows_of(before)
    else:
        check(path)


def _fail(*_):
    raise OSError("no room")


def test_a_number_that_has_come_again_while_nobody_made_metadata(path, monkeypatch):
    """The snapshot of that number is another one, of as many rows."""
    Query(path).write(3)
    table = Query(path).table()
    table.file_io.delete(table.layout.snapshot(3))
    table.file_io.replace(table.layout.latest_hint, b"2", "x")
    _hide(path, monkeypatch, Query(path, row=lambda n: (n, "other"), application="other"), 1)
    Query(path, application="third").write()
    check(path)


def test_commits_of_others_are_caught_up_with_one_by_one_or_all_at_once(path, monkeypatch):
    """Another writer makes no metadata: each of its snapshots is there with the next commit of ours, unless there are
    too many of them.
    """
    query = Query(path)
    query.write(2)
    _hide(path, monkeypatch, query, 3)
    query.write()
    assert [snapshot["snapshot-id"] for snapshot in metadata_of(folder_of(path))["snapshots"]] == [1, 2, 3, 4, 5, 6]
    check(path)
    monkeypatch.setattr("streamsink.table.iceberg_metadata.mirror.MOST_BEHIND", 2)
    _hide(path, monkeypatch, query, 3)
    query.write()
    assert [snapshot["snapshot-id"] for snapshot in metadata_of(folder_of(path))["snapshots"]] == [9, 10]
    check(path)


def _hide(path, monkeypatch, query, batches):
    with monkeypatch.context() as patch:
        patch.setattr("streamsink.table.iceberg_metadata.following.makes_iceberg", lambda options: False)
        query.write(batches)


@pytest.mark.parametrize("harm", ["torn", "gone", "list", "manifest", "hint"])
def test_metadata_that_is_damaged_is_made_again(path, harm):
    """From the newest snapshot alone, with the id that it had."""
    query = Query(path, table_options=MERGED_OFTEN)
    query.write(3)
    folder = folder_of(path)
    said = metadata_of(folder)
    files = {
        "torn": f"{folder}/v3.metadata.json",
        "gone": f"{folder}/v3.metadata.json",
        "list": said["snapshots"][-1]["manifest-list"],
        "manifest": iceberg(folder).current_snapshot().manifests(iceberg(folder).io)[0].manifest_path,
        "hint": f"{folder}/version-hint.text",
    }
    with open(files[harm], "r+b") as file:
        file.truncate(20)
    if harm == "gone":
        os.unlink(files[harm])
    query.driver.options = dataclasses.replace(query.driver.options, mode="overwrite")
    query.write()
    check(path)
    assert harm in ("torn", "gone") or metadata_of(folder)["table-uuid"] == said["table-uuid"]


def test_a_branch_has_none(path):
    """It shares the table's folder, in which the metadata is that of the table."""
    query = Query(path)
    query.write(2)
    maintenance.create_branch(path, "audit")
    Query(table_path(f"{path}$branch_audit"), application="auditor").write(3)
    check(path)
    maintenance.fast_forward(path, "audit", discard=("streamsink",))
    check(path)
    query.write(1)
    check(path)


def test_metadata_says_what_paimons_own_writer_says(path):
    """The keys of each part, but for those that readers need beside them."""
    Query(path).write(2)
    said = metadata_of(folder_of(path))
    assert said["last-partition-id"] == 1000 and said["last-column-id"] == 1 and said["last-sequence-number"] == 2
    assert json.loads(said["properties"]["schema.name-mapping.default"]) == [
        {"field-id": 0, "names": ["id"]},
        {"field-id": 1, "names": ["part"]},
    ]
    assert not [key for snapshot in said["snapshots"] for key in snapshot["summary"] if key.startswith("streamsink.")]
