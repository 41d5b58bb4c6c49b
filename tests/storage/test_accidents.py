"""The main job's accidents on a real HDFS and a real S3, without Spark:
each row is there once, or an error says what happened."""

import collections
import copy
import json
import time

import pytest

import streamsink
from streamsink.errors import Fenced, Misuse
from streamsink.table.table import open_table
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import World, expected
from tests.services.forking import Forked
from tests.storage import writer
from tests.storage.back_ends import REMOTE, back_end

BOUNDARIES = (4, 6)
WRITERS, BATCHES, ROWS = 4, 5, 3
POSITIONS = {"position_columns": ("topic", "partition", "offset")}


@pytest.fixture(params=REMOTE)
def make_world(request):
    """A function that makes worlds on one folder of the store."""
    made = back_end(request.param, request)
    return lambda **options: World(made.calls, f"{made.root}/shop.db/orders", make_io=made.io, **options)


@pytest.fixture
def world(make_world):
    """A world whose first batches are published."""
    world = make_world(**POSITIONS)
    world.run(boundaries=BOUNDARIES)
    return world


def test_a_replay_changes_nothing(world):
    """Spark's commit log is gone, so every batch comes again."""
    world.checkpoint.committed = 0
    world.run(boundaries=(*BOUNDARIES, 8))
    assert world.ids() == expected((8,))


def test_an_old_copy_of_the_checkpoint_with_other_boundaries_is_filtered_by_row(world):
    """The second batch is planned anew and reaches further than the published one."""
    world.checkpoint.ends, world.checkpoint.committed = [4], 1
    world.run(boundaries=(4, 9, 11))
    assert world.ids() == expected((11,))


def test_a_deleted_checkpoint_is_filtered_by_row_or_refused(make_world, world):
    """A new query reads from the beginning. Without position columns it gets an error before anything is written."""
    fresh = make_world()
    fresh.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000002")
    with pytest.raises(Misuse) as caught:
        fresh.run(boundaries=(5, 9))
    assert caught.value.kind == "positions.overlap"
    assert world.ids() == expected(BOUNDARIES)
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000002")
    world.run(boundaries=(5, 9))
    assert world.ids() == expected((9,))


@pytest.mark.in_turn("two queries of one name on a store", 1)
def test_two_queries_under_one_name_do_not_meet(make_world, world):
    """The second query is refused while the first one lives, which is not harmed."""
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    second = make_world(**POSITIONS)
    second.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000003")
    try:
        with pytest.raises(Fenced) as caught:
            second.run(boundaries=(20,))
        assert caught.value.kind == "application.in-use"
        world.checkpoint.ends.append(9)
        sink.batch(world.driver.describe(world.checkpoint, 2))
    finally:
        sink.close()
    assert world.ids() == expected((9,))


def test_a_restart_fences_a_driver_that_still_runs(make_world, world):
    """Two drivers have the same checkpoint: the newer one goes on, and the older one writes nothing more."""
    old = world.driver.start(world.file_io(world.calls), copy.deepcopy(world.checkpoint))
    world.run(boundaries=(*BOUNDARIES, 9))
    sleeper = copy.deepcopy(world.checkpoint)
    try:
        with pytest.raises(Fenced):
            old.batch(world.driver.describe(sleeper, 2))
    finally:
        old.close()
    assert world.ids() == expected((9,))


def test_expired_history_is_no_gap(world):
    """All snapshots except the newest one are gone, and its properties answer."""
    io = world.file_io(world.calls)
    for number in (1,):
        io.delete(f"{world.driver.root}/snapshot/snapshot-{number}")
    world.checkpoint.committed = 0
    world.run(boundaries=(*BOUNDARIES, 9))
    assert world.ids() == expected((9,))


def test_a_rolled_back_table_is_an_error_and_mended_on_request(make_world, world):
    """The newest snapshot is gone, and the query is refused before anything is written. With on_rollback='republish'
    the journal gives the batch back."""
    world.file_io(world.calls).delete(f"{world.driver.root}/snapshot/snapshot-2")
    with pytest.raises(Misuse) as caught:
        world.run(boundaries=(*BOUNDARIES, 9))
    assert caught.value.kind == "table.rolled-back"
    assert world.ids() == expected(BOUNDARIES[:1])
    mending = make_world(on_rollback="republish", **POSITIONS)
    mending.checkpoint = world.checkpoint
    mending.run(boundaries=(*BOUNDARIES, 9))
    assert mending.ids() == expected((9,))


def test_a_table_recreated_under_the_query_is_an_error(make_world, world):
    """Another query made a new table at the same path, and the running query writes nothing into it."""
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    world.file_io(world.calls).delete_tree(world.driver.root)
    other = make_world(**POSITIONS)
    other.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000004")
    other.run(boundaries=(3,))
    world.checkpoint.ends.append(9)
    try:
        with pytest.raises(Misuse) as caught:
            sink.batch(world.driver.describe(world.checkpoint, 2))
    finally:
        sink.close()
    assert caught.value.kind == "table.recreated"
    assert other.ids() == expected((3,))


def test_removed_metadata_is_an_error(world):
    """All snapshots are gone, and the journal knows better: the query is refused, and nothing is written."""
    world.file_io(world.calls).delete_tree(f"{world.driver.root}/snapshot")
    with pytest.raises(Misuse) as caught:
        world.run(boundaries=(*BOUNDARIES, 9))
    assert caught.value.kind == "table.rolled-back"
    assert world.ids() == []


@pytest.mark.in_turn("writers of a store at once", 1)
@pytest.mark.parametrize("kind", REMOTE)
def test_writers_at_once_lose_nothing_although_one_is_killed(kind, request):
    """Four processes write to one table, and one of them is ended by SIGKILL and started again:
    every row is there once, and ids have no hole."""
    made = back_end(kind, request)
    table = f"{made.root}/shop.db/raced"
    streamsink.create_table(table, writer.SCHEMA, store_options=made.options)

    def start(number):
        return Forked("tests.storage.writer", table, json.dumps(dict(made.options)), f"app{number}", BATCHES, ROWS)

    writers = [start(number) for number in range(WRITERS)]
    opened = open_table(made.io(), table, for_writing=False)
    end = time.monotonic() + 60
    while len(opened.snapshots.ids()) < WRITERS * BATCHES // 3 and time.monotonic() < end:
        time.sleep(0.05)
    writers[0].kill()
    writers[0].wait()
    writers[0] = start(0)
    assert [process.wait(400) for process in writers] == [0] * WRITERS
    rows = streamsink.read_arrow(table, store_options=made.options).to_pylist()
    seen = collections.Counter((row["application"], row["id"]) for row in rows)
    assert seen == {(f"app{i}", n): 1 for i in range(WRITERS) for n in range(BATCHES * ROWS)}
    assert opened.snapshots.ids() == list(range(1, WRITERS * BATCHES + 1))
