"""Text that is not UTF-8 under Spark, whose ``cast(value AS string)`` lets any bytes through:
in all ways of writing."""

import pyarrow as pa
import pytest

import streamsink
from streamsink.errors import Misuse

pytestmark = pytest.mark.spark
WAYS = {
    "driver": {},
    "tasks": {"driver_max_rows": 0, "large_batches": "tasks"},
    "spark": {"driver_max_rows": 0, "large_batches": "spark"},
}
BYTES = "CASE id % 3 WHEN 0 THEN X'FFFE' WHEN 1 THEN X'80' WHEN 2 THEN X'61' END"


@pytest.mark.in_turn("bytes of a column", 1)
@pytest.mark.parametrize("way", WAYS)
def test_a_column_keeps_its_bytes(spark, ground, way):
    """It is read by Arrow, and by Spark, also with a condition."""
    rows = spark.range(0, 30, 1, 2).selectExpr("id", f"CAST({BYTES} AS STRING) AS s")
    assert streamsink.write(rows, ground.table, "r1", flush=False, **WAYS[way]) == 30
    found = streamsink.read_arrow(ground.table)
    held = dict(zip(found["id"].to_pylist(), found["s"].combine_chunks().cast(pa.binary()).to_pylist()))
    assert held == {n: (b"\xff\xfe", b"\x80", b"a")[n % 3] for n in range(30)}
    read = streamsink.read(spark, ground.table)
    assert read.where("hex(s) = 'FFFE'").count() == 10 and read.where("s = 'a'").count() == 10


@pytest.mark.in_turn("bytes of a partition", 1)
@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_a_partition_value_is_refused_and_goes_on_decoded(spark, ground, way):
    """The error names table and column, and what it says works."""
    rows = spark.range(0, 30, 1, 2).selectExpr("id", f"CAST({BYTES} AS STRING) AS s", f"{BYTES} AS value")
    given = {"partition_by": ["s"], "flush": False, **WAYS[way]}
    with pytest.raises(
        Misuse, match="column 's': a partition value is not UTF-8 text.*Nothing was recorded"
    ) as refused:
        streamsink.write(rows.drop("value"), ground.table, "r1", **given)
    assert (
        refused.value.kind == "partition.encoding"
        and ground.table in str(refused.value)
        and "decode(value, 'ISO-8859-1')" in str(refused.value)
    )
    decoded = rows.selectExpr("id", "decode(value, 'ISO-8859-1') AS s")
    assert streamsink.write(decoded, ground.table, "r1", **given) == 30
    assert sorted(set(streamsink.read_arrow(ground.table)["s"].to_pylist())) == ["a", "\x80", "ÿþ"]


def test_a_route_is_refused(spark, ground):
    """Tasks refuse it as the driver does. With dead letters for rows without a table such rows are set aside."""
    source = str(ground.root / "in")
    spark.range(0, 30).selectExpr("id", f"{BYTES} AS value").write.parquet(source)
    df = (
        spark.readStream.schema("id BIGINT, value BINARY")
        .parquet(source)
        .selectExpr("id", "CAST(value AS STRING) AS kind")
    )

    def run(**options):
        sink = streamsink.to_tables(ground.table, "kind", {"*": {}}, flush=False, driver_max_rows=0, **options)
        start = (
            df.writeStream.foreachBatch(sink)
            .option("checkpointLocation", ground.checkpoint)
            .trigger(availableNow=True)
            .start
        )
        streamsink.run(start, max_restarts=2, min_wait_ms=1, max_wait_ms=10)

    with pytest.raises(Misuse, match="the name of the table is not UTF-8 text. Nothing was recorded") as refused:
        run()
    assert refused.value.kind == "route.encoding" and ground.table in str(refused.value)
    run(dead_letters="rejected", unrouted="dead-letter")
    assert (
        streamsink.read_arrow(f"{ground.table}/a").num_rows == 10
        and streamsink.read_arrow(f"{ground.table}/rejected").num_rows == 20
    )
