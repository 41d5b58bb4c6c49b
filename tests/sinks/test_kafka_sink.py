"""The Kafka sink on a real broker: each message once, and in order within its key."""

import contextlib
import itertools
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from streamsink.errors import Misuse, StreamsinkError
from streamsink.sinks.kafka import client
from streamsink.sinks.kafka.sink import KafkaSink
from streamsink.testing.faults import InjectedCrash
from tests.e2e.kafka_data import delete_before, recreate
from tests.sinks.kafka_world import REAL, Dying, KafkaWorld, check, forget_facts, open_transaction, set_config

pytestmark = pytest.mark.kafka


@pytest.fixture
def world(kafka_broker, tmp_path) -> KafkaWorld:
    return KafkaWorld(kafka_broker.bootstrap, str(tmp_path))


@pytest.fixture
def clients(monkeypatch):
    """Puts a function in the place of the one that makes producers."""

    def put(make):
        monkeypatch.setattr(client, "new_producer", make)

    yield put
    put(REAL)


def test_each_message_is_there_once(world):
    """Also when a batch is empty, when one comes again, and after a restart without new batches."""
    world.run(6, 9, 9, 14)
    check(world.seen(), 14)
    world.run(6, 9, 9, 14)
    world.checkpoint.committed -= 1
    world.run(6, 9, 9, 14, 20)
    check(world.seen(), 20)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_that_dies_at_a_call_of_the_client_loses_and_doubles_nothing(world, clients, after):
    """Two publishers. A driver dies at each call of a publishing in turn, and the next start goes on."""
    world.options["publishers"] = 2
    ends = [3]
    world.run(*ends)
    for at in itertools.count(1):
        ends.append(ends[-1] + 4)
        dying = Dying(at, after)
        clients(dying)
        with contextlib.suppress(InjectedCrash):
            world.run(*ends)
        clients(REAL)
        seen = list(itertools.chain(*world.seen(settled=False)))
        assert len(seen) == len(set(seen)), f"{at} calls: {seen}"
        if not dying.is_dead:
            break
        world.run(*ends)
        check(world.seen(), ends[-1])
    assert at > 10


def test_a_driver_that_sleeps_at_a_call_of_the_client_is_superseded(world, clients):
    """A successor does all the work meanwhile, and more. What the sleeper does when it wakes up changes nothing."""
    world.options["publishers"] = 2
    ends = [3]
    world.run(*ends)
    for at in itertools.count(1):
        ends.append(ends[-1] + 4)
        sleeper = replace(world.checkpoint, ends=list(world.checkpoint.ends))
        slept = []

        def meanwhile(at=at):
            slept.append(at)
            clients(REAL)
            ends.append(ends[-1] + 2)
            world.run(*ends)

        clients(Dying(at, act=meanwhile))
        with contextlib.suppress(StreamsinkError):  # one that is superseded may fail in any way
            world.run(*ends, checkpoint=sleeper)
        clients(REAL)
        if not slept:
            break
        check(world.seen(), ends[-1])
        world.run(*ends)
        check(world.seen(), ends[-1])
    assert at > 10


def test_the_number_of_publishers_changes_between_records(world, clients):
    """From 1 to 4 to 2, each change with a record pending; the order within keys stays."""
    ends = [10]
    world.run(*ends)
    for publishers, before in ((4, 1), (2, 4), (1, 2)):
        ends.append(ends[-1] + 20)
        clients(Dying(3, after=True))
        with pytest.raises(InjectedCrash):
            world.run(*ends, publishers=before)
        clients(REAL)
        ends.append(ends[-1] + 20)
        world.run(*ends, publishers=publishers)
        check(world.seen(), ends[-1])


def test_a_record_that_is_too_large_for_one_transaction_goes_into_several(world, clients):
    """Deaths after each of them: what is published is not published again."""
    world.options.update(max_transaction_bytes=1000, publishers=2)
    ends = [3]
    for at in itertools.count(4, 7):
        ends.append(ends[-1] + 40)
        dying = Dying(at, after=True)
        clients(dying)
        with contextlib.suppress(InjectedCrash):
            world.run(*ends)
        clients(REAL)
        world.run(*ends)
        check(world.seen(), ends[-1])
        if not dying.is_dead:
            break
    assert dying.log.count("commit_transaction") > 4


def test_the_open_transaction_of_another_hides_no_marker(world, clients):
    """It lies before the last marker. Whether that record is published is known when it ends, and not guessed before.

    Where nothing of the query is behind it, the query does not wait.
    """
    ends = [3]
    world.run(*ends)
    with open_transaction(world, world.markers):
        world.run(*ends)
        ends.append(6)
        clients(Dying(1, after=True, only="commit_transaction"))
        with pytest.raises(InjectedCrash):
            world.run(*ends)
        clients(REAL)
        waiting = threading.Thread(target=world.run, args=ends)
        waiting.start()
        waiting.join(2)
        assert waiting.is_alive()
    waiting.join()
    check(world.seen(), ends[-1])


@pytest.mark.parametrize("after", [False, True], ids=["not-done", "done"])
def test_an_outcome_that_is_not_known_is_looked_up(world, clients, after):
    """Each call in turn reports an error, and is done or not. The query goes on without a restart."""
    world.options["publishers"] = 2
    ends = [3]
    world.run(*ends)
    for at in itertools.count(1):
        ends.append(ends[-1] + 4)
        failed = []

        def report(at=at):
            failed.append(at)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        clients(Dying(at, after, act=report))
        world.run(*ends)
        clients(REAL)
        check(world.seen(), ends[-1])
        if not failed:
            break
    assert at > 10


# -- what a start refuses ----------------------------------------------------------------------------------------------


def _refused(world, kind: str, *ends: int, **changes) -> str:
    """The query ends with an error of this kind, and nothing is published. Returns the message."""
    before = world.seen()
    with pytest.raises(StreamsinkError) as told:
        world.run(*ends, **changes)
    assert told.value.kind == kind, told.value
    assert world.seen() == before
    return str(told.value)


def test_a_deleted_memory_is_noticed(world, clients):
    """A record is published, and its driver dies before it notes that. Then the topic of the markers is created again,
    or what was in it is deleted: nothing is published again."""
    world.run(3)
    clients(Dying(1, after=True, only="commit_transaction"))
    with pytest.raises(InjectedCrash):
        world.run(3, 6)
    clients(REAL)
    set_config(world.bootstrap, world.markers, "cleanup.policy", "delete")
    delete_before(world.bootstrap, world.markers, {0: 4})
    _refused(world, "kafka.marker-topic", 3, 6)
    set_config(world.bootstrap, world.markers, "cleanup.policy", "compact")
    _refused(world, "kafka.markers-deleted", 3, 6)
    recreate(world.bootstrap, world.markers, 1)
    _refused(world, "kafka.marker-topic", 3, 6)
    set_config(world.bootstrap, world.markers, "cleanup.policy", "compact")
    _refused(world, "table.recreated", 3, 6)


def test_a_topic_that_is_created_again_is_another_destination(world):
    """Its name alone proves nothing."""
    world.run(3)
    recreate(world.bootstrap, world.topic, 2)
    _refused(world, "table.recreated", 3, 6)


def test_two_queries_of_one_name_do_not_share_transactions(world, tmp_path):
    """The second one has another destination and another journal, and is told to take a name of its own."""
    world.run(3)
    other = KafkaWorld(world.bootstrap, str(tmp_path / "other"))
    other.application, other.markers = world.application, world.markers
    assert "application='...'" in _refused(other, "kafka.name-taken", 3)


def test_what_the_brokers_would_refuse_is_refused_before_the_record(world):
    """Topics, partitions, sizes and timeouts; a batch can be written again when that is mended."""
    ask = {"topic": None}
    _refused(world, "kafka.no-topic", 3, topic="not-there")
    _refused(world, "kafka.transaction-timeout", 3, kafka_options={"transaction.timeout.ms": 10_000_000})
    _refused(world, "kafka.columns", 3, **ask)
    set_config(world.bootstrap, world.topic, "max.message.bytes", "300")
    large = pa.RecordBatch.from_pydict({"key": ["k"], "value": ["x" * 200]})
    with pytest.raises(Misuse, match="takes 300"):
        world.sink().checked(large)
    for column, value, kind in (
        ("topic", "not-there", "kafka.no-topic"),
        ("topic", None, "kafka.no-topic"),
        ("partition", 2, "kafka.no-partition"),
        ("partition", -1, "kafka.no-partition"),
    ):
        given = {"value": ["0"], "topic": [world.topic], "partition": [0]} | {column: [value]}
        types = {"value": pa.string(), "topic": pa.string(), "partition": pa.int32()}
        with pytest.raises(Misuse) as told:
            world.sink(**ask).checked(pa.RecordBatch.from_pydict(given, schema=pa.schema(list(types.items()))))
        assert told.value.kind == kind


def test_small_batches_fit_into_a_topic_that_takes_no_large_ones(world):
    """The client would send them together in a batch that is too large."""
    world.run(3)
    set_config(world.bootstrap, world.topic, "max.message.bytes", "2000")
    forget_facts()
    world.run(3, 1003)
    check(world.seen(), 1003)


@pytest.mark.parametrize(
    "options",
    [
        {"semantic": "twice"},
        {"publishers": 0},
        {"max_transaction_bytes": 0},
        {"kafka_options": {"acks": "1"}},
        {"kafka_options": {"enable.idempotence": False}},
        {"kafka_options": {"transactional.id": "x"}},
        {"kafka_options": {"delivery.timeout.ms": 60_000, "transaction.timeout.ms": 60_000}},
    ],
)
def test_options_that_would_break_a_promise_are_refused(options):
    with pytest.raises(Misuse):
        KafkaSink("localhost:9", topic="t", journal="/j", **options)


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
def test_columns_that_are_no_messages_are_refused(columns, found):
    with pytest.raises(Misuse, match=found):
        KafkaSink("localhost:9", topic="t").check_columns(pa.schema(list(columns.items())), {})


# -- less than exactly once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantic", ["at-least-once", "none"])
def test_the_other_semantics_write_all_messages_where_nothing_fails(world, semantic):
    """They need no topic for markers. A batch that comes again is known by the journal."""
    world.options["semantic"] = semantic
    world.run(6, 9, 9)
    world.checkpoint.committed -= 1
    world.run(6, 9, 9, 14)
    check(world.seen(), 14)


def test_at_least_once_means_that_no_message_is_lost(world, clients):
    """A driver dies when some messages are sent; all of them come, and some twice."""
    world.options["semantic"] = "at-least-once"
    clients(Dying(2, after=True, only="produce"))
    with pytest.raises(InjectedCrash):
        world.run(6)
    clients(REAL)
    world.run(6)
    assert set(itertools.chain(*world.seen())) == set(range(6))
