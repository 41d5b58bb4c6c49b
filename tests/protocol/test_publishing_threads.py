"""Grouped and asynchronous publishing with real threads: any timing and any order give the same rows."""

import logging
import threading
import weakref

import pytest

from streamsink.clock import IdSource
from streamsink.events import log
from streamsink.faults import arm
from streamsink.protocol.run.publish_queue import PublishQueue
from streamsink.protocol.run.publish_thread import PublishThread
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import expected, posix_world
from tests.protocol.query import QUERY, WAIT_S, Query, published


def _until(true):
    done = threading.Event()
    for _ in range(WAIT_S * 50):
        if true():
            return
        done.wait(0.02)
    raise AssertionError(f"waited {WAIT_S} s in vain")


def test_a_thread_publishes_beside_the_batches(tmp_path):
    """On the local disk: the batch returns before its snapshot is there, and stopping waits for everything."""
    world = posix_world(tmp_path, publish="async")
    others = set(threading.enumerate())
    query = Query(world, background=None)
    go_on = threading.Event()
    arm(lambda step: go_on.wait(WAIT_S) if step == "group.before_publish" else None)
    query.batch(6)
    query.batch(9)
    assert world.ids() == []
    go_on.set()
    query.batch(14)
    query.sink.close()
    assert world.ids() == list(range(14)) and world.unknown_files() == []
    assert set(threading.enumerate()) <= others


@pytest.mark.parametrize("publish", ["sync", "async"])
def test_the_interval_holds_when_no_further_batch_comes(tmp_path, publish):
    """Spark calls nothing without data, so the thread publishes."""
    world = posix_world(tmp_path, publish=publish, publish_every_batches=100, publish_interval_ms=50)
    query = Query(world, background=None)
    query.batch(6)
    _until(lambda: world.ids() == list(range(6)))
    query.batch(9)
    _until(lambda: world.ids() == list(range(9)))
    query.sink.close()


def test_the_thread_publishes_the_rest_when_the_query_has_ended_by_itself(tmp_path):
    """Nobody calls close(): the thread asks whether the query still runs."""
    world = posix_world(tmp_path, publish_every_batches=100)
    ended = threading.Event()
    query = Query(world, background=None)
    query.sink.close()
    world.driver.background = lambda step: PublishThread(step, has_ended=ended.is_set)
    query.sink = world.driver.start(FileIO(world.calls, IdSource().new_id), SparkCheckpoint(QUERY))
    query.batch(6)
    assert world.ids() == []
    ended.set()
    _until(lambda: world.ids() == list(range(6)))
    query.sink.close()


def test_an_error_after_the_query_has_ended_by_itself_is_logged(tmp_path, caplog):
    """No batch comes that could raise it, and nobody need call close()."""
    world = posix_world(tmp_path, publish_every_batches=100)
    ended = threading.Event()
    query = Query(world, background=None)
    query.sink.close()
    world.driver.background = lambda step: PublishThread(step, has_ended=ended.is_set)
    query.sink = world.driver.start(FileIO(world.calls, IdSource().new_id), SparkCheckpoint(QUERY))
    query.batch(6)
    arm(_fail_before_publishing)
    ended.set()
    _until(lambda: f"{world.driver.root}: what is pending could not" in caplog.text and "broken" in caplog.text)
    arm(None)
    with pytest.raises(OSError, match="broken"):
        query.sink.close()


def test_an_error_of_the_thread_is_logged_at_once_and_once(tmp_path, caplog):
    """The thread fails at the wake of the query's last batch. Neither a batch nor a stop need come after that."""
    world = posix_world(tmp_path, publish="async")
    query = Query(world, background=None)
    arm(_fail_before_publishing)
    query.batch(6)
    _until(lambda: f"{world.driver.root}: what is pending could not" in caplog.text and "broken" in caplog.text)
    with pytest.raises(OSError, match="broken"):
        query.sink.close()
    arm(None)
    assert caplog.text.count("what is pending could not be published") == 1


def _fail_before_publishing(step):
    if step == "group.before_publish":
        raise OSError("the disk is broken")


def test_an_error_of_the_thread_that_a_batch_has_raised_is_not_raised_again_by_stopping(tmp_path, monkeypatch):
    """The batch comes in the moment between the failure and the thread's own account of it."""
    world = posix_world(tmp_path, publish="async", restore="restore-and-continue")
    whole = PublishQueue.publish_up_to
    failed, go_on = threading.Event(), threading.Event()

    def slow_to_tell(self, checkpoint_id):
        try:
            return whole(self, checkpoint_id)
        except OSError:
            if threading.current_thread().name.startswith("streamsink-publisher"):
                failed.set()
                assert go_on.wait(WAIT_S)
            raise

    monkeypatch.setattr(PublishQueue, "publish_up_to", slow_to_tell)
    query = Query(world, background=None)
    arm(_fail_before_publishing)
    query.batch(6)
    assert failed.wait(WAIT_S)
    with pytest.raises(OSError, match="broken"):
        query.batch(9)
    go_on.set()
    query.sink.close()
    arm(None)
    assert world.ids() == []
    Query(world, background=None).sink.close()
    assert world.ids() == list(range(6))


def test_an_error_that_publishing_on_demand_has_raised_is_not_raised_again_by_stopping(tmp_path):
    """A bounded job publishes this way and closes: the second error would hide the first one."""
    world = posix_world(tmp_path, publish="async", restore="restore-and-continue")
    query = Query(world, background=None)
    arm(_fail_before_publishing)
    query.batch(6)
    _until(lambda: query.sink.protocol.queue.failed)
    with pytest.raises(OSError, match="broken"):
        query.sink.run.commit_up_to_checkpoint(0)
    query.sink.close()
    arm(None)
    Query(world, background=None).sink.close()
    assert world.ids() == list(range(6))


def test_an_error_that_the_end_of_a_batch_has_raised_is_not_raised_again_by_stopping(tmp_path):
    """The thread fails while the batch is written, and the batch hears of it when it publishes itself."""
    options = {"publish_every_batches": 2, "publish_interval_ms": 50, "restore": "restore-and-continue"}
    world = posix_world(tmp_path, **options)
    query = Query(world, background=None)
    go_on = threading.Event()

    def fail_meanwhile(step):
        if step == "group.before_publish":
            assert go_on.wait(WAIT_S)
            raise OSError("the disk is broken")
        if step == "write.staged" and len(query.ends) == 2:
            go_on.set()
            _until(lambda: query.sink.protocol.queue.failed)

    arm(fail_meanwhile)
    query.batch(6)
    with pytest.raises(OSError, match="broken"):
        query.batch(9)
    query.sink.close()
    arm(None)
    Query(world, background=None).sink.close()
    assert world.ids() == list(range(9))


@pytest.mark.in_turn("threads at random speeds", 1)
@pytest.mark.parametrize("as_", ["snapshot-per-checkpoint", "one-snapshot"])
def test_many_batches_beside_a_real_thread_at_random_speeds(tmp_path, as_, rng):
    """The queue is full, empty and in between.
    Every row is there once and every batch is whole, whatever the timing."""
    ends = sorted(rng.sample(range(1, 400), 60))
    world = posix_world(tmp_path, publish="async", publish_as=as_, publish_queue=rng.randint(1, 5))
    slow = {"write.staged", "group.before_publish", "commit.published"}
    pause = threading.Event()
    arm(lambda step: pause.wait(rng.random() * 0.02) if step in slow else None)
    query = Query(world, background=None)
    for end in ends:
        query.batch(end)
        found = world.ids()
        assert found == list(range(len(found))) and len(found) in (0, *ends)
    query.sink.close()
    assert world.ids() == expected(ends) and world.unknown_files() == []
    assert sum(e.checkpoints for e in published(world)) == len(ends)


def test_who_keeps_log_lines_keeps_nothing_of_the_errors_in_them(caplog):
    """Such as a connection, whose locks the next start would wait for."""

    class Connection:
        pass

    def fail():
        connection = Connection()
        opened.append(weakref.ref(connection))
        raise OSError("it failed")

    opened = []
    with caplog.at_level(logging.WARNING):
        try:
            fail()
        except OSError as failed:
            log.warning("not published: %s", failed)
    assert "not published: it failed" in caplog.text and opened[0]() is None
