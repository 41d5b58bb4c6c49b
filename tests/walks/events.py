"""The kinds of events, with how often each comes and what it does to a world.

Arguments are small numbers, read modulo what there is. So an event means something in every world, or nothing, and a
walk stays a walk when events are taken out of it. ``NOT_YET`` switches kinds off, each with the hole that they would
only find again.
"""

from collections.abc import Callable
from dataclasses import dataclass

from streamsink.faults import STEPS
from streamsink.testing.crashing import Mode
from tests.walks.machine import Fault
from tests.walks.queries import Query
from tests.walks.world import JOBS, World

NOT_YET: dict[str, str] = {}

KINDS: dict[str, "Kind"] = {}
_STEPS = [step for step in STEPS if not step.startswith(("tables.", "spark.", "fan-out.", "iceberg."))]
# Steps at which a driver is paused while others change what it builds on.
_PAUSES = [step for step in _STEPS if step.startswith(("restore.", "precommit.", "group.", "commit.", "letters."))]
MODES = [Mode.BEFORE, Mode.TORN, Mode.ERROR, Mode.REPLY_LOST, Mode.REPEATED]
MOST_CALLS = 170
# Up to so many calls after a step a driver may be paused.
_NEAR = 6


@dataclass(frozen=True)
class Kind:
    """weight: how often it comes. size: how many arguments it has. does: called with the walk and the arguments."""

    name: str
    weight: int
    size: int
    does: Callable


def event(weight: int, size: int = 1):
    """Register a kind of event."""

    def register(does: Callable) -> Callable:
        KINDS[does.__name__] = Kind(does.__name__, weight, size, does)
        return does

    return register


def query_of(world: World, number: int) -> Query:
    """One of the streams, the first one most often."""
    names = [name for name in world.queries if name != JOBS]
    return world.queries[names[0 if number % 10 < 7 else -1]]


def any_of(world: World, number: int) -> Query:
    """One of the streams, or the application that bounded runs write as, where there is one."""
    return world.queries[JOBS] if number % 5 == 4 and JOBS in world.queries else query_of(world, number)


# -- what is meant to happen -----------------------------------------------------------------------------------------


@event(10, 3)
def produce(walk, which, count, where):
    """A source gets rows."""
    query = query_of(walk.world, which)
    rows = walk.world.new_rows(1 + count % 5)
    query.source.produce(rows, where)
    walk.world.model.produced(rows)


@event(20, 2)
def batch(walk, which, most):
    """A micro-batch is written, of rows that are there."""
    walk.world.batch(query_of(walk.world, which), 1 + most % 4)


@event(4)
def stop(walk, which):
    """The query is stopped in order."""
    walk.world.stop(query_of(walk.world, which))


@event(8, 2)
def heal(walk, which, choice):
    """The operator does what the last error of the query said."""
    walk.operator.heal(query_of(walk.world, which), choice)


# -- deaths, pauses and errors of the store --------------------------------------------------------------------------


@event(6, 4)
def crash(walk, which, most, step, occurrence):
    """The driver dies at a step of a batch."""
    fault = Fault(step=_STEPS[step % len(_STEPS)], occurrence=1 + occurrence % 2)
    walk.world.batch(query_of(walk.world, which), 1 + most % 4, fault)


@event(6, 4)
def call(walk, which, most, number, mode):
    """Something happens at an I/O call of a batch:
    a death, a torn write, an error, a lost reply, or a call that the store's client repeats."""
    fault = Fault(call=1 + number % MOST_CALLS, mode=MODES[mode % len(MODES)])
    walk.world.batch(query_of(walk.world, which), 1 + most % 4, fault)


@event(4, 3)
def pause(walk, which, most, number):
    """The driver stands still at an I/O call of a batch, until ``wake``."""
    query = query_of(walk.world, which)
    if walk.depth < 2:
        fault = Fault(call=1 + number % MOST_CALLS, meanwhile=lambda: walk.meanwhile(query))
        walk.world.batch(query, 1 + most % 4, fault)


@event(4, 4)
def pause_at(walk, which, most, step, calls):
    """The driver stands still at one of the I/O calls that follow a step of a batch, until ``wake``."""
    query = query_of(walk.world, which)
    if walk.depth < 2:
        fault = Fault(
            step=_PAUSES[step % len(_PAUSES)], call=1 + calls % _NEAR, meanwhile=lambda: walk.meanwhile(query)
        )
        walk.world.batch(query, 1 + most % 4, fault)


@event(4, 0)
def wake(walk):
    """The driver that was paused last goes on."""


@event(3)
def kill(walk, which):
    """The driver dies between two batches."""
    walk.world.kill(query_of(walk.world, which))


@event(1, 0)
def power(walk):
    """The machine loses its power."""
    walk.world.power()


@event(1, 2)
def twice(walk, which, most):
    """From now on the user's function calls the sink twice in each batch, until an error tells him."""
    query = query_of(walk.world, which)
    if query.causes.asleep:
        return  # A driver with the function from before would take the first call's rows for the whole batch.
    query.halves, query.at_once = True, 0
    walk.world.accident("twice-ever", query=query)
    walk.world.batch(query, 2 + most % 4)


@event(1, 3)
def at_once(walk, which, most, number):
    """The function calls the sink twice as well, but from two threads:
    the second one's call comes at an I/O call of the first one's."""
    query = query_of(walk.world, which)
    if query.causes.asleep:
        return
    query.halves, query.at_once = True, 1 + number % MOST_CALLS
    walk.world.accident("twice-ever", query=query)
    walk.world.batch(query, 2 + most % 4)
