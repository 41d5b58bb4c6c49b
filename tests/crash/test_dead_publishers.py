"""A writer is killed when a snapshot has its name, but not durably.

Who then counts on that snapshot makes it durable first.
"""

import copy

import pytest

from streamsink import faults
from streamsink.clock import IdSource
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.crash import world as one
from tests.crash.many_world import ManyWorld, check_complete, check_readable
from tests.crash.world import die_at_step, memory_world
from tests.table.entries import OPTIONS, ROOT, Says, add, new_table, part

# Publishing is three calls: link, unlink of the temporary name, sync of the folder. Death comes before the last.
_SYNC = 3
_STEPS = ("restore.published", "restore.swept", "precommit.saved", "commit.placed", "commit.marked", "batch.end")


def _check(world, what: str) -> None:
    if isinstance(world, ManyWorld):
        check_readable(world.rows())
        world.run()
        check_complete(world.rows())
    else:
        assert one.is_prefix(world.ids()), what
        world.run()
        assert world.ids() == one.expected(), what
    assert world.unknown_files() == [], what


def _killed(world, publishing: int) -> None:
    """The first process dies in publishing for the so-manieth time: readers see the snapshot, a power failure would
    forget it.
    """
    calls, seen = CrashingCalls(world.calls), []

    def death_is_near(step: str) -> None:
        if step == "commit.before_publish":
            seen.append(step)
            if len(seen) == publishing:
                calls._at = calls.count + _SYNC

    faults.arm(death_is_near)
    with pytest.raises(InjectedCrash, match="sync_dir"):
        world.run(calls)
    faults.arm(None)
    world.die()
    assert _snapshots(world.calls) - _snapshots_after_power_failure(world.calls) == 1


def _snapshots(calls: MemoryCalls) -> int:
    return sum("/snapshot/snapshot-" in path for path in calls._names)


def _snapshots_after_power_failure(calls: MemoryCalls) -> int:
    other = copy.deepcopy(calls)
    other.power_failure()
    return _snapshots(other)


@pytest.mark.in_turn("deaths of publishers", 4)
@pytest.mark.parametrize(
    "make, publishing",
    [
        (memory_world, 1),
        (memory_world, 2),
        (lambda: memory_world(on_rollback="republish"), 2),
        (lambda: memory_world(publish_every_batches=3), 2),
        (lambda: memory_world(publish_every_batches=3, publish_as="one-snapshot"), 1),
        (ManyWorld, 1),
        (ManyWorld, 2),
        (ManyWorld, 3),
    ],
    ids=["first", "second", "republish", "grouped", "one-snapshot", "many-1", "many-2", "many-3"],
)
def test_the_next_writer_makes_it_durable_before_it_counts_on_it(make, publishing):
    """The restarted query finds the checkpoint published.

    The power fails at a step of its life: each row is there once.
    """
    for step in _STEPS:
        world = make()
        _killed(world, publishing)
        assert die_at_step(step, 1, world, power=True), f"{step} was not reached"
        _check(world, f"killed in publishing {publishing}, then a power failure at {step}")


@pytest.mark.parametrize(
    "make",
    [memory_world, lambda: memory_world(publish_every_batches=3, publish_as="one-snapshot"), ManyWorld],
    ids=["plain", "one-snapshot", "many"],
)
def test_what_a_dead_try_left_does_not_come_back(make):
    """The restart removes it durably before the mark, after which nobody looks for it: a power failure does not bring
    it back.
    """
    for step in _STEPS:
        world = make()
        assert die_at_step("commit.lists_written", 1, world)
        assert die_at_step(step, 1, world, power=True), f"{step} was not reached"
        _check(world, f"killed with its lists written, then a power failure at {step}")


def test_a_commit_that_is_found_published_is_durable():
    """A commit says that it is published: a power failure right after does not take that back, whoever published it."""
    calls = MemoryCalls()
    new_table(calls)
    request = CommitRequest("me", 7, Changes((add("new", part("x")),)), IdSource().new_id())

    def committed(over, is_published) -> int:
        table = open_table(FileIO(over, IdSource().new_id), ROOT, for_writing=True)
        return TableCommit(table, OPTIONS).commit(request, Says(lambda: is_published)).snapshot_id

    dying = CrashingCalls(calls)

    def death_is_near(step: str) -> None:
        if step == "commit.before_publish":
            dying._at = dying.count + _SYNC

    faults.arm(death_is_near)
    with pytest.raises(InjectedCrash, match="sync_dir"):
        committed(dying, False)
    faults.arm(None)
    assert committed(calls, True) == 1
    calls.power_failure()
    assert open_table(FileIO(calls, IdSource().new_id), ROOT, for_writing=True).snapshots.ids() == [1]
