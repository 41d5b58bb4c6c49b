"""Lists of what goes, in places and at times that nobody thought of when they were written."""

import copy
import dataclasses

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.format.manifest import FileKind
from streamsink.storage.file_io import FileIO
from streamsink.table.care.expire_snapshots import expire, plan
from streamsink.table.care.named import DataFile
from streamsink.table.care.removal import Head, Removal, finish, unfinished
from streamsink.table.care.tags import delete_tags
from streamsink.table.commit.changes import Changes
from streamsink.table.table import Table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.table.caring import HISTORY_OF, change, check_whole, files, history, keep, nobody, over, rolls_back, tag
from tests.table.entries import ROOT, add, commit, new_table, part

_COPY = "/lake/shop.db/copy"


def _dies_with_a_list(table):
    """An expiry down to two snapshots that dies when its list is durable."""
    mortal = CrashingCalls(table.file_io._calls)

    def dies():
        if unfinished(over(table)):
            mortal.before_call = lambda: None
            raise InjectedCrash("with a list")

    mortal.before_call = dies
    with pytest.raises(InjectedCrash):
        expire(over(table, mortal), keep(2), nobody)
    assert len(unfinished(over(table))) == 1


def _copied(table) -> Table:
    """The table's whole folder, copied while no process is at work."""
    io = table.file_io
    for path in (*files(table), table.layout.latest_hint, table.layout.earliest_hint):
        to = _COPY + path.removeprefix(ROOT)
        io.make_dir(to.rpartition("/")[0])
        io.write(to, io.read(path))
    return Table(FileIO(io._calls, IdSource().new_id), _COPY)


def test_a_copy_of_a_table_deletes_nothing_of_the_original():
    """The list is copied with it. The original has gone back meanwhile, to a snapshot that was to go."""
    table = history()
    _dies_with_a_list(table)
    copied = _copied(table)
    rolls_back(table, 3)
    assert finish(copied, nobody).snapshots == (1, 2, 3, 4, 5)
    assert check_whole(table)["snapshot-3"] == "cd"
    assert copied.snapshots.ids() == [6, 7] and unfinished(copied) == [] and len(unfinished(table)) == 1
    gone = {f"{_COPY}/part=x/bucket-0/{name}" for name in "abcde"}
    assert not gone & files(copied, _COPY), "its own files went"
    finish(over(table), nobody)
    assert check_whole(table)["snapshot-3"] == "cd"


def test_an_application_whose_name_begins_like_that_of_a_list():
    """Its journal is a folder, which no disk lets be read as a file."""
    table = history()
    table.file_io.make_dir(f"{ROOT}/streamsink/removal-requests")
    table.file_io.write(f"{ROOT}/streamsink/removal-requests/owner-1", b"{}")
    assert unfinished(table) == []
    _dies_with_a_list(table)
    assert finish(over(table), nobody).snapshots == (1, 2, 3, 4, 5)


_PLAIN = Removal((), (6, "x"), (), ())


@pytest.mark.parametrize(
    "odd",
    [
        {"data": (DataFile("f", b"", ("/lake/shop.db/other/bucket-0/f",)),)},
        {"data": (DataFile("f", b"", ("../other/bucket-0/f",)),)},
        {"data": (DataFile("f", b"", ("part=x/bucket-0/g",)),)},
        {"data": (DataFile("f", b"", ("schema/f",)),)},
        {"metadata": ("schema/schema-0",)},
        {"metadata": ("s3://bucket/manifest/manifest-1",)},
        {"heads": (Head("snapshot/snapshot-7", "y", 7),)},
        {"heads": (Head("snapshot/snapshot-5", "y", 4),)},
        {"heads": (Head("snapshot/snapshot-5", "y", None),)},
        {"heads": (Head("snapshot/snapshot-5", "y", 5),), "end": None},
        {"heads": (Head("tag/../snapshot/snapshot-5", "y", None),)},
    ],
    ids=str,
)
def test_a_list_that_names_what_no_list_names(odd):
    """It deletes nothing, whoever has written it."""
    table = history()
    table.file_io.make_dir(f"{ROOT}/streamsink")
    path = f"{ROOT}/streamsink/removal-x.json"
    table.file_io.write(path, dataclasses.replace(_PLAIN, **odd).to_json())
    before = files(table)
    with pytest.raises(Corrupt, match="removal-x.json"):
        expire(over(table), keep(1), nobody)
    assert files(table) == before


def _back(table, added, deleted):
    """A commit that adds files of the past, which are there still, and deletes others."""
    gone = tuple(dataclasses.replace(add(name, part("x")), kind=FileKind.DELETE) for name in deleted)
    commit(table, Changes((*gone, *(add(name, part("x")) for name in added))), kind="OVERWRITE")


# Each commit merges the manifests before it, so that no DELETE hides a file that comes back.
_MERGED = {"manifest.full-compaction-threshold-size": "1 b"}


@pytest.mark.parametrize("keeps", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("tagged", [False, True])
def test_a_file_that_comes_back_for_a_while(keeps, tagged):
    """A rollback as latest brings it; neither the first snapshot that stays nor the newest one names it."""
    table = new_table(MemoryCalls(), options=_MERGED)
    for added, deleted, kind in [
        ("ab", "", "APPEND"),
        ("c", "ab", "COMPACT"),
        ("d", "", "APPEND"),
        ("e", "", "APPEND"),
        ("a", "c", "back"),
        ("f", "", "APPEND"),
        ("g", "ad", "COMPACT"),
        ("h", "", "APPEND"),
    ]:
        _back(table, added, deleted) if kind == "back" else change(table, added, deleted, kind)
    kept = ["cd", "cde", "ade", "adef", "efg", "efgh"][-keeps:]
    if tagged:
        tag(table, 2)
    opened = over(table)
    for number in (7, keeps):  # the second time what was read is known
        expire(opened, keep(number), nobody)
        found = check_whole(table)
    wanted = {f"snapshot-{8 - keeps + n}": live for n, live in enumerate(kept, 1)}
    assert found == wanted | ({"t": "c"} if tagged else {})
    expire(over(table), keep(1), nobody)
    if tagged:
        delete_tags(over(table), ["t"], nobody)
    assert {path.rpartition("/")[2] for path in files(table) if "/bucket-0/" in path} == set("efgh")


def test_a_manifest_that_comes_back_for_a_while():
    """Who publishes a record again has its manifest already."""
    table = new_table(MemoryCalls(), options=_MERGED)
    made = change(table, "ab").snapshot
    [again] = table.manifests.delta_of(made)
    change(table, "c", "ab", "OVERWRITE")
    change(table, "d")
    commit(table, Changes(), manifests=(again,))
    change(table, "e", "a", "OVERWRITE")
    change(table, "f")
    expire(over(table), keep(4), nobody)
    assert check_whole(table)["snapshot-4"] == "abcd"


def test_what_is_known_of_snapshots_is_forgotten_when_the_table_goes_back():
    """The same numbers come again, and bring other files."""
    table = new_table(MemoryCalls(), options=_MERGED)
    change(table, "ab")
    change(table, "c", "ab", "COMPACT")
    for name in "defg":
        change(table, name)
    opened = over(table)
    assert {file.name for file in plan(opened, keep(5), nobody).removal.data} == {"a", "b"}
    rolls_back(table, 3)
    again = over(table)
    _back(again, "a", "d")
    change(again, "x", "a", "OVERWRITE")
    change(again, "y")
    assert {file.name for file in plan(opened, keep(5), nobody).removal.data} == {"b"}


def test_what_a_run_asks_does_not_grow_with_the_snapshots_that_stay():
    """Counted in calls: a run that finds nothing to do, and one that lets one snapshot expire. The first run of an
    opening reads besides what each of those has added."""
    table, asked = history(), {}
    for many in (10, 40):
        while table.snapshots.latest().id < many:
            change(table, application="streamsink", state={"sequence": 1})
        for what, retention in (("nothing", keep(many)), ("one", keep(many - 1))):
            calls = CrashingCalls(copy.deepcopy(table.file_io._calls))
            opened = over(table, calls)
            plan(opened, keep(many - 1), nobody)
            calls.log.clear()
            count = calls.count
            assert len(expire(opened, retention, nobody).snapshots) == (what == "one")
            asked[what, many] = calls.by_name["read"], calls.count - count
    print(f"\n[calls of a run (reads, all): {asked}]")
    assert (asked["nothing", 10], asked["one", 10]) == (asked["nothing", 40], asked["one", 40])


@pytest.mark.parametrize("hint", [True, False])
def test_a_rollback_to_a_snapshot_whose_deletion_dies(hint):
    """The table has no snapshot then. The next run puts it back, or deletes nothing until somebody else has done so."""
    for number in range(1, 5):
        table = history()
        mortal = CrashingCalls(table.file_io._calls)

        def goes(path, table=table, mortal=mortal, number=number, unlink=mortal.unlink):
            unlink_rolled = path.endswith(f"/snapshot-{number}")
            if unlink_rolled:
                rolls_back(over(table), number)
            unlink(path)
            if unlink_rolled:
                mortal.dead = True
                raise InjectedCrash("after the head")

        mortal.unlink = goes
        with pytest.raises(InjectedCrash):
            expire(over(table, mortal), keep(2), nobody)
        assert over(table).snapshots.ids() == [] and unfinished(over(table))
        if not hint:
            table.file_io.delete(table.layout.latest_hint)
            before = files(table)
            expire(over(table), keep(1), nobody)
            assert files(table) == before
            table.file_io.replace(table.layout.latest_hint, str(number).encode(), "x")
        expire(over(table), keep(1), nobody)
        assert check_whole(table) == {f"snapshot-{number}": HISTORY_OF[number]} and unfinished(over(table)) == []
