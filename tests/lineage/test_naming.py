"""Datasets are called as OpenLineage's own client calls them."""

import pytest

from streamsink.databases import DatabaseSink
from streamsink.delta import DeltaSink
from streamsink.iceberg import IcebergSink
from streamsink.kafka import KafkaSink
from streamsink.lineage import naming
from streamsink.lineage.naming import Destinations
from streamsink.options import SinkOptions
from streamsink.sink import FanOut, FileSink, PaimonTable
from streamsink.sinks.paimon.opening import PaimonTables
from streamsink.table.routed.rules import Routing


@pytest.fixture
def rules(package):
    from openlineage.client.naming import dataset

    return dataset


def is_as(found, expected) -> bool:
    return (found.namespace, found.name) == (expected.get_namespace(), expected.get_name())


def test_stores(rules):
    """The same place is one dataset, in whichever way its path is spelled."""
    for path in ("/lake/t", "file:/lake/t", "file:///lake/t"):
        assert is_as(naming.of_path(path), rules.LocalFileSystem("/lake/t")), path
    for scheme in ("s3", "s3a", "s3n"):
        assert is_as(naming.of_path(f"{scheme}://bucket/lake/t"), rules.S3("bucket", "lake/t"))
    assert is_as(naming.of_path("gs://bucket/lake/t"), rules.GCS("bucket", "lake/t"))
    assert is_as(naming.of_path("hdfs://node:9000/lake/t"), rules.HDFS("node", "9000", "/lake/t"))


def test_topics(rules):
    """The first server names the cluster."""
    assert is_as(naming.of_topic("one:9092,two:9092", "orders"), rules.Kafka("one", "9092", "orders"))
    sink = KafkaSink("one:9092", "orders", journal="/j")
    assert is_as(naming.of_sink(sink), rules.Kafka("one", "9092", "orders"))
    assert naming.of_sink(KafkaSink("one:9092", journal="/j")) is None, "the rows name their topics"


def test_databases(rules):
    """Ports and schemas that are not said are the usual ones."""
    found = naming.of_sink(DatabaseSink("postgresql://db/shop", "orders", journal="/j"))
    assert is_as(found, rules.Postgres("db", "5432", "shop", "public", "orders"))
    found = naming.of_sink(DatabaseSink("postgresql://db:5433/shop", "orders", schema="eu", journal="/j", name="x"))
    assert is_as(found, rules.Postgres("db", "5433", "shop", "eu", "orders"))
    for system in ("mysql", "mariadb"):
        found = naming.of_sink(DatabaseSink(f"{system}://db/shop", "orders", journal="/j"))
        assert is_as(found, rules.MySQL("db", "3306", "shop", "orders"))
    assert naming.of_sink(DatabaseSink("sqlite:/db/shop", "orders", journal="/j")) == ("sqlite:/db/shop", "orders")


def test_tables_of_lakes(rules):
    """They are their folder. A table of a catalog has its name there as well; where only that is known, it is it."""
    placed = IcebergSink("shop.orders", "prod", location="s3a://lake/shop/orders", journal="/j")
    assert is_as(naming.of_sink(placed), rules.S3("lake", "shop/orders"))
    to = Destinations(placed, placed.path)
    assert (to.layer_of(placed.path), to.alias_of(placed.path)) == ("iceberg", ("prod", "shop.orders"))
    known = IcebergSink("shop.orders", "prod", journal="/j")
    assert naming.of_sink(known) == ("prod", "shop.orders")
    assert Destinations(known, known.path).alias_of(known.path) is None
    delta = DeltaSink("/lake/orders")
    assert is_as(naming.of_sink(delta), rules.LocalFileSystem("/lake/orders"))
    assert Destinations(delta, delta.path).layer_of(delta.path) == "delta"


def test_folders_of_sources():
    """A pattern stands for the folder that it is in."""
    assert naming.of_folder("file:/in/day=*/x.json") == ("file", "/in")
    assert naming.of_folder("s3a://bucket/in/") == ("s3://bucket", "in")
    assert naming.of_folder("file:/in/part-{1,2}") == ("file", "/in")


def test_a_fan_out_has_its_destinations(tmp_path):
    """It is no dataset itself."""
    table, files = f"{tmp_path}/t", f"{tmp_path}/files"
    sink = FanOut({"t": PaimonTable(table), "files": FileSink(files)}, journal=f"{tmp_path}/journal")
    to = Destinations(sink, sink.path)
    assert to.name_of(sink.path) is None
    assert [to.name_of(path) for path in to.paths] == [("file", table), ("file", files)]
    assert (to.layer_of(table), to.layer_of(files)) == ("paimon", "")


def test_several_tables_have_those_that_were_written(tmp_path):
    """Their folder is no dataset."""
    root = str(tmp_path)
    sink = PaimonTables(Routing.of(root, {"*": {}}, SinkOptions(), dead_letters=None, unrouted="fail"))
    to = Destinations(sink, root)
    assert (to.paths, to.name_of(root), to.has_all_columns) == ((), None, False)
    assert to.name_of(f"{root}/orders") == ("file", f"{root}/orders") and to.layer_of(f"{root}/orders") == "paimon"


def test_a_name_of_the_users_choice(tmp_path):
    """It counts before every rule, also for a sink that has none."""
    table = f"{tmp_path}/t"
    to = Destinations(PaimonTable(table), table, {table: naming.DatasetName("hive://h:9083", "shop.orders")})
    assert [to.name_of(path) for path in to.paths] == [("hive://h:9083", "shop.orders")]


def test_a_sink_that_is_not_known_has_its_path():
    """Where that says what it is. A wrong name would join what does not belong together."""
    assert Destinations(None, "/lake/t").name_of("/lake/t") == ("file", "/lake/t")
    assert Destinations(None, "postgresql://db/shop/t").name_of("postgresql://db/shop/t") is None
    assert naming.of_path("own:thing") == ("streamsink", "own:thing")
