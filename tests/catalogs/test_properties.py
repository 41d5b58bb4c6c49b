"""The option ``catalog`` without a catalog: what is refused by name, and what a table is called. Nothing is asked."""

import sys

import pytest

import streamsink
from streamsink.catalogs.catalog import Entry, Named, other_than
from streamsink.catalogs.properties import CatalogProperties
from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.supported import check_writable
from streamsink.format.types import parse_ddl

HIVE = {"metastore": "hive", "uri": "thrift://127.0.0.1:1"}
REST = {"metastore": "rest", "uri": "https://h/api"}
ROOT = "/lake/shop.db/orders"


def named(root=ROOT, **given) -> Named:
    return CatalogProperties.of(root, {**HIVE, **given}).named(root)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"metastore": "jdbc", "uri": "jdbc:x"}, "catalog.kind", "metastore='jdbc', expected 'hive' or 'rest'"),
        ({"metastore": "rest", "uri": "thrift://h"}, "option.value", "'http://host:port' or https"),
        ({**REST, "token.provider": "dlf"}, "option.value", "'bear' as token.provider"),
        ({**REST, "table.type": "managed"}, "option.unknown", "no property 'table.type' for metastore='rest'"),
        ({"metastore": "filesystem"}, "catalog.kind", "needs no entry, so leave the option out"),
        ({"uri": "thrift://h"}, "catalog.kind", "metastore=''"),
        ({"metastore": "hive"}, "option.value", "without a uri"),
        ({**HIVE, "uri": "h:9083"}, "option.value", "'thrift://host:port' as uri"),
        ({**HIVE, "uri": "thrift://user:pw@h:1"}, "option.value", "a uri of another form"),
        ({**HIVE, "uri": "thrift://h:x"}, "option.value", "a uri of another form"),
        ({**HIVE, "table.type": "view"}, "option.value", "'managed' or 'external'"),
        ({**HIVE, "required": "yes"}, "option.value", "'true' or 'false' as required"),
        (
            {**HIVE, "hive-conf-dir": "/etc"},
            "option.unknown",
            "'hive-conf-dir' for metastore='hive'; there are metastore",
        ),
    ],
)
def test_a_wrong_property_is_refused_by_name(given, kind, said):
    with pytest.raises(Misuse, match=said) as refused:
        CatalogProperties.of(ROOT, given)
    assert refused.value.kind == kind and ROOT in str(refused.value) and "pw" not in str(refused.value)


def test_the_option_takes_texts_only(tmp_path):
    with pytest.raises(Misuse, match="catalog option 'required' must be a string"):
        streamsink.to_table(tmp_path / "t", catalog={**HIVE, "required": True})
    assert "thrift" not in repr(streamsink.SinkOptions(catalog=HIVE)), "a property may be a secret one day"


@pytest.mark.parametrize(
    ("root", "given", "name", "database_location"),
    [
        (ROOT, {}, "shop.orders", "file:/lake/shop.db"),
        ("/lake/Shop.db/Orders", {}, "shop.orders", "file:/lake/Shop.db"),
        (ROOT, {"table": "sales"}, "shop.sales", "file:/lake/shop.db"),
        ("/lake/orders", {"database": "shop"}, "shop.orders", ""),
        ("s3://b/lake/shop.db/orders", {"warehouse": "s3://b/lake"}, "shop.orders", "s3://b/lake/shop.db"),
    ],
)
def test_a_table_is_called_as_its_path_says_or_as_it_is_given(root, given, name, database_location):
    found = named(root, **given)
    assert (str(found), found.database_location) == (name, database_location)


@pytest.mark.parametrize(
    ("root", "given", "kind"),
    [
        ("/lake/orders", {}, "catalog.name"),
        ("/lake/shop.db/orders-2", {}, "catalog.name"),
        ("/lake/shop.db/orders/branch/branch-audit", {}, "catalog.branch"),
        (ROOT, {"warehouse": "/other"}, "catalog.warehouse"),
    ],
)
def test_a_table_without_a_name_is_refused(root, given, kind):
    with pytest.raises(Misuse, match="Nothing was written") as refused:
        named(root, **given)
    assert refused.value.kind == kind


def test_a_rest_catalog_knows_upper_case_and_a_warehouse_that_is_no_folder():
    found = CatalogProperties.of(ROOT, {**REST, "warehouse": "prod"}).named("/lake/Shop.db/Orders")
    assert (str(found), found.external, found.database_location) == ("Shop.Orders", True, "")


def test_several_tables_have_the_names_of_their_paths():
    properties = CatalogProperties.of("/lake/shop.db", {**HIVE, "table": "all"})
    assert str(properties.named("/lake/shop.db/orders", beside=True)) == "shop.orders"


@pytest.mark.parametrize(
    ("root", "location", "is_same"),
    [
        (ROOT, "file:/lake/shop.db/orders", True),
        (ROOT, "file:///lake/shop.db/orders/", True),
        (ROOT, "/lake/shop.db/orders", True),
        (ROOT, "file:/lake/shop.db/orders2", False),
        (ROOT, "hdfs://nn/lake/shop.db/orders", False),
        ("s3://b/t", "s3a://b/t", True),
        ("s3a://b/t", "s3n://b/t/", True),
        ("s3://b/t", "s3://c/t", False),
        ("hdfs://nn:8020/t", "hdfs://nn/t", True),
        ("hdfs://nn:9000/t", "hdfs://nn/t", False),
        ("hdfs://nn/t", "/t", False),
    ],
)
def test_one_place_has_several_spellings(root, location, is_same):
    entry = Entry(True, "", location)
    assert (other_than(Named(root, "d", "t"), entry) == "") is is_same


def test_a_link_to_the_folder_is_the_folder(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").symlink_to(tmp_path / "here")
    assert other_than(Named(f"{tmp_path}/there", "d", "t"), Entry(True, "", f"file:{tmp_path}/here")) == ""


def test_columns_that_differ_in_case_only_are_one_in_a_metastore(tmp_path):
    """That is said before the table is made, and before a server is asked for more than a look."""
    from streamsink.catalogs.hive_table import check_columns

    with pytest.raises(Misuse, match="'a' and 'A' are one column.*Nothing was written") as refused:
        check_columns(ROOT, TableSchema.create(parse_ddl("a INT, A INT"), (), {}, None, 0))
    assert refused.value.kind == "catalog.columns"


def test_partitions_that_a_metastore_would_have_to_know_are_refused_as_ever():
    """Hive would read the partitions that the metastore knows, and nobody tells it of them."""
    schema = TableSchema.create(parse_ddl("a INT, p INT"), ("p",), {"metastore.partitioned-table": "true"}, None, 0)
    with pytest.raises(Misuse, match="metastore.partitioned-table"):
        check_writable(schema)


def test_a_missing_client_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pymetastore.hive_metastore", None)
    with pytest.raises(Misuse, match=r"pip install 'streamsink\[hive\]'") as refused:
        streamsink.create_table(tmp_path / "shop.db" / "orders", "id INT", catalog=HIVE)
    assert refused.value.kind == "catalog.driver" and not (tmp_path / "shop.db").exists()
