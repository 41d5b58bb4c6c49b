"""No room, no permission, a folder that moved: publishing what is recorded fails retryably, and goes on when that is
mended.
"""

import errno
import os

import pytest

from streamsink import faults
from streamsink.errors import Misuse, Retryable
from streamsink.faults import arm as arm_each
from streamsink.spark.explain import explain
from streamsink.testing.faults import arm
from streamsink.testing.memory import MemoryCalls
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.test_places import mounted  # noqa: F401
from tests.crash.world import is_prefix, memory_world, posix_world

AFTER_THE_RECORD = ["precommit.saved", "commit.placed", "commit.before_filter", "commit.lists_written"]


@pytest.fixture
def disk(tmp_path, mounted):  # noqa: F811
    """A small disk of its own, and a function that fills it."""
    folder = tmp_path / "disk"
    mounted[0](str(folder), "-t", "tmpfs", "-o", "size=600k", "tmpfs")

    def fill():
        with pytest.raises(OSError), open(folder / "filler", "wb", buffering=0) as stream:
            for _ in range(10_000):
                stream.write(b"x" * 4096)

    yield folder, fill


@pytest.mark.parametrize("step", AFTER_THE_RECORD)
def test_a_disk_that_fills_up_after_the_record(disk, step):
    """The error is retryable and names the table; so is that of each restart, until there is room.

    Then each row is there once.
    """
    folder, fill = disk
    world = posix_world(folder)
    world.run(boundaries=(2,))
    arm(step, 1, fill)
    try:
        for _ in range(3):
            with pytest.raises((Retryable, OSError)) as failed:
                world.driver._run_once(world.file_io(world.calls), world.checkpoint, (2, 6))
            told = explain(world.driver.root, failed.value)
            assert isinstance(told, Retryable), told
            assert told.kind == "storage.full" and world.driver.root in str(told) and "Free space" in str(told)
            assert is_prefix(world.ids(), (2, 6))
    finally:
        faults.arm(None)
    (folder / "filler").unlink()
    world.run(boundaries=(2, 6, 8))
    assert world.ids() == list(range(8)) and world.unknown_files() == []


class _Refusing(MemoryCalls):
    """Refuses to give files names in some folders, with this error."""

    refused: tuple[str, int] | None = None

    def link(self, source, target):
        if self.refused is not None and target.startswith(self.refused[0]):
            raise OSError(self.refused[1], os.strerror(self.refused[1]), target)
        return super().link(source, target)


@pytest.mark.parametrize(
    "code", [errno.EROFS, errno.EACCES, errno.EXDEV, errno.ENOTDIR, errno.EDQUOT], ids=errno.errorcode.get
)
@pytest.mark.parametrize("make", [memory_world, ManyWorld], ids=["one", "many"])
def test_a_folder_that_takes_no_files_any_more(make, code):
    """It did when the record was made.

    The error is retryable, names table and folder; mended, the record is published.
    """
    world = make()
    world.calls.__class__ = _Refusing
    root = f"{world.driver.root}/part=" if make is memory_world else f"{world.root}/a"
    arm("precommit.saved", 1, lambda: setattr(world.calls, "refused", (root, code)))
    try:
        for _ in range(2):
            with pytest.raises(Retryable) as failed:
                world.driver._run_once(world.file_io(world.calls), world.checkpoint, (6,))
            assert failed.value.kind.startswith(("storage.", "partition.")) and root in str(failed.value)
    finally:
        faults.arm(None)
    world.calls.refused = None
    world.run()
    check_complete(world.rows()) if make is ManyWorld else None
    assert make is ManyWorld or world.ids() == list(range(14))


@pytest.mark.parametrize(
    "code, kind",
    [(errno.ENOSPC, "storage.full"), (errno.EDQUOT, "storage.full"), (errno.EROFS, "storage.read-only")],
    ids=errno.errorcode.get,
)
@pytest.mark.parametrize("make", [memory_world, ManyWorld], ids=["one", "many"])
def test_a_snapshot_that_cannot_get_its_name(make, code, kind):
    """Nothing is written after that, so nothing is unknown: the error says what to mend, and it is told at once."""
    world = make()
    world.calls.__class__ = _Refusing
    root = world.driver.root if make is memory_world else f"{world.root}/a"
    world.calls.refused = (f"{root}/snapshot/", code)
    tries = []
    arm_each(lambda step: tries.append(step) if step == "commit.before_publish" else None)
    try:
        with pytest.raises(Retryable) as failed:
            world.driver._run_once(world.file_io(world.calls), world.checkpoint, (6,))
    finally:
        faults.arm(None)
    assert failed.value.kind == kind and root in str(failed.value)
    assert tries == ["commit.before_publish"]
    world.calls.refused = None
    world.run()
    check_complete(world.rows()) if make is ManyWorld else None
    assert make is ManyWorld or world.ids() == list(range(14))
    assert world.unknown_files() == []


def test_without_space_left_the_edge_says_that_it_may_be_tried_again():
    """Whatever was being done: a claim, a mark, a batch."""
    told = explain("/lake/t", OSError(errno.ENOSPC, "No space left on device", "/lake/t/x"))
    assert isinstance(told, Retryable) and told.kind == "storage.full" and "/lake/t" in str(told)
    assert isinstance(explain("/lake/t", OSError(errno.EROFS, "Read-only file system", "/lake/t/x")), Misuse)
