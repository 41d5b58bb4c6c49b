"""Several tables, dead letters and tables without a query in a real Hive Metastore."""

import functools
import json
import os
import shlex
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

import streamsink
from streamsink import maintenance
from streamsink.cli.upkeep import register
from streamsink.errors import Misuse, Retryable
from streamsink.events import TableNotRegistered, TableRegistered
from streamsink.format.types import parse_ddl
from streamsink.options import SinkOptions
from streamsink.sink import FanOut, FileSink, PaimonTable
from streamsink.storage.file_io import local_file_io
from streamsink.table.routed.rules import ROUTE, Routing
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.many_driver import LettersDriver, ManyTablesDriver
from tests.catalogs.world import NARROW, Door, Query, columns, found
from tests.cli.conftest import run as run_command

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), (ROUTE, pa.string())])


@pytest.fixture
def place(hive_metastore, tmp_path):
    """(uri, name of a database, its folder)"""
    database = f"d{uuid.uuid4().hex[:12]}"
    return f"thrift://127.0.0.1:{hive_metastore.port}", database, f"{tmp_path}/{database}.db"


def run(kind, routing, options, names, ends, n=1):
    def rows(start, end):
        numbers = range(start, end)
        routes = [names[number % len(names)] for number in numbers]
        return pa.record_batch([list(numbers), [n] * len(routes), routes], schema=SCHEMA)

    driver = kind(routing.root, SCHEMA, rows, routing, options)
    driver.run(local_file_io(False), SparkCheckpoint(str(uuid.uuid4())), ends)
    return driver


def told(driver, kind) -> list[str]:
    return sorted(event.name for event in driver.events if isinstance(event, kind))


def test_each_of_several_tables_is_registered(place):
    """Also one that a pattern lets come into being, when it is published."""
    uri, database, folder = place
    options = SinkOptions.of(folder, {"catalog": {"metastore": "hive", "uri": uri}})
    routing = Routing.of(folder, {"orders": {}, "more_*": {}}, options, dead_letters=None, unrouted="fail")
    driver = run(ManyTablesDriver, routing, options, ["orders", "more_x"], [4, 6])
    assert told(driver, TableRegistered) == [f"{database}.more_x", f"{database}.orders"]
    for name in ("orders", "more_x"):
        assert columns(found(uri, database, name)) == [("id", "bigint"), ("n", "int")]


def test_a_listed_table_with_another_s_name_is_an_error_at_the_start(place):
    uri, database, folder = place
    streamsink.create_table(f"{folder}/elsewhere", "x INT", catalog=_as(uri, "orders"))
    options = SinkOptions.of(folder, {"catalog": {"metastore": "hive", "uri": uri}})
    routing = Routing.of(folder, {"orders": {}}, options, dead_letters=None, unrouted="fail")
    with pytest.raises(Misuse) as refused:
        run(ManyTablesDriver, routing, options, ["orders"], [2])
    assert refused.value.kind == "catalog.other-table" and os.listdir(folder) == ["elsewhere"]


def test_a_table_of_a_pattern_with_another_s_name_is_told(place):
    """Rows have come for it, and no batch fails by a catalog."""
    uri, database, folder = place
    streamsink.create_table(f"{folder}/elsewhere", "x INT", catalog=_as(uri, "more_x"))
    options = SinkOptions.of(folder, {"catalog": {"metastore": "hive", "uri": uri}})
    routing = Routing.of(folder, {"more_*": {}}, options, dead_letters=None, unrouted="fail")
    driver = run(ManyTablesDriver, routing, options, ["more_x", "more_y"], [4, 6])
    assert told(driver, TableNotRegistered) == [f"{database}.more_x"]
    assert told(driver, TableRegistered) == [f"{database}.more_y"]
    assert streamsink.read_arrow(f"{folder}/more_x").num_rows == 3


def test_a_table_of_a_pattern_whose_name_no_catalog_takes_is_told_once(place):
    """Its rows are there with all others, in each batch and at each start."""
    uri, database, folder = place
    options = SinkOptions.of(folder, {"catalog": {"metastore": "hive", "uri": uri}})
    routing = Routing.of(folder, {"more_*": {}}, options, dead_letters=None, unrouted="fail")
    driver = run(ManyTablesDriver, routing, options, ["more_x", "more_a-b", "more_X"], [3, 6, 9])
    assert told(driver, TableRegistered) == [f"{database}.more_x"]
    refused = [os.path.basename(e.path) for e in driver.events if isinstance(e, TableNotRegistered)]
    assert len(refused) == 2 and "more_a-b" in refused and {"more_x", "more_X"} & set(refused)
    assert [streamsink.read_arrow(f"{folder}/{name}").num_rows for name in ("more_x", "more_a-b", "more_X")] == [3] * 3


def test_two_listed_tables_with_one_name_are_an_error_at_the_start(place):
    """A metastore knows no upper case: its readers would find one of the two."""
    uri, _, folder = place
    options = SinkOptions.of(folder, {"catalog": {"metastore": "hive", "uri": uri}})
    routing = Routing.of(folder, {"orders": {}, "Orders": {}}, options, dead_letters=None, unrouted="fail")
    with pytest.raises(Misuse, match="another table of this query") as refused:
        run(ManyTablesDriver, routing, options, ["orders"], [2])
    assert refused.value.kind == "catalog.other-table" and not os.path.exists(folder)
    routing = Routing.of(folder, {"a-b": {}}, options, dead_letters=None, unrouted="fail")
    with pytest.raises(Misuse, match="Give the table another name, or a path") as refused:
        run(ManyTablesDriver, routing, options, ["a-b"], [2])
    assert refused.value.kind == "catalog.name" and not os.path.exists(folder)


def test_a_table_for_dead_letters_is_registered_beside_its_table(place):
    uri, database, folder = place
    streamsink.create_table(f"{folder}/orders", "id BIGINT, n TINYINT")
    options = SinkOptions.of(folder, {"catalog": {"metastore": "hive", "uri": uri, "table": "sales"}})
    routing = Routing.of(folder, {"orders": {}}, options, dead_letters="rejected", unrouted="fail")
    run(LettersDriver, routing, options, ["orders"], [4])
    assert found(uri, database, "sales").sd.location == f"file:{folder}/orders"
    assert found(uri, database, "rejected") is None, "it comes with its first row"
    options = replace(options, application="b")
    run(LettersDriver, routing, options, ["orders"], [4], n=1000)
    assert found(uri, database, "rejected").sd.location == f"file:{folder}/rejected"
    assert streamsink.read_arrow(f"{folder}/rejected").num_rows == 4


def test_a_table_of_a_fan_out_is_registered(place, tmp_path):
    """By an option of that destination alone; the other one has no use for it."""
    uri, database, folder = place
    to = FanOut(
        {"table": PaimonTable(f"{folder}/orders"), "files": FileSink(f"{tmp_path}/files")},
        journal=f"{tmp_path}/journal",
        options={"table": {"catalog": _as(uri)}},
    )
    query = Query(tmp_path, uri, catalog={})
    query.options = {"partition_by": ()}
    query.writing(NARROW).destination = lambda: to
    query.run(2, 4)
    assert told(query.driver, TableRegistered) == [f"{database}.orders"] and found(uri, database, "orders")
    assert streamsink.read_arrow(f"{folder}/orders").num_rows == 4


def test_a_table_is_created_and_registered_without_a_query(place):
    uri, database, folder = place
    path = streamsink.create_table(f"{folder}/orders", "id BIGINT", comment="all", catalog=_as(uri))
    entry = found(uri, database, "orders")
    assert entry.sd.location == f"file:{path}" and entry.parameters["comment"] == "all"


def test_a_table_is_not_created_where_its_name_is_taken_or_unknown(place, hive_metastore):
    uri, database, folder = place
    streamsink.create_table(f"{folder}/orders", "id BIGINT", catalog=_as(uri))
    with pytest.raises(Misuse, match="a Paimon table at file:.*Nothing was written") as refused:
        streamsink.create_table(f"{folder}/other", "id BIGINT", catalog=_as(uri, "orders"))
    assert refused.value.kind == "catalog.other-table"
    door = Door(hive_metastore.port).open()
    door.close()
    with pytest.raises(Retryable, match="Nothing was written"):
        streamsink.create_table(f"{folder}/other", "id BIGINT", catalog=_as(door.uri))
    assert os.listdir(folder) == ["orders"]


def test_a_table_is_registered_by_hand_and_its_entry_brought_up_to_date(place):
    """A dry run says what would be done, and does not do it."""
    uri, database, folder = place
    path = streamsink.create_table(f"{folder}/orders", "id BIGINT")
    for dry_run in (True, False):
        assert maintenance.repair(path, catalog=_as(uri), dry_run=dry_run) == "registered"
        assert (found(uri, database, "orders") is None) is dry_run
    table = open_table(local_file_io(False), path, for_writing=True)
    table.evolve(parse_ddl("id BIGINT, note STRING"), add_columns=True, widen_types=False)
    for dry_run in (True, False):
        assert maintenance.repair(path, catalog=_as(uri), dry_run=dry_run) == "updated"
        assert len(found(uri, database, "orders").sd.cols) == (1 if dry_run else 2)
    assert maintenance.repair(path, catalog=_as(uri)) == ""


def test_the_command_registers_a_table_as_its_examples_say(place, tmp_path):
    """Without --yes it says what it would do."""
    uri, database, folder = place
    path = streamsink.create_table(f"{folder}/orders", "id BIGINT")
    properties = tmp_path / "catalog.json"
    properties.write_text(json.dumps(_as(uri)))
    here = {"lake/shop.db/orders": path, "thrift://metastore:9083": uri, "catalog.json": str(properties)}
    looks, does, moves = register.examples

    def words(line: str) -> list[str]:
        each = shlex.split(line)[2:]
        return [functools.reduce(lambda text, name: text.replace(name, here[name]), here, word) for word in each]

    assert "would be registered" in run_command(*words(looks), code=1).stdout
    assert found(uri, database, "orders") is None
    assert json.loads(run_command(*words(does)).stdout) == {"table": path, "done": True, "change": "registered"}
    assert found(uri, database, "orders").sd.location == f"file:{path}"
    assert "is in the catalog as it is" in run_command(*words(looks)).stdout
    assert "option 'catalog'" in run_command("register", path, code=3).stderr
    moved = f"{tmp_path}/moved/{os.path.basename(folder)}/orders"
    here |= {"lake/shop.db/orders": moved, "old/shop.db/orders": path}
    os.makedirs(os.path.dirname(moved))
    os.rename(path, moved)
    assert "would be updated" in run_command(*words(moves), code=1).stdout
    assert found(uri, database, "orders").sd.location == f"file:{path}"
    run_command(*words(moves), "--yes")
    assert found(uri, database, "orders").sd.location == f"file:{moved}"


def test_what_a_repair_cannot_do_it_says(place, hive_metastore):
    uri, _, folder = place
    path = streamsink.create_table(f"{folder}/orders", "id BIGINT", catalog=_as(uri))
    other = streamsink.create_table(f"{folder}/other", "id BIGINT")
    with pytest.raises(Misuse, match="'catalog' is {}, expected the properties"):
        maintenance.repair(path)
    with pytest.raises(Misuse, match=f"a Paimon table at file:{path}.*Nothing was written") as refused:
        maintenance.repair(other, catalog=_as(uri, "orders"))
    assert refused.value.kind == "catalog.other-table"
    with pytest.raises(Misuse, match=f"at {path} is another table, .*Nothing was changed") as refused:
        maintenance.repair(other, catalog=_as(uri, "orders"), moved_from=path)
    assert refused.value.kind == "catalog.other-table"
    with pytest.raises(Misuse, match=f"a Paimon table at file:{path}.*Nothing was written"):
        maintenance.repair(other, catalog=_as(uri, "orders"), moved_from=f"{folder}/elsewhere")
    door = Door(hive_metastore.port).open()
    door.close()
    with pytest.raises(Retryable, match="does not answer.*Nothing was written"):
        maintenance.repair(path, catalog=_as(door.uri))


def _as(uri, table=None) -> dict:
    return {"metastore": "hive", "uri": uri, **({"table": table} if table else {})}
