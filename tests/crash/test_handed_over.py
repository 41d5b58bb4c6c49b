"""Files that tasks handed over are looked at before the record: they are there, whole, and none is too large to get its
name.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.spark.rows.tasks import write_task
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.storage.s3 import S3FileIO
from streamsink.storage.s3_calls import MOST_COPIED_BYTES
from streamsink.storage.stores import Store
from streamsink.table.table import open_table
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import MicroBatchDriver, NumberedRows, columns
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import advice, follows
from tests.crash.test_names import _records
from tests.crash.world import World, memory_world
from tests.storage.back_ends import back_end

SHARED = ("local", "hdfs", "s3")


class _ByTasks(MicroBatchDriver):
    """Rows become files in what runs in Spark's tasks, over a connection of its own. between: called before the driver
    looks at them.
    """

    store: Store
    between = staticmethod(lambda file_io, files: None)

    def start(self, file_io, checkpoint):
        sink = super().start(file_io, checkpoint)
        sink.rows = lambda: _TaskRows(self, file_io, sink.opened)
        return sink


class _TaskRows(NumberedRows):
    def write(self, checkpoint, group):
        driver = self._driver
        writing = self._opened.writing(checkpoint, columns(driver.schema), ())
        task = write_task(writing, driver.store)
        rows = self._rows(checkpoint.batch, checkpoint.decision)
        files = [writing.decode(text) for batch in task(iter([rows])) for text in batch.column(0).to_pylist()]
        driver.between(self._io, files)
        return files


def _world(kind, request) -> World:
    made = back_end(kind, request)
    root = f"{made.root}/shop.db/orders"
    world = World(made.calls, root, make_io=made.io)
    plain = world.driver
    world.driver = _ByTasks(root, plain.schema, plain.rows, plain.options)
    world.driver.store = Store(root, made.options)
    return world


def _gone(file_io, files):
    file_io.delete(files[-1].staged)


def _cut(file_io, files):
    data = file_io.read(files[-1].staged)
    file_io.delete(files[-1].staged)
    file_io.write(files[-1].staged, data[:-1])


@pytest.mark.in_turn("files that are gone or cut", 2)
@follows("staged.files-gone")
@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("accident", [_gone, _cut])
def test_a_file_that_is_gone_or_cut_is_noticed_before_the_record(kind, accident, request):
    """A disk that the executors do not share, a cleaner of temporary files: nothing is recorded, and the batch is
    written again.
    """
    world = _world(kind, request)
    world.run(boundaries=(3,))
    world.driver.between = accident
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=(3, 7))
    said = advice(refused.value, "staged.files-gone").says(
        world.driver.root, "keep cleaners away from its folder 'streamsink'"
    )
    assert "the batch is replayed after a restart" in said.message
    assert len(_records(world)) == 1
    world.driver.between = lambda file_io, files: None
    world.run(boundaries=(3, 7, 9))
    assert world.ids() == list(range(9)) and world.unknown_files() == []


def test_it_costs_one_listing_of_the_staging_folder(request):
    """Not one question a file; what the driver has written itself is not asked for."""
    world = _world("local", request)
    listed = []

    class Listing(CrashingCalls):
        def entries(self, path):
            listed.append(os.path.basename(os.path.dirname(path)))
            return super().entries(path)

    world.run(Listing(world.calls), boundaries=(6,))
    assert listed.count("staging") == 2  # one is the removal of the folder in the end
    listed.clear()
    plain = memory_world()
    plain.run(Listing(plain.calls), boundaries=(6,))
    assert listed.count("staging") == 1


# -- users ---------------------------------------------------------------------------------------------------------

_DRIVER, _EXECUTOR = 1234, 4321
_PROTECTED = Path("/proc/sys/fs/protected_hardlinks")


@contextlib.contextmanager
def _as_user(uid):
    """This process as another user, without the rights of root."""
    before = os.geteuid()
    os.seteuid(0)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.seteuid(before)


def _local(root) -> World:
    world = World(PosixCalls(), root)
    plain = world.driver
    world.driver = _ByTasks(root, plain.schema, plain.rows, plain.options)
    world.driver.store = Store(root, {})
    return world


@pytest.mark.parametrize("mode", [0o664, 0o644] if os.geteuid() == 0 else [None])
def test_a_file_of_another_user_that_may_get_no_name_is_noticed_before_the_record(mode):
    """Linux gives a file that its caller neither owns nor may write no second name. The publishing would end with that
    behind the record, at each start.
    """
    folder = tempfile.mkdtemp()
    try:
        _local(f"{folder}/own").run(boundaries=(3, 7))  # what that imports may be for root alone
        if mode is None:
            return  # only root can be several users
        os.chown(folder, _DRIVER, -1)
        root = f"{folder}/shop.db/orders"
        world = _local(root)

        def by_executor(mode):
            def change(file_io, files):
                with _as_user(0):
                    os.chown(files[-1].staged, _EXECUTOR, os.getegid())
                    os.chmod(files[-1].staged, mode)

            return change

        with _as_user(_DRIVER):
            world.run(boundaries=(3,))
            world.driver.between = by_executor(mode)
            if mode == 0o644 and _PROTECTED.read_text().strip() == "1":
                with pytest.raises(Misuse) as refused:
                    world.run(boundaries=(3, 7))
                said = advice(refused.value, "storage.denied").says(root, "the batch is replayed after a restart")
                assert "another user" in said.message and len(_records(world)) == 1
                world.driver.between = by_executor(0o666 & ~int(said.find(r"umask (\d+)"), 8))
            world.run(boundaries=(3, 7, 9))
            assert world.ids() == list(range(9)) and world.unknown_files() == []
    finally:
        shutil.rmtree(folder)


# -- sizes ---------------------------------------------------------------------------------------------------------


class _Copying(FileIO):
    """A store whose copies have a limit, as S3's."""

    largest_file = 600_000


def _copying_world(**options) -> World:
    calls = MemoryCalls()
    return World(calls, "/lake/shop.db/orders", make_io=lambda over: _Copying(over, IdSource().new_id), **options)


def test_s3_says_what_it_can_copy():
    """The limit of CopyObject, by which files get their final names."""
    assert S3FileIO.largest_file == MOST_COPIED_BYTES == 5 * 2**30 and FileIO.largest_file is None


def test_files_roll_below_what_the_store_can_copy():
    """However large target_file_bytes is: pieces of a row group's size go to the next file in time."""
    world = _copying_world(table_options={"file.compression": "none"})
    world.run(boundaries=(1,))
    io = world.file_io(world.calls)
    io.make_dir("/lake/staging")
    schema = open_table(io, world.driver.root, for_writing=False).latest_schema()
    writer = TableWriter(io, WriteSpec("/lake/staging", schema.to_json(), 10**12, 10, 60_000))
    for start in range(0, 300_000, 3_000):
        writer.write(world.driver.rows(start, start + 3_000))
    with io.flush_group() as group:
        files = writer.close(group)
        group.flush()
    assert sum(file.meta.row_count for file in files) == 300_000
    assert max(file.meta.file_size for file in files) < _Copying.largest_file


def test_a_file_that_cannot_be_copied_is_an_error_before_the_record():
    """One row group may be that large by itself: nothing is recorded, and smaller batches go on."""
    world = _copying_world(table_options={"file.compression": "none"})
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(2, 300_000))
    assert (
        refused.value.kind == "file.too-large"
        and world.driver.root in str(refused.value)
        and "600000" in str(refused.value)
    )
    assert world.ids() == [0, 1] and len(_records(world)) == 1
    world.checkpoint.ends.pop()
    world.run(boundaries=(2, 500, 1_000))
    assert world.ids() == list(range(1_000)) and world.unknown_files() == []
