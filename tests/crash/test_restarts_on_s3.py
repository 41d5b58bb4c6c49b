"""A restart with several pending records on S3: it dies, a rival comes, or the table goes back, at any request;
each row is there once.

Lists of snapshots that follow each other are written at once there, answers count for more than one snapshot, and marks
come together.
"""

import copy
import json

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Fenced, StreamsinkError
from streamsink.events import SnapshotReplaced
from streamsink.options import SinkOptions
from streamsink.sinks.paimon import history, restoring
from streamsink.storage.s3 import S3FileIO
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm
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

    calls, seed = _Interrupted(world.calls, at_that_call), n
    calls.order = lambda actions: sorted(actions, key=lambda action: hash((seed, id(action))))
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
        _roll_back_to_the_first(world.calls)

    def goes_back(n):
        return _interrupted(pending, n, roll_back, on_rollback="republish")

    for n, world, _ in _at_each_request(goes_back, stride, rng):
        world.run(boundaries=BATCHES)
        assert world.ids() == expected(BATCHES), f"a rollback at call {n}"


def _roll_back_to_the_first(calls) -> int:
    """Returns the number that the newest snapshot had."""
    names = [path for path in calls._objects if path.startswith(f"{ROOT}/snapshot/snapshot-")]
    for path in names:
        if not path.endswith("-1"):
            calls.unlink(path)
    calls.put(f"{ROOT}/snapshot/LATEST", b"1")
    return max(int(path.rpartition("-")[2]) for path in names)


def _another_history(world, less: int) -> list[int]:
    """The table goes back, and another application fills the numbers, but for so many.

    Returns the ids that it writes.
    """
    count = _roll_back_to_the_first(world.calls) - 1 - less
    if count <= 0:
        return []
    other = _world(world.calls, application="other")
    other.driver.first_file = 100
    other.run(boundaries=tuple(range(101, 101 + count)))
    return list(range(100, 100 + count))


@pytest.mark.parametrize("less", [1, 0, -1])
@pytest.mark.parametrize("stride", _STRIDES)
def test_another_history_at_any_request(pending, stride, less, rng):
    """A snapshot of ours that comes after that is in another history, and so is one that is created while that is
    looked up. None of them proves another one, and what the other application wrote stays.
    """
    others: list[int] = []

    def another_history(world):
        others[:] = _another_history(world, less)

    def interrupted(n):
        others.clear()
        return _interrupted(pending, n, another_history, on_rollback="republish")

    for n, world, _ in _at_each_request(interrupted, stride, rng):
        world.run(boundaries=BATCHES)
        assert world.ids() == [*expected(BATCHES), *others], f"another history of {len(others)} at call {n}"


class _BeforeASnapshot(CrashingCalls):
    """Something happens before the creation of the snapshot with this number, which is the first of what may be asked
    at once, or the last.
    """

    def __init__(self, inner, number, is_first, happens):
        super().__init__(inner)
        self._name, self._happens = f"/snapshot-{number}", happens
        self.order = (lambda actions: actions) if is_first else (lambda actions: actions[::-1])

    def put_new(self, path, data, unique):
        if path.endswith(self._name) and self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return super().put_new(path, data, unique)


def _started(pending, number, is_first, happens):
    """A restart to which this happens before it creates the snapshot of this number, its error if it has one, and the
    numbers of the snapshots that are there then.
    """
    world = _restarting(pending, on_rollback="republish")
    calls, failed = _BeforeASnapshot(world.calls, number, is_first, lambda: happens(world)), None
    try:
        world.driver.start(world.file_io(calls), world.checkpoint)
    except StreamsinkError as error:
        failed = error
    return world, failed, open_table(world.file_io(world.calls), ROOT, for_writing=False).snapshots.ids()


@pytest.mark.parametrize("is_first", [True, False], ids=["created-first", "created-last"])
@pytest.mark.parametrize("number, less", [(3, 1), (3, 0), (4, 1), (4, 0), (4, 2)])
def test_our_own_snapshot_proves_nothing(pending, number, less, is_first):
    """It was created in another history, and the one behind it beside the look at what is before: both go."""
    others: list[int] = []
    world, failed, ids = _started(pending, number, is_first, lambda world: others.extend(_another_history(world, less)))
    assert failed.kind == "table.history-changed"
    assert ids == list(range(1, number - less)) and world.ids() == [*expected(BATCHES[:1]), *others]
    world.run(boundaries=BATCHES)
    assert world.ids() == [*expected(BATCHES), *others]


def test_an_error_does_not_leave_a_snapshot_unchecked(pending):
    """The third snapshot is created in another history, and an error comes before the fourth one."""
    others: list[int] = []

    def fail():
        raise Fenced("a rival", kind="writer.fenced")

    arm("restore.before_publish", 3, fail)
    try:
        world, failed, ids = _started(pending, 3, False, lambda world: others.extend(_another_history(world, 0)))
    finally:
        faults.arm(None)
    assert failed.kind == "table.history-changed" and isinstance(failed.__context__, Fenced)
    assert ids == [1, 2] and world.ids() == [*expected(BATCHES[:1]), *others]


def test_a_replaced_base_is_told(pending):
    """Another writer's rename, prepared before ours was created, replaces the snapshot on which ours is built."""

    def happens(world):
        path = f"{ROOT}/snapshot/snapshot-2"
        of_other = json.loads(world.calls.read(path)) | {"uuid": "another", "timeMillis": 1}
        world.calls.put(path, json.dumps(of_other).encode())

    world, failed, _ = _started(pending, 4, True, happens)
    told = [event.snapshot_id for event in world.driver.events if isinstance(event, SnapshotReplaced)]
    assert failed.kind == "restore.restarting" and told == [2]


def test_the_records_are_more_than_are_prepared_at_once(pending):
    """Else these tests would not see what is between two lots."""
    assert len(BATCHES) - 1 > restoring._AHEAD > history._MARKED_AT_ONCE
    world = _restarting(pending)
    world.run(boundaries=BATCHES)
    assert world.ids() == expected(BATCHES) and world.unknown_files() == []
