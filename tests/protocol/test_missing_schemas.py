"""Files are published only in a table that has the schema with which they were written:
otherwise no reader could open the table."""

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.format.types import parse_ddl
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.table import open_table
from streamsink.testing.crashing import CrashingCalls
from tests.crash.world import die_at_step, memory_world
from tests.table.entries import add, commit, part

ENDS = (3, 6, 9, 12)
_COLUMNS = "id BIGINT, part STRING, version BIGINT, more STRING"


def _open(world, calls=None):
    return open_table(FileIO(calls or world.calls, IdSource().new_id), world.driver.root, for_writing=True)


def _evolve(world) -> None:
    """Somebody adds a column."""
    _open(world).evolve(parse_ddl(_COLUMNS), add_columns=True, widen_types=False)


def _restored_from_an_old_copy(world) -> bytes:
    """Put the metadata folders back as they were after the first batch.
    Returns the content of the schema file that is missing now."""
    io, root = FileIO(world.calls, IdSource().new_id), world.driver.root
    lost = io.read(f"{root}/schema/schema-1")
    for path in (*(f"snapshot/snapshot-{n}" for n in (2, 3)), "snapshot/LATEST", "schema/schema-1"):
        io.delete(f"{root}/{path}")
    return lost


def _republishing():
    """Two batches of the second schema are published, and the table is an older copy.
    Returns the world and the content of the lost schema file."""
    world = memory_world(on_rollback="republish", journal_retain=10, add_columns=True)
    world.run(boundaries=ENDS[:1])
    _evolve(world)
    world.run(boundaries=ENDS[:3])
    return world, _restored_from_an_old_copy(world)


def _pending():
    """The same with a pending batch, in a table that was not rolled back but has lost the schema file."""
    world = memory_world(add_columns=True)
    world.run(boundaries=ENDS[:1])
    _evolve(world)
    assert die_at_step("precommit.saved", 1, world, boundaries=ENDS[:3])
    return world, _restored_from_an_old_copy(world)


_EACH = pytest.mark.parametrize("made", [_republishing, _pending], ids=["republished", "pending"])


def _refused(world):
    before = world.ids()
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=ENDS)
    assert refused.value.kind == "schema.gone"
    assert world.ids() == before, "something was published"
    return refused.value


@_EACH
def test_files_whose_schema_is_missing_are_not_published(made):
    """The error names the table, the schema and the missing file. What is in the table stays readable."""
    world, _ = made()
    told = str(_refused(world))
    for word in (world.driver.root, "schema-1", "schema-0", "Nothing was published"):
        assert word in told, told


@_EACH
@pytest.mark.parametrize("way", ["put-back", "made-again"])
def test_both_ways_on_that_the_error_names(made, way):
    """Either the file comes from a backup, or the same change of the schema is made again.
    Each row is there once, and the query goes on."""
    world, lost = made()
    told = str(_refused(world))
    if way == "put-back":
        assert "Put" in told and "back" in told
        FileIO(world.calls, IdSource().new_id).write(f"{world.driver.root}/schema/schema-1", lost)
    else:
        assert "same change" in told
        _evolve(world)
    world.run(boundaries=ENDS)
    assert world.ids() == list(range(12))


def test_a_running_query_notices_it_too():
    """The schema file vanishes between two batches of one run, and the next batch is not published."""
    world = memory_world(add_columns=True)
    world.run(boundaries=ENDS[:1])
    _evolve(world)
    sink = world.driver.start(FileIO(world.calls, IdSource().new_id), world.checkpoint)
    world.checkpoint.ends = list(ENDS)
    sink.batch(world.driver.describe(world.checkpoint, 1))
    FileIO(world.calls, IdSource().new_id).delete(f"{world.driver.root}/schema/schema-1")
    with pytest.raises(Corrupt) as refused:
        sink.batch(world.driver.describe(world.checkpoint, 2))
    assert refused.value.kind == "schema.gone"
    assert _open(world).snapshots.ids() == [1, 2]


def test_the_look_costs_nothing_in_a_table_whose_schema_never_changed():
    """Its only schema file is read for the table's identity anyway.
    In another table a commit asks for one more file."""
    asked = []
    for evolved in (False, True):
        world = memory_world(add_columns=True)
        world.run(boundaries=ENDS[:1])
        if evolved:
            _evolve(world)
        calls = CrashingCalls(world.calls)
        table = _open(world, calls)
        table.snapshots.latest(), table.latest_schema()
        before = calls.by_name["size"] + calls.by_name["read"]
        commit(table, Changes((add("new", part("x")),)))
        asked.append(calls.by_name["size"] + calls.by_name["read"] - before)
    assert asked[1] - asked[0] == 1
