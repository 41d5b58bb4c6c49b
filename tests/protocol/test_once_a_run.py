"""A batch id comes once in a run: the same id again in the same run is no replay, but a second part of the batch that would be lost."""

import threading

import pytest

from streamsink.errors import Misuse
from streamsink.testing.faults import InjectedCrash, arm, crash
from streamsink import faults
from tests.crash.world import memory_world
from tests.protocol.query import Query


def test_a_second_call_for_a_batch_of_this_run_is_an_error_and_not_a_replay():
    """Two calls of one sink in one batch function: the second part must not be taken for a replay of the first."""
    world = memory_world()
    query = Query(world)
    query.batch(6)
    with pytest.raises(Misuse) as refused:
        query.again(0)
    assert refused.value.kind == "batch.twice"
    for words in (world.driver.root, "batch 0", "unionByName", "application="):
        assert words in str(refused.value)
    query.batch(9)
    assert world.ids() == list(range(9))


def test_an_earlier_batch_of_this_run_is_an_error_as_well():
    """Ids only grow within a run, whatever comes back."""
    world = memory_world()
    query = Query(world)
    query.batch(6)
    query.batch(9)
    with pytest.raises(Misuse, match="batch 0") as refused:
        query.again(0)
    assert refused.value.kind == "batch.twice"


def test_after_a_call_that_raised_the_same_rows_may_be_given_again():
    """A retry around the sink is no second part: what failed before the record is written again."""
    world = memory_world()
    query = Query(world)

    def fail_once() -> None:
        arm("write.staged", 2, lambda: None)
        raise OSError("the disk was full for a moment")

    arm("write.staged", 1, fail_once)
    with pytest.raises(OSError):
        query.batch(6)
    faults.arm(None)
    query.again(0)
    query.batch(9)
    assert world.ids() == list(range(9))


def test_a_replay_in_a_new_run_is_a_skip():
    """Spark repeats a batch only in a new start of the query."""
    world = memory_world()
    first = Query(world)
    first.batch(6)
    first.sink.close()
    again = Query(world)
    again.ends = [6]
    again.again(0)
    again.batch(9)
    assert world.ids() == list(range(9))


def test_two_calls_at_one_time_are_refused():
    """From a pool of threads: the second one is told, and the first one is not harmed."""
    world = memory_world()
    query = Query(world)
    inside, go_on, errors = threading.Event(), threading.Event(), []

    def wait() -> None:
        inside.set()
        go_on.wait(60)

    arm("write.staged", 1, wait)
    first = threading.Thread(target=lambda: query.batch(6))
    first.start()
    inside.wait(60)
    try:
        with pytest.raises(Misuse) as refused:
            query.again(0)
        errors.append(refused.value.kind)
    finally:
        faults.arm(None)
        go_on.set()
        first.join(60)
    assert errors == ["batch.concurrent"]
    assert world.ids() == list(range(6))


def test_a_death_in_the_middle_is_no_call_that_returned():
    """The new start of the query gives the same batch, which is published once."""
    world = memory_world()
    query = Query(world)
    arm("precommit.saved", 1, crash)
    with pytest.raises(InjectedCrash):
        query.batch(6)
    faults.arm(None)
    world.die()
    world.checkpoint.ends = [6]
    world.run(boundaries=(6, 9))
    assert world.ids() == list(range(9))
