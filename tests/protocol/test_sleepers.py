"""A driver is paused, its successor restores and sweeps, and the sleeper goes on:
it is fenced, or its record is whole and published."""

import contextlib
import copy
import os

import pytest

from streamsink import faults
from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Fenced, Retryable, StreamsinkError
from streamsink.events import Restored
from streamsink.storage.file_io import FileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import arm
from tests.advice.following import advice, follows
from tests.crash.world import World, die_at_step, expected, memory_world
from tests.storage.memory_s3 import MemoryS3Calls

BOUNDARIES = (3, 6, 9)
STRIDE = 4
_MOST_CALLS = 1_000
_RESTARTS = 3
# A death at these steps leaves files in staging which a record could name, or could not because some of them are
# missing.
COMPLETE = ["precommit.before_record"]
INCOMPLETE = ["task.file_closed", "write.staged"]


def s3_world(**settings) -> World:
    """A world on an S3 in memory."""
    root = "s3://bucket/shop.db/orders"
    return World(MemoryS3Calls(), root, make_io=lambda over: S3FileIO(over, IdSource().new_id, root), **settings)


WORLDS = {"posix": memory_world, "s3": s3_world}
WAYS = {
    "plain": {},
    "small": {"small": True},
    "republish": {"on_rollback": "republish"},
    "grouped": {"publish_every_batches": 2},
}
_EACH_WORLD = pytest.mark.parametrize("make_world", WORLDS.values(), ids=WORLDS)


def _started(make_world, **settings) -> World:
    """A driver after its first batch, when Spark has planned the second one."""
    world = make_world(**settings)
    world.run(boundaries=BOUNDARIES[:1])
    world.checkpoint.ends.append(BOUNDARIES[1])
    return world


def _successor(world):
    """A successor that has restored. It has the same checkpoint, so that it takes over."""
    for _ in range(_RESTARTS):
        try:
            return world.driver.start(world.file_io(world.calls), world.checkpoint)
        except Retryable:
            continue
    raise AssertionError(f"not restored after {_RESTARTS} starts")


def _goes_on(sink, world) -> BaseException | None:
    """Write the second batch in this driver and end it; Spark notes the batch when it returns.
    Returns the error if there is one."""
    try:
        sink.batch(world.driver.describe(world.checkpoint, 1))
    except (StreamsinkError, OSError) as ended:
        return ended
    finally:
        try:
            sink.close()
        except (StreamsinkError, OSError):
            pass  # A superseded driver may end with these.
    world.checkpoint.committed = 2
    return None


def _check_at_the_end(world, what=""):
    """The query is restarted and runs to its end:
    each row is there once, and no data file is left that nobody knows."""
    world.die()
    world.run(boundaries=BOUNDARIES)
    assert world.ids() == expected(BOUNDARIES), what
    # Only a list may stay that the sleeper wrote after its successor had looked for such lists.
    assert [name for name in world.unknown_files() if not name.startswith(("manifest-list-", "."))] == [], what


@pytest.mark.in_turn("sleepers at any call", 3)
@pytest.mark.parametrize("way", WAYS)
@_EACH_WORLD
def test_a_sleeper_that_is_overtaken_at_any_call(make_world, way, rng):
    """Its successor restores before that call; then either of them goes on first. The sleeper may get an error, the
    successor only one that asks for a restart. What Spark was told is done is there."""
    ends = set()
    for n in range(rng.randint(1, STRIDE), _MOST_CALLS, STRIDE):
        world, first = _started(make_world, **WAYS[way]), rng.choice(["sleeper", "successor"])
        calls, successors, results = CrashingCalls(world.calls), [], {}
        sleeper = world.driver.start(world.file_io(calls), copy.deepcopy(world.checkpoint))
        paused_at = calls.count + n

        def overtake():
            if calls.count == paused_at and not successors:
                successors.append(_successor(world))
                if first == "successor":
                    results["successor"] = _goes_on(successors[0], world)

        calls.before_call = overtake
        results["sleeper"] = _goes_on(sleeper, world)
        if not successors:
            break
        if first == "sleeper":
            results["successor"] = _goes_on(successors[0], world)
        what = f"overtaken at call {n}, {first} goes on first: {results}"
        assert results["successor"] is None or isinstance(results["successor"], Retryable), what
        _check_at_the_end(world, what)
        ends.add((first, type(results["sleeper"])))
    assert (("sleeper", Fenced) in ends or ("successor", Fenced) in ends) and not successors


@follows("journal.overtaken")
def test_a_sleeper_whose_record_comes_is_published_by_the_restart_that_the_error_asks_for():
    """This happens on S3. The restart goes on from there."""
    world, successors = _started(s3_world), []
    sleeper = world.driver.start(world.file_io(world.calls), copy.deepcopy(world.checkpoint))
    arm("precommit.before_record", 1, lambda: successors.append(_successor(world)))
    try:
        _goes_on(sleeper, world)
    finally:
        faults.arm(None)
    advice(_goes_on(successors[0], world), "journal.overtaken").says(
        "Nothing is lost or doubled", "the restart of the query publishes it"
    )
    _check_at_the_end(world)


@_EACH_WORLD
def test_a_sleeper_right_before_its_record(make_world):
    """Everything is flushed, and the sleeper has checked who owns the application. On a disk what it prepared has been
    deleted; on S3 its record comes, whole."""
    world, successors = _started(make_world), []
    sleeper = world.driver.start(world.file_io(world.calls), copy.deepcopy(world.checkpoint))
    arm("precommit.before_record", 1, lambda: successors.append(_successor(world)))
    try:
        ended = _goes_on(sleeper, world)
    finally:
        faults.arm(None)
    assert isinstance(ended, Fenced) and ended.kind == "writer.fenced"
    ended = _goes_on(successors[0], world)
    if make_world is s3_world:
        assert isinstance(ended, Retryable) and ended.kind == "journal.overtaken"
        assert "restart" in str(ended) and "record 2" in str(ended)
    else:
        assert ended is None
    _check_at_the_end(world)


@_EACH_WORLD
def test_a_sleeper_that_finds_its_files_swept_is_fenced(make_world):
    """It has checked who owns the application; then its successor publishes and sweeps, and the table is rolled back.
    Formerly the store's bare error was raised."""
    world = _started(make_world)
    sleeper = world.driver.start(world.file_io(world.calls), copy.deepcopy(world.checkpoint))

    def overtaken():
        before = set(_data_files(world, world.driver.root))
        _successor(world)
        for path in set(_data_files(world, world.driver.root)) - before:
            world.file_io(world.calls).delete(path)

    arm("commit.placing", 1, overtaken)
    try:
        ended = _goes_on(sleeper, world)
    finally:
        faults.arm(None)
    assert isinstance(ended, Fenced) and ended.kind == "writer.fenced"


def test_files_that_something_deletes_before_they_are_published_are_named_with_the_way_on():
    """Another engine's orphan cleaning deletes them while the query runs. The error is not the store's bare one."""
    world = _started(memory_world)
    sink = world.driver.start(world.file_io(world.calls), copy.deepcopy(world.checkpoint))

    def cleaned():
        staged = _data_files(world, f"{world.driver.root}/streamsink/streamsink/staging")
        assert staged
        for path in staged:
            world.file_io(world.calls).delete(path)

    arm("commit.placing", 1, cleaned)
    try:
        ended = _goes_on(sink, world)
    finally:
        faults.arm(None)
    assert isinstance(ended, Corrupt) and ended.kind == "pending.files-gone" and "streamsink.give_up(" in str(ended)


def _data_files(world, folder: str) -> list[str]:
    found = []
    for entry in world.file_io(world.calls).entries(folder):
        path = f"{folder}/{entry.name}"
        found += _data_files(world, path) if entry.is_dir else [path] * entry.name.startswith("data-")
    return found


class _LatePreparing(FileIO):
    """Pauses before the record's bytes are written,
    when the driver may already have checked who owns the application."""

    paused = None

    def prepare(self, group, path, data, unique):
        if os.path.basename(path) == "record-2.json" and self.paused:
            paused, self.paused = self.paused, None
            paused()
        super().prepare(group, path, data, unique)


def test_a_sleeper_whose_record_is_not_prepared_yet():
    """On a disk nothing of the record was there to be swept, so it must not come to exist."""
    world, successors = _started(memory_world), []
    io = _LatePreparing(world.calls, IdSource().new_id)
    io.paused = lambda: successors.append(_successor(world))
    ended = _goes_on(world.driver.start(io, copy.deepcopy(world.checkpoint)), world)
    assert isinstance(ended, Fenced) and ended.kind == "writer.fenced"
    assert _goes_on(successors[0], world) is None
    _check_at_the_end(world)


def _staged(world) -> list[str]:
    io, folder = world.file_io(world.calls), f"{world.driver.root}/streamsink/streamsink/staging"
    return [f"{name}/{file}" for name in io.names(folder) for file in io.names(f"{folder}/{name}")]


@pytest.mark.parametrize("step", COMPLETE + INCOMPLETE)
@_EACH_WORLD
def test_what_a_dead_driver_staged_goes_as_soon_as_no_record_can_name_it(make_world, step):
    """After a death in the middle of writing it is deleted by the next start, however often that happens. If everything
    was staged, it is deleted when the record's number is taken."""
    world = _started(make_world)
    for _ in range(3):
        assert die_at_step(step, 1, world, boundaries=BOUNDARIES)
    _successor(world).close()
    assert bool(_staged(world)) == (step in COMPLETE)
    restored = [event for event in world.driver.events if isinstance(event, Restored)][-1]
    assert all(not world.file_io(world.calls).exists(path) for path in restored.orphans_removed)
    _successor(world).batch(world.driver.describe(world.checkpoint, 1))
    # on S3 the next attempt is announced
    assert [path for path in _staged(world) if not path.partition("/")[0].endswith("-3")] == []
    _check_at_the_end(world)


def test_links_for_a_rollback_are_kept_of_the_record_alone():
    """With on_rollback='republish' the record's own staging stays,
    and a dead driver's staging of the same number is deleted."""
    world = _started(memory_world, on_rollback="republish")
    kept = _staged(world)
    assert kept and die_at_step("precommit.before_record", 1, world, boundaries=BOUNDARIES)
    sink = _successor(world)
    sink.batch(world.driver.describe(world.checkpoint, 1))
    sink.close()
    folders = [name for name in {path.partition("/")[0] for path in _staged(world)} if name.endswith("-2")]
    assert len(folders) == 1 and set(kept) <= set(_staged(world))
    _check_at_the_end(world)


@pytest.mark.parametrize("step", ["commit.before_filter", "commit.lists_written", "commit.before_publish"])
@pytest.mark.parametrize("with_journal", [True, False])
def test_a_driver_that_sleeps_while_its_table_is_restored_as_it_was_leaves_no_snapshot_that_nobody_can_read(
    step, with_journal, monkeypatch
):
    """The newest snapshot is the one that it builds on, and what it wrote since then is not in the backup."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6, 9))
    root, journal = world.driver.root, f"{world.driver.root}/streamsink/"
    backup = {path: bytes(file.data) for path, file in world.calls._names.items() if path.startswith(f"{root}/")}

    def restore_and_wake() -> None:
        faults.arm(None)
        for path in [path for path in world.calls._names if path.startswith(f"{root}/") and path not in backup]:
            if with_journal or not path.startswith(journal):
                world.calls.unlink(path)
        later = Clock.now_ms
        monkeypatch.setattr(Clock, "now_ms", lambda self: later(self) + 60_000)

    arm(step, 1, restore_and_wake)
    with contextlib.suppress(StreamsinkError, OSError):
        world.driver._run_once(world.file_io(world.calls), world.checkpoint, (6, 9, 14))
    assert world.ids() == list(range(9))
    world.die()
    if with_journal:
        world.run(boundaries=(6, 9, 14))
        assert world.ids() == list(range(14))


def test_a_driver_that_only_sleeps_while_it_commits_goes_on(monkeypatch):
    """Everything that it has written is there."""
    world = memory_world()
    world.run(boundaries=(6, 9))
    later = Clock.now_ms
    arm("commit.before_publish", 1, lambda: monkeypatch.setattr(Clock, "now_ms", lambda self: later(self) + 60_000))
    world.driver._run_once(world.file_io(world.calls), world.checkpoint, (6, 9, 14))
    faults.arm(None)
    assert world.ids() == list(range(14))
