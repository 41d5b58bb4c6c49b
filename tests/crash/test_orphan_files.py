"""Orphan files go, and nothing else: whatever is pending, being made, or retained stays, after any death of a query."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.format.manifest_list import write_manifest_list
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.sinks.paimon.care.needed import needed_of_all
from streamsink.storage.s3 import S3FileIO
from streamsink.table.care import orphan_files
from streamsink.table.care.orphan_files import plan, remove_orphans
from streamsink.table.care.removal import Needed
from streamsink.table.table import is_table, open_table
from streamsink.testing.memory import MemoryCalls
from tests.crash.letters_world import LettersWorld
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.sweeps import deaths
from tests.crash.world import World, die_at_step, ends_right, expected, memory_world
from tests.storage.memory_s3 import MemoryS3Calls
from tests.table.caring import change, check_whole, over
from tests.table.entries import new_table

DAY = 86_400_000


def _age(world, ms=2 * DAY) -> None:
    """Let all files be older."""
    for file in world.calls._names.values():
        file.modified_ms -= ms


def _tables(world) -> list:
    io = world.file_io(world.calls)
    paths = [f"{world.root}/{name}" for name in world.tables] if isinstance(world, ManyWorld) else [world.driver.root]
    return [open_table(io, path, for_writing=True) for path in paths if is_table(io, path)]


def _cleans(world) -> int:
    """Remove what is orphaned, in all tables; how many files that were."""
    return sum(len(remove_orphans(table, needed_of_all(table)).paths) for table in _tables(world))


@pytest.mark.parametrize("stride", [151, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("make", [memory_world, ManyWorld, LettersWorld], ids=["one", "many", "letters"])
def test_cleaning_after_a_death(make, stride, rng):
    """Days later. The restart finds all that it needs."""
    world, gone = make(), 0
    for left in deaths(world)[rng.randrange(stride) :: stride]:
        left.put_back(world, False)
        _age(world)
        gone += _cleans(world)
        if make is memory_world:
            ends_right(world, str(left))
            assert world.ids() == expected()
        else:
            world.run()
            check_complete(world.rows()) if make is ManyWorld else world.check_complete()
        _age(world)
        _cleans(world)
        assert world.unknown_files() == []


def test_only_what_nothing_names_and_is_old_goes():
    """In each folder one file that nothing names, of which those go that are older than a day."""
    world = memory_world()
    world.run()
    [table] = _tables(world)
    root, orphans = table.root, set()
    before = set(world.calls._names)
    for path in (
        "manifest/manifest-x-0",
        "index/index-x",
        "statistics/stat-x",
        "snapshot/.snapshot-9.x.tmp",
        "part=a/bucket-0/data-x",
    ):
        table.file_io.make_dir(f"{root}/{path}".rpartition("/")[0])
        table.file_io.write(f"{root}/{path}", b"12")
        orphans.add(f"{root}/{path}")
    table.file_io.make_dir(f"{root}/other")
    strange = ("bucket-0/file", "part=a/bucket-old/file", "year=1/bucket-0/file", "part=a/part=a/bucket-0/file")
    for path in ("other/file", f"{JOURNAL_DIR}/file", "file", *strange):
        table.file_io.make_dir(f"{root}/{path}".rpartition("/")[0])
        table.file_io.write(f"{root}/{path}", b"x")
        before.add(f"{root}/{path}")
    planned = plan(table, needed_of_all(table))
    assert planned.paths == () and planned.young == len(orphans) and "too young" in str(planned)
    _age(world)
    young = f"{root}/part=a/bucket-0/data-y"
    table.file_io.write(young, b"x")
    planned = plan(table, needed_of_all(table))
    assert (set(planned.paths), planned.bytes, planned.young) == (orphans, 10, 1) and orphans <= set(world.calls._names)
    assert set(remove_orphans(table, needed_of_all(table)).paths) == orphans
    assert set(world.calls._names) == before | {young}


def test_files_of_a_pending_record_stay():
    """Under final names already, and days old."""
    world = memory_world()
    assert die_at_step("commit.placed", 2, world)
    _age(world)
    [table] = _tables(world)
    names = needed_of_all(table)().files
    assert names and _cleans(world) == 0
    ends_right(world, "restarted")


def test_files_of_a_record_that_is_being_made_stay(monkeypatch):
    """On S3 they have their final names before their record, and the journal's announcement has its id."""
    root = "s3://bucket/shop.db/orders"
    world = World(MemoryS3Calls(), root, make_io=lambda over: S3FileIO(over, IdSource().new_id, root), small=True)
    assert die_at_step("precommit.before_record", 2, world)
    [table] = _tables(world)
    attempts = needed_of_all(table)().attempts
    assert attempts
    store = world.calls
    monkeypatch.setattr(type(store), "modified_ms", lambda self, path: 1 if self.size(path) is not None else None)
    made = [path for path in store._objects if any(each in path for each in attempts) and "/bucket-0/" in path]
    assert made and not set(made) & set(plan(table, needed_of_all(table)).paths)


def test_a_journal_that_is_not_found_is_asked_for():
    """Nobody knows what it is about to publish."""
    world = memory_world()
    world.run()
    [table] = _tables(world)
    table.file_io.delete_tree(f"{table.root}/{JOURNAL_DIR}/streamsink")
    with pytest.raises(Misuse, match="journal of 'streamsink'") as refused:
        plan(table, needed_of_all(table))
    assert refused.value.kind == "orphans.journal-unknown"
    assert plan(table, needed_of_all(table, without=["streamsink"])).paths == ()


def test_what_cannot_be_read_keeps_everything():
    """A record of which a byte was changed."""
    world = memory_world()
    assert die_at_step("precommit.saved", 2, world)
    [table] = _tables(world)
    path = f"{table.root}/{JOURNAL_DIR}/streamsink/record-2.json"
    table.file_io.replace(path, table.file_io.read(path)[:-3], "x")
    _age(world)
    before = set(world.calls._names)
    with pytest.raises(Corrupt, match="record-2"):
        _cleans(world)
    assert set(world.calls._names) == before


def test_a_moment_within_the_last_hour_is_refused():
    """A batch that is being written is as young."""
    world = memory_world()
    world.run()
    [table] = _tables(world)
    with pytest.raises(Misuse, match="less than an hour"):
        plan(table, needed_of_all(table), before_ms=2**53)


def test_a_journal_of_the_same_name_is_not_that_of_the_table():
    """Most queries have the default name. Such a journal lies beside, of another table, and knows nothing of it."""
    world = memory_world()
    world.run()
    [table] = _tables(world)
    other = World(world.calls, f"{table.root}-2")
    other.run()
    assert needed_of_all(table)().since is None
    table.file_io.delete_tree(f"{table.root}/{JOURNAL_DIR}/streamsink")
    with pytest.raises(Misuse, match="the journal of 'streamsink' is not"):
        needed_of_all(table)()
    assert needed_of_all(table, without=["streamsink"])().since is None


@pytest.mark.parametrize("name", ["of-others", "manifest-list-of-others"])
def test_files_in_manifests_of_any_name_stay(name):
    """Other writers name theirs as they like."""
    table = new_table(MemoryCalls())
    made = change(table, "ab").snapshot
    [meta] = table.manifests.delta_of(made)
    io, at = table.file_io, table.layout.manifest
    io.write(at(name), io.read(at(meta.file_name)))
    io.replace(at(made.delta_manifest_list), write_manifest_list([replace(meta, file_name=name)]), "x")
    io.delete(at(meta.file_name))
    for file in io._calls._names.values():
        file.modified_ms -= 2 * DAY
    assert check_whole(table)["snapshot-1"] == "ab"
    assert plan(over(table), Needed).paths == ()


def test_a_clock_that_is_ahead_makes_no_file_old(monkeypatch):
    """The store tells how old its files are; files of other programs that are about to be committed are young."""
    world = memory_world()
    world.run()
    [table] = _tables(world)
    young = f"{table.root}/part=a/bucket-0/data-x"
    table.file_io.write(young, b"12")
    now = Clock().now_ms()
    monkeypatch.setattr(orphan_files, "Clock", lambda: SimpleNamespace(now_ms=lambda: now + 2 * DAY))
    before = set(world.calls._names)
    assert remove_orphans(table, needed_of_all(table)).paths == ()
    with pytest.raises(Misuse, match="less than an hour"):
        remove_orphans(table, needed_of_all(table), now + DAY)
    assert set(world.calls._names) == before and young in before
