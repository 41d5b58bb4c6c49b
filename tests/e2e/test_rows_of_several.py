"""One batch has old and new files, and a function may have made rows of several where no plan shows it:
the sink asks before a row is filtered."""

import shutil

import pytest
from pyspark.sql import functions as F

import streamsink
from streamsink.errors import Misuse
from tests.advice.following import advice, follows
from tests.e2e.harness import assert_each_once, content, ids_of
from tests.e2e.job import frame

pytestmark = pytest.mark.spark
COLUMNS = "id BIGINT, name STRING, extra STRING"
KIND = "files.may-combine"


def one_of_each_name(frames):
    """It works over a whole partition, or as much of it as comes at once."""
    for each in frames:
        yield each.drop_duplicates("name")


def pass_on(frames):
    yield from frames


def go_through_the_driver(df):
    return df.sparkSession.createDataFrame(df.toPandas(), COLUMNS)


COMBINING = {
    "aggregate-checkpoint": lambda df: (
        df.groupBy("name").agg(F.max("id").alias("id"), F.max("extra").alias("extra")).localCheckpoint()
    ),
    "deduplicate-checkpoint": lambda df: df.dropDuplicates(["name"]).localCheckpoint(),
    "beside-the-batch": lambda df: df.where("id < 0").union(df.dropDuplicates(["name"]).localCheckpoint()),
    "driver": lambda df: go_through_the_driver(df.dropDuplicates(["name"])),
    "partitions": lambda df: df.coalesce(1).mapInPandas(one_of_each_name, COLUMNS),
    # Two functions that keep each row as it is, which no plan shows.
    "static-of-its-columns": lambda df: df.join(
        df.sparkSession.createDataFrame([(-1, "x", "y")], COLUMNS), "id", "left_anti"
    ),
    "beside-itself": lambda df: df.join(df.localCheckpoint(), "id", "left_semi"),
}
SHOWN = {"plain": lambda df: df.dropDuplicates(["name"]), "itself": lambda df: df.join(df, "name", "left_semi")}
# Each row is made of one row: a plan shows it, or a function works over one row at a time.
PLAIN = {
    "plan": lambda df: df.where("id >= 0").withColumn("name", F.upper("name")).sort("id").persist(),
    "scalar": lambda df: df.where(F.udf(lambda i: i >= 0, "boolean")("id")),
    "static": lambda df: df.join(
        df.sparkSession.createDataFrame([("x", 1)], "name STRING, n INT").groupBy("name").count(), "name", "left"
    ).drop("count"),
    "parts": lambda df: df.where("id % 2 = 0").union(df.where("id % 2 = 1")),
}


def one_name(ground, number: int) -> set[int]:
    """A file whose rows all have one name."""
    ids = ground.add_files(number, 1)
    path = ground.source / f"{number:05}.json"
    path.write_text("".join(f'{{"id": {i}, "name": "x"}}\n' for i in ids))
    return ids


def run(
    spark, ground, function, per_batch: int, stream=lambda df: df, to=streamsink.to_table, **options
) -> Misuse | None:
    """Run the files through the function, to the end. Returns the error that the sink raised."""
    failed = []
    sink = to(ground.table, listener=lambda event: None, flush=False, file_column="extra", **options)

    def publish(df, batch_id: int) -> None:
        if failed:
            return
        try:
            sink(function(df), batch_id)
        except Misuse as refused:
            failed.append(refused)
            raise

    source = stream(frame(spark, ground.job(column="_metadata.file_path", per_batch=per_batch)))
    query = (
        source.writeStream.foreachBatch(publish)
        .option("checkpointLocation", ground.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception:
        if not failed:
            raise
    sink.close()
    return failed[0] if failed else None


def an_older_copy(spark, ground, function, files: int = 2, **more) -> None:
    """The checkpoint is restored as it was after the first file, when the table has so many; one more file has come."""
    one_name(ground, 0)
    assert run(spark, ground, function, 1, **more) is None
    shutil.copytree(ground.checkpoint, ground.checkpoint + "-copy")
    for number in range(1, files):
        one_name(ground, number)
    assert run(spark, ground, function, 1, **more) is None
    shutil.rmtree(ground.checkpoint)
    shutil.move(ground.checkpoint + "-copy", ground.checkpoint)
    one_name(ground, files)


@pytest.mark.in_turn("rows of several", 2)
@pytest.mark.parametrize("name", COMBINING)
def test_rows_that_may_be_of_several_are_not_filtered(spark, ground, name):
    """Of an old and a new file's rows one was kept, and filtered or written with what the old ones gave. Formerly new
    rows were lost, or old ones doubled."""
    an_older_copy(spark, ground, COMBINING[name])
    before = content(ground.table)
    advice(run(spark, ground, COMBINING[name], 2), KIND).says("Nothing was written", "accept_as_same")
    assert content(ground.table) == before


@pytest.mark.in_turn("rows of several in a later batch", 1)
@pytest.mark.parametrize(
    "name, kind", [("partitions", KIND), ("plain", "files.combined"), ("itself", "files.combined")]
)
def test_a_function_that_makes_rows_of_several_in_a_later_batch_only(spark, ground, name, kind):
    """What it does with the first batch of a run says nothing of the batch that is filtered."""
    an_older_copy(spark, ground, lambda df: df, files=4)
    before, calls = content(ground.table), []

    def combine_later(df):
        calls.append(df)
        combine = (COMBINING | SHOWN)[name]
        return df if len(calls) == 1 else combine(df)

    advice(run(spark, ground, combine_later, 2), kind).says("Nothing was written")
    assert len(calls) == 2 and set(before) <= set(content(ground.table))
    assert streamsink.read_arrow(ground.table).num_rows == 40


@pytest.mark.in_turn("streams of several", 1)
@pytest.mark.parametrize(
    "stream",
    [
        lambda df: df.coalesce(1).mapInPandas(one_of_each_name, COLUMNS),
        lambda df: df.groupBy("name").applyInPandas(lambda each: each.head(1), COLUMNS),
    ],
    ids=["partitions", "groups"],
)
def test_a_stream_whose_rows_may_be_of_several(spark, ground, stream):
    """What the function is given may be made of several rows as well."""
    an_older_copy(spark, ground, lambda df: df, stream=stream)
    before = content(ground.table)
    advice(run(spark, ground, lambda df: df, 2, stream=stream), KIND)
    assert content(ground.table) == before


@pytest.mark.in_turn("words for rows", 1)
@follows("files.may-combine")
@pytest.mark.parametrize(
    "function",
    [lambda df: df.localCheckpoint(), go_through_the_driver, lambda df: df.mapInPandas(pass_on, COLUMNS)],
    ids=["checkpoint", "driver", "partitions"],
)
def test_one_word_is_for_all_batches_of_a_replay(spark, ground, function):
    """The checkpoint is deleted, and three batches hold an old and a new file each:
    the sink asks about the query and about its rows, and not again."""
    for number in (0, 2, 4):
        ground.add_files(number, 1)
    assert run(spark, ground, function, 1) is None
    shutil.rmtree(ground.checkpoint)
    for number in (1, 3, 5):
        ground.add_files(number, 1)
    both = advice(run(spark, ground, function, 2), "query.not-comparable").find(r"accept_as_same='(\w+ \w+)'")
    alone = both.split()[0]
    said = advice(run(spark, ground, function, 2, accept_as_same=alone), KIND)
    assert said.option("accept_as_same") == both
    assert run(spark, ground, function, 2, accept_as_same=both) is None
    assert_each_once(ground.table, ids_of(0, 6))


def test_several_tables(spark, ground):
    """The question is the same, and so is the answer to it."""

    def to_tables(path, **options):
        return streamsink.to_tables(
            path, route="if(id % 2 = 0, 'even', 'odd')", tables={"even": {}, "odd": {}}, **options
        )

    def through(df):
        return df.mapInPandas(pass_on, COLUMNS)

    an_older_copy(spark, ground, through, to=to_tables)
    said = advice(run(spark, ground, through, 2, to=to_tables), KIND).says("Nothing was written")
    assert run(spark, ground, through, 2, to=to_tables, accept_as_same=said.option("accept_as_same")) is None
    found = [
        id_
        for name in ("even", "odd")
        for id_ in streamsink.read_arrow(f"{ground.table}/{name}").column("id").to_pylist()
    ]
    assert sorted(found) == sorted(ids_of(0, 3))


@pytest.mark.in_turn("rows of one", 2)
@pytest.mark.parametrize("name", PLAIN)
def test_rows_that_are_of_one_are_filtered_without_a_question(spark, ground, name):
    an_older_copy(spark, ground, PLAIN[name])
    assert run(spark, ground, PLAIN[name], 2) is None
    assert_each_once(ground.table, ids_of(0, 3))
