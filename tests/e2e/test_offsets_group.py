"""``offsets_group`` on a real broker: a consumer group has what is published, and nothing depends on it."""

import itertools
import shutil
from contextlib import contextmanager, suppress

import pytest

import streamsink
from streamsink.errors import Misuse, Retryable
from streamsink.events import CheckpointPublished, OffsetsCommitted, OffsetsNotCommitted
from streamsink.spark.query import offsets_group
from tests.e2e.harness import assert_each_once, forget_commit, run_here, until
from tests.e2e.job import POSITIONS, frame
from tests.e2e.kafka_data import new_topic, recreate, send
from tests.services.kafka_sasl import SaslBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
in_turn = pytest.mark.in_turn("what a group is told", 2)
PARTITIONS = 2
_WAIT_S = 120


@pytest.fixture
def topic(kafka_broker):
    return new_topic(kafka_broker.bootstrap, PARTITIONS)


@pytest.fixture
def group(topic):
    return f"lag-{topic}"


@pytest.fixture
def job(ground, kafka_broker, topic, group):
    source = {"kind": "kafka", "bootstrap": kafka_broker.bootstrap, "topic": topic}
    return ground.job(source=source, per_batch=10, options={"offsets_group": group})


def told(bootstrap: str, group: str, topic: str, settings: dict | None = None) -> dict[int, int]:
    """What the group has of the topic, by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap} | (settings or {}))
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(_WAIT_S)
    return {at.partition: at.offset for at in answer.topic_partitions if at.topic == topic}


def forget_group(bootstrap: str, group: str) -> None:
    """As brokers do with a group that nobody has been in for long. The query may be telling it just now."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    with suppress(KafkaException):
        admin.delete_consumer_groups([group])[group].result(_WAIT_S)


@contextmanager
def member(bootstrap: str, group: str, topic: str):
    """Within it a consumer is in the group."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "a-live-consumer"})
    assigned = []
    consumer.subscribe([topic], on_assign=lambda _, parts: assigned.append(parts))
    until(lambda: consumer.poll(0.1) is not None or assigned, wait_s=_WAIT_S)
    yield
    consumer.close()


def test_each_publishing_of_a_table_is_told_and_none_before_it(spark, job, topic, group, kafka_broker):
    """The group never has more than what is published, and in the end all of it."""
    expected = send(kafka_broker.bootstrap, topic, range(40), PARTITIONS)
    outcome = run_here(spark, job)
    assert_each_once(job.table, expected)
    assert told(kafka_broker.bootstrap, group, topic) == {0: 20, 1: 20}
    seen = [(name, fields["checkpoint_id"]) for name, fields in outcome.events if "checkpoint_id" in fields]
    for place, (name, checkpoint) in enumerate(seen):
        if name == "OffsetsCommitted":
            assert ("CheckpointPublished", checkpoint) in seen[:place], seen
    assert outcome.of("OffsetsCommitted")[-1]["checkpoint_id"] == 3
    assert outcome.of("OffsetsNotCommitted") == []


def test_what_is_recorded_and_cannot_be_published_is_not_told(spark, job, topic, group, kafka_broker, monkeypatch):
    """Under 'async' the batch has returned; its group knows nothing of it until the next start has published it."""

    def fail(*_, **__):
        raise Retryable("the store does not answer", kind="test.store")

    job = job.but(options={"publish": "async", "restore": "restore-and-continue"}, max_restarts=0)
    send(kafka_broker.bootstrap, topic, range(10), PARTITIONS)
    with monkeypatch.context() as patched:
        patched.setattr("streamsink.sinks.paimon.committer.PaimonCommitter.publish", fail)
        outcome = run_here(spark, job)
    assert outcome.of("BatchWritten") and not outcome.of("CheckpointPublished")
    assert told(kafka_broker.bootstrap, group, topic) == {}
    send(kafka_broker.bootstrap, topic, range(10, 20), PARTITIONS)
    run_here(spark, job)
    assert told(kafka_broker.bootstrap, group, topic) == {0: 10, 1: 10}


@in_turn
def test_what_is_published_after_the_end_of_a_query_is_told(spark, job, topic, group, kafka_broker):
    """Groups of batches: the last one is published when Spark has closed the client of its source."""
    send(kafka_broker.bootstrap, topic, range(30), PARTITIONS)
    outcome = run_here(spark, job.but(options={"publish_every_batches": 50}))
    assert len(outcome.of("CheckpointPublished")) == 3
    assert told(kafka_broker.bootstrap, group, topic) == {0: 15, 1: 15}


@in_turn
def test_a_consumer_in_the_group_is_named_and_the_rows_are_written(
    spark, job, topic, group, kafka_broker, caplog, monkeypatch
):
    """It is tried again, and told when the consumer has left."""
    monkeypatch.setattr(offsets_group, "RETRY_MS", 100)
    expected = send(kafka_broker.bootstrap, topic, range(20), PARTITIONS)
    events, table = [], job.table
    sink = streamsink.to_table(table, events.append, flush=False, position_columns=POSITIONS, offsets_group=group)
    writer = frame(spark, job).writeStream.foreachBatch(sink).option("checkpointLocation", job.checkpoint)

    def refusals() -> list[str]:
        return [event.why for event in events if isinstance(event, OffsetsNotCommitted)]

    with member(kafka_broker.bootstrap, group, topic):
        query = writer.trigger(processingTime="0 seconds").start()
        until(lambda: any(why == again for why, again in itertools.pairwise(refusals())))
        query.processAllAvailable()
        assert_each_once(table, expected)
    until(lambda: any(isinstance(event, OffsetsCommitted) for event in events))
    query.stop()
    sink.close()
    assert told(kafka_broker.bootstrap, group, topic) == {0: 10, 1: 10}
    assert any("UnknownMemberId" in why and "'a-live-consumer'" in why for why in refusals())
    assert {event.group for event in events if isinstance(event, OffsetsNotCommitted)} == {group}
    warned = [record.getMessage() for record in caplog.records if "offsets_group" in record.getMessage()]
    # A busy broker may refuse for another reason first. A reason is told once while it stays.
    assert len(warned) == len(list(itertools.groupby(refusals())))
    assert all(table in text and "It is tried again in" in text for text in warned)


@in_turn
def test_a_start_tells_what_an_earlier_one_has_published(spark, job, topic, group, kafka_broker):
    """As if the driver had died between a publishing and the group: the batch comes again, and changes nothing."""
    expected = send(kafka_broker.bootstrap, topic, range(20), PARTITIONS)
    run_here(spark, job.but(options={"offsets_group": None}))
    assert told(kafka_broker.bootstrap, group, topic) == {}
    forget_commit(job.checkpoint, 1)
    outcome = run_here(spark, job)
    assert not outcome.of("CheckpointPublished")
    assert_each_once(job.table, expected)
    assert told(kafka_broker.bootstrap, group, topic) == {0: 10, 1: 10}


@in_turn
def test_a_query_without_new_messages_tells_its_group_again(spark, job, topic, group, kafka_broker, monkeypatch):
    """Brokers forget a group that nobody is in. A topic that was created again meanwhile is another one."""
    monkeypatch.setattr(offsets_group, "AGAIN_MS", 1)
    monkeypatch.setattr(offsets_group, "LOOK_MS", 100)
    bootstrap, events = kafka_broker.bootstrap, []
    send(bootstrap, topic, range(10), PARTITIONS)
    sink = streamsink.to_table(job.table, events.append, flush=False, position_columns=POSITIONS, offsets_group=group)
    writer = frame(spark, job).writeStream.foreachBatch(sink).option("checkpointLocation", job.checkpoint)
    query = writer.trigger(processingTime="1 hour").start()
    until(lambda: any(isinstance(event, OffsetsCommitted) for event in events), wait_s=_WAIT_S)
    forget_group(bootstrap, group)
    until(lambda: told(bootstrap, group, topic) == {0: 5, 1: 5}, wait_s=_WAIT_S)
    assert sum(isinstance(event, CheckpointPublished) for event in events) == 1
    recreate(bootstrap, topic, PARTITIONS)
    until(lambda: getattr(events[-1], "partitions", None) == 0, wait_s=_WAIT_S)
    forget_group(bootstrap, group)
    seen = len(events)
    until(lambda: len(events) > seen + 1, wait_s=_WAIT_S)
    assert told(bootstrap, group, topic) == {}
    query.stop()
    sink.close()


@in_turn
def test_two_sources_are_told_and_what_both_read_ends_where_the_first_of_them_does(
    spark, job, topic, group, kafka_broker
):
    """One topic of their own each, and one of both, of which one source reads less at a time."""
    other, both = (new_topic(kafka_broker.bootstrap, PARTITIONS) for _ in range(2))
    for each, end in ((topic, 8), (other, 6), (both, 40)):
        send(kafka_broker.bootstrap, each, range(end), PARTITIONS)
    events, at_first = [], []

    def listen(event):
        events.append(event)
        if isinstance(event, OffsetsCommitted) and event.checkpoint_id == 0:
            at_first.append(told(kafka_broker.bootstrap, group, both))

    one = frame(spark, job.but(source={**job.source, "topic": f"{topic},{both}"}, per_batch=1000))
    two = frame(spark, job.but(source={**job.source, "topic": f"{other},{both}"}, per_batch=26))
    sink = streamsink.to_table(
        job.table, listen, flush=False, offsets_group=group, publish_every_batches=1, driver_max_rows=0
    )

    def publish(df, batch_id: int) -> None:
        sink(df, batch_id)
        if batch_id == 0:
            until(lambda: at_first)

    writer = one.unionByName(two).writeStream.foreachBatch(publish).option("checkpointLocation", job.checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    sink.close()
    assert 0 < sum(at_first[0].values()) < 40
    assert [told(kafka_broker.bootstrap, group, each) for each in (topic, other, both)] == [
        {0: 4, 1: 4},
        {0: 3, 1: 3},
        {0: 20, 1: 20},
    ]


@in_turn
def test_a_topic_that_was_created_again_is_not_told_what_the_old_one_had(spark, job, topic, group, kafka_broker):
    """A start that finds it refuses its batch, and the group has nothing of a topic that nobody has read."""
    send(kafka_broker.bootstrap, topic, range(20), PARTITIONS)
    run_here(spark, job.but(options={"offsets_group": None}))
    shutil.rmtree(job.checkpoint)
    recreate(kafka_broker.bootstrap, topic, PARTITIONS)
    send(kafka_broker.bootstrap, topic, range(100, 110), PARTITIONS)
    assert run_here(spark, job).kind == "positions.topic-recreated"
    assert told(kafka_broker.bootstrap, group, topic) == {}


@pytest.mark.soak
def test_a_query_into_kafka_is_told_by_a_broker_that_wants_a_password(spark, ground, tmp_path):
    """The client has the source's own credentials."""
    with SaslBroker(tmp_path / "kafka") as broker:
        topic, target = (new_topic(broker.bootstrap, 1, settings=broker.client_settings) for _ in range(2))
        source = {"kind": "kafka", "bootstrap": broker.bootstrap, "topic": topic, "options": broker.spark_options}
        to = {"bootstrap_servers": broker.bootstrap, "topic": target, "journal": str(ground.root / "journal")}
        options = {"application": "a", "offsets_group": "lag"}
        job = ground.job(source=source, options=options, to_kafka={**to, "kafka_options": broker.client_settings})
        send(broker.bootstrap, topic, range(5), 1, broker.client_settings)
        outcome = run_here(spark, job.but(per_batch=5))
        assert outcome.code == 0 and outcome.of("CheckpointPublished"), outcome
        assert told(broker.bootstrap, "lag", topic, broker.client_settings) == {0: 5}


def test_a_query_without_kafka_is_warned_and_a_bounded_run_is_refused(spark, ground, caplog):
    """The first one writes its rows."""
    job = ground.job(options={"offsets_group": "lag"})
    expected = ground.add_files(0, 1)
    assert run_here(spark, job).code == 0
    assert_each_once(job.table, expected)
    assert any("told nothing" in record.getMessage() for record in caplog.records)
    with pytest.raises(Misuse, match="offsets_group") as refused:
        streamsink.write(spark.range(3), job.table, "run-1", offsets_group="lag")
    assert refused.value.kind == "option.value"
