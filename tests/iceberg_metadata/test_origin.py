"""Metadata of another table under a table's name: copied, moved, dropped, of a rollback, or Iceberg's own."""

import json
import os
import shutil

import pyarrow as pa
import pytest

from streamsink import maintenance
from streamsink.table.iceberg_metadata.following import Following
from tests.iceberg_metadata.mirrored import SCHEMA, STORAGE, Query, check, folder_of, iceberg, metadata_of, named_files

IN_CATALOG = {STORAGE: "hadoop-catalog"}


def _files_of(path) -> list[str]:
    return [task.file.file_path for task in iceberg(folder_of(path)).scan().plan_files()]


def test_a_copy_of_a_table_names_its_own_files(tmp_path):
    """And not those of the table that it is a copy of, which go when that one is compacted and expires."""
    query = Query(str(tmp_path / "shop.db" / "orders"))
    query.write(3)
    copy = str(tmp_path / "shop.db" / "copy")
    shutil.copytree(query.path, copy)
    Query(copy, application="other").write()
    check(copy)
    assert all(name.startswith(f"{copy}/") for name in _files_of(copy))
    assert set(os.listdir(folder_of(copy))) == named_files(folder_of(copy))
    before = metadata_of(folder_of(query.path))
    assert metadata_of(folder_of(copy))["table-uuid"] != before["table-uuid"]
    query.write()
    check(query.path)
    assert metadata_of(folder_of(query.path))["table-uuid"] == before["table-uuid"]


def test_a_start_alone_mends_the_metadata_of_a_moved_table(tmp_path):
    query = Query(str(tmp_path / "shop.db" / "orders"))
    query.write(3)
    moved = str(tmp_path / "shop.db" / "moved")
    os.rename(query.path, moved)
    query.path = moved
    Following(query.table()).start()
    check(moved)
    Following(query.table()).refresh()
    check(moved)


def test_a_warehouse_that_was_moved(tmp_path):
    """The folder of a catalog goes with it."""
    query = Query(str(tmp_path / "old" / "shop.db" / "orders"), table_options=IN_CATALOG)
    query.write(2)
    os.rename(tmp_path / "old", tmp_path / "new")
    moved = Query(str(tmp_path / "new" / "shop.db" / "orders"), application="other", table_options=IN_CATALOG)
    moved.write()
    check(moved.path, str(tmp_path / "new" / "iceberg" / "shop" / "orders" / "metadata"))


@pytest.mark.parametrize("named", ["as Iceberg's Hadoop catalogs", "as its other catalogs", "empty"])
def test_a_table_of_icebergs_own_under_the_name_is_left_alone(tmp_path, named, caplog):
    """Its metadata is the only thing that says which files it has: not one byte of the folder changes."""
    from pyiceberg.catalog.sql import SqlCatalog

    home = tmp_path / "iceberg" / "shop" / "orders"
    catalog = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "iceberg"))
    catalog.create_namespace("shop")
    theirs = catalog.create_table("shop.orders", SCHEMA, location=str(home))
    if named != "empty":
        theirs.append(pa.table({"id": [1, 2], "part": ["a", "b"]}))
    folder = str(home / "metadata")
    if named != "as its other catalogs":
        made = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        for number, name in enumerate(made, 1):
            os.rename(f"{folder}/{name}", f"{folder}/v{number}.metadata.json")
        with open(f"{folder}/version-hint.text", "w") as hint:
            hint.write(str(len(made)))
    before = _content(folder)
    query = Query(str(tmp_path / "shop.db" / "orders"), table_options={**IN_CATALOG, "snapshot.num-retained.min": "1"})
    query.write(3)
    assert Following(query.table()).unnamed() == [], "files of theirs would be taken for orphans"
    maintenance.create_tag(query.path, "noon", 2)
    assert _content(folder) == before
    assert query.table().snapshots.latest().total_record_count == 30
    assert any("expected the metadata of the Paimon table" in line.getMessage() for line in caplog.records)


def _content(folder) -> dict[str, bytes]:
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def test_metadata_without_an_identity_that_is_older_than_the_table(tmp_path):
    """Released Java writers leave it out; the same number of rows does not make it the metadata of the new table."""
    folder = str(tmp_path / "iceberg" / "shop" / "orders" / "metadata")
    for number in (0, 100):
        query = Query(str(tmp_path / "shop.db" / "orders"), row=lambda n: (n + number, "a"), table_options=IN_CATALOG)
        query.write()
        check(query.path, folder)
        if not number:
            said = metadata_of(folder)
            said["snapshots"][0]["summary"] = {"operation": "append"}
            with open(f"{folder}/v1.metadata.json", "w") as file:
                json.dump(said, file)
            shutil.rmtree(query.path)
