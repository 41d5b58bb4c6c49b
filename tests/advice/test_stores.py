"""Advice of errors of the store, and about what the store must be able to do before there is a record: once it is
mended as they say, each row is there once."""

import errno
import fcntl
import os

import pyarrow as pa
import pytest

import streamsink
from streamsink import faults
from streamsink.clock import IdSource
from streamsink.errors import Retryable, StreamsinkError
from streamsink.spark.explain import explain
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.faults import arm
from streamsink.testing.memory import MemoryCalls
from tests.advice.accidents import accept, refused
from tests.advice.following import advice, follows
from tests.crash.world import SCHEMA, World, expected, memory_world, posix_world

ENDS = (3, 6, 9)
PLAIN = {"restore": "restore-and-continue"}


class Refusing(FileIO):
    """A store that refuses one of its calls in the folders of partitions, with an error of the operating system."""

    refused: dict[str, int] = {}

    def _refuse(self, call: str, path: str) -> None:
        if call in self.refused and "/part=" in path:
            raise OSError(self.refused[call], os.strerror(self.refused[call]), path)

    def begin_names(self, folder, staging, group):
        self._refuse("begin_names", folder)
        super().begin_names(folder, staging, group)

    def place(self, source, target, *args, **more):
        self._refuse("place", target)
        super().place(source, target, *args, **more)


@pytest.fixture
def store():
    """A store for one test, of a class of its own, which the test may change."""

    class Store(Refusing):
        refused = {}

    return Store


def _world(store, **options) -> World:
    return World(
        MemoryCalls(), "/lake/shop.db/orders", make_io=lambda over: store(over, IdSource().new_id), **PLAIN, **options
    )


BEFORE = {
    "partition.elsewhere": (errno.EXDEV, "Move its files onto the table's file system"),
    "partition.not-a-folder": (errno.ENOTDIR, "Move that away"),
    "storage.denied": (errno.EACCES, "Give the driver's user write access"),
    "storage.read-only": (errno.EROFS, "Mount it writable"),
}


@follows(*BEFORE)
@pytest.mark.parametrize("kind", BEFORE)
def test_a_folder_that_takes_no_names_before_the_record(kind, store):
    """Nothing is recorded. Once the folder is mended the restarted query writes the batch."""
    code, way_on = BEFORE[kind]
    world = _world(store)
    world.run(boundaries=ENDS[:1])
    store.refused = {"begin_names": code}
    refused(world, kind, ENDS).says("Nothing was recorded", way_on, "restart the query").find(
        r"(/lake/shop.db/orders/part=\w)"
    )
    store.refused = {}
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


AFTER = {
    "partition.elsewhere": (errno.EXDEV, "Put the folder back onto the file system of the table's staging folder"),
    "partition.not-a-folder": (errno.ENOTDIR, "Move away what has the folder's name"),
    "storage.denied": (errno.EPERM, "write access"),
    "storage.read-only": (errno.EROFS, "Mount it writable"),
    "storage.full": (errno.ENOSPC, "Free space"),
    "storage.links": (errno.EMLINK, "Remove links to the file"),
    "storage.open-files": (errno.EMFILE, "Raise its limit"),
}


@follows(*AFTER)
@pytest.mark.parametrize("kind", AFTER)
def test_a_folder_that_takes_no_names_after_the_record(kind, store):
    """The record stays. Once the folder is mended a restart publishes it."""
    code, way_on = AFTER[kind]
    world = _world(store)
    world.run(boundaries=ENDS[:1])
    store.refused = {"place": code}
    with pytest.raises(Retryable) as told:
        world.driver._run_once(world.file_io(world.calls), world.checkpoint, ENDS)
    advice(told.value, kind).says("Nothing is lost", way_on, "a restart of the query then publishes it").find(
        r"(/lake/shop.db/orders/part=\w)"
    )
    store.refused = {}
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


STORE = {
    "storage.full": (errno.ENOSPC, "Free space or give the table another disk, then start it again"),
    "storage.denied": (errno.EACCES, "Give the driver's and executors' user write access, then start it again"),
    "storage.read-only": (errno.EROFS, "Mount it writable, then start it again"),
    "storage.open-files": (errno.EMFILE, "fewer files open (max_open_writers), then start it again"),
}


@follows(*STORE)
@pytest.mark.parametrize("kind", STORE)
def test_a_store_that_takes_no_files_while_a_batch_is_written(kind, store):
    """The error is in the words of ``explain``, at the edge to Spark."""
    code, way_on = STORE[kind]
    world = _world(store)

    def fail() -> None:
        raise OSError(code, os.strerror(code), world.driver.root)

    arm("write.staged", 2, fail)
    with pytest.raises(OSError) as told:
        world.run(boundaries=ENDS)
    faults.arm(None)
    advice(explain(world.driver.root, told.value), kind).says(world.driver.root, way_on)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


WITHOUT = {
    "links": ("link", "it gives no file a second name", (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)),
    "locks": ("flock", "it has no locks of files", (errno.ENOTSUP, errno.ENOSYS)),
}


@follows("storage.unfit")
@pytest.mark.parametrize("without", WITHOUT)
def test_a_file_system_without_links_or_locks(without, tmp_path, monkeypatch):
    """It is refused before there is a row, in a table that was made elsewhere too; on another one all goes well."""
    call, said, codes = WITHOUT[without]
    world = posix_world(tmp_path, **PLAIN)
    for code in codes:

        def refuse(source, *_, code=code):
            raise OSError(code, os.strerror(code), source if isinstance(source, str) else None)

        monkeypatch.setattr(os if call == "link" else fcntl, call, refuse)
        with pytest.raises(OSError) as told:
            world.run(boundaries=ENDS)
        advice(explain(world.driver.root, told.value), "storage.unfit").says(
            world.driver.root, said, "Put the table on one with hard links and locks of files", "then start it again"
        )
        if call == "link":
            with pytest.raises(StreamsinkError) as refused_at_once:
                streamsink.create_table(f"{tmp_path}/other", "id BIGINT")
            assert refused_at_once.value.kind == "storage.unfit"
        monkeypatch.undo()
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


CALLS = {
    "retire": lambda root: streamsink.retire(root, "streamsink"),
    "give_up": streamsink.give_up,
    "drop_missing": streamsink.drop_missing,
}


@follows(*STORE)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", STORE)
def test_a_store_that_takes_no_files_while_a_command_writes(kind, call, tmp_path, monkeypatch):
    """Mended as the error says, the command is called once more and does its work."""
    world = posix_world(tmp_path, partition_by=(), **PLAIN)
    root, code = world.driver.root, STORE[kind][0]
    world.run(boundaries=ENDS)
    if call == "drop_missing":
        store = world.file_io(world.calls)
        store.delete(f"{root}/bucket-0/{store.names(f'{root}/bucket-0')[0]}")

    def refuse(self, path, *args, **more):
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(PosixCalls, "open_new", refuse)
    with pytest.raises(StreamsinkError) as told:
        CALLS[call](root)
    monkeypatch.undo()
    way_on = STORE[kind][1].replace("start it again", f"call streamsink.{call} again")
    advice(told.value, kind).says(f"{root}: ", "What is published stays as it is", way_on)
    done = CALLS[call](root)
    assert done is True if call == "retire" else done.records == () if call == "give_up" else done.files == 1


@follows("partition.name-too-long")
@pytest.mark.parametrize("way", ["filtered", "shorter"])
def test_a_value_that_no_folder_can_be_named_by(way):
    """Its row is filtered, or the partition is made of something shorter.
    ``tests/crash/test_names.py`` tests dead letters."""
    world = memory_world(**PLAIN)
    rows = world.driver.rows

    def long_at(start, end):
        batch = rows(start, end)
        texts = ["x" * 300 if n == 4 else part for n, part in zip(range(start, end), batch.column("part").to_pylist())]
        return batch.set_column(1, "part", pa.array(texts, pa.string()))

    world.driver.rows = long_at
    said = refused(world, "partition.name-too-long", ENDS[1:])
    if way == "filtered":
        said.says("Filter such rows in the query")
        world.driver.rows = lambda start, end: pa.RecordBatch.from_pylist(
            [row for row in long_at(start, end).to_pylist() if len(row["part"] or "") < 255], schema=SCHEMA
        )
    else:
        said.says("partition by something shorter (such as a prefix or a hash of it)")
        world.driver.rows = lambda start, end: long_at(start, end).set_column(
            1,
            "part",
            pa.array([(part or "")[:8] for part in long_at(start, end).column("part").to_pylist()], pa.string()),
        )
    world.run(boundaries=ENDS[1:])
    assert world.ids() == [n for n in range(9) if way == "shorter" or n != 4]


@follows("file.too-large")
def test_a_file_that_is_too_large_for_its_final_name(store):
    """With smaller batches the query goes on."""
    store.largest_file = 20_000
    world = _world(store, table_options={"file.compression": "none"})
    said = refused(world, "file.too-large", (30_000,))
    said.says("Make the batches smaller (maxOffsetsPerTrigger, maxFilesPerTrigger)")
    world.checkpoint.ends.clear()
    world.run(boundaries=(100, 200))
    assert world.ids() == expected((200,))


@follows("publish.unknown")
def test_a_publish_of_which_no_answer_came(store):
    """The next start looks whether it was published: here it was."""

    class Silent(store):
        def create_if_absent(self, path, data, unique="", **prepared):
            done = super().create_if_absent(path, data, unique, **prepared)
            if path.endswith("/snapshot-2") and not Silent.refused:
                Silent.refused = {"answer": 0}
                raise OSError(errno.EIO, "Input/output error", path)
            return done

    world = _world(Silent, commit_max_retries=0)
    with pytest.raises(StreamsinkError) as told:
        world.run(boundaries=ENDS)
    advice(told.value, "publish.unknown").says("Nothing was deleted", "the next start")
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@follows("commit.retries")
def test_a_writer_that_always_loses():
    """What was recorded is published at the next start. With a higher value of the option it would not have lost."""
    world = memory_world(commit_max_retries=1, **PLAIN)
    others = World(world.calls, world.driver.root, application="other", **PLAIN)
    rows, count = others.driver.rows, []
    others.driver.rows = lambda start, end: _shifted(rows(start, end))
    world.run(boundaries=(3,))

    def others_win(step):
        if step == "commit.before_publish" and len(count) < 4:
            faults.arm(None)
            count.append(1)
            others.run(boundaries=tuple(range(3, 3 * len(count) + 3, 3)))
            faults.arm(others_win)

    faults.arm(others_win)
    with pytest.raises(Retryable) as told:
        world.driver._run_once(world.file_io(world.calls), world.checkpoint, (3, 6))
    faults.arm(None)
    said = advice(told.value, "commit.retries").says("published at its next start")
    accept(world, **{said.find(r"raise (commit_max_retries)"): 9})
    count.clear()
    faults.arm(others_win)
    world.run(boundaries=(3, 6, 9))
    faults.arm(None)
    assert [i for i in world.ids() if i < 1000] == expected((9,))


def _shifted(batch):
    return batch.set_column(0, "id", pa.array([i + 1000 for i in batch.column("id").to_pylist()], pa.int64()))


ADOPTED = {
    "spark.row-count": lambda world: world.file_io(world.calls).delete(_part(world)),
    "spark.file": lambda world: setattr(world.calls._names[_part(world)], "data", b"PAR1 and no more"),
}


def _part(world) -> str:
    return max(path for path in world.calls._names if path.endswith(".parquet") and "/spark/part-" in path)


@follows(*ADOPTED)
@pytest.mark.parametrize("kind", ADOPTED)
def test_files_of_spark_s_writer_that_are_not_as_they_should_be(kind, monkeypatch):
    """The other way of writing does not hand such files over."""
    import streamsink.testing.driver as driver

    world = memory_world(adopts=True, partition_by=(), **PLAIN)
    adopt = driver.adopt_files

    def damaged(*args):
        ADOPTED[kind](world)
        return adopt(*args)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "adopt_files", damaged)
        with pytest.raises(StreamsinkError) as told:
            world.run(boundaries=ENDS)
        said = advice(told.value, kind)
        assert said.option("large_batches") == "tasks"
        accept(world, large_batches="tasks")
        world.driver.adopts = False  # This is what Spark's sink does with that option.
        world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)
