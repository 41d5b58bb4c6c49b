"""A3: rows are filtered without a question only for the same query.
Another query under the same name is an error with ways on."""

import os
import re
import shutil

import pytest
from pyspark.sql import functions as F

import streamsink
from streamsink.errors import Misuse
from tests.advice.following import advice, follows
from tests.e2e.harness import assert_each_once, assert_refused, content, run_driver, run_here
from tests.e2e.job import POSITIONS, frame
from tests.e2e.kafka_data import new_topic, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.in_turn("other queries", 2)]
PARTITIONS = 2


@pytest.fixture
def topic(kafka_broker):
    return new_topic(kafka_broker.bootstrap, PARTITIONS)


@pytest.fixture
def job(ground, kafka_broker, topic):
    return ground.job(source={"kind": "kafka", "bootstrap": kafka_broker.bootstrap, "topic": topic}, per_batch=20)


@pytest.fixture
def sent(kafka_broker, topic):
    """A function sent(first, count), which sends messages with these ids; they are acknowledged when it returns."""
    return lambda first, count: send(kafka_broker.bootstrap, topic, range(first, first + count), PARTITIONS)


def same_token(outcome) -> str:
    """The token that the third way on repeats."""
    return re.search(r"accept_as_same='([0-9a-f]{12})'", outcome.message)[1]


def run_function(spark, job, function, checkpoint: str, **options) -> Misuse | None:
    """Run the job's rows through a function before the sink, to the end. Returns the error that the sink raised."""
    failed = []
    sink = streamsink.to_table(
        job.table, listener=lambda event: None, position_columns=POSITIONS, flush=False, **options
    )

    def publish(df, batch_id: int) -> None:
        try:
            sink(function(df), batch_id)
        except Misuse as refused:
            failed.append(refused)

    query = frame(spark, job).writeStream.foreachBatch(publish).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    sink.close()
    return failed[0] if failed else None


def test_a_second_job_with_another_filter_is_refused_before_anything_is_written(spark, job, sent):
    """Two scheduled jobs run after each other with one topic, one table and no names:
    the rows of the second one are not filtered away."""
    ids = sent(0, 30)
    assert run_here(spark, job.but(where="id % 3 = 0")).code == 0
    before = content(job.table)
    second = job.but(where="id % 3 = 1", checkpoint=job.checkpoint + "-2")
    outcome = run_here(spark, second)
    assert_refused(outcome, "query.other", job.table, "plan", "application=", "accept_as_same=", "Nothing was written")
    assert content(job.table) == before
    assert run_here(spark, second.but(options={"application": "second"})).code == 0
    assert_each_once(job.table, {i for i in ids if i % 3 < 2})


def test_a_second_job_that_was_given_a_copy_of_the_checkpoint(spark, job, sent):
    """Formerly its batches were taken for replays of the first job's: it ended without an error and without its rows.
    A folder that is moved goes on."""
    ids = sent(0, 30)
    assert run_here(spark, job.but(where="id % 3 = 0")).code == 0
    copy = job.checkpoint + "-copy"
    shutil.copytree(job.checkpoint, copy)
    newest = max(int(name) for name in os.listdir(f"{copy}/commits") if name.isdigit())
    for name in (str(newest), f".{newest}.crc"):
        os.remove(f"{copy}/commits/{name}")
    before = content(job.table)
    second = job.but(where="id % 3 = 1", checkpoint=copy)
    outcome = run_here(spark, second)
    assert_refused(
        outcome, "checkpoint.copied", job.table, "plan", "application=", "accept_as_same=", "Nothing was written"
    )
    assert content(job.table) == before
    assert run_here(spark, second.but(checkpoint=copy + "-new", options={"application": "second"})).code == 0
    assert_each_once(job.table, {i for i in ids if i % 3 < 2})
    ids = sent(30, 6)
    assert run_here(spark, job.but(where="id % 3 = 0", checkpoint=copy)).code == 0
    assert_each_once(job.table, {i for i in range(36) if i % 3 == 0} | {i for i in range(30) if i % 3 == 1})


def test_a_new_version_without_its_filter_is_written_whole_by_accept_as_new(spark, job, sent):
    """One token is enough for all batches of the new checkpoint. What the first version wrote is there as well."""
    ids = sent(0, 60)
    assert run_here(spark, job.but(where="id < 20")).code == 0
    shutil.rmtree(job.checkpoint)
    outcome = run_here(spark, job)
    assert_refused(outcome, "query.other", job.table, "plan")
    word = re.search(r"accept_as_new='([^']+)'", outcome.message)[1]
    assert run_here(spark, job.but(options={"accept_as_new": word})).code == 0
    found = sorted(streamsink.read_arrow(job.table).column("id").to_pylist())
    assert found == sorted([*range(20), *ids])


def test_what_the_function_does_before_the_sink_belongs_to_the_query(spark, job, sent):
    """The streaming plan is the same, but the function filters otherwise.
    accept_as_same then filters as for one query."""
    ids = sent(0, 30)
    assert run_function(spark, job, lambda df: df.where("id % 2 = 0"), job.checkpoint + "-1") is None
    refused = run_function(spark, job, lambda df: df.where("id % 2 = 1"), job.checkpoint + "-2")
    assert refused.kind == "query.other" and "plan" in str(refused)
    word = re.search(r"accept_as_same='([0-9a-f]{12})'", str(refused))[1]
    ids |= sent(30, 10)
    assert (
        run_function(spark, job, lambda df: df.where("id % 2 = 1"), job.checkpoint + "-2", accept_as_same=word) is None
    )
    assert_each_once(job.table, {i for i in ids if (i % 2 == 0) == (i < 30)})


@follows("positions.combined")
def test_rows_that_the_function_has_combined_are_not_filtered(spark, job, sent):
    """Formerly dropDuplicates kept the old one of an old and a new message of one key, and the filter dropped that:
    the new one was lost."""

    def one_of_each_key(df):
        return df.withColumn("key", F.col("id") % 20).dropDuplicates(["key"]).drop("key")

    ids = sent(0, 20)
    assert run_function(spark, job, one_of_each_key, job.checkpoint + "-1") is None
    assert run_function(spark, job.but(per_batch=1000), one_of_each_key, job.checkpoint + "-2") is None, (
        "a batch of old messages alone"
    )
    ids |= sent(20, 20)
    before = content(job.table)
    refused = run_function(spark, job.but(per_batch=1000), one_of_each_key, job.checkpoint + "-3")
    said = advice(refused, "positions.combined").says("Deduplicate", "Nothing was written")
    assert content(job.table) == before
    (path,), given = said.call("streamsink.starting_offsets")
    behind = job.but(per_batch=1000, source={**job.source, "starting": streamsink.starting_offsets(path, **given)})
    assert run_function(spark, behind, one_of_each_key, job.checkpoint + "-4") is None
    assert_each_once(job.table, ids)


def test_the_same_program_in_another_jvm_is_the_same_query(spark, ground, job, sent):
    """It has other expression ids, another time of day and another checkpoint:
    rows are filtered, and each is there once."""
    ids = sent(0, 30)
    program = job.but(
        column="coalesce(cast(current_timestamp() AS string), uuid(), cast(rand() AS string))",
        where="id >= 0",
        shuffle=True,
    )
    assert run_driver(ground, program).code == 0
    shutil.rmtree(job.checkpoint)
    outcome = run_here(spark, program)
    assert outcome.code == 0 and outcome.of("BatchFiltered"), outcome
    assert_each_once(job.table, ids)


def test_a_query_with_a_python_function_cannot_be_compared(spark, job, sent):
    """The plan does not show the function's body: the answer is an error with a token, and no guess."""
    ids = sent(0, 20)
    odd = F.udf(lambda i: i % 2 == 1, "boolean")
    assert run_function(spark, job, lambda df: df.where(odd("id")), job.checkpoint + "-1") is None
    refused = run_function(spark, job, lambda df: df.where(odd("id")), job.checkpoint + "-2")
    assert refused.kind == "query.not-comparable" and "Python" in str(refused)
    word = re.search(r"accept_as_same='([0-9a-f]{12})'", str(refused))[1]
    ids |= sent(20, 20)
    assert run_function(spark, job, lambda df: df.where(odd("id")), job.checkpoint + "-2", accept_as_same=word) is None
    assert_each_once(job.table, {i for i in ids if i % 2 == 1})
