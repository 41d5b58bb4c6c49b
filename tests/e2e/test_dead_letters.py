"""dead_letters= is given to a query with a checkpoint, and taken away again, under Spark."""

import json

import pytest

import streamsink
from streamsink.errors import Misuse

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_settings")]

COLUMNS = "id BIGINT, n BIGINT"


def test_a_query_gets_dead_letters_and_loses_them_under_one_checkpoint(spark, ground):
    """After three starts with one checkpoint each row is there once, under one name, with its journal in the table."""
    lake, source = ground.root / "lake", ground.root / "in"
    table = str(lake / "orders")
    streamsink.create_table(table, "id BIGINT, n INT")
    source.mkdir()
    df = spark.readStream.schema(COLUMNS).json(str(source))

    def run(number, values, **options):
        (source / f"{number}.json").write_text(
            "\n".join(json.dumps({"id": 10 * number + at, "n": n}) for at, n in enumerate(values))
        )
        rows = df if options else df.selectExpr("id", "CAST(n AS INT) AS n")

        def start():
            sink = streamsink.to_table(table, flush=False, **options)
            return (
                rows.writeStream.foreachBatch(sink)
                .option("checkpointLocation", f"{ground.root}/ck")
                .trigger(availableNow=True)
                .start()
            )

        streamsink.run(start, max_restarts=2, min_wait_ms=1, max_wait_ms=10)

    run(0, [1, 2])
    run(1, [1, 2**40, 3], dead_letters="rejected")
    run(2, [2**41], dead_letters="rejected", driver_max_rows=0)
    run(3, [7])
    assert sorted(streamsink.read_arrow(table).column("id").to_pylist()) == [0, 1, 10, 12, 30]
    dead = streamsink.read_arrow(str(lake / "rejected")).to_pylist()
    assert sorted(json.loads(row["row"])["id"] for row in dead) == [11, 20]
    assert {(row["application"], row["target"]) for row in dead} == {("streamsink", "orders")}
    assert [entry.name for entry in (lake / "orders" / "streamsink").iterdir()] == ["streamsink"] and not (
        lake / "streamsink"
    ).exists()
    assert streamsink.verify(table).ok


def test_two_sinks_of_one_name_with_and_without_dead_letters_are_refused(spark, ground):
    """In one batch function both would be one sink, which either has the option or has it not."""
    lake, source = ground.root / "lake", ground.root / "in"
    table = str(lake / "orders")
    streamsink.create_table(table, "id BIGINT, n INT")
    source.mkdir()
    (source / "0.json").write_text('{"id": 1, "n": 1}')
    with_letters, without = (
        streamsink.to_table(table, dead_letters="rejected", flush=False),
        streamsink.to_table(table, flush=False),
    )

    def both(df, batch_id):
        with_letters(df, batch_id)
        without(df, batch_id)

    df = spark.readStream.schema("id BIGINT, n INT").json(str(source))
    start = (
        df.writeStream.foreachBatch(both)
        .option("checkpointLocation", f"{ground.root}/ck")
        .trigger(availableNow=True)
        .start
    )
    with pytest.raises(Misuse) as refused:
        streamsink.run(start, max_restarts=0)
    assert refused.value.kind == "application.two-sinks"
