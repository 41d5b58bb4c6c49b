"""A restart with several pending records on S3: it dies, a rival comes, or the table goes back, at any request;
each row is there once.

Lists of snapshots that follow each other are written at once there, answers count for more than one snapshot, and marks
come together.
"""

import copy

import pytest

from streamsink.clock import IdSource
from streamsink.errors import StreamsinkError
from streamsink.options import SinkOptions
from streamsink.sinks.paimon import history, restoring
from streamsink.storage.s3 import S3FileIO
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash
from tests.crash.world import World, ends_right, expected
from tests.storage.memory_s3 import MemoryS3Calls

ROOT = "s3://bucket/shop.db/orders"
BATCHES = (3, 5, 5, 8, 9, 11, 14)
PUBLISHED_AS = ["snapshot-per-checkpoint", "one-snapshot"]
# Of the requests each so-manieth is tried, other ones in each run of the suite.
SOME = 23


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch):
    """So that seven records are more than are prepared, and marked, at once."""
    monkeypatch.setattr(restoring, "_AHEAD", 3)
    monkeypatch.setattr(history, "_MARKED_AT_ONCE", 2)


def _world(calls=None, **options) -> World:
    return World(
        calls or MemoryS3Calls(),
        ROOT,
        make_io=lambda over: S3FileIO(over, IdSource().new_id, ROOT),
        small=True,
        **options,
    )


@pytest.fixture(scope="module")
def pending():
    """A world that has died with six records pending behind a published one."""
    world = _world()
    world.run(boundaries=BATCHES[:1])
    world.driver.options = SinkOptions.of(ROOT, vars(world.driver.options) | {"publish_every_batches": 20})
    calls = CrashingCalls(world.calls)
    sink = world.driver.start(world.file_io(calls), world.checkpoint)
    for number in range(1, len(BATCHES)):
        world.checkpoint.ends.append(BATCHES[number])
        sink.batch(world.driver.describe(world.checkpoint, number))
        world.checkpoint.committed = number + 1
    calls.dead = True
    assert world.ids() == expected(BATCHES[:1])
    return world


def _restarting(pending, **options) -> World:
    calls = MemoryS3Calls()
    calls._objects = dict(pending.calls._objects)
    world = _world(calls, **options)
    world.checkpoint = copy.deepcopy(pending.checkpoint)
    return world


@pytest.mark.parametrize("published_as", PUBLISHED_AS)
@pytest.mark.parametrize("stride", [SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_death_at_any_request(pending, published_as, stride, rng):
    """Requests that are made at once reach the store in any order."""
    tried = 0
    for mode in Mode:
        n = rng.randrange(stride) + 1
        while True:
            world, seed = _restarting(pending, publish_as=published_as), rng.random()
            calls = CrashingCalls(world.calls, n, mode)
            calls.order = lambda actions, seed=seed: sorted(actions, key=lambda action: hash((seed, id(action))))
            try:
                world.run(calls, boundaries=BATCHES)
            except (InjectedCrash, StreamsinkError, OSError):
                world.die()
            if calls.count < n:
                break
            ends_right(world, f"{mode.value} at call {n}, {published_as}", BATCHES)
            n, tried = n + stride, tried + 1
    assert tried * stride > 150


class _Interrupted(CrashingCalls):
    """Something happens between two calls; ``before_call`` is taken by what publishes beside the batches."""

    def __init__(self, inner, happens):
        super().__init__(inner)
        self._happens = happens

    def _do(self, name, action, torn=None):
        self._happens(self)
        return super()._do(name, action, torn)


def _interrupted(pending, n, action, **options):
    """The restart, and at call n this action; the world, and whether there was such a call."""
    world, done = _restarting(pending, **options), []

    def at_that_call(calls):
        if not done and calls.count + 1 >= n:
            done.append(True)
            action(world)

    calls = _Interrupted(world.calls, at_that_call)
    try:
        world.run(calls, boundaries=BATCHES)
    except StreamsinkError:
        world.die()  # fenced, or the table is another one than it was: the next start settles it
    return world, bool(done)


@pytest.mark.parametrize("published_as", PUBLISHED_AS)
@pytest.mark.parametrize("stride", [SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_a_second_driver_at_any_request(pending, published_as, stride, rng):
    """It publishes what it finds pending, and the first one goes on behind it, as if it had slept."""
    n, is_there = rng.randrange(stride) + 1, True
    while is_there:

        def rival(world):
            other = _world(world.calls)
            other.checkpoint = copy.deepcopy(pending.checkpoint)
            other.run(boundaries=BATCHES)

        world, is_there = _interrupted(pending, n, rival, publish_as=published_as)
        ends_right(world, f"a rival at call {n}, {published_as}", BATCHES)
        n += stride
    assert n > 100


@pytest.mark.parametrize("stride", [SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_another_application_at_any_request(pending, stride, rng):
    """Its snapshot comes between two of ours, whose lists were written before."""
    n, is_there = rng.randrange(stride) + 1, True
    while is_there:

        def other_writes(world):
            other = _world(world.calls, application="other")
            other.driver.first_file = 100
            other.run(boundaries=(103,))

        world, is_there = _interrupted(pending, n, other_writes)
        world.run(boundaries=BATCHES)
        others = [100, 101, 102] if is_there else []
        assert world.ids() == [*expected(BATCHES), *others], f"another application at call {n}"
        assert world.unknown_files() == []
        n += stride
    assert n > 100


@pytest.mark.parametrize("stride", [SOME, pytest.param(1, marks=pytest.mark.soak)])
def test_a_table_that_goes_back_at_any_request(pending, stride, rng):
    """To the snapshot that was there before the restart: what was published since is published again."""
    n, is_there = rng.randrange(stride) + 1, True
    while is_there:

        def roll_back(world):
            for path in list(world.calls._objects):
                if path.startswith(f"{ROOT}/snapshot/snapshot-") and not path.endswith("-1"):
                    world.calls.unlink(path)
            world.calls.put(f"{ROOT}/snapshot/LATEST", b"1")

        world, is_there = _interrupted(pending, n, roll_back, on_rollback="republish")
        world.run(boundaries=BATCHES)
        assert world.ids() == expected(BATCHES), f"a rollback at call {n}"
        n += stride
    assert n > 100


def test_the_records_are_more_than_are_prepared_at_once(pending):
    """Else these tests would not see what is between two lots."""
    assert len(BATCHES) - 1 > restoring._AHEAD > history._MARKED_AT_ONCE
    world = _restarting(pending)
    world.run(boundaries=BATCHES)
    assert world.ids() == expected(BATCHES) and world.unknown_files() == []
