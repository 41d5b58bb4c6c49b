"""What may happen around a call of deltalake: each row is there once all the same, and the query goes on."""

import contextlib
import itertools

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streamsink.errors import StreamsinkError
from streamsink.testing.faults import InjectedCrash
from tests.delta.world import DeltaOnDisk, LogOnDisk, World, rows

ENDS = (3, 5, 5, 9)
# Some of the calls are tried in the gate, and all in the soak.
EVERY = pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.soak)], ids=["some", "all"])
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


def test_others_that_commit_before_each_commit(tmp_path):
    """Between the look and the commit: the commit is refused, and made again behind what has come."""
    world = World(tmp_path)
    theirs = itertools.count(100)

    class Beside(LogOnDisk):
        tries = 0

        def commit(self, *given):
            Beside.tries += 1
            if Beside.tries % 3:
                number = next(theirs)
                write_deltalake(world.path, pa.Table.from_batches([rows(number, number + 1)]), mode="append")
            super().commit(*given)

    world.run(*ENDS, sink=DeltaOnDisk(world.path, disk=world.path, make=Beside))
    assert world.ids() == [*range(9), *range(100, next(theirs))]
    assert Beside.tries == 3 * len(ENDS)
    assert world.table().transaction_version("streamsink:streamsink") == len(ENDS)


def test_tries_that_all_come_too_late_are_an_error(tmp_path):
    """Nothing is lost: the next start commits the record."""
    world = World(tmp_path)

    class Beside(LogOnDisk):
        def commit(self, *given):
            write_deltalake(world.path, pa.Table.from_batches([rows(100, 101)]), mode="append")
            super().commit(*given)

    sink = DeltaOnDisk(world.path, disk=world.path, make=Beside)
    with pytest.raises((StreamsinkError, AssertionError)):
        world.run(3, sink=sink, commit_max_retries=1)
    world.run(3)
    assert [number for number in world.ids() if number < 100] == [0, 1, 2]


def _numbers(tmp_path):
    counting = Accident(0, True, die)
    world = World(tmp_path / "counted")
    run(world, counting)
    assert set(counting.calls) == set(CALLS)
    return counting.count


@pytest.mark.in_turn("calls of a Delta table", 1)
@EVERY
@pytest.mark.parametrize("happens", [die, fail], ids=["dies", "fails"])
def test_a_driver_that_dies_or_fails_at_any_call(tmp_path, happens, every):
    """Before the call, or when it is done and its reply is lost."""
    for number, before in itertools.product(range(1, _numbers(tmp_path) + 1, every), (True, False)):
        world = World(tmp_path / f"{number}-{before}")
        with contextlib.suppress(InjectedCrash, OSError, StreamsinkError):
            run(world, Accident(number, before, happens))
        world.run(*ENDS)
        assert world.ids() == list(range(9)), f"call {number}, before: {before}"
        assert world.unnamed() == set(), f"call {number}, before: {before}"


@EVERY
def test_a_driver_that_sleeps_at_any_call_while_its_successor_does_all(tmp_path, every):
    """What it does when it wakes up changes nothing. The successor has another run of the same query."""
    for number in range(1, _numbers(tmp_path) + 1, every):
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
