"""What a store promises, as tests that every back end passes: what is atomic, what is durable, what a missing name means."""

import threading

import pytest

from streamsink.clock import IdSource
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO, FileStatus
from streamsink.storage.memory import MemoryCalls


@pytest.fixture(params=["local", "memory"])
def store(request, tmp_path):
    """(FileIO, root folder) of each back end."""
    if request.param == "local":
        return FileIO(PosixCalls(), IdSource().new_id), str(tmp_path)
    file_io = FileIO(MemoryCalls(), IdSource().new_id)
    file_io.make_dir("/root")
    return file_io, "/root"


def test_create_if_absent_makes_its_folders_and_wins_once(store):
    """The second one gets False, and the first one's bytes stay; no temporary file is left."""
    io, root = store
    path = f"{root}/a/b/snapshot-1"
    assert io.create_if_absent(path, b"first") is True
    assert io.create_if_absent(path, b"second") is False
    assert io.read(path) == b"first"
    assert io.entries(f"{root}/a/b") == [FileStatus("snapshot-1", 5, False)]


def test_of_many_racing_creators_one_wins(tmp_path):
    """Threads race for 300 names on the local disk: one winner each, and its bytes are the ones that are there."""
    io, names, wins = FileIO(PosixCalls(), IdSource().new_id, flush=False), range(300), {}
    lock = threading.Lock()

    def race(me):
        for name in names:
            if io.create_if_absent(f"{tmp_path}/race/{name}", str(me).encode()):
                with lock:
                    wins.setdefault(name, []).append(me)

    threads = [threading.Thread(target=race, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: len(winners) for name, winners in wins.items()} == {name: 1 for name in names}
    assert all(io.read(f"{tmp_path}/race/{name}") == str(wins[name][0]).encode() for name in names)


def test_write_refuses_a_taken_name(store):
    """A file is never written over."""
    io, root = store
    io.write(f"{root}/x", b"1")
    with pytest.raises(FileExistsError):
        io.write(f"{root}/x", b"2")
    assert io.read(f"{root}/x") == b"1"


def test_adopt_is_idempotent_and_keeps_the_source_when_asked(store):
    """Done twice it ends in the same state; with both names gone it says so."""
    io, root = store
    for keep in (False, True):
        source, target = f"{root}/staged-{keep}", f"{root}/dt=1/bucket-0/data-{keep}"
        io.write(source, b"rows")
        io.adopt(source, target, keep)
        io.adopt(source, target, keep)
        assert io.read(target) == b"rows"
        assert io.exists(source) is keep
    with pytest.raises(FileNotFoundError):
        io.adopt(f"{root}/nothing", f"{root}/nowhere", False)


def test_replace_replaces(store):
    """A hint is set again and again."""
    io, root = store
    io.replace(f"{root}/h/LATEST", b"1", "x")
    io.replace(f"{root}/h/LATEST", b"2", "x")
    assert io.read(f"{root}/h/LATEST") == b"2"
    assert [e.name for e in io.entries(f"{root}/h")] == ["LATEST"]


def test_missing_names(store):
    """Nothing there: None, False, empty; reading raises FileNotFoundError."""
    io, root = store
    assert (io.size(f"{root}/x"), io.exists(f"{root}/x"), io.entries(f"{root}/x")) == (None, False, [])
    io.delete(f"{root}/x")
    io.delete_tree(f"{root}/x")
    with pytest.raises(FileNotFoundError):
        io.read(f"{root}/x")


def test_folders_have_size_zero_and_are_listed_as_such(store):
    """A folder exists, and is no file of some bytes."""
    io, root = store
    io.make_dir(f"{root}/d/e")
    assert io.exists(f"{root}/d/e") and io.size(f"{root}/d/e") == 0
    assert io.entries(f"{root}/d") == [FileStatus("e", 0, True)]


def test_delete_tree_leaves_nothing(store):
    """No file at any depth, and no folder."""
    io, root = store
    io.write(f"{root}/t/a", b"1")
    io.write(f"{root}/t/s/b", b"2")
    io.delete_tree(f"{root}/t")
    assert [io.exists(f"{root}/{path}") for path in ("t", "t/a", "t/s/b")] == [False, False, False]


def test_a_hold_is_exclusive_until_released(store):
    """A second one gets None, also in the same process."""
    io, root = store
    release = io.try_hold(f"{root}/j/hold")
    assert release is not None
    assert io.try_hold(f"{root}/j/hold") is None
    release()
    again = io.try_hold(f"{root}/j/hold")
    assert again is not None
    again()


def test_power_failure_forgets_what_was_not_flushed():
    """The model of the memory back end itself: names need their folder synced, bytes need a flush."""
    calls = MemoryCalls()
    io = FileIO(calls, IdSource().new_id)
    io.make_dir("/t")
    io.write("/t/unsynced-name", b"1")
    calls.power_failure()
    assert not io.exists("/t/unsynced-name")
    io.write("/t/kept", b"1")
    io.sync_dir("/t")
    stream = calls.open_new("/t/torn")
    stream.write(b"abc")
    calls.close(stream, flush=False)
    io.sync_dir("/t")
    calls.power_failure()
    assert io.read("/t/kept") == b"1"
    assert io.read("/t/torn") == b""


def test_a_mark_is_set_once_and_again(store):
    """Its name is the message; setting it twice is fine."""
    io, root = store
    io.mark(f"{root}/m/done-1")
    io.mark(f"{root}/m/done-1")
    assert io.entries(f"{root}/m") == [FileStatus("done-1", 0, False)]
