"""Paimon's Java HiveCatalog and the option ``catalog`` on one metastore: the same entry, field by field."""

import json
import uuid

import pytest

import streamsink
from streamsink.catalogs.catalog import Named
from streamsink.catalogs.hive import HiveCatalog
from streamsink.errors import Misuse
from streamsink.events import TableRegistered
from streamsink.format.schema import TableSchema
from streamsink.format.types import parse_ddl, parse_type
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import create_table
from tests.catalogs.world import WIDE, Query, found
from tests.compat.java_catalogs import java_hive

pytestmark = [pytest.mark.spark, pytest.mark.compat]

EVERY_TYPE = (
    "id BIGINT NOT NULL COMMENT 'a number', Upper INT, flag BOOLEAN, t1 TINYINT, t2 SMALLINT, f FLOAT, d DOUBLE, "
    "price DECIMAL(12, 3), c CHAR(7), c2 CHAR(300), v VARCHAR(65535), v2 VARCHAR(65536), s STRING, b BINARY(4), "
    "vb BYTES, day DATE, clock TIME(3), ts TIMESTAMP(3), tz TIMESTAMP(6) WITH LOCAL TIME ZONE, "
    "tags ARRAY<VARCHAR(10)>, m MAP<STRING, ARRAY<DECIMAL(5, 2)>>, "
    "r ROW<Inner BIGINT, deep ROW<x TIMESTAMP(9), y MAP<INT, BYTES>>>, part STRING"
)
# What the metastore itself writes, by its clock or by looking at the files.
_OF_THE_SERVER = ("transient_lastDdlTime", "numFiles", "totalSize", "COLUMN_STATS_ACCURATE")


@pytest.fixture
def uri(hive_metastore):
    return f"thrift://127.0.0.1:{hive_metastore.port}"


def facts(table, root) -> dict:
    """All that the metastore says of a table, with times and the names of its place left out."""
    sd = table.sd
    said = {name: value for name, value in vars(table).items() if name not in ("sd", "createTime", "lastAccessTime")}
    said |= {f"sd.{name}": value for name, value in vars(sd).items() if name != "serdeInfo"}
    said |= {f"serde.{name}": value for name, value in vars(sd.serdeInfo).items()}
    said["sd.cols"] = [(each.name, each.type, each.comment) for each in sd.cols]
    said["parameters"] = {k: v for k, v in table.parameters.items() if k not in _OF_THE_SERVER}
    said["sd.location"] = sd.location.replace(root, "<root>")
    return {name: value for name, value in said.items() if name not in ("tableName", "dbName")}


def schema_of(ddl, partition_by=(), options=None, comment=None) -> TableSchema:
    return TableSchema.create(parse_ddl(ddl), partition_by, options or {}, comment, 0)


@pytest.mark.parametrize(
    "schema",
    [
        schema_of(EVERY_TYPE, ("part",), {"snapshot.num-retained.max": "70", "hive.x": "y"}, "all orders"),
        schema_of("id BIGINT, a INT, b STRING", ("a", "b"), {"write-only": "true"}),
        schema_of("id BIGINT"),
    ],
    ids=["every type", "two partitions", "plain"],
)
@pytest.mark.parametrize("kind", ["managed", "external"])
def test_the_entry_is_the_one_that_java_makes(java, uri, tmp_path, schema, kind):
    """Also what nobody looks at: flags, retention, owner, and the parameters of the class that reads it."""
    database = f"d{uuid.uuid4().hex[:12]}"
    theirs = java_hive(java, uri, tmp_path, kind)
    theirs.create(database, "theirs", schema)
    root = f"{tmp_path}/{database}.db/ours"
    create_table(local_file_io(False), root, schema)
    named = Named(root, database, "ours", external=kind == "external")
    assert HiveCatalog([_address(uri)], root).put(named, schema) == "registered"
    made = [facts(found(uri, database, name), f"{tmp_path}/{database}.db/{name}") for name in ("theirs", "ours")]
    assert made[0] == made[1]
    theirs.close()


def test_a_location_among_the_parameters_is_where_java_has_it(java, uri, tmp_path):
    database = f"d{uuid.uuid4().hex[:12]}"
    theirs, schema = java_hive(java, uri, tmp_path, in_properties="true"), schema_of("id BIGINT, a INT", ("a",))
    theirs.create(database, "theirs", schema)
    root = f"{tmp_path}/{database}.db/ours"
    create_table(local_file_io(False), root, schema)
    HiveCatalog([_address(uri)], root, in_properties=True).put(Named(root, database, "ours"), schema)
    made = [facts(found(uri, database, name), "nowhere") for name in ("theirs", "ours")]
    for name, each in zip(("theirs", "ours"), made):
        assert each["parameters"].pop("paimon_location") == f"file:{tmp_path}/{database}.db/{name}"
        each["sd.location"] = each["sd.location"].replace(name, "<name>")
    assert made[0] == made[1]
    theirs.close()


def _address(uri) -> tuple[str, int]:
    host, port = uri.removeprefix("thrift://").split(":")
    return host, int(port)


def test_java_finds_the_table_by_its_name_and_would_write_nothing_else(java, uri, tmp_path):
    """After a query has made it and has given it a column: place, columns and rows. A repair of Java's adds the path to
    the parameters, which stays, and nothing else."""
    query = Query(tmp_path, uri)
    query.run(3)
    query.writing(WIDE)
    query.run(3, 5)
    theirs = java_hive(java, uri, tmp_path)
    assert theirs.location(query.database, "orders").removeprefix("file:") == query.root
    assert theirs.columns(query.database, "orders") == ["id", "part", "Note"]
    assert sorted(row[0] for row in java.read(query.root)) == list(range(5))
    before = facts(query.in_metastore(), query.root)
    theirs.repair(query.database, "orders")
    before["parameters"]["path"] = f"file:{query.root}"
    assert facts(query.in_metastore(), query.root) == before
    query.run(3, 5, 7)
    assert len(query.told(TableRegistered)) == 1 and facts(query.in_metastore(), query.root) == before
    theirs.close()


def test_what_java_changes_in_the_catalog_is_not_changed_again(java, uri, tmp_path):
    """Its ALTER TABLE writes the schema and the metastore; the query takes the one and finds the other as it should."""
    query = Query(tmp_path, uri)
    driven = query.start()
    query.batch(driven, 3)
    theirs = java_hive(java, uri, tmp_path)
    theirs.add_column(query.database, "orders", "late", parse_type("DECIMAL(8, 2)"))
    before = query.in_metastore()
    query.batch(driven, 5)
    driven.close()
    assert [e.change for e in query.told(TableRegistered)] == ["registered"] and query.in_metastore() == before
    theirs.close()


def test_a_table_that_java_drops_or_renames_is_gone_as_ever(java, uri, tmp_path):
    """A managed table goes with its files, and a new name moves its folder: the next start says that it is gone."""
    theirs = java_hive(java, uri, tmp_path)
    for change in (theirs.drop, lambda *names: theirs.rename(*names, "sales")):
        query = Query(tmp_path, uri)
        query.run(3)
        change(query.database, "orders")
        with pytest.raises(Misuse) as gone:
            query.run(3, 5)
        assert gone.value.kind == "table.gone" and query.in_metastore() is None
    assert found(uri, query.database, "sales").sd.location == f"file:{tmp_path}/{query.database}.db/sales"
    theirs.close()


def test_the_files_of_an_external_table_stay_when_java_drops_it(java, uri, tmp_path):
    query = Query(tmp_path, uri, catalog={"table.type": "external"})
    query.run(3)
    theirs = java_hive(java, uri, tmp_path)
    theirs.drop(query.database, "orders")
    assert query.in_metastore() is None
    query.run(3, 5)
    assert query.in_metastore().tableType == "EXTERNAL_TABLE" and query.rows() == list(range(5))
    theirs.close()


@pytest.mark.soak
def test_a_real_query_registers_its_table_and_its_new_column(spark, java, uri, tmp_path):
    """As users write it: ``to_table(..., catalog=...)`` under Spark, and Java reads each row by the name."""
    database = f"d{uuid.uuid4().hex[:12]}"
    catalog = {"metastore": "hive", "uri": uri, "warehouse": str(tmp_path)}
    (tmp_path / "in").mkdir()
    for start, columns in ((0, "id bigint"), (3, "id bigint, note string")):
        lines = [json.dumps({"id": start + n, "note": "n"}) for n in range(3)]
        (tmp_path / "in" / f"{start}.json").write_text("\n".join(lines))
        sink = streamsink.to_table(f"{tmp_path}/{database}.db/orders", catalog=catalog, add_columns=True)
        rows = spark.readStream.schema(columns).json(str(tmp_path / "in"))
        writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "ckpt"))
        writer.trigger(availableNow=True).start().awaitTermination()
        sink.close()
    entry = found(uri, database, "orders")
    assert [each.name for each in entry.sd.cols] == ["id", "note"]
    theirs = java_hive(java, uri, tmp_path)
    assert theirs.rows(database, "orders") == 6
    theirs.close()
