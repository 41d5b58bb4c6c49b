"""How a supervised query ends: by Ctrl-C, by a failure of Spark's job, by an error in a task;
and that it restarts when it should."""

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import streamsink
from streamsink import faults
from streamsink.errors import Misuse, Retryable
from streamsink.table.write.conform import WAY_ON
from tests.advice.following import advice, follows
from tests.e2e.harness import Driver, assert_each_once, ids_in, ids_of

pytestmark = pytest.mark.spark
WAYS = {
    "driver": {},
    "spark": {"driver_max_rows": 0, "large_batches": "spark"},
    "tasks": {"driver_max_rows": 0, "large_batches": "tasks"},
}


def supervised(spark, ground, function) -> None:
    def start():
        stream = (
            spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
        )
        query = stream.writeStream.foreachBatch(function).option("checkpointLocation", ground.checkpoint)
        return query.trigger(availableNow=True).start()

    streamsink.run(start, max_restarts=2, min_wait_ms=1, max_wait_ms=1)


@follows("query.not-returned")
@pytest.mark.parametrize("given", ["nothing", "writer"])
def test_a_start_that_does_not_hand_over_its_query(spark, ground, given):
    """Formerly Python's own error said that None has no runId, or it hung on what a writer is not. The query runs on
    until it is stopped, as the error says."""
    ground.add_files(0, 2)
    sink = streamsink.to_table(Path(ground.table), lambda event: None, flush=False)

    def writer():
        stream = spark.readStream.schema("id BIGINT, name STRING").json(str(ground.source))
        return stream.writeStream.foreachBatch(sink).option("checkpointLocation", ground.checkpoint)

    def forgotten():
        if given == "writer":
            return writer()
        writer().start()

    with pytest.raises(Misuse) as caught:
        streamsink.run(forgotten)
    said = advice(caught.value, "query.not-returned").says(
        "for query in spark.streams.active: query.stop()", "return df.writeStream. ... .start()"
    )
    for query in spark.streams.active:
        query.stop()
    streamsink.run(lambda: writer().trigger(availableNow=True).start())
    assert_each_once(ground.table, ids_of(0, 2))
    assert streamsink.read(spark, Path(ground.table)).count() == 20, said.message


def test_ctrl_c_stops_the_query_publishes_what_is_pending_and_says_so_in_a_few_lines(ground):
    """PySpark's own handler would break into the wait for the query, and end in a hundred lines about a connection."""
    expected = ground.add_files(0, 3)
    job = ground.job(options={"publish_every_batches": 1000}, processing_time="50 milliseconds")
    with Driver(ground, job) as driver:
        driver.wait_for("BatchWritten", 3)
        driver.process.send_signal(signal.SIGINT)
        assert driver.process.wait(120) in (-signal.SIGINT, 128 + signal.SIGINT)
        said = driver.log.read_text()
    assert said.count("Traceback") == 1 and said.rstrip().endswith("KeyboardInterrupt"), said
    assert len(said[said.index("Traceback") :].splitlines()) <= 25, said
    assert set(ids_in(ground.table)) <= expected
    written = ids_in(ground.table)
    assert len(written) == len(set(written)) == 30


def test_a_job_group_of_the_program_does_not_keep_the_query_from_its_restart(spark, ground):
    """Why the query failed is known from its start, which Spark names, not from what a program may set."""
    failures = [1]

    def fail_once(step: str) -> None:
        if step == "write.staged" and failures:
            failures.pop()
            raise Retryable("a store that hiccups", kind="test.hiccup")

    sink = streamsink.to_table(ground.table, lambda event: None)

    def publish(df, batch_id: int) -> None:
        df.sparkSession.sparkContext.setJobGroup("nightly", "a group of the program's own")
        sink(df, batch_id)

    expected = ground.add_files(0, 2)
    faults.arm(fail_once)
    supervised(spark, ground, publish)
    assert failures == []
    assert_each_once(ground.table, expected)


@pytest.mark.in_turn("jobs that Spark cannot run", 1)
@follows("spark.job-failed")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_job_that_spark_cannot_run_says_why_in_its_first_lines(spark, ground, way):
    """A file of the source is gone.
    The error is not 20,000 characters of Java's, whose reason is somewhere in the middle."""
    sink = streamsink.to_table(ground.table, lambda event: None, **way)
    aside = ground.root / "aside.json"

    def publish(df, batch_id: int) -> None:
        if batch_id == 1:
            (ground.source / "00001.json").rename(aside)
        sink(df, batch_id)

    ground.add_files(0, 2)
    with pytest.raises(Misuse) as failed:
        supervised(spark, ground, publish)
    text = str(failed.value)
    advice(failed.value, "spark.job-failed").says("Mend what Spark names, then start it again")
    assert len(text) < 1500
    assert text.startswith(ground.table) and "00001.json" in text[:300] and "does not exist" in text[:400]
    assert_each_once(ground.table, ids_of(0, 1))
    aside.rename(ground.source / "00001.json")
    supervised(spark, ground, sink)  # This is the way on that the error names.
    assert_each_once(ground.table, ids_of(0, 2))


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_an_error_of_ours_in_a_task_is_the_same_error_at_the_end(spark, ground, way):
    """It has its class, its kind and the table, and is not Python's traceback as text."""
    streamsink.create_table(ground.table, "id BIGINT, name VARCHAR(1)")
    ground.add_files(0, 1)
    with pytest.raises(Misuse) as refused:
        supervised(spark, ground, streamsink.to_table(ground.table, lambda event: None, **WAYS[way]))
    assert refused.value.kind == "data.too-long"
    assert str(refused.value) == f"{ground.table}: column 'name' is VARCHAR(1), found a value of 2 characters. {WAY_ON}"


def test_an_error_that_the_batch_function_swallowed_is_raised_in_the_end(spark, ground):
    """Spark takes the batch for done, and the following ones are refused.
    Formerly the run ended as if all were written."""
    ground.add_files(0, 3)
    sink, failures = streamsink.to_table(ground.table, lambda event: None, flush=False), [1]

    def fail_once(step: str) -> None:
        if step == "write.staged" and failures:
            failures.pop()
            raise OSError("a disk that hiccups")

    def publish(df, batch_id: int) -> None:
        with contextlib.suppress(Exception):
            sink(df, batch_id)

    faults.arm(fail_once)
    with pytest.raises(Misuse) as told:
        supervised(spark, ground, publish)
    assert told.value.kind in ("gap.first-batch", "batch.gap") and failures == []


def test_an_error_that_the_batch_function_has_mended_is_not_taken_for_a_later_one(spark, ground):
    """The function tried again, with success; then code of its own failed."""
    ground.add_files(0, 2)
    sink, failures = streamsink.to_table(ground.table, lambda event: None, flush=False), [1]
    seen = []

    def fail_once(step: str) -> None:
        if step == "write.staged" and failures:
            failures.pop()
            raise Retryable("a store that hiccups", kind="test.hiccup")

    def publish(df, batch_id: int) -> None:
        seen.append(batch_id)
        try:
            sink(df, batch_id)
        except Retryable:
            sink(df, batch_id)
        if batch_id == 1:
            raise ValueError("a bug of the program's own")

    faults.arm(fail_once)
    with pytest.raises(StreamingQueryException, match="a bug of the program's own"):
        supervised(spark, ground, publish)
    assert failures == [] and seen == [0, 1], "it was restarted"
    assert_each_once(ground.table, ids_of(0, 2))


@pytest.mark.in_turn("stopped within a batch", 1)
@pytest.mark.parametrize("way", WAYS)
def test_a_query_that_is_stopped_within_a_batch_has_not_failed(spark, ground, way):
    """Spark cancels the batch's job and takes that for an end in order.
    Formerly the run raised it as an error of the job, with advice to mend it."""
    ground.add_files(0, 2)
    sink, is_called = streamsink.to_table(ground.table, lambda event: None, flush=False, **WAYS[way]), threading.Event()
    slowly = F.udf(lambda number: time.sleep(2) or number, "BIGINT")

    def publish(df, batch_id: int) -> None:
        is_called.set()
        sink(df.withColumn("id", slowly("id")), batch_id)

    def start():
        stream = spark.readStream.schema("id BIGINT, name STRING").json(str(ground.source))
        query = stream.writeStream.foreachBatch(publish).option("checkpointLocation", ground.checkpoint).start()
        threading.Thread(target=lambda: is_called.wait(200) and time.sleep(3) is None and query.stop()).start()
        return query

    assert streamsink.run(start).exception() is None
    supervised(spark, ground, sink)
    assert_each_once(ground.table, ids_of(0, 2))
