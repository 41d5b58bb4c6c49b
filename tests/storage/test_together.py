"""What is flushed together is flushed wholly, on every kind of calls.
An error is raised only when nothing is under way any more."""

import errno
import os
import threading
import time

import pytest

from streamsink.clock import IdSource
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.memory import MemoryCalls


class _Slow(PosixCalls):
    """Closing a file takes a while; closing the file named ``bad`` fails at once. Remembers who flushed what."""

    def __init__(self):
        self.flushed: list[str] = []
        self.threads: set[int] = set()

    def close(self, stream, flush):
        name = os.path.basename(stream.name)
        if name == "bad":
            stream.close()
            raise OSError(errno.EIO, "no")
        time.sleep(0.05)
        super().close(stream, flush)
        self.flushed.append(name)
        self.threads.add(threading.get_ident())


def test_files_are_flushed_by_several_threads_and_folders_with_them(tmp_path):
    """This is on the local disk."""
    calls = _Slow()
    io = FileIO(calls, IdSource().new_id)
    with io.flush_group() as group:
        for number in range(5):
            group.write(f"{tmp_path}/new/{number}", b"x" * number)
        group.sync_dir(f"{tmp_path}/new")
        group.flush()
    assert sorted(calls.flushed) == list("01234") and len(calls.threads) > 1
    assert [io.read(f"{tmp_path}/new/{number}") for number in range(5)] == [b"x" * number for number in range(5)]


@pytest.mark.parametrize("bad", range(4))
def test_one_error_is_raised_when_all_have_ended(tmp_path, bad):
    """It may be any of the errors. By then nobody still writes to a file that the caller deletes next."""
    calls = _Slow()
    group = FileIO(calls, IdSource().new_id).flush_group()
    for number in range(4):
        group.write(f"{tmp_path}/{'bad' if number == bad else number}", b"x")
    with pytest.raises(OSError, match="no"):
        group.flush()
    assert len(calls.flushed) == 3


def test_what_was_not_flushed_is_forgotten_by_a_power_failure_and_what_was_is_not():
    """This holds for files, and for names of folders whose sync was put off."""
    calls = MemoryCalls()
    io = FileIO(calls, IdSource().new_id)
    io.make_dir("/t")
    io.begin_dir("/t/a")
    io.begin_dir("/t/b")
    with io.flush_group() as group:
        group.write("/t/a/1", b"one")
        group.sync_dir("/t/a")
        group.flush()
    group = io.flush_group()
    group.write("/t/b/2", b"two")
    group.sync_dir("/t/b")
    calls.power_failure()
    assert io.read("/t/a/1") == b"one"
    assert io.entries("/t/b") == []


def test_a_group_that_is_given_up_leaves_its_files_closed(tmp_path):
    """After an error in the middle of it nothing is flushed, and the names are there to be swept."""
    io = FileIO(PosixCalls(), IdSource().new_id)
    with pytest.raises(FileExistsError):
        with io.flush_group() as group:
            group.write(f"{tmp_path}/1", b"x")
            group.write(f"{tmp_path}/1", b"x")
    assert io.names(str(tmp_path)) == ["1"]
    group.flush()


def test_a_prepared_creation_is_one_or_is_given_up(tmp_path):
    """The bytes are written ahead, and the name is given once."""
    io = FileIO(PosixCalls(), IdSource().new_id)
    path = f"{tmp_path}/snapshot-1"
    for unique in ("a", "b", "c"):
        with io.flush_group() as group:
            io.prepare(group, path, unique.encode(), unique)
            group.flush()
    assert io.create_if_absent(path, b"a", "a", prepared=True)
    assert not io.create_if_absent(path, b"b", "b", prepared=True)
    io.give_up(path, "c")
    assert io.names(str(tmp_path)) == ["snapshot-1"] and io.read(path) == b"a"
