"""What a micro-batch asks of Spark's JVM is counted;
and what is remembered of a run is never taken for another run's."""

import json

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

import streamsink
from streamsink.errors import Misuse
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.e2e.harness import assert_each_once, ids_of, run_driver
from tests.e2e.questions import Questions


def run(spark, ground, checkpoint: str, function) -> None:
    """One availableNow run of the files at the source, without a supervisor."""
    stream = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
    query = stream.writeStream.foreachBatch(function).option("checkpointLocation", str(ground.root / checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.spark
def test_a_batch_of_a_run_that_is_known_asks_twenty_one_questions(spark, ground, monkeypatch):
    """It asks once which run it is, four times for the estimate, ten times which files are read, and five times for
    its rows; the checkpoint's log is read without the JVM."""
    questions = Questions(monkeypatch)
    sink = streamsink.to_table(ground.table, lambda event: None)

    def publish(df, batch_id: int) -> None:
        questions.batch = batch_id
        sink(df, batch_id)

    expected = ground.add_files(0, 4)
    run(spark, ground, "checkpoint", publish)
    assert_each_once(ground.table, expected)
    assert questions[0] > 21 and [questions[number] for number in (1, 2, 3)] == [21, 21, 21]


@pytest.mark.spark
def test_a_job_that_fails_while_its_rows_are_awaited_says_why(spark, ground):
    """The sink raises the job's own error, nothing of the batch is left, and it can be written again."""
    errors = []
    sink = streamsink.to_table(ground.table, lambda event: None)

    def publish(df, batch_id: int) -> None:
        if batch_id == 1 and not errors:
            df = df.withColumn("name", F.expr("if(id % 3 = 1, cast(raise_error('a bad row') AS string), name)"))
        try:
            sink(df, batch_id)
        except Exception as failed:
            errors.append(failed)
            raise

    expected = ground.add_files(0, 3)
    with pytest.raises(StreamingQueryException, match="a bad row"):
        run(spark, ground, "checkpoint", publish)
    [failed] = errors
    assert isinstance(failed, PySparkException) and "a bad row" in str(failed)
    assert_each_once(ground.table, ids_of(0, 1))
    run(spark, ground, "checkpoint", publish)
    assert_each_once(ground.table, expected)


@pytest.mark.spark
def test_rows_that_spark_refuses_to_collect_are_written_as_a_large_batch(ground):
    """The estimate was wrong:
    Spark's own bound of what the driver takes holds, and the batch is written all the same."""
    expected = ground.add_files(0, 2)
    for file in ground.source.glob("*.json"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps({**row, "name": "n" * 50_000}) + "\n" for row in rows))
    outcome = run_driver(ground, ground.job(per_batch=1, conf={"spark.driver.maxResultSize": "100k"}))
    assert_each_once(ground.table, expected)
    ways = [written["way"] for written in outcome.of("BatchWritten")]
    assert len(ways) == 2 and "driver" not in ways


@pytest.mark.spark
def test_a_program_with_a_job_group_of_its_own_is_never_taken_for_its_earlier_run(spark, ground):
    """The same sink comes under another checkpoint, with one file more: what that checkpoint says of its batches
    counts, not what the first one said."""
    failures = []
    sink = streamsink.to_table(ground.table, lambda event: None)

    def publish(df, batch_id: int) -> None:
        df.sparkSession.sparkContext.setLocalProperty("spark.jobGroup.id", "nightly")
        try:
            sink(df, batch_id)
        except Misuse as refused:
            failures.append(refused.kind)

    expected = ground.add_files(0, 2)
    run(spark, ground, "first", publish)
    expected |= ground.add_files(2, 1)
    run(spark, ground, "first", publish)
    assert_each_once(ground.table, expected)
    assert failures == []
    expected |= ground.add_files(3, 1)
    run(spark, ground, "second", publish)
    assert failures == []
    assert_each_once(ground.table, expected)


@pytest.mark.spark
def test_a_batch_starts_where_spark_says_the_last_one_ended(spark, ground):
    """Remembered positions are those of the offset log, over a restart as well."""
    sink = streamsink.to_table(ground.table, lambda event: None)
    for number in range(2):
        ground.add_files(3 * number, 3)
        run(spark, ground, "checkpoint", sink)
    table = open_table(local_file_io(), ground.table, for_writing=False)
    newest = table.snapshots.latest()
    ranges = [
        json.loads(table.snapshots.load(n).properties["streamsink.app.streamsink"])["sources"]
        for n in range(1, newest.id + 1)
    ]
    ends = [None]
    for offsets in ranges:
        (source,) = offsets
        assert source["start"] == ends[-1]
        ends.append(source["end"])
    assert len(ends) == 7 and len({json.dumps(end) for end in ends}) == 7
