"""The hold on an application's name ends with its query, also when nobody closes the sink and the process lives on."""

import threading
import time

import pytest
from pyspark.errors import StreamingQueryException

import streamsink
from streamsink.spark.query import ended
from streamsink.storage.hold import BEAT_THREAD, BeatingHold
from tests.storage.back_ends import back_end

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_S = 200


def _wait_until(done, what):
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def _beats():
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(BEAT_THREAD)}


@pytest.fixture
def world(request, spark, tmp_path, monkeypatch):
    """(the store, the table, a function that starts a query)."""
    monkeypatch.setattr(ended, "LOOK_MS", 100)
    made = back_end(request.param, request)
    table = f"{made.root}/shop.db/orders"
    source = spark.readStream.format("rate").option("rowsPerSecond", 10).load()

    def start(function, once):
        writing = source.writeStream.foreachBatch(function).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return (writing.trigger(availableNow=True) if once else writing).start()

    return made, table, start


def _ends(query):
    assert query.awaitTermination(WAIT_S)


def _stops(query):
    _wait_until(lambda: query.lastProgress is not None, "no batch")
    query.stop()


def _fails(query):
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(WAIT_S)


@pytest.mark.in_turn("ends of queries that nobody closes", 2)
@pytest.mark.parametrize("world", ["local", "s3"], indirect=True)
@pytest.mark.parametrize("end", [_ends, _stops, _fails])
def test_a_name_is_free_when_its_query_has_ended(world, end):
    """Nothing was called after the query's end. Formerly the name was held, on S3 by beats, until the process ended."""
    made, table, start = world
    sink = streamsink.to_table(table, store_options=made.options)

    def write(df, batch_id):
        sink(df, batch_id)
        if end is _fails:
            raise ValueError("the user's own code")

    before = _beats()
    rival = made.io().hold(f"{table}/streamsink/streamsink")
    query = start(write, once=end is _ends)
    try:
        if end is _stops:
            _wait_until(lambda: query.lastProgress is not None, "no batch")
            assert rival.allows(1) is False, "it runs, so the name is held"
        end(query)
        _wait_until(lambda: rival.allows(1), "the name is still held")
        if isinstance(rival, BeatingHold):
            hold = made.io().read(f"{table}/streamsink/streamsink/hold-1")
            assert hold == b"released" and _beats() <= before
    finally:
        query.stop()
        rival.release()
        sink.close()


@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_the_look_ends_with_the_last_query(world):
    """A process that has no query any more has no thread that looks after one."""
    made, table, start = world
    query = start(streamsink.to_table(table), once=True)
    assert query.awaitTermination(WAIT_S)
    _wait_until(lambda: not any(one.name == "streamsink-ended" for one in threading.enumerate()), "the look goes on")
