"""Data that does not fit the table is refused by the column's name before anything is written,
or the table evolves by an explicit option."""

import os

import pyarrow as pa
import pytest

import streamsink
from streamsink.errors import Misuse
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.compat.arrow_writer import ArrowSink
from tests.compat.rows import assert_same, columns, from_arrow, matching, to_arrow
from tests.compat.spark_writer import run_query

pytestmark = [pytest.mark.compat, pytest.mark.spark]

TABLE = (
    "id BIGINT NOT NULL, name VARCHAR(5), n INT, r ROW<x INT, y STRING>, a ARRAY<INT>, m MAP<STRING, INT>, d "
    "DECIMAL(10, 2)"
)
ROW = (1, "a", 2, (3, "y"), [4], {"k": 5}, None)
# What the data has, and the column that the refusal must name. No option allows anything here.
NEVER = [
    ("id STRING NOT NULL", "id"),
    ("n DOUBLE", "n"),
    ("n STRING", "n"),
    ("n DATE", "n"),
    ("r INT", "r"),
    ("a ARRAY<STRING>", "a"),
    ("m MAP<INT, INT>", "m"),
    ("r ROW<x STRING, y STRING>", "r.x"),
    ("d DECIMAL(12, 4)", "d"),
    ("name BYTES", "name"),
    ("d DOUBLE", "d"),
    ("a MAP<STRING, INT>", "a"),
    ("N INT", "N"),
]
# (what the data has, the column, the option that allows it, what the table's column becomes)
BY_OPTION = [
    ("n BIGINT", "n", "widen_types", "BIGINT"),
    ("d DECIMAL(20, 2)", "d", "widen_types", "DECIMAL(20, 2)"),
    ("name VARCHAR(9)", "name", "widen_types", "VARCHAR(9)"),
    ("a ARRAY<BIGINT>", "a", "widen_types", "ARRAY<BIGINT>"),
    ("m MAP<STRING, BIGINT>", "m", "widen_types", "MAP<STRING, BIGINT>"),
    ("r ROW<x BIGINT, y STRING>", "r.x", "widen_types", "ROW<`x` BIGINT, `y` STRING>"),
    ("r ROW<x INT, y STRING, z DATE>", "r.z", "add_columns", "ROW<`x` INT, `y` STRING, `z` DATE>"),
    ("extra ARRAY<ROW<q INT>>", "extra", "add_columns", "ARRAY<ROW<`q` INT>>"),
    ("id BIGINT", "id", "widen_types", "BIGINT"),
]


def replaced(ddl: str, change: str):
    """The table's fields with one of them replaced, or with one more."""
    new = columns(change)[0]
    fields = columns(ddl)
    return [new if f.name == new.name else f for f in fields] + ([] if new.name in [f.name for f in fields] else [new])


def everything(path):
    return sorted(
        os.path.join(f, name) for f, _, names in os.walk(path) for name in names if "/streamsink/" not in f + "/"
    )


def all_read(spark, java, pypaimon, path, rows):
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)
    assert_same(from_arrow(streamsink.read(spark, path).toArrow()), rows)


@pytest.mark.parametrize("options", [{}, {"add_columns": True, "widen_types": True}], ids=["plain", "all-options"])
@pytest.mark.parametrize("change,column", NEVER, ids=[c for c, _ in NEVER])
def test_another_type_is_refused_by_name(path, change, column, options):
    """No option makes it fit: Misuse names the column, nothing is written, and the query can go on with good data."""
    streamsink.create_table(path, TABLE)
    fields = replaced(TABLE, change)
    with ArrowSink(path, **options) as sink:
        sink.write(to_arrow([ROW], columns(TABLE)), columns(TABLE))
        before = everything(path)
        with pytest.raises(Misuse, match=f"column '{column}(\\.[a-z]+)?'"):
            sink.write(to_arrow([], fields), fields)
        assert everything(path) == before
        sink.write(to_arrow([ROW], columns(TABLE)), columns(TABLE))
    assert_same(from_arrow(streamsink.read_arrow(path)), [ROW, ROW])


@pytest.mark.parametrize("change,column,option,becomes", BY_OPTION, ids=[case[0] for case in BY_OPTION])
def test_a_change_needs_its_option(path, change, column, option, becomes):
    """It is refused with the option's name in the message, and made when the option is given.
    Other options do not allow it."""
    streamsink.create_table(path, TABLE)
    fields = replaced(TABLE, change)
    data = to_arrow([], fields)
    for options in ({}, {({"add_columns", "widen_types"} - {option}).pop(): True}):
        with ArrowSink(path, **options) as sink, pytest.raises(Misuse, match=f"column '{column}[.'a-z]*:? .*{option}"):
            sink.write(data, fields)
    assert open_table(local_file_io(), path, for_writing=True).latest_schema().id == 0
    with ArrowSink(path, **{option: True}) as sink:
        sink.write(data, fields)
    schema = open_table(local_file_io(), path, for_writing=True).latest_schema()
    assert schema.id == 1
    assert str(schema.field(column.split(".")[0]).type) == becomes


def test_missing_columns(path):
    """They are refused by name. With add_columns a nullable column is null, and a NOT NULL column is still refused."""
    streamsink.create_table(path, TABLE)
    fields = columns(TABLE)
    without = [f for f in fields if f.name != "n"]
    row = tuple(v for f, v in zip(fields, ROW) if f.name != "n")
    with ArrowSink(path) as sink, pytest.raises(Misuse, match="column 'n'.*missing"):
        sink.write(to_arrow([row], without), without)
    with ArrowSink(path, add_columns=True) as sink:
        sink.write(to_arrow([row], without), without)
        with pytest.raises(Misuse, match="column 'id'.*missing"):
            sink.write(to_arrow([ROW[1:]], fields[1:]), fields[1:])
    assert_same(from_arrow(streamsink.read_arrow(path)), [(1, "a", None, (3, "y"), [4], {"k": 5}, None)])


def test_extra_columns_and_values_that_do_not_fit(path):
    """An extra column, a null for NOT NULL, and a text that is too long are refused by name, without the value."""
    streamsink.create_table(path, TABLE)
    fields = columns(TABLE)
    more = fields + columns("more INT NOT NULL")
    with ArrowSink(path, add_columns=True) as sink:
        with pytest.raises(Misuse, match="column 'more'.*must be nullable"):
            sink.write(to_arrow([(*ROW, 1)], more), more)
        with pytest.raises(Misuse, match="column 'name' is VARCHAR\\(5\\)") as refused:
            sink.write(to_arrow([(1, "secret", *ROW[2:])], fields), fields)
        assert "secret" not in str(refused.value)
        nulls = pa.table(
            [pa.array([None], c.type) for c in to_arrow([ROW], fields).columns], names=[f.name for f in fields]
        )
        with pytest.raises(Misuse, match="column 'id' is NOT NULL"):
            sink.write(nulls, fields)
    assert streamsink.read_arrow(path).num_rows == 0


@pytest.mark.in_turn("evolved tables", 1)
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["plain", "partitioned"])
def test_evolved_tables_are_read_by_all(spark, java, pypaimon, path, partition_by):
    """Columns are added (nested ones too), types are widened, NOT NULL is dropped, step by step:
    all readers see all rows, filtered too."""
    streamsink.create_table(
        path, "id INT NOT NULL, p STRING, r ROW<x INT, y STRING>, f FLOAT, m MAP<STRING, ROW<k INT>>", partition_by
    )
    steps = [
        (
            "id INT NOT NULL, p STRING, r ROW<x INT, y STRING>, f FLOAT, m MAP<STRING, ROW<k INT>>",
            [(1, "a", (1, "y"), 1.5, {"k": (1,)}), (2, "b", None, None, None), (3, None, (None, None), -0.5, {})],
        ),
        (
            (
                "id BIGINT NOT NULL, p STRING, r ROW<x BIGINT, y STRING, z DATE>, f DOUBLE, m MAP<STRING, ROW<k INT, l "
                "INT>>"
            ),
            [(2**40, "a", (2**40, "y", 19724), 0.1, {"k": (1, 2), "j": None})],
        ),
        (
            "id BIGINT, p STRING, r ROW<x BIGINT, y STRING, z DATE, w ARRAY<ROW<q DECIMAL(9, 2)>>>, f DOUBLE, "
            "m MAP<STRING, ROW<k BIGINT, l INT>>, late TIMESTAMP(6)",
            [(None, "b", (None, None, None, [None]), None, None, 1000)],
        ),
    ]
    rows = []
    with ArrowSink(path, add_columns=True, widen_types=True) as sink:
        for ddl, new in steps:
            sink.write(to_arrow(new, columns(ddl)), columns(ddl))
    rows = [
        (1, "a", (1, "y", None, None), 1.5, {"k": (1, None)}, None),
        (2, "b", None, None, None, None),
        (3, None, (None, None, None, None), -0.5, {}, None),
        (2**40, "a", (2**40, "y", 19724, None), 0.1, {"k": (1, 2), "j": None}, None),
        *steps[2][1],
    ]
    all_read(spark, java, pypaimon, path, rows)
    fields = open_table(local_file_io(), path, for_writing=True).latest_schema().fields
    for where in (
        [("greater_than", "id", 2)],
        [("equal", "id", 1)],
        [("equal", "p", "a")],
        [("is_null", "late", None)],
        [("less_than", "f", 1.0)],
        [("is_null", "id", None)],
        [("equal", "late", 1000)],
    ):
        assert_same(java.read(path, where), matching(rows, fields, where))
        if where[0][1] != "late" or where[0][2] is None:
            assert_same(from_arrow(pypaimon.read(path, where)), matching(rows, fields, where))


def test_an_old_writer_goes_on_after_another_evolved_the_table(java, path):
    """It writes what it knows.
    The new columns are null in its rows only where it may leave columns out; otherwise it gets an error."""
    streamsink.create_table(path, "id INT, n INT")
    old_fields, new_fields = columns("id INT, n INT"), columns("id INT, n BIGINT, extra STRING")
    with (
        ArrowSink(path, application="old") as old,
        ArrowSink(path, application="new", add_columns=True, widen_types=True) as new,
        ArrowSink(path, application="lenient", add_columns=True) as lenient,
    ):
        old.write(to_arrow([(1, 1)], old_fields), old_fields)
        new.write(to_arrow([(2, 2**40, "x")], new_fields), new_fields)
        with pytest.raises(Misuse, match="column 'extra' of the table is missing"):
            old.write(to_arrow([(3, 3)], old_fields), old_fields)
        lenient.write(to_arrow([(4, 4)], old_fields), old_fields)
        new.write(to_arrow([(5, None, None)], new_fields), new_fields)
    rows = [(1, 1, None), (2, 2**40, "x"), (4, 4, None), (5, None, None)]
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)


def test_a_table_s_wider_types_take_narrower_data(spark, java, pypaimon, path, tmp_path):
    """Without any option a Spark query's INT is written into BIGINT,
    FLOAT into DOUBLE, and DECIMAL(5,2) into DECIMAL(20,2)."""
    streamsink.create_table(path, "id BIGINT, f DOUBLE, d DECIMAL(20, 2), r ROW<x BIGINT>, a ARRAY<DOUBLE>")
    given = columns("id INT, f FLOAT, d DECIMAL(5, 2), r ROW<x INT>, a ARRAY<FLOAT>")
    rows = [(1, 1.5, None, (1,), [0.25, None]), (None, None, None, None, None)]
    run_query(spark, tmp_path, path, [to_arrow(rows, given)])
    all_read(spark, java, pypaimon, path, rows)


def test_spark_queries_are_refused_by_name_and_evolve_by_option(spark, java, pypaimon, path, tmp_path):
    """The same holds through a real query:
    the message reaches the user and nothing is written; with the options the query goes on."""
    first, second = columns("id INT, name STRING"), columns("id BIGINT, name STRING, extra DATE")
    run_query(spark, tmp_path / "one", path, [to_arrow([(1, "a")], first)])
    with pytest.raises(Exception, match="column 'extra'|column 'id'"):
        run_query(spark, tmp_path / "two", path, [to_arrow([(2, "b", 1)], second)], application="two")
    assert streamsink.read_arrow(path).num_rows == 1
    run_query(
        spark,
        tmp_path / "three",
        path,
        [to_arrow([(2**40, "b", 1)], second)],
        application="three",
        add_columns=True,
        widen_types=True,
    )
    all_read(spark, java, pypaimon, path, [(1, "a", None), (2**40, "b", 1)])


# Options of the table that this writer does not honour.
UNSUPPORTED = {
    "bucket": "4",
    "row-tracking.enabled": "true",
    "deletion-vectors.enabled": "true",
    "file.format": "orc",
    "changelog-producer": "input",
    "merge-engine": "first-row",
    "data-file.external-paths": "file:///elsewhere",
    "metadata.iceberg.storage": "hive-catalog",
    "metastore.partitioned-table": "true",
    "type": "format-table",
    "query-auth.enabled": "true",
    "data-file.path-directory": "data",
    "tag.automatic-creation": "batch",
    "commit.callbacks": "x.Y",
    "file.suffix.include.compression": "true",
    "data-evolution.enabled": "true",
    "blob-field": "b",
    "chain-table.enabled": "true",
    "scan.fallback-branch": "b",
    "file.format.per.level": "0:orc",
}


@pytest.mark.parametrize("option", UNSUPPORTED)
def test_unsupported_options_are_refused_at_open(path, option):
    """The option's name is in the message, and the table has not changed."""
    import json

    streamsink.create_table(path, "id INT, p STRING", ["p"])
    file = os.path.join(path, "schema", "schema-0")
    with open(file) as stream:
        schema = json.load(stream)
    schema["options"][option] = UNSUPPORTED[option]
    with open(file, "w") as stream:
        json.dump(schema, stream)
    before = everything(path)
    with pytest.raises(Misuse, match=option.replace(".", "\\.")):
        ArrowSink(path)
    assert everything(path) == before


def test_java_s_unsupported_tables_are_refused_by_a_query(spark, java, path, tmp_path):
    """A query on a bucketed table of Java's fails with the option's name;
    with a column of type VARIANT it fails with the column's."""
    fields = columns("id INT, v STRING")
    java.create(path, fields, [], {"bucket": "2", "bucket-key": "id"})
    with pytest.raises(Exception, match="option bucket"):
        run_query(spark, tmp_path, path, [to_arrow([(1, "a")], fields)])
    java.create(path + "2", columns("id INT, v VARIANT"))
    with pytest.raises(Exception, match="column 'v'"):
        run_query(spark, tmp_path / "second", path + "2", [to_arrow([(1, "a")], fields)])
    java.create(path + "3", fields)
    run_query(spark, tmp_path / "third", path + "3", [to_arrow([(1, "a")], fields)])
    java.change(path + "3", ("setOption", "write-only", "true"))
    run_query(spark, tmp_path / "third", path + "3", [to_arrow([(2, "b")], fields)])
    java.change(path + "3", ("setOption", "file.format", "orc"))
    with pytest.raises(Exception, match="option file.format"):
        run_query(spark, tmp_path / "third", path + "3", [to_arrow([(3, "c")], fields)])
    assert_same(java.read(path + "3"), [(1, "a"), (2, "b")])
