"""A full or read-only disk stops the query with an error that says so. Once that is mended each row is there once.

The kernel refuses the driver's real writes: on a full disk a new file leads to ``/dev/full``. Only root can mount a
file system of its own; where the tests run as root, the same is tried on one as well.
"""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamsink.storage.calls import PosixCalls
from tests.e2e import task_faults
from tests.e2e.harness import assert_each_once, ids_of, run_driver, run_here

pytestmark = pytest.mark.spark

WAYS = {
    "driver": {},
    "spark": {"driver_max_rows": 0, "large_batches": "spark"},
    "tasks": {"driver_max_rows": 0, "large_batches": "tasks"},
}


@contextmanager
def _files_without_room(folder: Path) -> Iterator[None]:
    """New files of this process below the folder can be opened, and the kernel has no room for their first byte."""
    whole = PosixCalls.open_new

    def open_new(calls, path: str):
        stream = whole(calls, path)
        if Path(path).is_relative_to(folder):
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, stream.fileno())
            os.close(full)
        return stream

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PosixCalls, "open_new", open_new)
        yield


@contextmanager
def _filled(folder: Path) -> Iterator[None]:
    """The file system has no room left, for whichever process."""
    filler = folder / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as stream:
        for _ in range(10_000):
            stream.write(b"x" * 4096)
    yield
    filler.unlink()


@contextmanager
def _names_refused(folder: Path) -> Iterator[None]:
    """This process may not change anything below the folder."""

    def refusing(whole: Callable) -> Callable:
        def refuse(calls, path: str, *more):
            if Path(path).is_relative_to(folder):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
            return whole(calls, path, *more)

        return refuse

    with pytest.MonkeyPatch.context() as patch:
        for name in ("open_new", "mkdir", "link", "rename", "unlink", "rmdir", "try_hold"):
            patch.setattr(PosixCalls, name, refusing(getattr(PosixCalls, name)))
        yield


@contextmanager
def _mounted_read_only(folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@pytest.fixture
def folder(request, tmp_path) -> Iterator[Path]:
    """Where the table is: a small file system of its own, which only root may mount, or any folder."""
    folder = tmp_path / "small"
    folder.mkdir()
    is_own = request.param
    if is_own:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        if is_own:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _also_as_root(plain: Callable, mounted: Callable):
    """Two ways to bring the accident about, of which the second needs a file system of its own."""
    ways = [pytest.param(False, plain, id="any folder"), pytest.param(True, mounted, id="own file system")]
    return pytest.mark.parametrize("folder, accident", ways if os.geteuid() == 0 else ways[:1], indirect=["folder"])


@pytest.mark.in_turn("full disks", 1)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@_also_as_root(_files_without_room, _filled)
def test_a_full_disk_loses_nothing(spark, ground, folder, accident, way):
    """The error says so. With room again the restarted query ends with each row once."""
    ground.add_files(0, 2)
    job = ground.job(table=str(folder / "orders"), options=way, per_batch=1)
    assert run_here(spark, job).code == 0
    ground.add_files(2, 1)
    with accident(folder):
        full = run_here(spark, job)
    assert (full.code, full.kind) == (1, "storage.full"), full
    assert job.table in full.message
    assert run_here(spark, job).code == 0
    assert_each_once(job.table, ids_of(0, 3))


@pytest.mark.in_turn("full disks", 1)
def test_a_disk_that_is_full_for_tasks_alone_loses_nothing(spark, ground):
    """The errno with which a task fails reaches the driver as text."""
    ground.add_files(0, 1)
    job = ground.job(options=WAYS["tasks"], conf=task_faults.CONF, max_restarts=1)
    full = run_driver(ground, job, env=task_faults.environment("task.file_opened:no-room:1", ground.root / "marks"))
    assert (full.code, full.kind) == (1, "storage.full"), full
    assert job.table in full.message
    assert run_here(spark, job).code == 0
    assert_each_once(job.table, ids_of(0, 1))


@pytest.mark.in_turn("read-only folders", 1)
@_also_as_root(_names_refused, _mounted_read_only)
def test_a_read_only_folder_loses_nothing(spark, ground, folder, accident):
    """The error says so. Once the folder is writable again each row is there once."""
    ground.add_files(0, 1)
    job = ground.job(table=str(folder / "orders"))
    assert run_here(spark, job).code == 0
    ground.add_files(1, 1)
    with accident(folder):
        refused = run_here(spark, job)
    assert (refused.code, refused.kind) == (1, "storage.read-only"), refused
    assert run_here(spark, job).code == 0
    assert_each_once(job.table, ids_of(0, 2))
