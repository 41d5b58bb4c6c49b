"""We open, read and append to tables that Java made, evolved, compacted and overwrote;
then all three readers read them."""

import pytest

import streamsink
from streamsink.format.types import parse_type
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.compat.arrow_writer import ArrowSink
from tests.compat.rows import (
    NANOS,
    NESTED,
    PRIMITIVES,
    assert_same,
    columns,
    from_arrow,
    matching,
    project,
    random_rows,
    to_arrow,
)

pytestmark = [pytest.mark.compat, pytest.mark.spark]


def spark_rows(spark, path, snapshot_id=None):
    return from_arrow(streamsink.read(spark, path, snapshot_id).toArrow())


def all_read(java, pypaimon, path, rows):
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)


def append(path, rows, **options):
    fields = open_table(local_file_io(), path, for_writing=True).latest_schema().fields
    with ArrowSink(path, **options) as sink:
        sink.write(to_arrow(rows, fields), fields)


@pytest.mark.in_turn("tables of Java", 1)
@pytest.mark.parametrize("partition_by", [[], ["i"], ["st", "dt"]], ids=["plain", "int", "text-date"])
def test_all_types_are_read_and_appended_to(spark, java, pypaimon, path, rng, partition_by):
    """Java writes every type over several snapshots.
    We read them and append to them, and all three readers read all rows."""
    ddl = f"{PRIMITIVES}, {NANOS}, {NESTED}"
    fields = columns(ddl)
    java.create(path, fields, partition_by)
    rows = []
    for _ in range(3):
        rows += (new := random_rows(rng, fields, 15))
        java.append(path, new)
        assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    rows += (new := random_rows(rng, fields, 15))
    append(path, new)
    all_read(java, pypaimon, path, rows)
    rows += (new := random_rows(rng, fields, 5))
    java.append(path, new)
    all_read(java, pypaimon, path, rows)
    rows += (new := random_rows(rng, fields, 5))
    # pypaimon writes them as INT64 nanoseconds, which Java's reader does not take.
    pypaimon.append(path, to_arrow(new, fields))
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)


def test_spark_s_types_are_read_by_spark(spark, java, path, rng):
    """``streamsink.read`` sees Java's rows of every type that Spark has, from several snapshots, each one by its id."""
    ddl = PRIMITIVES.replace("ti TIME(3),", "") + ", " + NESTED
    fields = columns(ddl)
    java.create(path, fields, ["i"])
    rows, ends = [], []
    for _ in range(3):
        rows += (new := random_rows(rng, fields, 12))
        java.append(path, new)
        ends.append(len(rows))
    assert_same(spark_rows(spark, path), rows)
    append(path, new)
    assert_same(spark_rows(spark, path), rows + new)
    for snapshot_id, end in enumerate(ends, 1):
        assert_same(spark_rows(spark, path, snapshot_id), rows[:end])


def test_compaction_overwrite_and_dropped_partitions_are_seen(spark, java, pypaimon, path):
    """There are COMPACT and OVERWRITE snapshots with DELETE entries:
    we read exactly the live rows, and append to them."""
    fields = columns("id INT, p STRING, v DOUBLE")
    java.create(path, fields, ["p"], {"compaction.min.file-num": "2"})
    rows = []
    for number in range(12):
        new = [(number * 10 + i, f"p{number % 3}", i / 4) for i in range(4)]
        rows += new
        java.append(path, new)
    assert java.compact(path) > 0
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    gone = [(-1, "p0", None), (-2, "p0", 0.5)]
    java.overwrite(path, gone, {"p": "p0"})
    rows = [row for row in rows if row[1] != "p0"] + gone
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    java.drop_partition(path, {"p": "p1"})
    rows = [row for row in rows if row[1] != "p1"]
    all_read(java, pypaimon, path, rows)
    assert_same(spark_rows(spark, path), rows)
    new = [(7, "p1", 1.0), (8, None, None)]
    append(path, new)
    all_read(java, pypaimon, path, rows + new)
    assert_same(spark_rows(spark, path), rows + new)
    java.overwrite(path, [(9, "p9", 9.0)])
    rows = [(9, "p9", 9.0)] if not java.read(path, [("equal", "id", 7)]) else rows + new + [(9, "p9", 9.0)]
    all_read(java, pypaimon, path, rows)


def test_java_s_schema_changes_are_followed(spark, java, pypaimon, path, rng):
    """Between commits of all writers Java adds columns (a nested field too),
    widens, renames and drops them, and makes them nullable."""
    java.create(path, columns("id INT NOT NULL, name STRING, old FLOAT, n INT, r ROW<x INT, y STRING>"))
    java.append(path, [(1, "a", 1.5, 10, (1, "y")), (2, None, None, None, None)])
    java.change(
        path, ("addColumn", "extra", parse_type("DECIMAL(30, 2)")), ("updateColumnType", "id", parse_type("BIGINT"))
    )
    java.change(path, ("updateColumnType", "n", parse_type("BIGINT")), ("renameColumn", "name", "title"))
    java.add_nested(path, ["r", "z"], parse_type("DATE"))
    java.change(path, ("dropColumn", "old"))
    rows = [(1, "a", 10, (1, "y", None), None), (2, None, None, None, None)]
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(spark_rows(spark, path), rows)
    append(path, [(3, "b", 2**40, (3, None, 19724), None)])
    rows.append((3, "b", 2**40, (3, None, 19724), None))
    java.change(path, ("updateColumnNullability", "id", True), ("addColumn", "old", parse_type("STRING")))
    rows = [(*row, None) for row in rows]
    new = [(None, "c", None, (None, None, None), None, "again")]
    append(path, new)
    rows += new
    java.append(path, new)
    rows += new
    all_read(java, pypaimon, path, rows)
    assert_same(spark_rows(spark, path), rows)
    fields = open_table(local_file_io(), path, for_writing=False).latest_schema().fields
    where = [("greater_than", "n", 5)]
    found = java.read(path, where, ["n", "title"])
    assert_same(found, project(matching(rows, fields, where), fields, ["n", "title"]))


def test_a_swap_of_names_is_followed_by_id(spark, java, path):
    """Java renames two columns into each other's names: old files are read by field id, not by name."""
    java.create(path, columns("a INT, b INT"))
    java.append(path, [(1, 2)])
    java.change(path, ("renameColumn", "a", "t"))
    java.change(path, ("renameColumn", "b", "a"))
    java.change(path, ("renameColumn", "t", "b"))
    append(path, [(4, 3)])
    expected = java.read(path)
    assert_same(expected, [(1, 2), (4, 3)])
    assert_same(from_arrow(streamsink.read_arrow(path)), expected)
    assert_same(spark_rows(spark, path), expected)


# A SchemaChange that Java allows and we do not make ourselves, a value before it, and what Java reads after it.
CASTS = [
    ("INT", "STRING", -7),
    ("BIGINT", "INT", 7),
    ("DOUBLE", "FLOAT", 1.5),
    ("INT", "DOUBLE", 3),
    ("DATE", "STRING", 19724),
    ("TIMESTAMP(6)", "TIMESTAMP(3)", 1_704_164_645_123_456_000),
    ("DECIMAL(10, 2)", "DECIMAL(12, 4)", "1.25"),
    ("STRING", "INT", "12"),
    ("TIMESTAMP(3)", "TIMESTAMP(6)", 1_704_164_645_123_000_000),
    ("BOOLEAN", "INT", True),
    ("INT", "DECIMAL(10, 2)", 5),
    ("STRING", "VARCHAR(2)", "abc"),
    ("DOUBLE", "DECIMAL(10, 2)", 1.256),
]


@pytest.mark.in_turn("casts of Java", 5)
@pytest.mark.parametrize("old,new,value", CASTS, ids=[f"{old}-{new}" for old, new, _ in CASTS])
def test_other_casts_are_read_as_java_does_or_refused(spark, java, path, old, new, value):
    """These are changes of type that only Java makes:
    our readers agree with Java's, or say that they cannot, and never give other values."""
    import decimal

    value = decimal.Decimal(value) if old.startswith("DECIMAL") else value
    java.create(path, columns(f"id INT, c {old}"))
    java.append(path, [(1, value), (2, None)])
    java.change(path, ("updateColumnType", "c", parse_type(new)))
    expected = java.read(path)
    for reader in (lambda: from_arrow(streamsink.read_arrow(path)), lambda: spark_rows(spark, path)):
        try:
            found = reader()
        except streamsink.errors.Misuse as refused:
            assert "'c'" in str(refused)
            continue
        assert_same(found, expected)
