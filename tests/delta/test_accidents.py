"""What may happen around a call of deltalake: each row is there once all the same, and the query goes on."""

import contextlib
import itertools

import pytest

from streamsink.errors import StreamsinkError
from streamsink.testing.faults import InjectedCrash
from tests.delta.world import DeltaOnDisk, LogOnDisk, World

ENDS = (3, 5, 5, 9)
CALLS = ("is_there", "create", "newest", "entry", "commit", "flush")


class Accident:
    """What happens at one call, counted from 1 over all logs of a run."""

    def __init__(self, at: int, before: bool, happens):
        self.at, self.before, self.happens, self.count = at, before, happens, 0
        self.calls = []

    def __call__(self, name, call):
        self.count += 1
        self.calls.append(name)
        if self.count != self.at:
            return call()
        if self.before:
            self.happens()
            return call()
        result = call()
        self.happens()
        return result


def hostile(accident):
    """A log at whose calls the accident may happen."""

    def wrap(name):
        def method(self, *args, **named):
            own = getattr(LogOnDisk, name)
            return accident(name, lambda: own(self, *args, **named))

        return method

    return type("Hostile", (LogOnDisk,), {name: wrap(name) for name in CALLS})


def run(world, accident, **options):
    sink = DeltaOnDisk(world.path, disk=world.path, make=hostile(accident))
    world.run(*ENDS, sink=sink, **options)


def die():
    raise InjectedCrash("here")


def fail():
    raise OSError(5, "the store fails")


def _numbers(tmp_path):
    counting = Accident(0, True, die)
    world = World(tmp_path / "counted")
    run(world, counting)
    assert set(counting.calls) == set(CALLS)
    return counting.count


@pytest.mark.parametrize("happens", [die, fail], ids=["dies", "fails"])
def test_a_driver_that_dies_or_fails_at_any_call(tmp_path, happens):
    """Before the call, or when it is done and its reply is lost."""
    for number, before in itertools.product(range(1, _numbers(tmp_path) + 1, 2), (True, False)):
        world = World(tmp_path / f"{number}-{before}")
        with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
            run(world, Accident(number, before, happens))
        world.run(*ENDS)
        assert world.ids() == list(range(9)), f"call {number}, before: {before}"
        assert world.unnamed() == set(), f"call {number}, before: {before}"


def test_a_driver_that_sleeps_at_any_call_while_its_successor_does_all(tmp_path):
    """What it does when it wakes up changes nothing. The successor has another run of the same query."""
    for number in range(1, _numbers(tmp_path) + 1, 2):
        world = World(tmp_path / str(number))
        own = World(tmp_path / str(number)).checkpoint

        def meanwhile(world=world):
            with contextlib.suppress(StreamsinkError):
                world.run(*ENDS)

        sink = DeltaOnDisk(world.path, disk=world.path, make=hostile(Accident(number, True, meanwhile)))
        with contextlib.suppress(OSError, StreamsinkError):
            world.run(*ENDS, sink=sink, checkpoint=own)
        world.run(*ENDS)
        assert world.ids() == list(range(9)), f"call {number}"
        assert world.unnamed() == set(), f"call {number}"
