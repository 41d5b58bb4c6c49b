"""A branch is compacted as its table is; its data files lie below the table."""

import copy

import pytest

from streamsink.compaction import attempts
from streamsink.table.branching.branches import create, get
from streamsink.table.branching.fast_forward import fast_forward
from streamsink.table.branching.targets import find
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.compaction.beside import compact, files_of, opened, small_files
from tests.crash.world import World
from tests.protocol.history import roll_back_to
from tests.table.entries import OPTIONS

NAME, STRIDE = "audit", 29
ROWS = sorted([*range(14), *range(9)])


def _world(store: str) -> tuple[World, World]:
    """(main, its branch), with small files in both."""
    world = small_files(store)
    create(opened(world), NAME, find(opened(world), 3))
    path = get(opened(world), NAME).path
    branch = World(world.calls, path, application="auditor", make_io=world.file_io, restore="restore-and-continue")
    branch.run(boundaries=(6, 9))
    return world, branch


def _unnamed(world: World, branch: World) -> list[str]:
    """Data files that no snapshot of either names, and what compactions have left in the branch."""
    known = set(world.unknown_files()) & set(branch.unknown_files())
    kept = [name for name in world.file_io(world.calls).names(f"{branch.driver.root}/streamsink") if "compact" in name]
    return [*(name for name in known if name.startswith("data-")), *kept]


@pytest.mark.parametrize("store", ["disk", "s3", "distant"])
def test_a_branch_is_compacted(store):
    """Files of main's that are compacted in the branch stay in main."""
    world, branch = _world(store)
    totals = compact(branch).totals
    assert len(totals.snapshots) == 1 and set(files_of(branch).values()) == {1}
    assert branch.ids() == ROWS and world.ids() == list(range(14)) and _unnamed(world, branch) == []
    fast_forward(opened(world), NAME, OPTIONS, "a test")
    assert world.ids() == ROWS


@pytest.mark.in_turn("compactions of a branch that die", 1)
@pytest.mark.parametrize("store", ["disk", "s3"])
def test_a_compaction_of_a_branch_that_dies_leaves_nothing(store, rng):
    """The next one in the branch sweeps it, below the table."""
    world, branch = _world(store)
    counting = CrashingCalls(world.calls)
    compact(branch, counting)
    for number in range(1 + rng.randrange(STRIDE), counting.count + 1, STRIDE):
        world, branch = _world(store)
        try:
            compact(branch, CrashingCalls(world.calls, number))
        except InjectedCrash:
            world.die()
        assert branch.ids() == ROWS, f"call {number}"
        compact(branch)
        branch.run(boundaries=(6, 9, 12))
        compact(branch)
        compact(branch)
        assert branch.ids() == sorted([*range(14), *range(12)]), f"call {number}"
        assert _unnamed(world, branch) == [], f"call {number}"


def test_what_main_has_taken_over_is_not_swept_in_the_branch():
    """The compaction died behind its snapshot; main names its files under a lower number, and the branch, which another
    program has rolled back, no more.
    """
    world, branch = _world("disk")
    for end in range(10, 14):
        branch.run(boundaries=(*branch.checkpoint.ends, end))  # main's numbers stay behind those of the branch
    rows = sorted([*range(14), *range(13)])
    counting = CrashingCalls(copy.deepcopy(world.calls))
    compact(branch, counting)
    for number in range(counting.count, 0, -1):
        calls = copy.deepcopy(world.calls)
        try:
            compact(branch, CrashingCalls(calls, number))
        except InjectedCrash:
            pass
        if any(attempts.announced(_open(branch, calls))) and _kind(branch, calls) == "COMPACT":
            break
    world.calls = branch.calls = calls
    fast_forward(opened(world), NAME, OPTIONS, "a test")
    assert world.ids() == rows
    roll_back_to(opened(branch), opened(branch).snapshots.latest().id - 1)
    World(calls, branch.driver.root, application="later", restore="restore-and-continue").run(boundaries=(1, 2))
    compact(branch)
    assert world.ids() == rows


def _open(world: World, calls):
    return open_table(world.file_io(calls), world.driver.root, for_writing=True)


def _kind(world: World, calls) -> str:
    return _open(world, calls).snapshots.latest().commit_kind
