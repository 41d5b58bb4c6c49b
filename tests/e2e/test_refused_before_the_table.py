"""What the data or the options cannot be is refused by column before there is a table, a journal or any other file."""

import pytest

import streamsink
from streamsink.errors import Misuse
from tests.e2e.harness import files_under
from tests.e2e.job import POSITIONS

pytestmark = pytest.mark.spark


def refused(spark, ground, columns: list[str], **options) -> Misuse:
    """The error of a query over these columns, with nothing on disk.
    The query reads files: what is checked is the types of the columns."""
    ground.add_files(0, 1)
    stream = spark.readStream.schema("id BIGINT, name STRING").json(str(ground.source)).selectExpr("id", *columns)
    many = options.pop("many", None)
    sink = (
        streamsink.to_tables(ground.table, "'t'", {"t": {}}, **options)
        if many
        else streamsink.to_table(ground.table, **options)
    )

    def start():
        return (
            stream.writeStream.foreachBatch(sink)
            .option("checkpointLocation", ground.checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    with pytest.raises(Misuse) as caught:
        streamsink.run(start)
    assert files_under(ground.root / "lake") == {}
    assert ground.table in str(caught.value) and "Nothing was written" in str(caught.value)
    return caught.value


def test_a_partition_column_of_a_type_that_has_no_folders(spark, ground):
    """The type is bytes."""
    error = refused(spark, ground, ["cast(name AS binary) AS p"], partition_by="p")
    assert error.kind == "path.unsupported-type" and "'p'" in str(error)


RIGHT = ["name AS topic", "cast(id AS int) AS partition", "id AS offset"]


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize(
    "given",
    [("offset", "partition", "topic"), ("partition", "topic", "offset"), ("topic", "offset", "partition")],
    ids="-".join,
)
def test_position_columns_in_another_order(spark, ground, given, many):
    """Their types tell, and the error names each of them;
    otherwise a cast would fail one day, at the first lost checkpoint."""
    error = refused(spark, ground, RIGHT, position_columns=given, many=many)
    assert error.kind == "option.position-columns"
    assert all(name in str(error) for name in POSITIONS) and "topic, partition, offset" in str(error)


@pytest.mark.parametrize(
    "columns",
    [
        RIGHT,
        ["name AS topic", "id AS partition", "id AS offset"],
        ["name AS topic", "cast(id AS short) AS partition", "id AS offset"],
    ],
    ids=["kafka", "long", "short"],
)
def test_position_columns_of_the_right_kind_are_no_false_alarm(spark, ground, columns):
    """These are Kafka's own types, and whole numbers of another width."""
    ground.add_files(0, 1)
    stream = spark.readStream.schema("id BIGINT, name STRING").json(str(ground.source)).selectExpr("id", *columns)
    sink = streamsink.to_table(ground.table, position_columns=POSITIONS)
    query = (
        stream.writeStream.foreachBatch(sink)
        .option("checkpointLocation", ground.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert streamsink.read_arrow(ground.table).num_rows == 10
