"""Rollbacks of one of several tables, and of a table for dead letters, beside the query that writes them."""

import copy
from collections import Counter

import pytest

from streamsink.clock import IdSource
from streamsink.format.index_manifest import IndexManifestEntry
from streamsink.format.manifest import FileKind
from streamsink.storage.file_io import FileIO
from streamsink.table.branching.rollback import roll_back
from streamsink.table.branching.targets import find
from streamsink.table.commit.changes import Changes
from streamsink.table.table import is_table, open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.memory import MemoryCalls
from tests.crash.letters_world import LettersWorld
from tests.crash.many_world import ManyWorld
from tests.table.entries import OPTIONS, add, commit, index_file, new_table, part

# Of the calls of a query's run, each n-th one has a rollback beside it; every one with the mark "soak".
STRIDE = 1201
MANY = (6, 9, 9, 14, 18)


def _back(world, calls, name):
    """Roll a table back to its first snapshot; None where it has none yet."""
    io = FileIO(calls, IdSource().new_id)
    if not is_table(io, f"{world.root}/{name}"):
        return None
    table = open_table(io, f"{world.root}/{name}", for_writing=True)
    if table.snapshots.latest() is None:
        return None
    return roll_back(table, find(table, 1), OPTIONS, "a test")


@pytest.mark.parametrize("make, name", [(ManyWorld, "a"), (ManyWorld, "rejected"), (LettersWorld, "orders")])
def test_one_of_several_tables_goes_back_at_any_call(make, name, rng):
    """The query does not stop. In the others each row is there once; in this one those that left did so at once."""
    _at_calls(make, name, 1 + rng.randrange(STRIDE), STRIDE)


@pytest.mark.soak
@pytest.mark.parametrize("make, name", [(ManyWorld, "a"), (LettersWorld, "orders"), (LettersWorld, "rejected")])
def test_one_of_several_tables_goes_back_at_many_calls(make, name, rng):
    """More of them."""
    print(f"RESULT rollback of {name}: {_at_calls(make, name, 1 + rng.randrange(37), 37)} calls, doubled=0 stopped=0")


def _at_calls(make, name, first, stride):
    world = make()
    world.run(boundaries=MANY[:1])
    begun = copy.deepcopy((world.calls, world.checkpoint, world._versions))
    counting = CrashingCalls(world.calls)
    world.run(counting)
    chosen = range(first, counting.count + 1, stride)
    for number in chosen:
        world.calls, world.checkpoint, world._versions = copy.deepcopy(begun)
        calls, done, inner = CrashingCalls(world.calls), [], world.calls

        def before_call(calls=calls, number=number, done=done, inner=inner):
            if calls.count + 1 >= number and not done:
                done.append(None)
                before = world.rows()
                done[0] = _back(world, inner, name)
                done.append(_left(before, world.rows()))

        calls.before_call = before_call
        world.run(calls)
        world.run()
        found = Counter(row[1] for row in world.rows())
        left = done[1] if len(done) > 1 else set()
        assert found == Counter(n for n in range(MANY[-1]) if n not in left), f"{name} rolled back at call {number}"
    return len(chosen)


def _left(before, after):
    """Numbers of the rows that the rollback took out."""
    return {row[1] for row in before} - {row[1] for row in after}


def test_an_index_goes_back_too():
    """It may be all that has changed; formerly there was nothing to do then."""
    table = new_table(MemoryCalls(), options={})
    commit(table, Changes((add("data-a.parquet", part("a")),)))
    of_index = IndexManifestEntry(FileKind.ADD, part("a"), 0, index_file("index-1", "HASH"))
    commit(table, Changes((), (of_index,)), kind="OVERWRITE")
    done = roll_back(table, find(table, 1), OPTIONS, "a test")
    assert done.snapshot_id == 3 and table.manifests.index_of(table.snapshots.latest()) == []
    assert roll_back(table, find(table, 2), OPTIONS, "a test").pins, "what comes back is kept from expiry"
    assert table.manifests.index_of(table.snapshots.latest()) == [of_index]
    assert roll_back(table, find(table, 2), OPTIONS, "a test").snapshot_id is None
