"""Folders in which files cannot get their final names: found before the record, and the query goes on when that is
mended.
"""

import os
import subprocess
from pathlib import Path

import pytest

from streamsink.errors import Misuse
from tests.crash.test_names import _records, _rows
from tests.crash.world import posix_world


@pytest.fixture
def mounted():
    """A function that mounts something at a folder, and one that takes it away again."""
    at = []

    def mount(folder, *how):
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["mount", *how, folder], check=True)
        at.append(folder)

    def unmount(folder):
        subprocess.run(["umount", "-l", folder], check=True)
        at.remove(folder)

    yield mount, unmount
    for folder in list(at):
        unmount(folder)


def _refused(world, kind, *words):
    """Again and again, without a record; nothing is visible of it."""
    before = _records(world)
    for _ in range(2):
        with pytest.raises(Misuse) as refused:
            world.run(boundaries=(2, 6))
        assert refused.value.kind == kind, refused.value
        for word in (world.driver.root, *words):
            assert word in str(refused.value)
    assert _records(world) == before and world.ids() == [0, 1]


def _goes_on(world):
    world.run(boundaries=(2, 6, 8))
    assert world.ids() == list(range(8)) and world.unknown_files() == []


@pytest.mark.parametrize("existed", [False, True], ids=["new", "known"])
@pytest.mark.parametrize("how", ["other", "bind"])
def test_a_partition_on_another_mount(tmp_path, mounted, how, existed):
    """A file has no name on two mounts, be they of one disk: mounted aside, or taken away, the same batch is
    published.
    """
    world = posix_world(tmp_path)
    _rows(world, "y", {0, 3} if existed else {3})
    world.run(boundaries=(2,))
    folder = f"{world.driver.root}/part=y"
    if how == "bind":
        (tmp_path / "elsewhere").mkdir()
    mount, unmount = mounted
    moved = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*.parquet")}
    mount(folder, *(("-t", "tmpfs", "tmpfs") if how == "other" else ("--bind", str(tmp_path / "elsewhere"))))
    for path, data in moved.items():  # as who moves a partition to another disk does
        Path(folder, path).parent.mkdir(exist_ok=True)
        Path(folder, path).write_bytes(data)
    before = _records(world)
    for _ in range(2):
        with pytest.raises(Misuse) as refused:
            world.run(boundaries=(2, 6))
        assert refused.value.kind == "partition.elsewhere" and folder in str(refused.value)
    assert _records(world) == before
    unmount(folder)
    _goes_on(world)


def test_a_partition_that_is_a_link_to_another_disk(tmp_path):
    """The same, without a mount of its own."""
    world = posix_world(tmp_path)
    _rows(world, "y", {3})
    world.run(boundaries=(2,))
    here = tmp_path.stat().st_dev
    elsewhere = next(f"{disk}/{tmp_path.name}" for disk in ("/dev/shm", "/var/tmp") if os.stat(disk).st_dev != here)
    os.makedirs(elsewhere)
    try:
        os.symlink(elsewhere, f"{world.driver.root}/part=y")
        _refused(world, "partition.elsewhere", "part=y")
        os.unlink(f"{world.driver.root}/part=y")
        os.makedirs(f"{tmp_path}/beside")
        os.symlink(f"{tmp_path}/beside", f"{world.driver.root}/part=y")  # on the table's own disk: fine
        _goes_on(world)
    finally:
        subprocess.run(["rm", "-r", elsewhere], check=True)


def test_a_file_in_the_place_of_a_partition(tmp_path):
    """Somebody's own."""
    world = posix_world(tmp_path)
    _rows(world, "y", {3})
    world.run(boundaries=(2,))
    (tmp_path / "shop.db/orders/part=y").write_text("mine")
    _refused(world, "partition.not-a-folder", "part=y")
    (tmp_path / "shop.db/orders/part=y").unlink()
    _goes_on(world)


def test_a_partition_that_nobody_may_write(tmp_path, mounted):
    """Read-only."""
    world = posix_world(tmp_path)
    _rows(world, "y", {0, 3})
    world.run(boundaries=(2,))
    folder = f"{world.driver.root}/part=y/bucket-0"
    mount, unmount = mounted
    mount(folder, "--bind", folder)
    subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    _refused(world, "partition.elsewhere", "part=y")
    unmount(folder)
    _goes_on(world)
