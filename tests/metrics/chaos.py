"""Accidents for the metrics: queries without Spark, over stores in memory, whose events are real.

An accident is a generator: it starts a query and yields, so that its counters are scraped with 0, and then goes wrong.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

from streamsink import events, faults
from streamsink.clock import Clock
from streamsink.errors import Fenced, Retryable
from streamsink.spark.query.batch_call import told
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import arm
from tests.crash.letters_world import LettersWorld
from tests.crash.world import BOUNDARIES, memory_world
from tests.protocol.history import other_application
from tests.protocol.query import Query
from tests.sinks.test_fan_out_lagging import Lagging
from tests.table.foreign import Prepared

LOOK_S = 0.05
WAIT_S = 60
OLD_MS = 7_200_000  # of the watermark
BEHIND = 5_000_000  # messages
# Fault points are armed for the whole process: what is armed for one query must not be passed by another one.
STEPS = threading.RLock()


class Heard(list):
    """The events of a driver, told at once; as those of another table where it is named."""

    def __init__(self, listener: events.Listener, table: str = ""):
        super().__init__()
        self._listener, self._table = listener, table

    def append(self, event):
        super().append(event)
        self._listener(replace(event, table=self._table) if self._table else event)


class Watched(Query):
    """A query whose batches have what Spark says of time, and the outer edge of a real batch function."""

    def __init__(self, world, background="steps", sink=None, ends=None):
        if sink is None:
            super().__init__(world, background)
        else:
            self.world, self.sink = world, sink
        self.ends = list(ends or []) if sink is None else ends

    def again(self, batch_id):
        of = (self.world.driver.root, self.world.driver.options.application)
        with told(of, batch_id, self.world.driver.events.append):
            super().again(batch_id)

    def _described(self, batch_id):
        now_ms = Clock().now_ms()
        return replace(super()._described(batch_id), planned_ms=now_ms - 200, watermark_ms=now_ms - OLD_MS)


def heard_world(listener: events.Listener, table: str, **settings):
    """A world in memory, whose events are told as those of this table."""
    world = memory_world(**settings)
    world.driver.events = Heard(listener, table)
    return world


class Steady(threading.Thread):
    """A query that goes well, and reads from a topic that has far more."""

    def __init__(self, listener: events.Listener):
        super().__init__(daemon=True)
        self._world = heard_world(listener, "lake/steady")
        self._world.driver.newest = BEHIND
        self._ending = threading.Event()

    def run(self):
        with STEPS:
            query = Watched(self._world)
        end = 0
        while not self._ending.wait(LOOK_S):
            end += 5
            with STEPS:
                query.batch(end)

    def stop(self):
        self._ending.set()
        self.join(WAIT_S)


def stuck(listener) -> Iterator[None]:
    """Publishing fails, and what is recorded gets older."""
    query = Watched(heard_world(listener, "lake/stuck", publish="async"), background=None)
    query.batch(3)
    yield
    # the snapshot is not named from here on, as of a store that answers no more
    query.sink.protocol.queue._committer.publish = _fails
    query.batch(6)
    _until(lambda: query.sink.protocol.queue.failed)
    with contextlib.suppress(Retryable):
        query.batch(9)


def _fails(*_, **__):
    raise Retryable("the store does not answer", kind="storage.unreachable")


def fenced(listener) -> Iterator[None]:
    """A newer driver goes on, and the older one notices."""
    world = heard_world(listener, "lake/fenced")
    older = Watched(world)
    older.batch(3)
    yield
    newer = Watched(world, ends=[3])
    newer.batch(6)
    with contextlib.suppress(Fenced):
        older.batch(6)


def replaced(listener) -> Iterator[None]:
    """Another writer's rename replaces a snapshot."""
    world = heard_world(listener, "lake/replaced")
    world.run(boundaries=BOUNDARIES[:1])
    yield
    prepared = Prepared(world)
    arm("commit.published", 1, prepared.rename)
    try:
        world.run()
    finally:
        faults.arm(None)


def lost_checkpoint(listener) -> Iterator[None]:
    """The checkpoint is deleted, and what was read is read again; a batch of the same checkpoint is skipped."""
    world = heard_world(listener, "lake/lost", position_columns=("topic", "partition", "offset"))
    world.run()
    yield
    world.checkpoint.committed -= 1
    world.run()
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000009")
    world.run(boundaries=(20,))


def letters(listener) -> Iterator[None]:
    """Rows do not fit."""
    world = LettersWorld()
    world.events = Heard(listener, "lake/letters")
    world.run(boundaries=(1,))
    yield
    world.run()


def contended(listener) -> Iterator[None]:
    """Another writer is faster, each time."""
    world = heard_world(listener, "lake/contended")
    query = Watched(world)
    query.batch(3)
    yield
    for number in range(3):
        arm("commit.before_publish", 1, lambda: other_application(world, f"other{number}"))
        try:
            query.batch(6 + number)
        finally:
            faults.arm(None)


def pressed(listener) -> Iterator[None]:
    """Publishing is slower than writing."""
    world = heard_world(listener, "lake/pressed", publish="async", publish_queue=1)
    query = Watched(world, background=None)
    committer = query.sink.protocol.queue._committer
    publish = committer.publish

    def slow(*of, **given):
        time.sleep(0.3)
        return publish(*of, **given)

    committer.publish = slow
    query.batch(3)
    yield
    for number in range(15):
        query.batch(6 + number)
    query.sink.close()


def behind(listener) -> Iterator[None]:
    """A destination of a fan-out fails, and the others go on."""
    world = Lagging()
    world.events = Heard(listener)
    yield
    world.run()


def deaf(listener) -> Iterator[None]:
    """A listener fails."""
    is_failing = []

    def fails(event):
        if is_failing:
            raise OSError("no collector")

    query = Watched(heard_world(events.Listeners(fails, listener), "lake/deaf"))
    query.batch(3)
    yield
    is_failing.append(True)
    query.batch(6)


def not_followed(listener) -> Iterator[None]:
    """The Iceberg metadata of a table cannot be made any more."""
    options = {"metadata.iceberg.storage": "table-location"}
    query = Watched(heard_world(listener, "lake/iceberg", table_options=options))
    query.batch(3)
    yield
    following = query.sink.protocol.queue._committer._commit.iceberg
    following._mirror = following._table.known_schema.id, SimpleNamespace(follow=_fails)
    query.batch(6)


ACCIDENTS = (stuck, fenced, replaced, lost_checkpoint, letters, contended, pressed, behind, deaf, not_followed)
# Those whose counters are there before anything goes wrong.
TABLES = [f"lake/{name}" for name in "stuck fenced replaced lost letters contended pressed deaf iceberg".split()]


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds() and time.monotonic() < end:
        time.sleep(LOOK_S)
    if not holds():
        raise AssertionError("it has not come")
