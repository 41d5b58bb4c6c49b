"""A query that writes to a branch, in each kind of store: whatever dies, each row is there once, and none in main."""

import pytest

from streamsink.clock import IdSource
from streamsink.storage.file_io import DistantFileIO, FileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.table.branching import branches
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.crash.world import WAYS, World, ends_right
from tests.storage.memory_s3 import MemoryS3Calls

# Of the states that deaths leave, each n-th one is tried; more with the mark "soak".
STRIDE = 97
STORES = {
    "renames": (MemoryCalls, "/lake/shop.db/orders", lambda over: FileIO(over, IdSource().new_id)),
    "distant": (MemoryCalls, "/lake/shop.db/orders", lambda over: DistantFileIO(over, IdSource().new_id)),
    "s3": (
        MemoryS3Calls,
        "s3://bucket/shop.db/orders",
        lambda over: S3FileIO(over, IdSource().new_id, "s3://bucket/shop.db/orders"),
    ),
}
EACH = pytest.mark.parametrize(
    "store, way", [*((store, "plain") for store in STORES), ("s3", "async"), ("s3", "grouped")]
)


@EACH
def test_a_query_into_a_branch_may_die_anywhere(store, way, rng):
    """Its journal, staging and snapshots are the branch's; its files are in the table's folders."""
    _survives(store, way, rng.randrange(STRIDE), STRIDE)


@pytest.mark.soak
@EACH
def test_a_query_into_a_branch_may_die_at_many_calls(store, way):
    """Every fifth of them."""
    print(f"RESULT branch, {store}, {way}: {_survives(store, way, 0, 5)} deaths, lost=0 doubled=0")


def _survives(store, way, first, stride):
    _, world, _ = _worlds(store, way)
    counting = CrashingCalls(world.calls)
    world.run(counting)
    tried = range(1 + first, counting.count + 1, stride)
    for number in tried:
        main, world, root = _worlds(store, way)
        try:
            world.run(CrashingCalls(world.calls, number))
        except InjectedCrash:
            world.die()
        ends_right(world, f"death at call {number}")
        assert main.ids() == list(range(9)), number
        assert {entry[0] for entry in world.calls.entries(root)} == {"branch", *_OF_MAIN, *_PARTS}
    return len(tried)


def _worlds(store, way):
    """The query that has written the table, the one that writes to its branch, and the table's path."""
    make_calls, root, make_io = STORES[store]
    calls = make_calls()
    main = World(calls, root, make_io=make_io)
    main.run(boundaries=(6, 9))
    branch = branches.create(open_table(make_io(calls), root, for_writing=True), "audit", None)
    return main, World(calls, branch.path, make_io=make_io, application="auditor", **WAYS[way]), root


_OF_MAIN = ["manifest", "schema", "snapshot", "streamsink"]
_PARTS = ["part=__DEFAULT_PARTITION__", "part=a", "part=b"]
