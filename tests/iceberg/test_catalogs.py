"""Real catalogs, and Spark's own Iceberg reader and writer beside the sink."""

import json
import subprocess
import sys
import uuid

import pyarrow as pa
import pytest

from streamsink.storage.stores import table_path
from tests.advice.following import told
from tests.iceberg.test_tables import ROW, Query, empty_row, table_of
from tests.services import postgres as postgres_service
from tools.common import SetupError


def named_apart(query: Query) -> str:
    """The catalog outlives the test: give the table a name that no other test has. Returns it."""
    query.of_sink = {"table": f"db{uuid.uuid4().hex[:8]}.orders"}
    return query.of_sink["table"]


def in_hive(folder, server) -> Query:
    """A query into a table of this metastore."""
    query = Query(folder)
    query.properties = {
        "type": "hive",
        "uri": f"thrift://127.0.0.1:{server.port}",
        "warehouse": f"file://{folder}/hive",
        "hive.hive2-compatible": "true",  # this metastore knows no timestamps with a time zone
    }
    named_apart(query)
    return query


def check_catalog(query: Query) -> None:
    """Three starts, of which each finds what the one before has done; and a rollback between."""
    query.run(table_of(ROW, empty_row(2)), table_of(empty_row(3)), partition_by=["day"])
    query.run(table_of(empty_row(4)))
    assert sorted(query.found(), key=lambda row: row["id"]) == [ROW, *(empty_row(number) for number in (2, 3, 4))]
    assert query.sink().journal == f"{table_path(query.table().location())}/_streamsink"
    newest = query.table().current_snapshot()
    query.table().manage_snapshots().rollback_to_snapshot(newest.parent_snapshot_id).commit()
    told("table.rolled-back", lambda: query.run(table_of(empty_row(5))))
    query.table().manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()
    query.forget_batch()
    query.run(table_of(empty_row(5)))
    assert sorted(row["id"] for row in query.found()) == [1, 2, 3, 4, 5]


@pytest.mark.in_turn("catalogs of Iceberg tables", 1)
def test_a_hive_metastore(hive_metastore, tmp_path):
    check_catalog(in_hive(tmp_path, hive_metastore))


@pytest.mark.in_turn("catalogs of Iceberg tables", 1)
def test_a_catalog_in_postgresql(postgres, tmp_path):
    query = Query(tmp_path)
    account = f"{postgres_service.USER}:{postgres_service.PASSWORD}"
    query.properties["uri"] = f"postgresql+psycopg://{account}@127.0.0.1:{postgres.port}/{postgres_service.DATABASE}"
    named_apart(query)
    check_catalog(query)


# A Spark of its own, because the jars of Iceberg are in no other session of the tests.
SPARK = """
import json, os, sys
from pyspark.sql import SparkSession
settings, commands = json.load(open(sys.argv[1]))
builder = SparkSession.builder
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
found = [[row.asDict(recursive=True) for row in spark.sql(command).collect()] for command in commands]
print("FOUND=" + json.dumps(found, default=repr))
sys.stdout.flush()
os._exit(0)
"""


class SparkOfIceberg:
    """Runs SQL in a Spark that has Iceberg's jar and the catalog."""

    def __init__(self, folder, settings: dict, properties: dict):
        from tools.jars import jars

        try:
            [jar] = jars("iceberg")
        except SetupError as why:
            pytest.skip(f"Iceberg's jar: {why}")
        self.folder = folder
        catalog = "spark.sql.catalog.lake"
        self.settings = settings | {
            "spark.jars": ",".join(filter(None, [settings.get("spark.jars"), jar])),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.session.timeZone": "UTC",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "hive",
            f"{catalog}.uri": properties["uri"],
            f"{catalog}.warehouse": properties["warehouse"],
            f"{catalog}.cache-enabled": "false",
        }

    def __call__(self, *commands: str) -> list[list[dict]]:
        """The rows of each command."""
        (self.folder / "job.json").write_text(json.dumps([self.settings, commands]))
        done = subprocess.run(
            [sys.executable, "-c", SPARK, str(self.folder / "job.json")], capture_output=True, text=True, timeout=300
        )
        found = [line for line in done.stdout.splitlines() if line.startswith("FOUND=")]
        assert found, done.stdout + done.stderr
        return json.loads(found[0].removeprefix("FOUND="))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_each_row_and_writes_beside_the_sink(hive_metastore, spark_settings, tmp_path):
    """It compacts, expires and rolls back as well; its rows and ours are there once."""
    query = in_hive(tmp_path, hive_metastore)
    name = query.of_sink["table"]
    spark = SparkOfIceberg(tmp_path, spark_settings, query.properties)
    query.run(table_of(ROW, empty_row(2)), table_of(empty_row(3)), partition_by=["day"])
    mine, _, both = spark(
        f"SELECT * FROM lake.{name} ORDER BY id",
        f"INSERT INTO lake.{name} SELECT * FROM lake.{name} WHERE id = 2",
        f"SELECT id FROM lake.{name}",
    )
    assert [row["id"] for row in mine] == [1, 2, 3] and len(both) == 4
    wanted = {**ROW, "named": dict(ROW["named"]), "at": ROW["at"].replace(tzinfo=None)}
    assert mine[0] == json.loads(json.dumps(wanted, default=repr))
    query.run(table_of(empty_row(4)))
    spark(
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '1'))",
        f"CALL lake.system.rewrite_manifests('{name}')",
        f"CALL lake.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)",
    )
    assert len(query.table().metadata.snapshots) == 1
    query.run(table_of(empty_row(5)), table_of(empty_row(6)))
    assert sorted(row["id"] for row in query.found()) == [1, 2, 2, 3, 4, 5, 6]
    back = query.table().current_snapshot().parent_snapshot_id
    [_, left] = spark(
        f"CALL lake.system.rollback_to_snapshot('{name}', {back})", f"SELECT count(*) AS n FROM lake.{name}"
    )
    assert left == [{"n": 6}]
    told("table.rolled-back", lambda: query.run(table_of(empty_row(7))))
    query.forget_batch()
    told("table.rolled-back", lambda: query.run(table_of(empty_row(7))))
    spark(f"CREATE OR REPLACE TABLE lake.{name} USING iceberg AS SELECT * FROM lake.{name} WHERE id = 1")
    query.forget_batch()
    told("table.rolled-back-too-far", lambda: query.run(table_of(empty_row(7))))
    assert [row["id"] for row in query.found()] == [1]


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.slow
def test_what_spark_has_cherry_picked_is_not_doubled(hive_metastore, spark_settings, tmp_path):
    """Its summary says of what it is a copy. And it finds a time that Python does not know."""
    query = in_hive(tmp_path, hive_metastore)
    name = query.of_sink["table"]
    spark = SparkOfIceberg(tmp_path, spark_settings, query.properties)

    def run(number: int) -> None:
        late = pa.array([1 << 60]).cast(pa.timestamp("us", tz="UTC"))
        query.run(pa.table({"id": pa.array([number]), "at": late}), on_rollback="republish")

    for number in range(3):
        run(number)
    ids = [each.snapshot_id for each in query.table().metadata.snapshots]
    [found, *_] = spark(
        f"SELECT count(*) AS n FROM lake.{name} WHERE at > TIMESTAMP '2500-01-01 00:00:00'",
        f"CALL lake.system.rollback_to_snapshot('{name}', {ids[0]})",
        f"INSERT INTO lake.{name} VALUES (100, null)",
        f"CALL lake.system.cherrypick_snapshot('{name}', {ids[2]})",
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '1'))",
    )
    run(3)
    assert found == [{"n": 3}]
    ids = query.table().scan(selected_fields=("id",)).to_arrow().column("id").to_pylist()
    assert sorted(ids) == [0, 1, 2, 3, 100]
