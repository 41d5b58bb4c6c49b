"""Names of columns that SQL would take for something else: dots, backticks, blanks. Every way of writing takes them."""

import pytest

import streamsink
from tests.e2e.test_gateway import run

pytestmark = pytest.mark.spark
NAMES = ["id", "a.b", "c`d", "e f", "`g`.h", "id.x"]
TYPES = ["bigint", "string", "bigint", "struct<`x.y`: int>", "string", "string"]


def odd(spark, rows: int):
    frame = spark.range(rows).selectExpr(
        "id", "concat('n', id)", "id + 1", "named_struct('x.y', cast(id AS int))", "cast(null AS string)", "'x'"
    )
    return frame.toDF(*NAMES)


def expected(rows: int) -> list:
    return [(i, f"n{i}", i + 1, {"x.y": i}, None, "x") for i in range(rows)]


def rows_in(table: str) -> list:
    found = streamsink.read_arrow(table)
    assert found.column_names == NAMES
    return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.mark.in_turn("columns of any name", 2)
@pytest.mark.parametrize("way", ["tasks", "spark"])
@pytest.mark.parametrize("partitions", [(), ("a.b", "c`d")])
def test_a_bounded_job_writes_columns_of_any_name(spark, tmp_path, way, partitions):
    """It writes through tasks, and by Spark's writer where that can; Spark reads the table as well."""
    table = str(tmp_path / "orders")
    assert streamsink.write(odd(spark, 20), table, "r1", large_batches=way, partition_by=partitions) == 20
    assert rows_in(table) == expected(20)
    assert sorted(row.id for row in streamsink.read(spark, table).collect()) == list(range(20))


@pytest.mark.parametrize("most_rows", [0, 20_000], ids=["tasks", "driver"])
def test_a_stream_into_many_tables_routes_by_a_column_of_any_name(spark, ground, most_rows):
    """Formerly small batches went through, and the first one that was not small failed."""
    ground.add_files(0, 2)
    sink = streamsink.to_tables(
        str(ground.root / "lake"),
        "to.`x`",
        {"t": {"columns": ["id", "na.me", "b`t"]}, "u": {"columns": ["id"]}},
        listener=lambda event: None,
        driver_max_rows=most_rows,
    )

    def publish(df, batch_id: int) -> None:
        sink(
            df.selectExpr("id", "name", "id", "if(id % 2 = 0, 't', 'u')").toDF("id", "na.me", "b`t", "to.`x`"), batch_id
        )

    run(spark, ground, "checkpoint", publish)
    found = streamsink.read_arrow(str(ground.root / "lake" / "t"))
    assert found.column_names == ["id", "na.me", "b`t"]
    assert sorted(found["b`t"].to_pylist()) == list(range(0, 20, 2))
    assert sorted(streamsink.read_arrow(str(ground.root / "lake" / "u"))["id"].to_pylist()) == list(range(1, 20, 2))
