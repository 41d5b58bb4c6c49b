"""The Kafka sink on a real broker: each message once, and in order within its key."""

import contextlib
import itertools
import threading
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamsink.errors import StreamsinkError
from streamsink.sinks.kafka.markers import Markers
from streamsink.testing.faults import InjectedCrash
from tests.services.kafka import KafkaBroker
from tests.sinks.kafka_world import Dying, KafkaWorld, check, forget_facts, open_transaction, set_config

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("publish", ["sync", "async"])
def test_each_message_is_there_once(world, publish):
    """Also when a batch is empty, when one comes again, and after a restart without new batches."""
    world.settings["publish"] = publish
    world.run(6, 9, 9, 14)
    check(world.seen(), 14)
    world.run(6, 9, 9, 14)
    world.checkpoint.committed -= 1
    world.run(6, 9, 9, 14, 20)
    check(world.seen(), 20)


def test_a_query_that_has_lost_its_journal_goes_on_from_the_markers(world):
    """They know what is published, and the batch that follows."""
    world.run(6, 9)
    world.folder += "/other"
    world.run(6, 9, 14)
    check(world.seen(), 14)


@pytest.mark.in_turn("deaths around a publishing into Kafka", 1)
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
        clients(None)
        seen = list(itertools.chain(*world.seen(settled=False)))
        assert len(seen) == len(set(seen)), f"{at} calls: {seen}"
        if not dying.is_dead:
            break
        world.run(*ends)
        check(world.seen(), ends[-1])
    assert at > 10


@pytest.mark.in_turn("deaths around a publishing into Kafka", 1)
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
            clients(None)
            ends.append(ends[-1] + 2)
            world.run(*ends)

        clients(Dying(at, act=meanwhile))
        with contextlib.suppress(StreamsinkError):  # one that is superseded may fail in any way
            world.run(*ends, checkpoint=sleeper)
        clients(None)
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
        clients(None)
        ends.append(ends[-1] + 20)
        world.run(*ends, publishers=publishers)
        check(world.seen(), ends[-1])


@pytest.mark.in_turn("deaths around a publishing into Kafka", 1)
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
        clients(None)
        world.run(*ends)
        check(world.seen(), ends[-1])
        if not dying.is_dead:
            break
    assert dying.log.count("commit_transaction") > 4


def test_a_part_that_is_published_stays_when_the_rest_fits_into_one_transaction(world, clients):
    """A driver dies behind the first part, and the next start may make larger transactions."""
    world.run(3)
    clients(Dying(1, after=True, only="commit_transaction"))
    with pytest.raises(InjectedCrash):
        world.run(3, 43, max_transaction_bytes=1000)
    clients(None)
    assert 0 < len(list(itertools.chain(*world.seen(settled=False)))) - 3 < 40
    world.run(3, 43)
    check(world.seen(), 43)


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
        clients(None)
        waiting = threading.Thread(target=world.run, args=ends)
        waiting.start()
        waiting.join(2)
        assert waiting.is_alive()
    waiting.join()
    check(world.seen(), ends[-1])


@pytest.mark.in_turn("deaths around a publishing into Kafka", 1)
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
        clients(None)
        check(world.seen(), ends[-1])
        if not failed:
            break
    assert at > 10


@pytest.mark.parametrize("after", [False, True], ids=["not-done", "done"])
def test_the_marker_of_the_record_before_does_not_stand_for_an_outcome_that_is_not_known(world, clients, after):
    """The driver has committed that one itself, and need not read it again. Now it must read."""
    failed = []

    def report():
        failed.append(1)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    clients(Dying(2, after, act=report, only="commit_transaction"))
    world.run(3, 7, 12)
    assert failed == [1]
    check(world.seen(), 12)


def test_a_driver_reads_no_marker_that_it_has_written_itself(world, monkeypatch):
    """Reading one takes longer than publishing a small record: only the first look reads."""
    assigned = []
    real = Markers._polls

    def counted(*args):
        assigned.append(args)
        return real(*args)

    monkeypatch.setattr(Markers, "_polls", counted)
    world.run(3)
    assigned.clear()
    world.run(3, 6, 9, 12, 15, 18)
    check(world.seen(), 18)
    assert len(assigned) <= 2


def test_small_batches_fit_into_a_topic_that_takes_no_large_ones(world):
    """The client would send them together in a batch that is too large."""
    world.run(3)
    set_config(world.bootstrap, world.topic, "max.message.bytes", "2000")
    forget_facts()
    world.run(3, 1003)
    check(world.seen(), 1003)


@pytest.mark.in_turn("deaths around a publishing into Kafka", 1)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_broker_that_is_killed_at_a_commit_and_starts_again(tmp_path, clients, after):
    """With SIGKILL, as a machine loses its power. The driver waits for it, and finds out the outcome of the commit."""
    with KafkaBroker(tmp_path / "broker") as broker:
        world = KafkaWorld(broker.bootstrap, str(tmp_path), options={"publishers": 2})
        world.run(6)
        starting = threading.Thread(target=broker.start)

        def kill():
            broker.kill()
            starting.start()

        clients(Dying(2, after, act=kill, only="commit_transaction"))
        world.run(6, 12)
        starting.join()
        world.run(6, 12, 15)
        check(world.seen(), 15)


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
    clients(None)
    world.run(6)
    assert set(itertools.chain(*world.seen())) == set(range(6))
