"""What the Kafka sink refuses, before the record where that can be known; each test does what the message says."""

import itertools
import sys
import uuid

import pyarrow as pa
import pytest

import streamsink
from streamsink.errors import Misuse, StreamsinkError
from streamsink.sinks.kafka import client, markers
from streamsink.sinks.kafka.sink import KafkaSink
from streamsink.storage.file_io import local_file_io
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import Advice, advice, follows
from tests.e2e.kafka_data import add_partitions, delete_before, new_topic, recreate, send_to
from tests.sinks.kafka_world import REAL, Dying, KafkaWorld, check, forget_facts, open_transaction, set_config

pytestmark = pytest.mark.kafka


def refused(kind: str, call) -> Advice:
    """The advice of the error of this kind that the call raises."""
    with pytest.raises(StreamsinkError) as told:
        call()
    return advice(told.value, kind)


def stopped(world, kind: str, *ends: int, **changes) -> Advice:
    """The same of a run of the query, which publishes nothing."""
    before = world.seen()
    said = refused(kind, lambda: world.run(*ends, **changes))
    assert world.seen() == before
    return said


def recorded(world, clients, *ends: int) -> None:
    """The last batch is published, and its driver dies before it notes that."""
    clients(Dying(1, after=True, only="commit_transaction"))
    with pytest.raises(InjectedCrash):
        world.run(*ends)
    clients(None)


@follows("kafka.markers-deleted", "kafka.marker-topic")
def test_deleted_markers_are_noticed(world, clients):
    """A record is published, its driver dies before it notes that, and then what says so is deleted. It is not
    published again: the query begins behind it, as its user says."""
    world.run(3)
    recorded(world, clients, 3, 6)
    set_config(world.bootstrap, world.markers, "cleanup.policy", "delete")
    delete_before(world.bootstrap, world.markers, {0: 4})
    stopped(world, "kafka.marker-topic", 3, 6, 9).says("Set cleanup.policy=compact on the topic")
    set_config(world.bootstrap, world.markers, "cleanup.policy", "compact")
    said = stopped(world, "kafka.markers-deleted", 3, 6, 9)
    said.says("a new marker_topic and a new journal", "adopt_from_batch set to the batch behind it")
    _begin_anew(world)


def _begin_anew(world) -> None:
    """With another topic of markers and another journal, behind what is there: two batches of three."""
    world.markers, world.folder = f"{world.markers}-2", f"{world.folder}/2"
    world.settings["adopt_from_batch"] = 2
    world.checkpoint.committed = 2
    world.run(3, 6, 9)
    check(world.seen(), 9)


@follows("kafka.marker-corrupt")
def test_what_is_no_marker_is_noticed(world):
    """Somebody else has written to the topic, or a newer streamsink."""
    world.run(3, 6)
    producer = REAL({"bootstrap.servers": world.bootstrap})
    producer.produce(world.markers, b"7", b"somebody", 0)
    assert producer.flush(30) == 0
    stopped(world, "kafka.marker-corrupt", 3, 6, 9).says("a new marker_topic and a new journal")
    _begin_anew(world)


@follows("kafka.partly-published")
def test_a_journal_that_is_lost_while_a_record_is_published_is_noticed(world, clients):
    """One of two publishers has published its messages, all of one key. They are not published again as another record
    of the same number."""
    world.options["publishers"] = 2
    world.run(3)
    recorded(world, clients, 3, 6)
    world.folder += "/lost"
    said = refused("kafka.partly-published", lambda: world.run(3, 6, 9))
    said.says("Write the messages that are missing", "a new marker_topic and a new journal")
    there = {number for partition in world.seen() for number in partition}
    assert len(there) < 6
    send_to(world.bootstrap, world.topic, [(number, 0) for number in sorted({*range(6)} - there)])
    _begin_anew(world)


def test_markers_that_were_created_again_say_nothing(world, clients):
    """Without the id of their topic, the last record would be published again."""
    world.run(3)
    recorded(world, clients, 3, 6)
    recreate(world.bootstrap, world.markers, 1)
    set_config(world.bootstrap, world.markers, "cleanup.policy", "compact")
    stopped(world, "table.recreated", 3, 6)


def test_markers_that_are_created_again_under_a_query_stop_it_with_what_a_start_says(world):
    """All rows are there. Its own look would say that the destination went back, and how to write all of it anew."""
    world.checkpoint.ends = [3, 6]
    driver = world.driver()
    driven = driver.start(local_file_io(), world.checkpoint)
    driven.batch(driver.describe(world.checkpoint, 0))
    world.checkpoint.committed = 1
    recreate(world.bootstrap, world.markers, 1)
    set_config(world.bootstrap, world.markers, "cleanup.policy", "compact")
    said = refused("destination.history-changed", lambda: driven.batch(driver.describe(world.checkpoint, 1)))
    said.says("The restart of the query says what can be done", "Nothing of the next record was published")
    driven.close()
    stopped(world, "table.recreated", 3, 6).says("behind those of its rows that are here already")
    check(world.seen(), 3)


def test_a_topic_that_is_created_again_is_another_destination(world):
    """Its name alone proves nothing."""
    world.run(3)
    recreate(world.bootstrap, world.topic, 2)
    stopped(world, "table.recreated", 3, 6)


def test_a_query_is_begun_anew_when_its_markers_are_taken_away(world):
    """By a message without a value, as anything is taken out of a compacted topic."""
    world.options["publishers"] = 2
    world.run(3, 6)
    producer = REAL({"bootstrap.servers": world.bootstrap})
    for publisher in range(2):
        producer.produce(world.markers, None, world.application, publisher)
    assert producer.flush(30) == 0
    world.folder += "/anew"
    world.checkpoint = SparkCheckpoint(str(uuid.uuid4()))
    world.run(3, 6, 9)
    assert sorted(itertools.chain(*world.seen())) == sorted([*range(6), *range(9)])


@follows("kafka.marker-hidden")
def test_a_marker_that_stays_hidden_ends_the_query(world, clients, monkeypatch):
    """Behind a transaction that another application has left open; the broker ends it when it times out."""
    world.run(3)
    with open_transaction(world, world.markers):
        recorded(world, clients, 3, 6)
        monkeypatch.setattr(markers, "_READ_TIMEOUT_MS", 50)
        opened = world.sink()._publishing({})
        said = refused("kafka.marker-hidden", lambda: opened.last_committed(world.application))
        said.says("start the query again")
        monkeypatch.undo()
    world.run(3, 6)
    check(world.seen(), 6)


@pytest.mark.parametrize(
    "command",
    [
        lambda sink, name: streamsink.verify(sink, application=name),
        streamsink.starting_offsets,
        lambda sink, name: streamsink.give_up(sink, application=name),
        streamsink.retire,
    ],
    ids=["verify", "starting_offsets", "give_up", "retire"],
)
def test_a_command_makes_no_topic_of_markers_and_no_partition_of_one(world, command):
    """It only looks: a name that is mistyped would leave a topic in the cluster."""
    world.run(3)
    other, admin = world.sink(marker_topic=f"{world.markers}-typo"), client.new_admin(world.bootstrap, {})
    try:
        said = str(command(other, world.application))
    except Misuse as refused:
        said = advice(refused, "sink.missing").says("Nothing was changed").message
    assert "only a query makes it" in said and client.describe(admin, other.marker_topic) is None
    command(world.sink(publishers=3), world.application)
    assert client.describe(admin, world.markers).partitions == 1


@follows("kafka.name-taken")
def test_two_queries_of_one_name_do_not_share_transactions(world, tmp_path):
    """The second one has another destination and another journal."""
    world.run(3)
    other = KafkaWorld(world.bootstrap, str(tmp_path / "other"))
    other.application, other.markers = world.application, world.markers
    stopped(other, "kafka.name-taken", 3).says("application='...'")
    other.application += "-2"
    other.run(3)
    check(other.seen(), 3)


@follows("kafka.no-topic")
def test_a_topic_that_is_not_there_is_created_by_its_owner(world):
    """The sink's own topic, and that of a row."""
    named = f"{world.topic}-2"
    stopped(world, "kafka.no-topic", 3, topic=named).says("Create the topic")
    row = {"value": ["0"], "topic": [named]}
    refused("kafka.no-topic", lambda: _check(world, row)).says("Create the topic")
    refused("kafka.no-topic", lambda: _check(world, {"value": ["0"], "topic": [None]})).says("Give it topic='...'")
    new_topic(world.bootstrap, 1, named)
    _check(world, row)
    world.topic = named
    world.run(3)
    check(world.seen(), 3)


def _check(world, row: dict) -> None:
    """Look at a row as a task does that writes it."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {"value": pa.string(), "topic": pa.string(), "partition": pa.int32(), "key": pa.string()}
    types |= {"headers": pa.list_(header)}
    schema = pa.schema([(name, types[name]) for name in row])
    KafkaSink(world.bootstrap).checked(pa.RecordBatch.from_pydict(row, schema=schema))


@follows("kafka.no-partition")
@pytest.mark.parametrize("wrong", [2, -1])
def test_a_row_of_a_partition_that_is_not_there_is_refused(world, wrong):
    row = {"value": ["0"], "topic": [world.topic], "partition": [wrong]}
    refused("kafka.no-partition", lambda: _check(world, row)).says("give the topic more partitions")
    add_partitions(world.bootstrap, world.topic, 3)
    _check(world, row | {"partition": [max(wrong, 0)]})


@follows("kafka.no-key")
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_message_without_a_key_in_a_compacted_topic_is_refused(world, policy):
    """The brokers take none there. Formerly that was found when the record was published, by each start again."""
    world.run(3)
    set_config(world.bootstrap, world.topic, "cleanup.policy", policy)
    forget_facts()
    row = {"value": ["0", "1"], "key": ["k", None], "topic": [world.topic] * 2}
    said = refused("kafka.no-key", lambda: _check(world, row))
    refused("kafka.no-key", lambda: _check(world, {"value": ["0"], "topic": [world.topic]}))
    _check(world, row | {"key": ["k", "l"]})
    world.run(3, 6)
    set_config(world.bootstrap, world.topic, "cleanup.policy", said.find(r"the topic cleanup\.policy=(\w+)"))
    _check(world, row)
    check(world.seen(), 6)


@follows("kafka.own-topic")
@pytest.mark.parametrize("whose", ["markers", "__transaction_state"])
def test_a_row_for_a_topic_of_streamsink_or_of_the_brokers_is_refused(world, whose):
    """A message among the markers would stop all queries of the cluster; and the brokers take none for their own
    topics, which was found when the record was published."""
    world.run(3)
    topic = world.markers if whose == "markers" else whose
    sink = world.sink(topic=None)

    def write(name: str) -> None:
        sink.checked(pa.RecordBatch.from_pydict({"value": ["0"], "topic": [name]}))

    refused("kafka.own-topic", lambda: write(topic)).says("give them another topic", "Nothing was written")
    write(world.topic)
    if whose == "markers":
        refused("kafka.option", lambda: world.sink(topic=topic))


@follows("kafka.columns")
@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_key_is_refused(world, header):
    good = {"key": "a", "value": None}
    row = {"value": ["0", "1"], "topic": [world.topic] * 2, "headers": [None, [good, header]]}
    refused("kafka.columns", lambda: _check(world, row)).says("Leave such headers out")
    _check(world, row | {"headers": [None, [good]]})


@follows("kafka.message-too-large")
def test_a_message_that_its_topic_does_not_take_is_refused(world):
    """The largest one that is not refused can be published."""
    set_config(world.bootstrap, world.topic, "max.message.bytes", "300")
    large = {"value": ["0" * 300], "topic": [world.topic]}
    refused("kafka.message-too-large", lambda: _check(world, large)).says("Raise max.message.bytes of the topic")
    set_config(world.bootstrap, world.topic, "max.message.bytes", "1000")
    _check(world, large)


@follows("kafka.transaction-timeout")
def test_a_timeout_that_the_brokers_do_not_allow_is_refused(world):
    too_long = {"transaction.timeout.ms": 10_000_000}
    stopped(world, "kafka.transaction-timeout", 3, kafka_options=too_long).says("Set it lower in kafka_options")
    world.run(3, kafka_options={"transaction.timeout.ms": 900_000})
    check(world.seen(), 3)


@follows("kafka.columns")
def test_rows_that_are_no_messages_are_refused(world):
    """Before the first of them is written."""
    stopped(world, "kafka.columns", 3, topic=None).says("Give it topic='...'")
    world.run(3)
    check(world.seen(), 3)


@follows("kafka.refused")
def test_what_the_brokers_refuse_after_the_record_is_published_when_that_is_mended(world, clients):
    """A topic's limit is lowered between the look at its rows and their publishing."""
    world.run(3)

    def lower():
        # A batch of two messages has 81 bytes, and what the broker writes to end a transaction 78.
        set_config(world.bootstrap, world.topic, "max.message.bytes", "79")

    clients(Dying(1, act=lower, only="begin_transaction"))
    said = refused("kafka.refused", lambda: world.run(3, 6))
    clients(None)
    said.says("its max.message.bytes", "start the query again")
    set_config(world.bootstrap, world.topic, "max.message.bytes", "100000")
    forget_facts()
    world.run(3, 6)
    check(world.seen(), 6)


@follows("kafka.no-client")
def test_a_python_without_the_client_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    sink = KafkaSink("localhost:9", topic="t", journal="/j")
    refused("kafka.no-client", lambda: sink.identity({})).says("pip install 'streamsink[kafka]'")


WRONG = [
    {"semantic": "twice"},
    {"publishers": 0},
    {"max_transaction_bytes": 0},
    {"kafka_options": {"acks": "1"}},
    {"kafka_options": {"enable.idempotence": False}},
    {"kafka_options": {"transactional.id": "x"}},
    {"kafka_options": {"delivery.timeout.ms": 60_000, "transaction.timeout.ms": 60_000}},
]


@follows("kafka.option")
@pytest.mark.parametrize("options", WRONG)
def test_options_that_would_break_a_promise_are_refused(options):
    said = refused("kafka.option", lambda: KafkaSink("localhost:9", topic="t", journal="/j", **options))
    assert any(words in said.message for words in ("Leave it out", "Correct it", "Set delivery.timeout.ms lower"))
    said.says("Nothing was written")
    KafkaSink("localhost:9", topic="t", journal="/j")


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"key": pa.string()}, "no column 'value'"),
        ({"value": pa.int64()}, "'value' has the type int64"),
        ({"value": pa.binary(), "key": pa.int32()}, "'key' has the type int32"),
        ({"value": pa.binary(), "partition": pa.int64()}, "'partition' has the type int64"),
        ({"value": pa.binary(), "headers": pa.list_(pa.string())}, "'headers' has the type list"),
        ({"value": pa.binary(), "topic": pa.binary()}, "'topic' has the type binary"),
    ],
)
def test_columns_of_other_types_are_refused(columns, found):
    with pytest.raises(Misuse, match=found):
        KafkaSink("localhost:9", topic="t").check_columns(pa.schema(list(columns.items())), {})
