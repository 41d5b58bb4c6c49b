"""A restart that publishes several pending checkpoints dies at each of its I/O calls; then the next one ends right."""

import copy
import os

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.events import Restored
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.journal.record_format import decode_record
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.sweeps import deaths
from tests.crash.world import BOUNDARIES, STRIDE, World, die_at_step, expected, is_prefix, memory_world
from tests.table.entries import commit

_PENDING = {"publish_every_batches": 3, "restore": "restore-and-continue"}
# More pending checkpoints than are prepared at once, twice, and one that is not pending; some are empty.
_MANY = tuple(2 * (number + number // 5) for number in range(1, 42))
_FEW_DEATHS = 8
# Of the states that a killed restart leaves.
_SOME = 2
_SETTINGS = {
    "fail": {"on_rollback": "fail"},
    "republish": {"on_rollback": "republish"},
    "one-snapshot": {"publish_as": "one-snapshot"},
}


@pytest.fixture(scope="module", params=list(_SETTINGS))
def left(request) -> World:
    """Batches 0 to 2 are recorded and none is published: the power failed."""
    return _left(BOUNDARIES, **_PENDING, **_SETTINGS[request.param])


def _left(boundaries, step="group.before_publish", **settings) -> World:
    """Batches that are recorded and not published: the power failed when the first group was to be."""
    world = memory_world(**settings)
    calls = CrashingCalls(world.calls)

    def death() -> None:
        calls.dead = True
        crash()

    arm(step, 1, death)
    try:
        world.run(calls, boundaries)
    except InjectedCrash:
        world.die(power=True)
    finally:
        faults.arm(None)
    return world


def _again(left: World) -> World:
    """The same store once more, and what Spark remembers."""
    world = memory_world(**_PENDING)
    world.calls, world.checkpoint = copy.deepcopy(left.calls), copy.deepcopy(left.checkpoint)
    world.driver.options = left.driver.options
    return world


def _restart(world: World, calls: CrashingCalls) -> None:
    world.driver.start(world.file_io(calls), world.checkpoint).close()


def _check(world: World, what: str, boundaries=BOUNDARIES) -> None:
    assert is_prefix(world.ids(), boundaries), f"{what}: a reader sees a part of a batch"
    world.run(boundaries=boundaries)
    assert world.ids() == expected(boundaries), what
    assert world.unknown_files() == [], what


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_death_before_the_calls_of_a_restart_with_several_pending(left, power, capsys, rng):
    """Killed, or what was not flushed is forgotten: each row once, no unknown file, whichever of them were published.

    Each state that a power failure leaves; of those of a killed process every second, other ones in each run of the
    suite.
    """
    world = _again(left)
    states, every = deaths(world, power, run=lambda calls: _restart(world, calls)), 1 if power else _SOME
    tried = states[rng.randrange(every) :: every]
    for state in tried:
        state.put_back(world, power)
        _check(world, f"{state} of the restart")
    with capsys.disabled():
        print(f"\n[crash states: {len(tried)} of {len(states)}]", end=" ")
    assert len(states) >= (5 if power else 30)


@pytest.mark.parametrize("rollback", ["fail", "republish"])
@pytest.mark.parametrize("step", ["task.file_opened", "task.file_closed", "write.staged"])
def test_a_restart_leaves_nothing_of_a_batch_that_no_record_can_name(step, rollback):
    """Before any batch comes, for it may be another one, or none: the files are gone, and with them the folder; the
    event names them.
    """
    world = memory_world(on_rollback=rollback)
    assert die_at_step(step, 2, world)
    left = world.unknown_files()
    assert left
    world.driver.start(world.file_io(world.calls), world.checkpoint).close()
    assert world.unknown_files() == []
    (restored,) = [event for event in world.driver.events if isinstance(event, Restored)][-1:]
    assert sorted(os.path.basename(path) for path in restored.orphans_removed) == left
    published = 0 if step.startswith("task.") else 1
    assert _staged_folders(world) == (
        published if rollback == "republish" else 0
    )  # with the links of the records that are retained


def _staged_folders(world: World) -> int:
    return len(world.file_io(world.calls).names(f"{world.driver.root}/streamsink/streamsink/staging"))


@pytest.mark.parametrize("rollback", ["fail", "republish"])
@pytest.mark.parametrize("step", ["precommit.manifest_staged", "precommit.before_record"])
def test_what_a_record_may_yet_name_goes_when_the_number_is_taken(step, rollback):
    """All of the batch is staged: its driver may be paused, and create the record still.

    The next batch's record ends that.
    """
    world = memory_world(on_rollback=rollback)
    assert die_at_step(step, 2, world)
    left = [name for name in world.unknown_files() if not name.startswith(".")]
    world.driver.start(world.file_io(world.calls), world.checkpoint).close()
    assert left and world.unknown_files() == left
    world.run(boundaries=BOUNDARIES[:2])
    assert world.unknown_files() == []
    assert _staged_folders(world) == (2 if rollback == "republish" else 0)


@pytest.mark.in_turn("errors of a restart", 3)
@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.REPLY_LOST], ids=lambda m: m.value)
def test_an_error_in_a_restart_with_several_pending(left, mode, rng):
    """A call fails, done or not; the power fails then. The next restart ends right."""
    world = _again(left)
    calls = CrashingCalls(world.calls)
    _restart(world, calls)
    for n in range(rng.randint(1, STRIDE // 2), calls.count + 1, STRIDE // 2):
        world = _again(left)
        try:
            _restart(world, CrashingCalls(world.calls, n, mode))
        except OSError:
            world.die(power=True)
        _check(world, f"{mode.value} at call {n} of the restart")


@pytest.mark.parametrize("rollback", ["fail", "republish"])
def test_deaths_in_a_restart_with_more_pending_than_are_prepared_at_once(rollback, rng):
    """Killed or without power, again and again at random calls, each time in the restart of what the death before
    left.
    """
    pending = len(_MANY) - 1
    settings = {
        "publish_every_batches": pending,
        "restore": "restore-and-continue",
        "on_rollback": rollback,
        "journal_retain": 50,
    }
    world = _left(_MANY, **settings)
    calls = CrashingCalls(copy.deepcopy(world.calls))
    _restart(_again(world), calls)
    for _ in range(_FEW_DEATHS):
        try:
            _restart(world, CrashingCalls(world.calls, rng.randint(1, calls.count // 4)))
        except InjectedCrash:
            world.die(power=rng.random() < 0.5)
        assert is_prefix(world.ids(), _MANY)
    _check(world, "deaths in restarts", _MANY)


def test_a_record_whose_file_is_gone_does_not_hold_back_those_before_it(left):
    """The first is published, the second says what is missing, the third waits; put back, each row is there once."""
    world = _again(left)
    io = FileIO(world.calls, IdSource().new_id)
    committable = _record(world, io, 2 if left.driver.options.publish_as != "one-snapshot" else 1)
    if not committable.files:  # the empty batch
        committable = _record(world, io, 3)
    path = f"{world.driver.root}/{committable.files[0].staged}"
    data = io.read(path)
    io.delete(path)
    with pytest.raises(Corrupt) as refused:
        _restart(world, CrashingCalls(world.calls))
    assert refused.value.kind == "pending.files-gone"
    assert is_prefix(world.ids())
    io.write(path, data)
    _check(world, "the file is back")


@pytest.mark.parametrize("step, sequence", [("group.before_publish", 1), ("commit.hinted", 2)], ids=["first", "second"])
def test_a_record_that_an_earlier_driver_publishes_meanwhile(step, sequence):
    """It was about to when this one took over. Its snapshot counts, the others follow, and what was made ahead for it
    goes.

    Of the second one the first is published and not marked, so that the restart has looked for leftovers before.
    """
    world = _left(BOUNDARIES, step, **_PENDING)
    io = FileIO(world.calls, IdSource().new_id)
    table = open_table(io, world.driver.root, for_writing=True)

    def publish() -> None:
        faults.arm(None)
        record = _record(world, io, sequence)
        manifest = record.payload["manifest"]
        name = manifest["final"].removeprefix("manifest/")
        entries = table.manifests.read(name)
        types = [field.type for field in table.latest_schema().partition_fields]
        commit(
            table,
            Changes(tuple(entries)),
            manifests=(ManifestFileMeta.of(name, manifest["size"], entries, types),),
            application=record.application,
            state=record.state.to_json(),
        )

    arm("commit.before_filter", 1, publish)
    try:
        _restart(world, CrashingCalls(world.calls))
    finally:
        faults.arm(None)
    assert table.snapshots.latest().id == 3
    _check(world, "one was published by another")


def _record(world: World, io: FileIO, sequence: int):
    path = f"{world.driver.root}/streamsink/streamsink/record-{sequence}.json"
    return decode_record(io.read(path), path)
