"""What another program is still writing is flushed meanwhile, and no error of the disk is lost by that."""

import errno
import os
import threading

import pytest

from streamsink.clock import IdSource
from streamsink.spark.rows.flush_ahead import FlushAhead
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO

_LONG_S = 200


class _Disk(PosixCalls):
    """Records when a file is flushed.
    A file named ``bad`` cannot be flushed, and the disk says so once, as Linux does; ``gone`` vanishes before."""

    def __init__(self):
        self.looks = threading.Semaphore(0)
        self.flushed: list[tuple[str, int]] = []
        self.looked = threading.Condition()
        self._has_said_so = False

    def entries(self, path):
        found = super().entries(path)
        self.looks.release()
        return found

    def sync_file(self, path):
        name, size = os.path.basename(path), os.path.getsize(path)
        with self.looked:
            self.flushed.append((name, size))
            self.looked.notify_all()
        if name == "bad" and not self._has_said_so:
            self._has_said_so = True
            raise OSError(errno.EIO, "Input/output error")
        if name == "gone":
            os.unlink(path)
        super().sync_file(path)

    def wait_for(self, name: str, size: int) -> None:
        with self.looked:
            assert self.looked.wait_for(lambda: (name, size) in self.flushed, _LONG_S), self.flushed


def _io(calls: PosixCalls, flush: bool = True) -> FileIO:
    return FileIO(calls, IdSource().new_id, flush)


def _write(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(text)


def test_a_file_is_flushed_whenever_it_has_grown(tmp_path):
    """This includes a file in a folder that comes into being later. A hidden file is never flushed, and one that has
    not grown is not flushed again."""
    disk = _Disk()
    with FlushAhead(_io(disk), str(tmp_path / "out")):
        _write(tmp_path / "out" / "_temporary" / "0" / "part", "one")
        _write(tmp_path / "out" / "_temporary" / "0" / ".part.crc", "crc")
        disk.wait_for("part", 3)
        _write(tmp_path / "out" / "_temporary" / "0" / "part", "two")
        disk.wait_for("part", 6)
        _write(tmp_path / "out" / "later", "x")
        disk.wait_for("later", 1)
    assert sorted(disk.flushed) == [("later", 1), ("part", 3), ("part", 6)]


def test_an_error_that_the_disk_says_once_fails_the_block(tmp_path):
    """The flush that counts would not see it any more."""
    disk = _Disk()
    with pytest.raises(OSError, match="Input/output error"):
        with FlushAhead(_io(disk), str(tmp_path)):
            _write(tmp_path / "bad", "x")
            disk.wait_for("bad", 1)
    _io(disk).flush_file(str(tmp_path / "bad"))


def test_the_error_of_the_block_goes_first(tmp_path):
    """It says what went wrong. The thread has ended."""
    disk = _Disk()
    with pytest.raises(ValueError, match="the job"):
        with FlushAhead(_io(disk), str(tmp_path)):
            _write(tmp_path / "bad", "x")
            disk.wait_for("bad", 1)
            raise ValueError("the job")
    assert "streamsink-flush-ahead" not in {thread.name for thread in threading.enumerate()}


def test_files_come_and_go(tmp_path):
    """A program renames and removes what it likes."""
    disk = _Disk()
    with FlushAhead(_io(disk), str(tmp_path)):
        _write(tmp_path / "gone", "x")
        disk.wait_for("gone", 1)
        _write(tmp_path / "stays", "x")
        disk.wait_for("stays", 1)


def test_nothing_is_flushed_where_nothing_is_to_be(tmp_path):
    """That is ``flush=False``."""
    disk = _Disk()
    _write(tmp_path / "file", "x")
    with FlushAhead(_io(disk, flush=False), str(tmp_path)):
        assert disk.looks.acquire(timeout=_LONG_S) and disk.looks.acquire(timeout=_LONG_S)  # The first look is over.
    assert disk.flushed == []
