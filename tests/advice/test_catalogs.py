"""Advice of errors about catalogs: once it is followed, the table is known by a name, and each row is there once."""

import os
import shutil
import sys

import pytest

import streamsink
import streamsink.maintenance
from tests.advice.following import follows, told
from tests.catalogs.world import NARROW, Door, Query, asking, found


@pytest.fixture
def uri(hive_metastore):
    return f"thrift://127.0.0.1:{hive_metastore.port}"


def _refused(query, kind):
    """What a start says."""
    return told(kind, query.start)


@follows("catalog.kind")
def test_a_catalog_of_the_file_system_needs_no_option(tmp_path):
    query = Query(tmp_path, "", catalog={"metastore": "filesystem"})
    _refused(query, "catalog.kind").says("expected 'hive'", "needs no entry, so leave the option out")
    query.options["catalog"] = {}
    query.writing(NARROW)
    query.run(3)
    assert query.rows() == [0, 1, 2]


@follows("catalog.branch")
def test_a_branch_is_written_without_the_option(uri, tmp_path):
    query = Query(tmp_path, uri)
    query.run(2)
    streamsink.maintenance.create_branch(query.root, "audit")
    branch = Query(tmp_path, uri)
    branch.root = f"{query.root}/branch/branch-audit"
    branch.writing(NARROW)
    _refused(branch, "catalog.branch").says("Leave the option out")
    branch.options = {**branch.options, "catalog": {}, "application": "audit"}
    branch.writing(NARROW)
    branch.run(3)
    assert len(streamsink.read_arrow(branch.root)) == 3 and query.rows() == [0, 1]


@follows("catalog.name")
def test_a_name_that_the_path_does_not_tell_is_given(uri, tmp_path):
    query = Query(tmp_path, uri, name="orders-2")
    said = _refused(query, "catalog.name").says("for the table", "Nothing was written")
    key = said.find(r"Give the name: catalog=\{\.\.\., '(\w+)': \.\.\.\}")
    query.options["catalog"] = {**query.catalog, key: "orders_2"}
    query.writing(NARROW)
    query.run(3)
    assert found(uri, query.database, "orders_2") and query.rows() == [0, 1, 2]


@follows("catalog.warehouse")
def test_a_path_that_is_not_in_the_warehouse(uri, tmp_path):
    query = Query(tmp_path, uri, catalog={"warehouse": "/elsewhere"})
    _refused(query, "catalog.warehouse").says("or leave 'warehouse' out")
    del query.options["catalog"]["warehouse"]
    query.writing(NARROW)
    query.run(3)
    assert query.in_metastore() and query.rows() == [0, 1, 2]


@follows("catalog.unavailable")
def test_a_catalog_that_is_away(hive_metastore, tmp_path):
    """The query may begin without it: a later start registers the table."""
    door = Door(hive_metastore.port).open()
    door.close()
    query = Query(tmp_path, door.uri)
    _refused(query, "catalog.unavailable").says("leave out the option 'catalog' until then", "Nothing was written")
    query.options["catalog"] = {}
    query.writing(NARROW)
    query.run(3)
    door.open()
    query.options["catalog"] = query.catalog
    query.writing(NARROW)
    query.run(3, 5)
    assert query.in_metastore() and query.rows() == list(range(5))
    door.close()


@follows("catalog.other-table")
def test_a_name_that_is_taken(uri, tmp_path):
    query, other = Query(tmp_path, uri), Query(tmp_path / "other", uri)
    other.database = query.database
    other.root = f"{tmp_path}/other/{query.database}.db/orders"
    other.writing(NARROW)
    other.run(2)
    said = _refused(query, "catalog.other-table").says("with database and table in the option 'catalog'")
    assert said.find(r"a Paimon table at file:(/\S+)") == other.root
    query.options["catalog"] = {**query.catalog, "table": "sales"}
    query.writing(NARROW)
    query.run(3)
    assert found(uri, query.database, "sales").sd.location == f"file:{query.root}" and query.rows() == [0, 1, 2]


@follows("catalog.other-table")
@pytest.mark.parametrize("leave", ["nothing", "a copy"])
def test_a_name_that_leads_to_where_the_table_was(uri, tmp_path, leave):
    """The table was moved, or goes on as a copy beside the original. A drop there would delete the files."""
    in_parameters = {"location-in-properties": "true"} if leave == "a copy" else {}
    query = Query(tmp_path, uri, catalog=in_parameters)
    query.run(3)
    query.options["catalog"] = query.catalog = {k: v for k, v in query.catalog.items() if k not in in_parameters}
    before, query.root = query.root, f"{tmp_path}/moved/{query.database}.db/orders"
    shutil.copytree(before, query.root)
    if leave == "nothing":
        shutil.rmtree(before)
    query.writing(NARROW)
    said = _refused(query, "catalog.other-table").says(
        "which was moved", "dropping a managed table", "Nothing was written"
    )
    (path,), given = said.call("streamsink.maintenance.repair")
    for dry_run in (True, False):
        given |= {"catalog": query.catalog, "dry_run": dry_run}
        assert streamsink.maintenance.repair(path, **given) == "updated"
    query.run(3, 5)
    assert query.in_metastore().sd.location == f"file:{query.root}" and query.rows() == list(range(5))


@follows("table.gone")
@pytest.mark.parametrize("is_running", [True, False])
def test_a_table_that_was_renamed_under_its_query(tmp_path, is_running):
    """Paimon's catalogs move the folder of a managed table. A new table would not be the one that was meant."""
    query = Query(tmp_path, "")
    query.options["catalog"] = {}
    query.writing(NARROW)
    driven = query.start()
    query.batch(driven, 3)
    before, query.root = query.root, f"{tmp_path}/{query.database}.db/sales"
    if not is_running:
        driven.close()
    os.rename(before, query.root)
    said = told("table.gone", lambda: query.batch(driven, 5) if is_running else query.run(3, 5))
    said.says("if it was moved or renamed, give its new path")
    assert not os.path.exists(before)
    query.checkpoint.ends[1:], query.checkpoint.committed = [], 1
    query.writing(NARROW)
    query.run(3, 5)
    assert query.rows() == list(range(5))


@follows("table.exists")
def test_a_table_whose_creator_died_before_it_was_registered(uri, tmp_path):
    query = Query(tmp_path, uri)
    streamsink.create_table(query.root, "id BIGINT")
    said = told("table.exists", lambda: streamsink.create_table(query.root, "id BIGINT", catalog=query.catalog))
    (path,), given = said.call("streamsink.maintenance.repair")
    assert streamsink.maintenance.repair(path, **given | {"catalog": query.catalog}) == "registered"
    said = told("table.exists", lambda: streamsink.create_table(query.root, "id BIGINT", catalog=query.catalog))
    assert "repair" not in said.message and query.in_metastore()


@follows("catalog.no-database")
def test_a_database_that_is_not_made_by_the_sink(uri, tmp_path):
    query = Query(tmp_path, uri, catalog={"create-database": "false"})
    said = _refused(query, "catalog.no-database").says("Create the database")
    name = said.find(r"has no database '(\w+)'")
    asking(uri, lambda client: client.call(lambda c: c.create_database(client.types.Database(name, parameters={}))))
    query.run(3)
    assert query.in_metastore() and query.rows() == [0, 1, 2]


@follows("catalog.columns")
def test_columns_that_are_one_for_the_metastore(uri, tmp_path):
    path = f"{tmp_path}/shop.db/orders"
    given = {"metastore": "hive", "uri": uri, "database": Query(tmp_path, uri).database}
    said = told("catalog.columns", lambda: streamsink.create_table(path, "a INT, A INT", catalog=given))
    said.says("Rename one of them in the query")
    assert streamsink.create_table(path, "a INT, b INT", catalog=given) == path


@follows("catalog.driver")
def test_a_client_that_is_missing(monkeypatch, uri, tmp_path):
    query = Query(tmp_path, uri)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pymetastore.hive_metastore", None)
        said = _refused(query, "catalog.driver")
    assert said.find(r"pip install 'streamsink\[(\w+)\]'") == "hive"
    query.run(3)
    assert query.in_metastore() and query.rows() == [0, 1, 2]
