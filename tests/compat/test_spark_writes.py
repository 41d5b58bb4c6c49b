"""pypaimon and Java read, row for row, what real Spark queries write, and its statistics are those that Java writes."""

import pytest

import streamsink
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.compat.rows import (
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
from tests.compat.spark_writer import run_query

pytestmark = [pytest.mark.compat, pytest.mark.spark]

SPARK_TYPES = """b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, st STRING, by BYTES,
  d1 DECIMAL(5,2), d2 DECIMAL(18,4), d3 DECIMAL(38,10), dt DATE, ts6 TIMESTAMP(6), lt6 TIMESTAMP_LTZ(6)"""
WAYS = {"driver": {}, "tasks": {"driver_max_rows": 0, "large_batches": "tasks"}}


def all_read(java, pypaimon, path, rows):
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)


def entries(path):
    table = open_table(local_file_io(), path, for_writing=False)
    return list(table.manifests.entries_of(table.snapshots.latest()))


@pytest.mark.in_turn("types of Spark", 1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("partition_by", [[], ["st"], ["dt", "i"]], ids=["plain", "text", "date-int"])
def test_spark_types_are_read_by_all(spark, java, pypaimon, path, tmp_path, rng, partition_by, way):
    """Several micro-batches have every type of Spark's, by both ways to write.
    Filters and projections give the same rows."""
    fields = columns(f"{SPARK_TYPES}, {NESTED}")
    rows = random_rows(rng, fields, 40)
    batches = [to_arrow(rows[at : at + 10], fields) for at in range(0, 40, 10)]
    run_query(spark, tmp_path, path, batches, partition_by=partition_by, **WAYS[way])
    all_read(java, pypaimon, path, rows)
    assert_same(from_arrow(streamsink.read(spark, path).toArrow()), rows)
    for where in (
        [("equal", "st", "")],
        [("is_null", "st", None)],
        [("less_than", "i", 0)],
        [("greater_than", "l", 0)],
    ):
        expected = project(matching(rows, fields, where), fields, ["l", "i", "st"])
        assert_same(java.read(path, where, ["l", "i", "st"]), expected)
        assert_same(from_arrow(pypaimon.read(path, where, ["l", "i", "st"])), expected)


def test_a_query_appends_to_java_s_columns_of_other_lengths(spark, java, pypaimon, path, tmp_path, rng):
    """Spark's STRING, BYTES and timestamps go into Java's CHAR(n), VARBINARY(n), TIMESTAMP(3) where the values fit."""
    fields = columns(
        "id INT, c CHAR(5), v VARCHAR(100), vb VARBINARY(30), ts TIMESTAMP(3), lt TIMESTAMP_LTZ(0), n TIMESTAMP(9)"
    )
    java.create(path, fields)
    rows = random_rows(rng, fields, 20)
    rows = [(*row[:6], None if row[6] is None else row[6] // 1000 * 1000) for row in rows]
    java.append(path, rows[:10])
    given = columns("id INT, c STRING, v STRING, vb BYTES, ts TIMESTAMP(6), lt TIMESTAMP_LTZ(6), n TIMESTAMP(6)")
    run_query(spark, tmp_path, path, [to_arrow(rows[10:], given)])
    all_read(java, pypaimon, path, rows)


@pytest.mark.in_turn("statistics of Spark", 1)
@pytest.mark.parametrize("partition", [None, "p"])
def test_statistics_are_java_s_to_the_byte(spark, java, path, tmp_path, rng, partition):
    """Java and a Spark query write the same rows: the statistics of every column and of the manifest are equal."""
    fields = columns(f"p STRING, {SPARK_TYPES}, {NESTED}")
    rows = [("one", *row) for row in random_rows(rng, fields[1:], 30)]
    ours, theirs = path, path + "_java"
    java.create(theirs, fields, [partition] if partition else [])
    java.append(theirs, rows)
    run_query(spark, tmp_path, ours, [to_arrow(rows, fields)], partition_by=[partition] if partition else [])
    (mine,), (java_s,) = entries(ours), entries(theirs)
    assert mine.partition == java_s.partition
    assert (mine.bucket, mine.total_buckets) == (java_s.bucket, java_s.total_buckets)
    for name in (
        "row_count",
        "min_key",
        "max_key",
        "key_stats",
        "value_stats",
        "value_stats_cols",
        "min_sequence_number",
        "max_sequence_number",
        "schema_id",
        "level",
        "extra_files",
        "delete_row_count",
        "file_source",
    ):
        assert getattr(mine.file, name) == getattr(java_s.file, name), name
    mine, java_s = (open_table(local_file_io(), p, for_writing=False) for p in (ours, theirs))
    mine, java_s = (t.manifests.all_of(t.snapshots.latest())[0] for t in (mine, java_s))
    assert mine.partition_stats == java_s.partition_stats
    assert (mine.num_added_files, mine.num_deleted_files, mine.schema_id) == (
        java_s.num_added_files,
        java_s.num_deleted_files,
        java_s.schema_id,
    )


def test_statistics_of_types_that_spark_lacks_are_java_s(java, path, rng):
    """The same holds for every primitive type, through the table layer."""
    from tests.compat.arrow_writer import ArrowSink

    fields = columns(PRIMITIVES)
    rows = random_rows(rng, fields, 30)
    java.create(path + "_java", fields)
    java.append(path + "_java", rows)
    streamsink.create_table(path, fields)
    with ArrowSink(path) as sink:
        sink.write(to_arrow(rows, fields), fields)
    (mine,), (java_s,) = entries(path), entries(path + "_java")
    assert mine.file.value_stats == java_s.file.value_stats
    assert mine.file.value_stats_cols == java_s.file.value_stats_cols
