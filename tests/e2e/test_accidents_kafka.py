"""S1 to S5 with Kafka: rows carry their position, so every accident ends with each row once and without an error."""

import shutil
import signal

import pytest

import streamsink
from streamsink.spark.gateway.kafka import _Topics
from tests.e2e import foreign
from tests.e2e.harness import assert_each_once, assert_refused, content, forget_commit, run_driver, run_here
from tests.e2e.job import start
from tests.e2e.kafka_data import new_topic, send
from tests.services.kafka import CLUSTER_ID

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.in_turn("accidents over Kafka", 2)]
PARTITIONS = 3
BATCH = 10


@pytest.fixture
def topic(kafka_broker):
    return new_topic(kafka_broker.bootstrap, PARTITIONS)


@pytest.fixture
def job(ground, kafka_broker, topic):
    return ground.job(source={"kind": "kafka", "bootstrap": kafka_broker.bootstrap, "topic": topic}, per_batch=BATCH)


@pytest.fixture
def sent(kafka_broker, topic):
    """A function sent(first, count), which sends messages with these ids; they are acknowledged when it returns."""
    return lambda first, count: send(kafka_broker.bootstrap, topic, range(first, first + count), PARTITIONS)


def ends_with_each_once(spark, job, ids):
    """Run the job: there is no error, and each row is there once. Returns the outcome."""
    outcome = run_here(spark, job)
    assert outcome.code == 0, outcome
    assert_each_once(job.table, ids)
    return outcome


def test_s1_killed_between_publishing_and_sparks_commit_log(spark, ground, job, sent):
    """The replay is skipped, the rest follows."""
    ids = sent(0, 40)
    assert run_driver(ground, job, fault="commit.published@2:kill").code == -signal.SIGKILL
    outcome = ends_with_each_once(spark, job, ids)
    assert [skip["checkpoint_id"] for skip in outcome.of("BatchSkipped")] == [1]


def test_s2_checkpoint_deleted_and_the_same_messages_again(spark, job, sent):
    """Everything is read again and filtered, and messages that come later are written."""
    ids = sent(0, 30)
    ends_with_each_once(spark, job, ids)
    shutil.rmtree(job.checkpoint)
    outcome = ends_with_each_once(spark, job, ids)
    assert outcome.of("BatchFiltered")
    ends_with_each_once(spark, job, ids | sent(30, 30))


def test_s2_checkpoint_deleted_and_only_new_messages(spark, job, sent):
    """The new checkpoint begins where the table's record ends, by starting_offsets: nothing is read twice."""
    ids = sent(0, 30)
    ends_with_each_once(spark, job, ids)
    shutil.rmtree(job.checkpoint)
    new = sent(30, 30)
    begin = {**job.source, "starting": streamsink.starting_offsets(job.table)}
    outcome = ends_with_each_once(spark, job.but(source=begin), ids | new)
    assert outcome.rows_read == len(new)
    assert not outcome.of("BatchFiltered")


@pytest.mark.in_turn("batches of a new checkpoint", 1)
@pytest.mark.parametrize("per_batch", [7, 1000])
def test_s2_checkpoint_deleted_old_and_new_messages_in_other_batches(spark, job, sent, per_batch):
    """In batches that hold old and new messages together the old ones are filtered, row by row."""
    ids = sent(0, 30)
    ends_with_each_once(spark, job, ids)
    shutil.rmtree(job.checkpoint)
    ends_with_each_once(spark, job.but(per_batch=per_batch), ids | sent(30, 30))


def test_s2_without_position_columns_the_error_names_both_ways_on(spark, job, sent):
    """Kafka positions overlap and no columns carry them: the batch is refused before anything is written."""
    plain = job.but(options={"position_columns": ()}, where="topic IS NOT NULL")
    ends_with_each_once(spark, plain, sent(0, 30))
    shutil.rmtree(job.checkpoint)
    before = content(job.table)
    outcome = run_here(spark, plain)
    assert_refused(
        outcome, "positions.overlap", job.table, "position_columns", "starting_offsets", "Nothing was written"
    )
    assert content(job.table) == before


def test_s3_two_queries_under_two_names(spark, job, sent, kafka_broker):
    """There are two topics, two checkpoints and two names at the same time."""
    other = new_topic(kafka_broker.bootstrap, PARTITIONS)
    ids = sent(0, 30) | send(kafka_broker.bootstrap, other, range(1000, 1030), PARTITIONS)
    streamsink.create_table(job.table, "id BIGINT")
    second = job.but(
        checkpoint=job.checkpoint + "-2", source={**job.source, "topic": other}, options={"application": "second"}
    )
    queries = [start(spark, one, lambda event: None) for one in (job, second)]
    for query in queries:
        query.awaitTermination()
    assert_each_once(job.table, ids)


def test_s3_one_name_one_after_the_other(spark, job, sent):
    """A second checkpoint of the same topic comes under the same name: what the first one has written is filtered."""
    ids = sent(0, 30)
    ends_with_each_once(spark, job, ids)
    ends_with_each_once(spark, job.but(checkpoint=job.checkpoint + "-2"), ids | sent(30, 10))


def test_s4_checkpoint_restored_from_an_older_copy(spark, job, sent):
    """After the restore batches have other boundaries: rows are filtered, each is there once, and the query goes on."""
    ids = sent(0, 10)
    ends_with_each_once(spark, job, ids)
    shutil.copytree(job.checkpoint, job.checkpoint + "-copy")
    ids |= sent(10, 30)
    ends_with_each_once(spark, job, ids)
    shutil.rmtree(job.checkpoint)
    shutil.move(job.checkpoint + "-copy", job.checkpoint)
    ids |= sent(40, 20)
    outcome = ends_with_each_once(spark, job.but(per_batch=13), ids)
    assert outcome.of("BatchFiltered")
    ends_with_each_once(spark, job, ids | sent(60, 10))


@pytest.mark.in_turn("replays without a snapshot of ours", 1)
@pytest.mark.parametrize("replay", ["of the same checkpoint", "with a new checkpoint"])
def test_s5_no_snapshot_of_ours_is_left(spark, job, sent, replay):
    """Others append, compact and expire; then the last batch comes again, or all of them: each row is there once."""
    ids = sent(0, 30)
    ends_with_each_once(spark, job, ids)
    ids |= foreign.append(spark, job.table, [range(10_000, 10_005), range(10_005, 10_010)])
    foreign.compact(spark, job.table)
    foreign.expire(spark, job.table)
    assert not foreign.has_snapshot_of_ours(job.table)
    if replay == "of the same checkpoint":
        forget_commit(job.checkpoint, 2)
    else:
        shutil.rmtree(job.checkpoint)
    ends_with_each_once(spark, job, ids)
    ends_with_each_once(spark, job, ids | sent(30, 10))


def test_starting_offsets_count_what_is_pending(spark, ground, job, sent):
    """The driver is killed between pre-commit and publishing:
    a new checkpoint begins after the pending batch, which the start publishes."""
    ids = sent(0, 30)
    assert run_driver(ground, job, fault="precommit.saved@2:kill").code == -signal.SIGKILL
    shutil.rmtree(job.checkpoint)
    begin = {**job.source, "starting": streamsink.starting_offsets(job.table)}
    outcome = ends_with_each_once(spark, job.but(source=begin), ids)
    # Spark counts the batch that found the pending one a second time: that start failed on purpose.
    assert outcome.rows_read <= 20 and not outcome.of("BatchFiltered")


def test_s15_another_cluster_while_a_batch_is_written(spark, job, sent, monkeypatch):
    """The broker tells no topic's id, as before Kafka 2.8, so it is asked again in which cluster it is."""
    sent(0, 10)
    monkeypatch.setattr(_Topics, "_topic_ids", lambda self, topics: dict.fromkeys(topics, ""))
    monkeypatch.setattr(_Topics, "_cluster_id", lambda self: "the cluster before")
    outcome = run_here(spark, job)
    said = (f"was the cluster before when the batch began, and is {CLUSTER_ID} now", "Nothing was written")
    assert_refused(outcome, "positions.recreated-meanwhile", job.table, *said)
    monkeypatch.undo()
    ends_with_each_once(spark, job, sent(10, 10) | set(range(10)))
