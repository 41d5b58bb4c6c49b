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
_STRIDES = [SOME, pytest.param(1, marks=pytest.mark.soak)]


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


def _at_each_request(happens, stride, rng):
    """Yield (n, the world, whether there was an n-th request), for each so-manieth n until there is none.

    happens: given n, restarts and lets something happen at the n-th request; returns the world and whether it came to
    that.
    """
    n, is_there = rng.randrange(stride) + 1, True
    while is_there:
        world, is_there = happens(n)
        yield n, world, is_there
        n += stride
    assert n > 100


def _dies(pending, n, mode, seed, **options):
    """The restart, which dies at call n. Requests that are made at once reach the store in an order of the seed."""
    world = _restarting(pending, **options)
    calls = CrashingCalls(world.calls, n, mode)
    calls.order = lambda actions: sorted(actions, key=lambda action: hash((seed, id(action))))
    try:
        world.run(calls, boundaries=BATCHES)
    except (InjectedCrash, StreamsinkError, OSError):
        world.die()
    return world, calls.count >= n


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
@pytest.mark.parametrize("stride", _STRIDES)
def test_death_at_any_request(pending, published_as, stride, rng):
    """Requests that are made at once reach the store in any order."""
    for mode in Mode:

        def dies(n, mode=mode):
            return _dies(pending, n, mode, rng.random(), publish_as=published_as)

        for n, world, is_there in _at_each_request(dies, stride, rng):
            if is_there:
                ends_right(world, f"{mode.value} at call {n}, {published_as}", BATCHES)


@pytest.mark.parametrize("published_as", PUBLISHED_AS)
@pytest.mark.parametrize("stride", _STRIDES)
def test_a_second_driver_at_any_request(pending, published_as, stride, rng):
    """It publishes what it finds pending, and the first one goes on behind it, as if it had slept."""

    def rival(world):
        other = _world(world.calls)
        other.checkpoint = copy.deepcopy(pending.checkpoint)
        other.run(boundaries=BATCHES)

    def with_rival(n):
        return _interrupted(pending, n, rival, publish_as=published_as)

    for n, world, _ in _at_each_request(with_rival, stride, rng):
        ends_right(world, f"a rival at call {n}, {published_as}", BATCHES)


@pytest.mark.parametrize("stride", _STRIDES)
def test_another_application_at_any_request(pending, stride, rng):
    """Its snapshot comes between two of ours, whose lists were written before."""

    def other_writes(world):
        other = _world(world.calls, application="other")
        other.driver.first_file = 100
        other.run(boundaries=(103,))

    for n, world, is_there in _at_each_request(lambda n: _interrupted(pending, n, other_writes), stride, rng):
        world.run(boundaries=BATCHES)
        others = [100, 101, 102] if is_there else []
        assert world.ids() == [*expected(BATCHES), *others], f"another application at call {n}"
        assert world.unknown_files() == []


@pytest.mark.parametrize("stride", _STRIDES)
def test_a_table_that_goes_back_at_any_request(pending, stride, rng):
    """To the snapshot that was there before the restart: what was published since is published again."""

    def roll_back(world):
        for path in list(world.calls._objects):
            if path.startswith(f"{ROOT}/snapshot/snapshot-") and not path.endswith("-1"):
                world.calls.unlink(path)
        world.calls.put(f"{ROOT}/snapshot/LATEST", b"1")

    def goes_back(n):
        return _interrupted(pending, n, roll_back, on_rollback="republish")

    for n, world, _ in _at_each_request(goes_back, stride, rng):
        world.run(boundaries=BATCHES)
        assert world.ids() == expected(BATCHES), f"a rollback at call {n}"


def test_the_records_are_more_than_are_prepared_at_once(pending):
    """Else these tests would not see what is between two lots."""
    assert len(BATCHES) - 1 > restoring._AHEAD > history._MARKED_AT_ONCE
    world = _restarting(pending)
    world.run(boundaries=BATCHES)
    assert world.ids() == expected(BATCHES) and world.unknown_files() == []
