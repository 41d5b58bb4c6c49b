"""The events of a batch: one for each step, in order, with what it took; and nobody who listens can end a batch."""

import asyncio
import logging
import threading
from dataclasses import fields
from queue import SimpleQueue

import pytest

import streamsink
from streamsink import events
from streamsink.errors import Misuse, Retryable
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.following import follows, told
from tests.crash.world import memory_world
from tests.protocol.query import QUERY, WAIT_S, Query

STEPS = ["BatchAdmitted", "CheckpointBegun", "BatchWritten", "CheckpointRecorded", "CheckpointPublished"]


def names(heard):
    return [type(event).__name__ for event in heard]


def kinds(of=events.Event):
    return [of, *(each for kind in of.__subclasses__() for each in kinds(kind))]


def test_each_step_of_a_batch_is_told_with_what_it_took():
    """Admit, begin, write, record, publish: in this order, with milliseconds that are not negative; and a start says
    what it took."""
    world = memory_world()
    world.run()
    heard = world.driver.events
    assert names(heard)[:7] == ["Claimed", "Restored", *STEPS]
    of_batch_3 = [event for event in heard if getattr(event, "checkpoint_id", None) == 3]
    assert names(of_batch_3) == STEPS
    for event in heard:
        assert not event.took or getattr(event, event.took) >= 0, event
    steps = [event for event in of_batch_3 if event.took]
    published = steps[-1]
    assert published.publish_ms <= published.commit_ms and published.bytes > 0
    written, recorded = (
        next(e for e in steps if isinstance(e, k)) for k in (events.BatchWritten, events.CheckpointRecorded)
    )
    assert written.bytes == published.bytes and recorded.sequence == 4
    (admitted,) = (event for event in of_batch_3 if isinstance(event, events.BatchAdmitted))
    assert (admitted.verdict, admitted.query) == ("new", QUERY)
    assert [list(source.ends()) for source in admitted.sources] == [[("t", "0", 14)]]


def test_what_a_batch_leaves_out_is_counted():
    """A batch of a lost checkpoint overlaps what is published: the event says by how many offsets."""
    world = memory_world(position_columns=("topic", "partition", "offset"))
    world.run()
    world.driver.events.clear()
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000009")
    world.run(boundaries=(20,))
    (filtered,) = (event for event in world.driver.events if isinstance(event, events.BatchFiltered))
    assert (filtered.offsets, filtered.files) == (14, 0)
    assert world.ids() == list(range(20))


def test_a_publishing_that_fails_is_told_once():
    """With the kind of the error, and how much is pending: also where a thread publishes and no batch comes."""
    world = memory_world(publish="async")
    query = Query(world)

    def fail(*_, **__):
        raise Retryable("the store does not answer", kind="store.unreachable")

    query.sink.protocol.queue._committer.publish = fail
    query.batch(5)
    with pytest.raises(Retryable):
        query.sink.close()
    (failed,) = (event for event in world.driver.events if isinstance(event, events.PublishingFailed))
    assert (failed.error, failed.kind, failed.pending) == ("Retryable", "store.unreachable", 1)


def test_listeners_never_raise_and_say_so_once(caplog):
    """The others are told all the same. What the failing one fails with is logged once, and counted."""
    heard = []

    def fails(event):
        raise ValueError("no collector")

    both = events.Listeners(fails, events.Listeners(heard.append))
    with caplog.at_level(logging.WARNING, "streamsink"):
        for epoch in range(3):
            both(events.Claimed("lake/t", "a", epoch))
    assert [event.epoch for event in heard if isinstance(event, events.Claimed)] == [0, 1, 2]
    failures = [event for event in heard if isinstance(event, events.ListenerFailed)]
    assert [(event.at, event.error) for event in failures] == [("Claimed", "ValueError")] * 3
    (line,) = caplog.records
    assert "no collector" in line.getMessage() and "Claimed" in line.getMessage()


class Wordless(Exception):
    """As py4j's errors are when the JVM is gone."""

    def __str__(self):
        raise RuntimeError("the gateway is gone")


class Proxy:
    """A listener that is equal to nothing and has no attributes, and says so by raising."""

    def __call__(self, event):
        raise ValueError("no collector")

    def __eq__(self, other):
        raise RuntimeError("compared")

    __hash__ = None

    def __getattr__(self, name):
        raise RuntimeError(name)


def raising(error):
    def listener(event):
        raise error

    return listener


@pytest.mark.parametrize(
    "listener",
    [raising(Wordless()), raising(asyncio.CancelledError()), Proxy()],
    ids=["wordless", "cancelled", "proxy"],
)
def test_whatever_a_listener_fails_with_ends_no_batch(listener):
    """An error that has no words, one that is no Exception, a listener that cannot be compared or named."""
    heard = []
    all_of_them = events.Listeners(raising(ValueError("an earlier one")), listener, heard.append)
    for epoch in range(2):
        all_of_them(events.Claimed("lake/t", "a", epoch))
    assert names(heard) == ["ListenerFailed", "ListenerFailed", "Claimed"] * 2


def test_a_log_that_raises_ends_no_batch_either():
    """The log is a listener as well; that it fails cannot be logged, and the others hear of it."""

    class Down(logging.Handler):
        def emit(self, record):
            raise ConnectionError("the server of the log is down")

    handler, heard = Down(), []
    events.log.addHandler(handler)
    try:
        events.Listeners(events.to_log, heard.append)(events.SnapshotReplaced("lake/t", "a", 1, ()))
    finally:
        events.log.removeHandler(handler)
    assert names(heard) == ["ListenerFailed", "SnapshotReplaced"]


@pytest.mark.parametrize("death", [SystemExit(1), KeyboardInterrupt()], ids=str)
def test_the_end_of_the_program_is_no_error_of_a_listener(death):
    """Ctrl-C while a listener runs ends the program, as anywhere else."""
    with pytest.raises(type(death)):
        events.Listeners(raising(death))(events.Claimed("lake/t", "a", 1))


class Heard:
    """Takes the place of a driver's list of events."""

    def __init__(self, *listeners):
        self.append = events.Listeners(*listeners)


@follows("listener.calls-back")
def test_a_listener_that_calls_the_sink_does_not_wait_for_itself():
    """It is told within a publishing. What would publish gets an error, and the batch goes on; a thread of the
    listener's own may call it."""
    world, refused, queue = memory_world(), [], SimpleQueue()

    def publishes(event):
        if isinstance(event, events.CheckpointPublished):
            queue.put(event)
            try:
                query.sink.run.commit_up_to_checkpoint(event.checkpoint_id)
            except Misuse as failed:
                refused.append(failed)

    world.driver.events = Heard(publishes)
    query = Query(world)
    query.batch(5)
    query.sink.run.commit_up_to_checkpoint(0)
    assert told("listener.calls-back", lambda: raising(refused[0])(None)).find(r"queue\.(\w+)\.put") == "SimpleQueue"
    thread = threading.Thread(
        target=lambda: query.sink.run.commit_up_to_checkpoint(queue.get().checkpoint_id), daemon=True
    )
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    query.batch(9)
    query.sink.close()
    assert world.ids() == list(range(9))


@pytest.mark.spark
def test_a_listener_that_starts_a_query_stops_no_other(spark, tmp_path):
    """Within the start of a query nobody else starts; a listener that tries gets an error, and later ones go on."""
    path, other, refused = str(tmp_path / "orders"), str(tmp_path / "audit"), []

    def writes(event):
        if isinstance(event, events.Claimed):
            try:
                streamsink.write(spark.range(1), other, "r1", flush=False)
            except Misuse as failed:
                refused.append(failed.kind)

    assert streamsink.write(spark.range(5), path, "r1", listener=writes, flush=False) == 5
    assert refused == ["listener.calls-back"]
    assert streamsink.write(spark.range(1), other, "r1", flush=False) == 1


def test_a_line_of_the_log_has_each_field_but_the_long_ones(caplog):
    """One line for an event, key=value, without the sources of a batch; no line below the level of the logger."""
    event = events.BatchAdmitted("lake/t", "a", 7, "new", None, 0, "q", "r", 1.5, ("sources",))
    with caplog.at_level(logging.DEBUG, "streamsink"):
        events.to_log(event)
    (line,) = caplog.messages
    assert line == (
        "BatchAdmitted lake/t application=a checkpoint_id=7 verdict=new watermark_ms=None planned_ms=0 query=q run=r "
        "admit_ms=1.5"
    )
    caplog.clear()
    with caplog.at_level(logging.INFO, "streamsink"):
        events.to_log(event)
    assert caplog.records == []


def test_what_a_step_took_is_a_field_of_its_event():
    """``took`` names a field in milliseconds, which ``Steps`` fills."""
    for kind in kinds():
        assert not kind.took or kind.took.endswith("_ms")
        assert not kind.took or kind.took in {each.name for each in fields(kind)}, kind


@pytest.mark.spark
def test_a_listener_that_raises_ends_no_batch_and_the_call_is_told(spark, tmp_path, caplog):
    """From the record on the batch is in the table, whatever a listener does; the end of each call is told last."""
    path, heard = str(tmp_path / "lake" / "orders"), []

    def fails(event):
        heard.append(event)
        raise KeyError("rows")

    assert streamsink.write(spark.range(5), path, "r1", listener=fails, flush=False) == 5
    assert names(heard)[-3:] == ["CheckpointPublished", "BatchReturned", "RunEnded"] and heard[-2].batch_ms > 0
    with pytest.raises(Misuse) as refused:
        streamsink.write(spark.range(5).selectExpr("id AS other"), path, "r2", listener=fails, flush=False)
    failed = heard[-2]
    assert isinstance(failed, events.BatchFailed) and (failed.error, failed.kind) == ("Misuse", refused.value.kind)
    assert len(streamsink.read_arrow(path)) == 5
    assert sum("the listener" in line for line in caplog.messages) == 2  # one for each call of write
