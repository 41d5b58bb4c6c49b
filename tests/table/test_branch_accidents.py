"""Branches where others expire snapshots, write without states, or delete tags meanwhile."""

import copy
import datetime
import itertools
import os

import pytest

from streamsink import maintenance
from streamsink.commands.branches import delete_branch
from streamsink.errors import Misuse
from streamsink.table.branching import branches, fast_forward, pins
from streamsink.table.branching.targets import find, tags_of
from streamsink.table.care.tags import take_back
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from tests.compaction.beside import expired
from tests.crash.world import BOUNDARIES, World, memory_world, posix_world
from tests.protocol.bounded_runs import run_job
from tests.protocol.history import drop_states, expire_before, snapshot_of_another
from tests.table.branching import NAME, create, forward, io_of, opened, writer
from tests.table.entries import OPTIONS
from tests.table.foreign import Prepared

# Of the calls of a creation each n-th one has an expiry beside it.
STRIDE = 5


def _in_branch(world, application="auditor", **settings) -> World:
    return writer(world, application, **{"restore": "restore-and-continue", **settings})


def test_an_expiry_at_any_call_of_a_creation(rng):
    """Until the tag is there the expiry wins, and nothing is left; then it keeps the files, and the branch has them."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    begun, outcomes = copy.deepcopy(world.calls), set()
    counting = CrashingCalls(copy.deepcopy(begun))
    create(world, 1, counting)
    for number in range(1 + rng.randrange(STRIDE), counting.count + 1, STRIDE):
        world.calls = copy.deepcopy(begun)
        calls, done, inner = CrashingCalls(world.calls), [], world.calls

        def before_call(calls=calls, number=number, done=done, inner=inner):
            if calls.count + 1 >= number and not done:
                done.append(True)
                if not any("/tag/tag-" in name for name in inner._names):  # else it would keep what the tag has
                    expired(World(inner, world.driver.root))

        calls.before_call = before_call
        try:
            create(world, 1, calls)
        except Misuse as gone:
            assert gone.kind == "rollback.target-gone" and "Nothing was written" in str(gone), number
            assert branches.branches(opened(world)) == [] and io_of(world).names(f"{world.driver.root}/tag") == [], (
                number
            )
            outcomes.add("refused")
        else:
            [made] = branches.branches(opened(world))
            assert len(read_arrow(open_table(io_of(world), made.path, for_writing=False))) == 6, number
            outcomes.add("made")
    assert outcomes == {"refused", "made"}


def test_a_branch_of_a_tag_outlives_that_tag(tmp_path):
    """The table has a tag for the branch, too: programs that do not look into branches would delete its files."""
    world = posix_world(tmp_path)
    world.run(boundaries=BOUNDARIES[:1])
    path = world.driver.root
    maintenance.create_tag(path, "monday")
    maintenance.create_branch(path, NAME, "monday")
    maintenance.delete_tag(path, "monday")
    assert io_of(world).names(f"{path}/tag") == [f"tag-branch-{NAME}-1"]
    assert maintenance.create_branch(path, NAME, snapshot_id=1).newest.id == 1, "it is there"
    maintenance.delete_branch(path, NAME)
    assert io_of(world).names(f"{path}/tag") == []


@pytest.mark.parametrize("snapshot_id", ["latest", 1])
def test_a_tag_and_a_snapshot_are_one_too_many(snapshot_id, tmp_path):
    """Neither is left out silently."""
    world = posix_world(tmp_path)
    world.run(boundaries=BOUNDARIES[:2])
    maintenance.create_tag(world.driver.root, "monday", 1)
    with pytest.raises(Misuse) as refused:
        maintenance.create_branch(world.driver.root, NAME, "monday", snapshot_id=snapshot_id)
    assert refused.value.kind == "rollback.target" and maintenance.branches(world.driver.root) == []


@pytest.mark.parametrize(
    "given", [{"snapshot_id": "1"}, {"snapshot_id": True}, {"snapshot_id": 1.0}, {"tag": 5}], ids=str
)
@pytest.mark.parametrize(
    "do", [maintenance.rollback_to, lambda path, **given: maintenance.create_branch(path, NAME, **given)]
)
def test_what_is_no_number_and_no_name_is_refused(do, given, tmp_path):
    """Formerly a number as text was taken for a snapshot that is damaged."""
    world = posix_world(tmp_path)
    world.run(boundaries=BOUNDARIES[:1])
    with pytest.raises(Misuse) as refused:
        do(world.driver.root, **given)
    assert refused.value.kind == "rollback.target" and next(iter(given)) in str(refused.value)


@pytest.mark.parametrize("moment", [1.5, datetime.date(2026, 11, 27), True, b"2026"], ids=str)
def test_what_is_no_moment_is_refused(moment, tmp_path):
    """And nothing is rolled back."""
    world = posix_world(tmp_path)
    world.run(boundaries=BOUNDARIES[:1])
    with pytest.raises(Misuse) as refused:
        maintenance.rollback_to(world.driver.root, timestamp=moment)
    assert refused.value.kind == "rollback.target"


def test_a_run_of_which_the_branch_has_forgotten_the_snapshot_is_asked_for():
    """Main cannot name it, so a run that is repeated there is neither written twice nor taken for written."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    create(world, 1)
    for run in range(4):
        run_job(_in_branch(world, "batch"), f"day {run}", (run, run + 1))
    expire_before(opened(_in_branch(world)), 4)
    forward(world)
    delete_branch(io_of(world), world.driver.root, NAME)
    rows = sorted([*range(6), *range(4)])
    assert world.ids() == rows
    on_main = World(world.calls, world.driver.root, application="batch")
    for run in range(4):
        try:
            run_job(on_main, f"day {run}", (run, run + 1))
        except Misuse as asked:
            assert asked.kind == "run.undecidable" and run < 2
        else:
            assert run >= 2, "these are named"
        assert world.ids() == rows
    run_job(World(world.calls, world.driver.root, application="other"), "day 0", (9, 10))
    assert world.ids() == [*rows, 9]


def test_what_the_branch_has_forgotten_of_its_writers_main_does_not_claim_to_know():
    """Another program's snapshots in the branch have no states, and what had them has expired."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:1])
    create(world, 1)
    other = _in_branch(world)
    other.run(boundaries=(3, 5))
    drop_states(other)
    expire_before(opened(other), snapshot_of_another(opened(other)))
    forward(world)
    delete_branch(io_of(world), world.driver.root, NAME)
    on_main = World(world.calls, world.driver.root, application="auditor", restore="restore-and-continue")
    on_main.checkpoint = SparkCheckpoint(other.checkpoint.query)
    with pytest.raises(Misuse) as asked:
        on_main.run(boundaries=(3, 5))
    assert asked.value.kind == "history.incomplete" and world.ids() == sorted([*range(6), *range(5)])


def test_a_branch_takes_nothing_over():
    """Formerly what was told then of main's snapshots was not so."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    create(world, 1)
    table = opened(world)
    branches.create(table, "other", find(table, 2))
    with pytest.raises(Misuse) as refused:
        fast_forward.fast_forward(opened(_in_branch(world)), "other", OPTIONS, "a test")
    assert refused.value.kind == "branch.given" and world.driver.root in str(refused.value)


@pytest.mark.parametrize("writes", ["branch", "main"])
def test_a_branch_that_begins_with_a_snapshot_of_another_program(writes):
    """That one says nothing of a stream's state; a stream that wrote before to one of both did not write to both."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=BOUNDARIES[:1])
    Prepared(world).rename()
    others = [1000, 1001, 1002]
    create(world, 2)
    _in_branch(world).run(boundaries=(3,))
    if writes == "branch":
        there = _in_branch(world, "streamsink")
        there.checkpoint = copy.deepcopy(world.checkpoint)
        there.run(boundaries=BOUNDARIES[:2])
        assert forward(world).plan.writers == {}
        assert world.ids() == sorted([*range(9), *range(3), *others])
    else:
        world.run(boundaries=BOUNDARIES[:2])
        assert forward(world, discard=("streamsink",)).plan.writers == {"streamsink": 1}
        assert world.ids() == sorted([*range(6), *range(3), *others])


def test_orphan_cleaning_leaves_alone_what_is_pending_in_a_branch(tmp_path, rng):
    """Its files lie below the table, under their final names, before a snapshot of the branch names them."""
    rows, tried = sorted([*range(6), *range(5)]), 0
    for number in itertools.count(120 + rng.randrange(20), 20):
        world = posix_world(tmp_path / str(number), restore="restore-and-continue")
        world.run(boundaries=BOUNDARIES[:1])
        maintenance.create_branch(world.driver.root, NAME, snapshot_id="latest")
        other = _in_branch(world)
        try:
            other.run(CrashingCalls(world.calls, number), boundaries=(3, 5))
            break
        except InjectedCrash:
            pass
        for folder, _, names in os.walk(world.driver.root):
            for name in names:
                os.utime(f"{folder}/{name}", (1, 1))
        maintenance.remove_orphan_files(world.driver.root, dry_run=False)
        other.run(boundaries=(3, 5))
        assert other.ids() == rows, f"call {number}"
        tried += 1
    assert tried > 3


@pytest.mark.parametrize("snapshot_id", [None, 1])
def test_a_power_failure_brings_no_deleted_branch_back(snapshot_id):
    """Its manifests would be gone, and then nothing could be cared for in the table."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    table = opened(world)
    branches.create(table, NAME, find(table, snapshot_id) if snapshot_id else None)
    branch = _in_branch(world)
    branch.run(boundaries=BOUNDARIES[:1])
    delete_branch(io_of(world), world.driver.root, NAME)
    world.calls.power_failure()
    table = opened(world)
    # What is in a folder whose own name is gone nobody can reach, which the store in memory does not know.
    assert table.file_io.names(table.layout.within("branch")) == []
    assert [name for name, _ in tags_of(table)] == []


def test_a_power_failure_brings_no_pin_back_that_was_taken_back():
    """What it kept may have gone meanwhile."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    table = opened(world)
    [pinned] = pins.pin(table, [find(table, 1)], "a-test")
    take_back(table.file_io, [pinned])
    world.calls.power_failure()
    assert not table.file_io.exists(pinned)
