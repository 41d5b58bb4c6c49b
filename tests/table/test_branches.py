"""Branches: created, written to, taken over by main and deleted, whatever dies when; and streams on both sides."""

import copy
import json

import pyarrow as pa
import pytest

from streamsink.commands.branches import delete_branch
from streamsink.commands.verify import verify
from streamsink.errors import Conflict, Misuse
from streamsink.storage.stores import table_path
from streamsink.table.branching import branches, fast_forward
from streamsink.table.branching.rollback import roll_back
from streamsink.table.branching.targets import find
from streamsink.table.commit.changes import Changes
from streamsink.table.read.scan import read_arrow
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.sweeps import deaths
from tests.crash.world import BOUNDARIES, SCHEMA, World, expected, memory_world
from tests.protocol.bounded_runs import run_job
from tests.table.branching import NAME, branched, create, forward, io_of, opened, writer
from tests.table.entries import OPTIONS, add, commit

# Of the calls at which a step can die each n-th is tried; every one with the mark "soak".
STRIDE = 23


def test_a_branch_is_written_and_taken_over():
    """Rows of the branch are not in main until it takes them over, at one instant; then the branch goes on."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    create(world, 2)
    other = writer(world)
    other.run(boundaries=(3,))
    assert world.ids() == list(range(9)) and other.ids() == sorted([*range(9), *range(3)])
    done = forward(world)
    assert world.ids() == other.ids() and done.plan.arriving.rows == 3 and not done.plan.leaving.paths
    newest = opened(world).snapshots.latest()
    assert newest.commit_kind == "APPEND" and newest.total_record_count == 12
    assert json.loads(newest.properties[fast_forward.PROPERTY])["by"] == "a test"
    assert forward(world).snapshot_id is None, "there is nothing more"
    other.run(boundaries=(3, 5))
    forward(world)
    world.run()
    assert world.ids() == sorted([*expected(), *range(5)])
    assert other.ids() == sorted([*range(9), *range(5)])
    assert other.unknown_files() == [], "of main and branch together"


def test_no_journal_is_missed_that_lies_on_the_other_side():
    """Else the doctor's way on would be to retire the stream of main from the branch, or a run of the branch from main,
    whose state says that it was written."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    create(world, 2)
    writer(world).run(boundaries=(3,))
    forward(world)
    branch = table_path(f"{world.driver.root}$branch_{NAME}")
    assert [verify(io_of(world), each).findings for each in (world.driver.root, branch)] == [(), ()]
    delete_branch(io_of(world), world.driver.root, NAME)
    [missed] = verify(io_of(world), world.driver.root).findings
    assert missed.kind == "journal.missing" and "'auditor'" in missed.message


@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.ERROR, Mode.REPLY_LOST], ids=lambda mode: mode.value)
@pytest.mark.parametrize("what", ["create", "empty", "forward", "delete"])
def test_each_step_can_die_at_any_call(what, mode, rng):
    """Main is as before or as after, the branch is there whole or not at all; called again, it is done."""
    _dies(what, mode, 1 + rng.randrange(STRIDE), STRIDE)


@pytest.mark.soak
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.ERROR, Mode.REPLY_LOST], ids=lambda mode: mode.value)
@pytest.mark.parametrize("what", ["create", "empty", "forward", "delete"])
def test_each_step_can_die_at_every_call(what, mode):
    """All of them."""
    print(f"RESULT {what}: {_dies(what, mode, 1, 1)} calls, {mode.value}")


def _dies(what, mode, first, stride):
    """Let it happen at these calls; at how many."""
    do = {
        "create": lambda w, calls=None: create(w, 2, calls),
        "empty": lambda w, calls=None: create(w, 0, calls),
        "forward": forward,
        "delete": _delete,
    }
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    if what in ("forward", "delete"):
        create(world, 2)
        writer(world).run(boundaries=(3,))
    before = copy.deepcopy(world.calls)
    counting = CrashingCalls(copy.deepcopy(world.calls))
    do[what](world, calls=counting)
    if mode is Mode.BEFORE:
        left = deaths(world, run=lambda calls: do[what](world, calls=calls))
        for each in left[first % stride :: stride]:
            each.put_back(world, False)
            _ends_right(world, what, do[what], str(each))
        return len(left)
    for number in range(first, counting.count + 1, stride):
        world.calls = copy.deepcopy(before)
        try:
            do[what](world, calls=CrashingCalls(world.calls, number, mode))
        except OSError:
            world.die()
        _ends_right(world, what, do[what], f"call {number}")
    return counting.count


def _delete(world, calls=None):
    try:
        return delete_branch(io_of(world, calls), world.driver.root, NAME)
    except Misuse as gone:
        assert gone.kind == "branch.missing"  # it was deleted
        return ()


def _ends_right(world, what, do, where):
    before, after = list(range(9)), sorted([*range(9), *range(3)])
    there = branches.branches(opened(world))
    assert world.ids() in ([before, after] if what == "forward" else [before]), where
    if what in ("create", "empty") and there:
        rows = sorted(read_arrow(open_table(io_of(world), there[0].path, for_writing=False))["id"].to_pylist())
        assert rows == (before if what == "create" else []), f"{where}: a reader sees a half of the branch"
    checkpoint = copy.deepcopy(world.checkpoint)
    do(world)
    assert world.ids() == (after if what == "forward" else before), where
    assert [each.name for each in branches.branches(opened(world))] == ([] if what == "delete" else [NAME]), where
    assert not any(name.startswith(".") for name in world.calls._names if "/branch/" in name and what == "delete"), (
        where
    )
    world.run()
    assert world.ids() == sorted([*expected(), *(range(3) if what == "forward" else ())]), where
    world.checkpoint = checkpoint


def test_a_stream_on_main_wins_against_a_fast_forward():
    """At whichever call of a stream's run main is to take the branch over: it does, or refuses; no row is lost."""
    world, _ = branched()
    begun, checkpoint = copy.deepcopy(world.calls), copy.deepcopy(world.checkpoint)
    counting = CrashingCalls(world.calls)
    world.run(counting)
    outcomes = set()
    for number in range(1, counting.count + 1, 83):
        world.calls, world.checkpoint = copy.deepcopy(begun), copy.deepcopy(checkpoint)
        calls, done, inner = CrashingCalls(world.calls), [], world.calls

        def before_call(calls=calls, number=number, done=done, inner=inner):
            if calls.count + 1 >= number and not done:
                done.append(None)
                world.calls = inner
                done[0] = _try_forward(world)

        calls.before_call = before_call
        world.run(calls)
        assert world.ids() == sorted([*expected(), *(range(3) if done[:1] == ["done"] else ())]), number
        outcomes |= set(done)
    assert outcomes == {"done", "branch.main-changed"}


def test_a_batch_of_main_at_any_call_of_a_fast_forward_wins():
    """What was planned of another main is not published: it is planned anew, and refused."""
    world, _ = branched()
    begun, checkpoint = copy.deepcopy(world.calls), copy.deepcopy(world.checkpoint)
    counting = CrashingCalls(copy.deepcopy(world.calls))
    forward(world, counting)
    outcomes = set()
    for number in range(1, counting.count + 1, 17):
        world.calls, world.checkpoint = copy.deepcopy(begun), copy.deepcopy(checkpoint)
        calls, done, inner = CrashingCalls(world.calls), [], world.calls

        def before_call(calls=calls, number=number, done=done, inner=inner):
            if calls.count + 1 >= number and not done:
                done.append(True)
                world.run(boundaries=BOUNDARIES[:2])

        calls.before_call = before_call
        outcome = _try_forward(world, calls)
        assert world.ids() == sorted([*range(9), *(range(3) if outcome == "done" else ())]), number
        table = opened(world)
        taken = [each for each in map(table.snapshots.load, table.snapshots.ids()) if _is_of_a_branch(each)]
        assert [each.total_record_count for each in taken] == ([9] if outcome == "done" else []), number
        outcomes.add(outcome)
    assert outcomes == {"done", "branch.main-changed"}


def _is_of_a_branch(snapshot):
    return fast_forward.PROPERTY in (snapshot.properties or {})


def _try_forward(world, calls=None):
    try:
        forward(world, calls)
        return "done"
    except Conflict as refused:
        return refused.kind


def test_what_main_wrote_since_is_given_up_by_name_only():
    """The stream on main goes on behind what it has published; what the branch has of its state is not taken."""
    world, other = branched()
    world.run(boundaries=BOUNDARIES[:2])
    assert _try_forward(world) == "branch.main-changed" and world.ids() == list(range(9))
    done = forward(world, discard=("streamsink",))
    assert world.ids() == sorted([*range(6), *range(3)]) and done.plan.writers == {"streamsink": 1}
    assert opened(world).snapshots.latest().commit_kind == "OVERWRITE"
    other.run(boundaries=(3, 4))
    forward(world)
    world.run()
    assert world.ids() == sorted([*range(6), *range(9, 14), *range(4)])


def test_main_goes_back_to_where_the_branch_began():
    """That is the other way to give up what main has written since."""
    world, _ = branched()
    world.run(boundaries=BOUNDARIES[:2])
    roll_back(opened(world), find(opened(world), 1), OPTIONS, "a test")
    forward(world)
    world.run()
    assert world.ids() == sorted([*range(6), *range(3), *range(9, 14)])


def test_a_query_goes_on_in_main_with_its_checkpoint():
    """What it has written to the branch is in main; it reads on from there, each row once. Nobody may write to both."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    create(world)
    other = writer(world, restore="restore-and-continue")
    other.run(boundaries=(3, 5))
    forward(world)
    on_main = World(world.calls, world.driver.root, application="auditor", restore="restore-and-continue")
    on_main.checkpoint = other.checkpoint
    on_main.run(boundaries=(3, 5, 8))
    assert world.ids() == sorted([*range(6), *range(8)])
    world.run()
    assert world.ids() == sorted([*expected(), *range(8)])
    other.checkpoint = SparkCheckpoint(on_main.checkpoint.query, [3, 5, 8], 2)
    other.run(boundaries=(3, 5, 8))
    assert _try_forward(world) in ("branch.main-changed", "branch.both-wrote")


def test_an_application_of_main_may_not_write_to_a_branch_too():
    """Neither of its states would tell which of its rows are in main."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    create(world)
    other = World(world.calls, table_path(f"{world.driver.root}$branch_{NAME}"))
    other.checkpoint = copy.deepcopy(world.checkpoint)
    other.run(boundaries=BOUNDARIES[:2])
    world.run(boundaries=BOUNDARIES[:2])
    with pytest.raises(Conflict) as refused:
        forward(world, discard=("streamsink",))
    assert refused.value.kind == "branch.both-wrote" and world.ids() == list(range(9))


def test_columns_of_the_branch_come_with_it():
    """Unless main has got other ones meanwhile."""
    world = memory_world(add_columns=True)
    world.run(boundaries=BOUNDARIES[:1])
    create(world)
    other = writer(world, add_columns=True)
    _with_column(other, "more")
    other.run(boundaries=(3,))
    assert "more" not in read_arrow(opened(world)).column_names
    began = copy.deepcopy(world.calls)
    forward(world)
    assert read_arrow(opened(world))["more"].null_count == 6 and len(world.ids()) == 9
    world.run()
    assert world.ids() == sorted([*expected(), *range(3)])
    world.calls = began
    third = World(began, world.driver.root, application="third", add_columns=True)
    _with_column(third, "other")
    third.run(boundaries=(1,))
    assert _try_forward(world) == "branch.schema-differs"


def _with_column(world, name):
    rows, schema = world.driver.rows, pa.schema([*SCHEMA, (name, pa.int64())])
    world.driver.schema = schema
    world.driver.rows = lambda start, end: pa.RecordBatch.from_arrays(
        [*rows(start, end).columns, pa.array(range(start, end), pa.int64())], schema=schema
    )


def test_a_branch_that_is_made_anew_is_another_one():
    """Of a snapshot before main took its namesake over: then main has rows that it does not have."""
    world, _ = branched()
    forward(world)
    _delete(world)
    create(world)
    writer(world, application="second").run(boundaries=(2,))
    assert _try_forward(world) == "branch.main-changed"
    _delete(world)
    create(world, 2)
    writer(world, application="second").run(boundaries=(2,))
    forward(world)
    assert world.ids() == sorted([*range(6), *range(3), *range(2)])


def test_main_may_be_compacted_meanwhile():
    """A compaction changes no row: it is taken back, and nothing else."""
    world, _ = branched()
    table = opened(world)
    entries = list(table.manifests.entries_of(table.snapshots.latest()))
    commit(
        table,
        Changes((*(e.deleting for e in entries[:1]), add("data-compacted-0.parquet", entries[0].partition))),
        kind="COMPACT",
    )
    forward(world)
    assert world.ids() == sorted([*range(6), *range(3)])


def test_a_bounded_run_into_a_branch_is_known_wherever_its_rows_are():
    """Write, audit, publish, each day with a branch of its own: a run that is repeated changes nothing, anywhere."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    for day, numbers in enumerate([(0, 2), (2, 4), (4, 6)]):
        create(world, opened(world).snapshots.latest().id)
        for run in range(day + 1):
            run_job(writer(world, application="batch"), f"day {run}", (2 * run, 2 * run + 2))
        forward(world)
        _delete(world)
        assert world.ids() == sorted([*range(6), *range(numbers[1])])
    for run in range(3):
        run_job(World(world.calls, world.driver.root, application="batch"), f"day {run}", (2 * run, 2 * run + 2))
    assert world.ids() == sorted([*range(6), *range(6)])
