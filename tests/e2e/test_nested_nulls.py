"""NOT NULL inside of nested columns under Spark, whose placeholders below a null row are nulls:
in all ways of writing."""

import json

import pytest

import streamsink
from streamsink.errors import Misuse

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_settings")]

WAYS = {
    "driver": {},
    "tasks": {"driver_max_rows": 0, "large_batches": "tasks"},
    "spark": {"driver_max_rows": 0, "large_batches": "spark"},
}
# The table is made from data that never has a null inside, as an encoder of case classes or ``array(struct(...))`` says
# it.
FIRST = (
    "id",
    "array(named_struct('x', CAST(id AS INT))) AS l",
    "array(array(id)) AS ll",
    "map('k', named_struct('x', id)) AS m",
    "IF(id % 2 = 0, named_struct('x', id, 'y', concat('n', id)), NULL) AS r",
)
# What each later row does to one column, by the path of what is NOT NULL.
BROKEN = {
    "l.element": "array(named_struct('x', CAST(id AS INT)), NULL) AS l",
    "ll.element": "array(array(id), NULL) AS ll",
    "m.value": "map('k', CAST(NULL AS STRUCT<x: BIGINT>)) AS m",
}


def _rows(spark, broken: str | None = None, start: int = 0):
    """Ten rows; in ``broken`` the fourth has a null where the table takes none."""
    columns = list(FIRST)
    if broken is not None:
        column = broken.partition(".")[0]
        bad, whole = (
            BROKEN[broken].rpartition(" AS ")[0],
            next(c for c in FIRST if c.endswith(f" AS {column}")).rpartition(" AS ")[0],
        )
        columns = [
            f"IF(id = {start + 3}, {bad}, {whole}) AS {column}" if c.endswith(f" AS {column}") else c for c in FIRST
        ]
    return spark.range(start, start + 10, 1, 2).selectExpr(*columns)


def _wanted(ids) -> list[dict]:
    return [
        {
            "id": n,
            "l": [{"x": n}],
            "ll": [[n]],
            "m": [("k", {"x": n})],
            "r": {"x": n, "y": f"n{n}"} if n % 2 == 0 else None,
        }
        for n in ids
    ]


def _read(table: str) -> list[dict]:
    return sorted(streamsink.read_arrow(table).to_pylist(), key=lambda row: row["id"])


def _of_spark(spark, table: str) -> list[dict]:
    rows = [row.asDict(recursive=True) for row in streamsink.read(spark, table).collect()]
    return sorted(({**row, "m": list(row["m"].items())} for row in rows), key=lambda row: row["id"])


@pytest.mark.in_turn("null rows", 1)
@pytest.mark.parametrize("way", WAYS)
def test_null_rows_are_written_and_nulls_where_none_may_be_are_refused(spark, ground, way):
    """Every reader gets the null back. What is refused is named by its path, and nothing of it is written."""
    streamsink.write(_rows(spark), ground.table, "r1", **WAYS[way])
    for number, broken in enumerate(BROKEN):
        with pytest.raises(Misuse, match=f"column '{broken}' is NOT NULL in the table, found 1 nulls") as refused:
            streamsink.write(_rows(spark, broken, 10), ground.table, f"b{number}", **WAYS[way])
        assert (
            refused.value.kind == "data.null"
            and ground.table in str(refused.value)
            and "Nothing was recorded" in str(refused.value)
        )
    streamsink.write(_rows(spark, start=10), ground.table, "r2", **WAYS[way])
    assert _read(ground.table) == _of_spark(spark, ground.table) == _wanted(range(20))


@pytest.mark.in_turn("null rows that are set aside", 1)
@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_with_dead_letters_only_such_rows_are_set_aside(spark, ground, way):
    """This is a query into several tables, each of which has what it had before."""
    lake, source = ground.root / "lake", str(ground.root / "in")
    table = str(lake / "orders")
    streamsink.write(_rows(spark), table, "r1")
    for number, broken in enumerate(BROKEN):
        _rows(spark, broken, 10 * number + 10).write.mode("append").parquet(source)
    df = spark.readStream.schema(spark.read.parquet(source).schema).parquet(source)

    def start():
        sink = streamsink.to_tables(
            str(lake), "'orders'", {"orders": {}}, dead_letters="rejected", flush=False, **WAYS[way]
        )
        return (
            df.writeStream.foreachBatch(sink)
            .option("checkpointLocation", ground.checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    streamsink.run(start, max_restarts=2, min_wait_ms=1, max_wait_ms=10)
    assert _read(table) == _wanted(n for n in range(40) if n not in (13, 23, 33))
    dead = {json.loads(row["row"])["id"]: row for row in streamsink.read_arrow(str(lake / "rejected")).to_pylist()}
    assert {number: row["column"] for number, row in dead.items()} == {13: "l", 23: "ll", 33: "m"}
    assert all(
        row["reason"].startswith(f"data.null: column '{path}' is NOT NULL")
        for row, path in zip(map(dead.get, sorted(dead)), BROKEN)
    )
