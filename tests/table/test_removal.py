"""Lists of what goes, in places and at times that nobody thought of when they were written."""

import dataclasses

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.storage.file_io import FileIO
from streamsink.table.care.expire_snapshots import expire
from streamsink.table.care.named import DataFile
from streamsink.table.care.removal import Head, Removal, finish, unfinished
from streamsink.table.table import Table
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash
from tests.table.entries import ROOT
from tests.table.test_expire_snapshots import check_whole, files, history, keep, nobody, over, rolls_back

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
