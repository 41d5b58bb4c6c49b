"""A batch id comes once in a run:
the same id again in the same run is not a replay but a second part of the batch, which would be lost."""

import os
import threading

import pytest

from streamsink import faults
from streamsink.errors import Misuse, OutcomeUnknown
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.world import World, memory_world, posix_world
from tests.protocol.query import Query


def test_a_second_call_for_a_batch_of_this_run_is_an_error_and_not_a_replay():
    """A batch function calls one sink twice. The second part must not be taken for a replay of the first one."""
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


def test_a_call_that_ended_behind_its_record_is_published_by_the_call_that_repeats_it():
    """Ctrl-C comes between the record and the snapshot.
    The retry is skipped, and when it returns the rows can be read."""
    world = memory_world()
    query = Query(world)

    def interrupt() -> None:
        faults.arm(None)
        raise KeyboardInterrupt

    arm("precommit.saved", 1, interrupt)
    with pytest.raises(KeyboardInterrupt):
        query.batch(6)
    assert world.ids() == []
    query.again(0)
    assert world.ids() == list(range(6))
    query.batch(9)
    assert world.ids() == list(range(9))


FAILURES = (OutcomeUnknown("the record: no answer", kind="publish.unknown"), OSError("no answer"), KeyboardInterrupt())


def _without_answer(query, monkeypatch, failed, *, landed):
    """The next record is created, or not, and the store's answer is this error."""
    io = query.sink._io
    whole = io.create_if_absent

    def no_answer(path, *args, **more):
        if landed:
            assert whole(path, *args, **more)
        monkeypatch.undo()
        raise failed

    monkeypatch.setattr(io, "create_if_absent", no_answer)


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
@pytest.mark.parametrize("fails", [True, False], ids=["writing-again-fails", "writing-again"])
@pytest.mark.parametrize("failed", FAILURES, ids=lambda failed: type(failed).__name__)
def test_after_a_record_of_which_nobody_knows_the_run_is_over(monkeypatch, failed, fails, landed):
    """A second try in the same run would have the same number and folder, and would remove the record's files."""
    world = memory_world(restore="restore-and-continue")
    query = Query(world)
    query.batch(6)
    _without_answer(query, monkeypatch, failed, landed=landed)
    with pytest.raises(type(failed)):
        query.batch(9)
    if fails:
        arm("write.staged", 1, lambda: (_ for _ in ()).throw(ValueError("writing again")))
    with pytest.raises(type(failed)):
        query.again(1)
    with pytest.raises(type(failed)):
        query.sink.run.commit_up_to_checkpoint(1)
    with pytest.raises(type(failed)):
        query.batch(14)
    faults.arm(None)
    query.sink.close()
    assert world.ids() == list(range(6))
    world.run(boundaries=(6, 9, 14))
    assert world.ids() == list(range(14)) and world.unknown_files() == []


def test_a_call_that_ended_before_it_could_hand_its_record_over_ends_the_run(monkeypatch):
    """Ctrl-C comes right behind the record's name. Recording the rows once more would double them."""
    world = memory_world(restore="restore-and-continue")
    query = Query(world)

    def interrupted(record):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(query.sink.protocol.queue, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        query.batch(6)
    with pytest.raises(KeyboardInterrupt):
        query.again(0)
    query.sink.close()
    world.run(boundaries=(6, 9))
    assert world.ids() == list(range(9)) and world.unknown_files() == []


@pytest.mark.parametrize("publish", ["sync", "async"])
def test_what_was_recorded_before_a_record_of_which_nobody_knows_is_published(monkeypatch, publish):
    """Closing publishes what is known to be recorded, and the next start the record that has landed."""
    world = memory_world(publish=publish, publish_every_batches=100, restore="restore-and-continue")
    query = Query(world)
    query.batch(6)
    _without_answer(query, monkeypatch, FAILURES[0], landed=True)
    with pytest.raises(OutcomeUnknown):
        query.batch(9)
    assert world.ids() == []
    query.sink.close()
    assert world.ids() == list(range(6))
    world.run(boundaries=(6, 9))
    assert world.ids() == list(range(9)) and world.unknown_files() == []


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


def _meanwhile(query, step, call):
    """What happens to the call for batch 0, in a thread of its own, while ``call`` is made at this step of it:
    None, or the kind of its error."""
    inside, go_on, kinds = threading.Event(), threading.Event(), []

    def wait() -> None:
        inside.set()
        go_on.wait(200)

    def first() -> None:
        try:
            query.batch(6)
            kinds.append(None)
        except Misuse as refused:
            kinds.append(refused.kind)

    arm(step, 1, wait)
    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(200)
    try:
        call()
    finally:
        faults.arm(None)
        go_on.set()
        thread.join(60)
    return kinds[0]


def _refused(call) -> Misuse:
    with pytest.raises(Misuse) as refused:
        call()
    return refused.value


@pytest.mark.parametrize("step", ["write.begin", "write.staged"])
def test_of_two_calls_at_one_time_neither_is_recorded(step):
    """They come from a pool of threads, each with a part of the batch.
    What one of them recorded would be taken for the whole batch by a restart."""
    world = memory_world()
    query, kinds = Query(world), []
    kinds.append(_meanwhile(query, step, lambda: kinds.append(_refused(lambda: query.again(0)).kind)))
    assert kinds == ["batch.concurrent"] * 2
    query.sink.close()
    assert world.ids() == []
    Query(world).batch(6)
    assert world.ids() == list(range(6))


def test_a_call_beside_one_that_is_recorded_waits_for_its_end_and_is_a_second_part():
    """It is too late to refuse both, so the error is the one that says what is in the table."""
    world = memory_world()
    query, kinds = Query(world), []
    second = threading.Thread(target=lambda: kinds.append(_refused(lambda: query.again(0)).kind))

    def call() -> None:
        second.start()
        second.join(0.5)  # A call that does not wait ends within this time.

    assert _meanwhile(query, "precommit.saved", call) is None
    second.join(60)
    assert kinds == ["batch.twice"]
    assert world.ids() == list(range(6))


def test_a_later_batch_beside_one_that_is_under_way_is_refused_and_the_first_one_is_recorded():
    """A function hands its batch to a thread and returns.
    For Spark the first batch is done, so nobody gives its rows again."""
    world = memory_world()
    query, kinds = Query(world), []
    assert _meanwhile(query, "write.staged", lambda: kinds.append(_refused(lambda: query.batch(9)).kind)) is None
    assert kinds == ["batch.concurrent"]
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


def _two_spellings(folder) -> list[World]:
    """Two paths of one place, of which nobody can see that they are one."""
    first = posix_world(folder, restore="restore-and-continue")
    os.symlink(folder, f"{folder}-linked")
    second = posix_world(f"{folder}-linked", restore="restore-and-continue")
    second.checkpoint = first.checkpoint
    return [first, second]


def test_a_second_sink_by_another_spelling_of_the_place_is_no_restart_of_the_query(tmp_path):
    """Formerly its part of each batch was taken for a replay of what the first sink had recorded,
    and was lost in silence."""
    worlds = _two_spellings(tmp_path)
    for world in worlds:
        world.driver.run_id = "one start"
    first = Query(worlds[0])
    first.batch(6)
    with pytest.raises(Misuse) as refused:
        Query(worlds[1]).batch(6)
    assert refused.value.kind == "batch.twice"
    for words in (worlds[0].driver.root, worlds[1].driver.root, "unionByName", "application="):
        assert words in str(refused.value)
    first.batch(9)
    assert worlds[0].ids() == list(range(9))


def test_a_sink_that_was_closed_in_the_middle_of_a_run_is_its_first_sink_all_the_same(tmp_path):
    """What it has recorded of a batch stays."""
    worlds = _two_spellings(tmp_path)
    for world in worlds:
        world.driver.run_id = "one start"
    first = Query(worlds[0])
    first.batch(6)
    first.sink.close()
    assert _refused(lambda: Query(worlds[1]).batch(6)).kind == "batch.twice"
    assert worlds[0].ids() == list(range(6))


def test_a_start_that_fails_is_tried_again_in_the_same_run(tmp_path):
    """A retry around the sink whose first batch found the store away, by either spelling.
    Nothing was given to the sink that failed."""
    worlds = _two_spellings(tmp_path)

    def fail_once() -> None:
        arm("restore.claimed", 2, lambda: None)
        raise OSError("the store did not answer for a moment")

    for world in (worlds[0], worlds[0], worlds[1]):
        world.driver.run_id = "one start"
        arm("restore.claimed", 1, fail_once)
        with pytest.raises(OSError):
            Query(world)
        faults.arm(None)
    query = Query(worlds[0])
    query.batch(6)
    query.batch(9)
    assert worlds[0].ids() == list(range(9))


@pytest.mark.parametrize("runs", [("first start", "second start"), ("", ""), ("first start", ""), ("", "second start")])
def test_another_start_of_the_query_takes_over_by_whichever_spelling(tmp_path, runs):
    """This holds even while this process still holds the first start, and where a file of earlier code names no run."""
    worlds = _two_spellings(tmp_path)
    for world, run in zip(worlds, runs):
        world.driver.run_id = run
    Query(worlds[0]).batch(6)
    again = Query(worlds[1])
    again.batch(6)
    again.batch(9)
    assert worlds[0].ids() == list(range(9))


def test_two_names_and_two_tables_of_one_start_are_no_second_sinks(tmp_path):
    """Each has a journal of its own."""
    worlds = [posix_world(tmp_path), posix_world(tmp_path / "beside"), posix_world(tmp_path, application="second")]
    for world in worlds:
        world.driver.run_id, world.driver.other_sinks = "one start", frozenset({"streamsink", "second"})
        Query(world).batch(6)
    assert worlds[0].ids() == sorted([*range(6), *range(6)]) and worlds[1].ids() == list(range(6))
