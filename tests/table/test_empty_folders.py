"""Folders in which nothing is left go with the last file, and never from under a writer that is about to use them."""

import dataclasses
import itertools
import os
from datetime import timedelta

import pytest

from streamsink.format.manifest import FileKind
from streamsink.format.types import parse_ddl
from streamsink.sinks.paimon.care.needed import needed_by_journals
from streamsink.storage.file_io import local_file_io
from streamsink.table.care.empty_folders import delete_empty_folders, folders_of
from streamsink.table.care.expire_partitions import PartitionRule, expire_partitions
from streamsink.table.care.expire_snapshots import expire
from streamsink.table.care.orphan_files import remove_orphans
from streamsink.table.care.removal import Needed, unfinished
from streamsink.table.care.tags import delete_tags
from streamsink.table.commit.changes import Changes
from streamsink.table.table import create_table, is_table, new_schema, open_table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.crash.world import BOUNDARIES, die_at_step, ends_right, expected, memory_world, posix_world
from tests.table.caring import check_whole, keep, nobody, over, tag
from tests.table.entries import OPTIONS, add, commit, new_table, part

CLEANS = {"snapshot.clean-empty-directories": "true"}
_DAY_MS = 86_400_000
_STRIDES = pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.soak)])
_ONE = BOUNDARIES[:1]  # afterwards each partition has a file


def _writes(table, names, deleted=()):
    """Commit files, each of which is there in the partition of its own name, and delete others."""
    added = [add(name, part(name)) for name in names]
    for entry in added:
        folder = table.layout.within(f"part={entry.file.file_name}/bucket-0")
        table.file_io.make_dir(folder)
        table.file_io.write(f"{folder}/{entry.file.file_name}", b"x")
        table.file_io.sync_dir(folder)
    gone = [dataclasses.replace(add(name, part(name)), kind=FileKind.DELETE) for name in deleted]
    commit(table, Changes((*gone, *added)), kind="OVERWRITE" if gone else "APPEND")


def _table(options=CLEANS):
    """Three snapshots: partitions a and b, then c in the place of a, then d in the place of c."""
    table = new_table(MemoryCalls(), options=options)
    _writes(table, "ab")
    _writes(table, "c", "a")
    _writes(table, "d", "c")
    return table


def _folders(table) -> list[str]:
    found = folders_of(table, table.root, table.known_schema.partition_keys, partitions=True)
    return sorted(table.layout.relative(path) for path in found)


def _of(names) -> list[str]:
    return sorted(path for name in names for path in (f"part={name}", f"part={name}/bucket-0"))


@pytest.mark.parametrize(
    ("options", "stay"),
    [
        (CLEANS, "bd"),
        ({"snapshot.expire.clean-empty-directories": " TRUE"}, "bd"),
        ({"snapshot.clean-empty-directories": "false", "snapshot.expire.clean-empty-directories": "true"}, "abcd"),
        ({}, "abcd"),
    ],
)
def test_the_folders_of_what_has_expired_go_where_the_table_says_so(options, stay):
    """The bucket's and the partition's; what Paimon called the option before counts where the present name is not."""
    table = _table(options)
    expire(over(table), keep(1), nobody)
    assert _folders(over(table)) == _of(stay) and check_whole(table) == {"snapshot-3": "bd"}


def test_a_folder_with_anything_in_it_stays():
    """A file of a writer that has not committed; and so do the folders above it."""
    table = _table()
    table.file_io.write(table.layout.within("part=a/bucket-0/new"), b"x")
    table.file_io.write(table.layout.within("part=c/note"), b"x")
    expire(over(table), keep(1), nobody)
    assert _folders(over(table)) == sorted([*_of("abd"), "part=c"])


def test_a_table_without_partitions():
    """Only the bucket's folder can go."""
    table = new_table(MemoryCalls(), (), CLEANS)
    table.file_io.make_dir(table.layout.within("bucket-0"))
    table.file_io.write(table.layout.within("bucket-0/a"), b"x")
    commit(table, Changes((add("a"),)))
    commit(table, Changes((dataclasses.replace(add("a"), kind=FileKind.DELETE),)), kind="OVERWRITE")
    expire(over(table), keep(1), nobody)
    assert _folders(over(table)) == [] and table.snapshots.ids() == [2]


def test_tags_keep_folders_as_they_keep_files():
    """With the tag the last file goes, and with it the folder."""
    table = _table()
    tag(table, 2)
    expire(over(table), keep(1), nobody)
    assert _folders(over(table)) == _of("bcd")
    delete_tags(over(table), ["t"], nobody)
    assert _folders(over(table)) == _of("bd")


def test_a_dropped_partition_loses_its_folder_when_the_snapshots_before_expire():
    """Not with the drop, which deletes no file."""
    table = new_table(MemoryCalls(), options=CLEANS)
    _writes(table, ["2024-01-01", "x"])
    expire_partitions(over(table), OPTIONS, PartitionRule.of("t", {}, time=timedelta(days=2)))
    assert _folders(over(table)) == _of(["2024-01-01", "x"])
    expire(over(table), keep(1), nobody)
    assert _folders(over(table)) == _of(["x"])


@pytest.mark.in_turn("deaths among empty folders", 1)
@_STRIDES
@pytest.mark.parametrize("power", [False, True])
def test_a_death_at_each_call(power, stride, rng):
    """The next run finishes, and a folder that a power failure brings back has nothing in it."""
    for n in itertools.count(1 + rng.randrange(stride), stride):
        table = _table()
        calls = CrashingCalls(table.file_io._calls, n)
        try:
            expire(over(table, calls), keep(1), nobody)
        except InjectedCrash:
            table.file_io._calls.power_failure() if power else None
            check_whole(table)
            expire(over(table), keep(1), nobody)
        else:
            break
        assert check_whole(table) == {"snapshot-3": "bd"} and unfinished(over(table)) == []
        there = [table.layout.relative(path) for path in folders_of(table, table.root, ["part"])]
        empty = {path for path in there if not table.file_io.names(table.layout.within(path))}
        assert set(there) - empty == {"part=b/bucket-0", "part=d/bucket-0"}
        assert power or not empty, f"call {n}"
    assert n > 20


def test_folders_of_pending_records_stay():
    """The record is a promise whose folders were tried out; somebody else may not be able to make them again."""
    table = _table()
    needed = Needed(folders=frozenset({"orders/part=a/bucket-0", "part=cc/bucket-0"}))
    expire(over(table), keep(1), lambda: needed)
    assert _folders(over(table)) == _of("abd")
    world = memory_world(table_options=CLEANS)
    assert die_at_step("precommit.saved", 1, world)
    table = open_table(world.file_io(world.calls), world.driver.root, for_writing=True)
    there = list(folders_of(table, table.root, ["part"]))
    assert len(there) == 3 and not any(map(table.file_io.names, there))
    delete_empty_folders(table, there, needed_by_journals(table)().folders)
    assert list(folders_of(table, table.root, ["part"])) == there
    delete_empty_folders(table, there, ())
    assert _folders(table) == []
    ends_right(world, "without the folders")


def test_orphan_files_and_folders_that_are_empty_for_long_go(tmp_path):
    """A young one may be that of a batch."""
    io = local_file_io(flush=False)
    table = create_table(io, str(tmp_path / "t"), new_schema(parse_ddl("id BIGINT, part STRING"), ["part"], CLEANS))
    _writes(table, "ab")
    old_s = (io.modified_ms(table.layout.schema(0)) - 3 * _DAY_MS) / 1000
    for name in ("old", "young"):
        io.make_dir(table.layout.within(f"part={name}/bucket-0"))
    io.make_dir(table.layout.within("part=bare"))
    io.make_dir(table.layout.within("part=orphan/bucket-0"))
    io.write(table.layout.within("part=orphan/bucket-0/data-x"), b"x")
    for path in ("part=old/bucket-0", "part=bare", "part=orphan/bucket-0/data-x"):
        os.utime(table.layout.within(path), (old_s, old_s))
    assert remove_orphans(table, nobody).paths == (table.layout.within("part=orphan/bucket-0/data-x"),)
    assert _folders(table) == _of(["a", "b", "young"])


def _deletes(world, again: bool) -> None:
    """Somebody deletes all empty folders of the table, durably. again: and another writer makes them, not durably."""
    io = world.file_io(world.calls)
    if not is_table(io, world.driver.root):
        return
    table = open_table(io, world.driver.root, for_writing=True)
    before = _folders(table)
    delete_empty_folders(table, [*folders_of(table, table.root, ["part"])], ())
    for path in (table.root, *map(table.layout.within, _folders(table))):
        world.calls.sync_dir(path)
    if again:
        for path in sorted(set(before) - set(_folders(table))):
            world.calls.mkdir(table.layout.within(path))


@pytest.mark.in_turn("folders that go", 1)
@_STRIDES
@pytest.mark.parametrize("again", [False, True])
def test_a_query_whose_folders_go_between_two_calls(again, stride, rng):
    """It goes on, and a power failure after its end takes no row."""
    for n in itertools.count(1 + rng.randrange(stride), stride):
        world = memory_world(table_options=CLEANS)
        calls, happened = CrashingCalls(world.calls), list[int]()

        def happens(world=world, calls=calls, happened=happened, n=n):
            if calls.count == n - 1 and not happened:
                happened.append(n)
                _deletes(world, again)

        calls.before_call = happens
        world.run(calls, _ONE)
        assert world.ids() == expected(_ONE), f"call {n}"
        if not happened:
            break
        world.calls.power_failure()
        assert world.ids() == expected(_ONE), f"call {n}, and a power failure"


def test_the_same_on_the_local_disk(tmp_path):
    """Its errors are those of the system; they go again and again."""
    for turn in range(0, 29, 3):
        world = posix_world(tmp_path / str(turn), table_options=CLEANS)
        calls = CrashingCalls(world.calls)

        def happens(calls=calls, world=world, turn=turn):
            _deletes(world, False) if calls.count % 29 == turn else None

        calls.before_call = happens
        world.run(calls, _ONE)
        assert world.ids() == expected(_ONE), f"call {turn} of each 29"
