"""Spark's own Delta reads each row that is written here, and writes beside it: appends, OPTIMIZE, VACUUM, RESTORE."""

import os

import pyarrow as pa
import pytest

from tests.advice.following import told
from tests.delta.spark_side import SparkSide
from tests.delta.test_rows import ALL, PARTITIONS, ROWS, world_of
from tests.delta.world import World

# Of batches of ours, until the other writer has committed some.
_MOST_ROUNDS = 300
pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.compat]


@pytest.fixture(scope="module")
def spark():
    with SparkSide() as side:
        yield side


def ids(spark, world) -> list[int]:
    return sorted(int(row[0]) for row in spark.sql(f"SELECT id FROM delta.`{world.path}`"))


@pytest.mark.parametrize("ends", [(1, 2, 3), (3,)], ids=["a file each", "one file"])
def test_spark_reads_values_and_skips_no_file_that_it_needs(spark, tmp_path, ends):
    """Filters use the statistics: those of texts that were cut off, of rounded times, and of numbers with NaN; and
    those in the files themselves."""
    world = world_of(tmp_path, ROWS)
    world.run(*ends)
    table = f"delta.`{world.path}`"
    assert ids(spark, world) == [1, 2, 3]
    for condition, expected in {
        f"text = '{'ü' * 40}'": ["1"],
        f"text >= '{'ü' * 39}'": ["1"],
        "at = timestamp'2026-11-27 01:02:03.123456'": ["1"],
        "at > timestamp'2026-11-27 01:02:03.1234'": ["1"],
        "wall = timestamp_ntz'0001-01-01 00:00:00.000001'": ["1"],
        "real > 100": ["2"],
        "real < 2": ["1"],
        "money < -12": ["1"],
        "large > 12345678901234567890123456789012.3": ["1"],
        "day = date'2026-11-27'": ["1"],
        "text is null": ["3"],
        "tiny = -3 and yes": ["1"],
        "inner.a = 'x' and map['a'] = 1 and list[0] = 1": ["1"],
    }.items():
        found = spark.sql(f"SELECT id FROM {table} WHERE {condition}")
        assert [row[0] for row in found] == expected, condition
    (row,) = spark.sql(f"SELECT {', '.join(map('`{}`'.format, ALL.names))} FROM {table} WHERE id = 1")
    assert row[ALL.names.index("large")] == "12345678901234567890123456789012.3456"
    assert row[ALL.names.index("at")] == "2026-11-27 01:02:03.123456"


def test_spark_reads_values_of_partitions(spark, tmp_path):
    for name, kind, values in PARTITIONS:
        schema = pa.schema([("id", pa.int64()), (name, kind)])
        world = world_of(tmp_path / name, [{"id": n, name: value} for n, value in enumerate(values)], schema)
        world.run(len(values), partition_by=[name])
        table = f"delta.`{world.path}`"
        texts = {
            "at": f"date_format({name}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
            "wall": f"date_format({name}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
        }
        found = spark.sql(f"SELECT id, {texts.get(name, name)} FROM {table} ORDER BY id")
        for row, value in zip(found, values):
            said = value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0") if name in texts and value else value
            assert row[1] == (None if value is None else str(said)), f"{name}: row {row}"
            if value is not None:
                (same,) = spark.sql(
                    f"SELECT count(*) FROM {table} WHERE {name} = (SELECT {name} FROM {table} WHERE id = {row[0]})"
                )
                assert same == ["1"]


def test_spark_writes_beside(spark, tmp_path):
    """Appends, checkpoints of its log, compaction and the deletion of what no version names."""
    world = World(tmp_path)
    world.run(3, table_options={"delta.checkpointInterval": "3"})
    table, ends, theirs = f"delta.`{world.path}`", [3], []
    for number in range(5):
        spark.sql(f"INSERT INTO {table} VALUES ({100 + number}, 0)")
        theirs.append(100 + number)
        ends.append(ends[-1] + 2)
        world.run(*ends)
        if number == 2:
            spark.sql(f"OPTIMIZE {table}")
            spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    world.forget_checkpoint()
    assert ids(spark, world) == sorted([*range(ends[-1]), *theirs]) == world.ids()
    assert any("checkpoint" in name for name in os.listdir(f"{world.path}/_delta_log"))


def test_a_restore_by_spark_is_found(spark, tmp_path):
    world = World(tmp_path)
    world.run(3, 5, 9, on_rollback="republish")
    spark.sql(f"RESTORE TABLE delta.`{world.path}` TO VERSION AS OF 2")
    assert ids(spark, world) == list(range(5))
    told("table.rolled-back", lambda: world.run(3, 5, 9, 12))
    world.run(3, 5, 9, 12, on_rollback="republish")
    assert ids(spark, world) == list(range(12))


def test_a_table_that_spark_has_made(spark, tmp_path):
    """With its partitions, and with what it marks as deleted."""
    world = world_of(
        tmp_path, [{"id": n, "by": "x y"} for n in range(9)], pa.schema([("id", pa.int64()), ("by", pa.string())])
    )
    spark.sql(
        f"CREATE TABLE delta.`{world.path}` (id BIGINT, by STRING) USING delta PARTITIONED BY (by) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{world.path}` VALUES (100, 'x y'), (101, 'x y')")
    world.run(3)
    spark.sql(f"DELETE FROM delta.`{world.path}` WHERE id = 100")
    world.run(3, 5)
    assert ids(spark, world) == [0, 1, 2, 3, 4, 101]


def test_a_table_that_spark_replaces_is_another_one_until_it_is_restored(spark, tmp_path):
    """It has another id, and RESTORE puts the first one back."""
    world = World(tmp_path)
    world.run(3, 5)
    spark.sql(f"CREATE OR REPLACE TABLE delta.`{world.path}` USING delta AS SELECT 7L AS id, 8L AS version")
    told("table.recreated", lambda: world.run(3, 5, 9)).says("Restore the first table")
    assert ids(spark, world) == [7]
    spark.sql(f"RESTORE TABLE delta.`{world.path}` TO VERSION AS OF 2")
    world.run(3, 5, 9)
    assert ids(spark, world) == list(range(9))


def test_spark_streams_beside(spark, tmp_path):
    """Delta's own streaming sink commits to the same table all the while. Its rows and ours are there once.

    On a disk it publishes by a rename that may replace a version of ours: the next batch finds that.
    """
    world, first, ends = World(tmp_path), 1_000, [3]
    world.run(*ends)
    spark.sql({"into": world.path, "checkpoint": str(tmp_path / "theirs"), "first": first})
    for _ in range(_MOST_ROUNDS):
        ends += [ends[-1] + 2, ends[-1] + 4]
        world.run(*ends)
        if sum(number >= first for number in world.ids()) >= 15:
            break
    spark.sql({})
    ends.append(ends[-1] + 2)
    world.run(*ends)  # nobody is there any more who could replace what this finds, and what it commits
    found = ids(spark, world)
    theirs = [number for number in found if number >= first]
    assert theirs == list(range(first, first + len(theirs))) and len(theirs) >= 15 and len(theirs) % 3 == 0
    assert found == [*range(ends[-1]), *theirs] == world.ids()
