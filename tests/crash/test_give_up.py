"""A pending record that can never be published: the error names one command, which settles it, and the query goes on;
each row once.
"""

import dataclasses
import re

import pytest

import streamsink
from streamsink import faults
from streamsink.commands.give_up import give_up
from streamsink.commands.verify import verify
from streamsink.errors import Corrupt, Fenced, Misuse, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceRange
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.giving_up import (
    ENDS,
    GROUPED,
    OTHER,
    clean,
    follow,
    giving_up,
    left,
    publish_what_is_left,
    recorded_end,
    refused,
    run_from,
)
from tests.crash.sweeps import deaths
from tests.crash.world import World, die_at_step, expected, is_prefix, memory_world, posix_world
from tests.table.foreign import Prepared

# -- the one record of a query that publishes each batch ---------------------------------------------------------------


@pytest.mark.parametrize("numeric", [True, False], ids=["kafka", "files"])
@pytest.mark.parametrize("step", ["precommit.saved", "commit.placed", "commit.before_publish"])
def test_files_of_the_last_record_are_gone(step, numeric):
    """Spark's commit log does not have the batch: given up, the same checkpoint writes it again, whatever the source
    is.
    """
    world = left(step, 3, numeric=numeric)
    clean(world, 3, 1)
    report = verify(world.file_io(world.calls), world.driver.root)
    assert not report.ok and "pending.files-gone" in {f.kind for f in report.findings}
    told = refused(world, "pending.files-gone")
    assert "starting_offsets" not in str(told) or numeric
    done = follow(world, told)
    assert done.records == (3,) and done.checkpoints == (2,)
    assert verify(world.file_io(world.calls), world.driver.root).ok
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_a_bounded_job_is_run_again_under_its_id():
    """Its batch has no source at all."""
    world = memory_world()

    def job(run_id="2026-11-21"):
        sink = world.driver.start(
            world.file_io(CrashingCalls(world.calls)), SparkCheckpoint(run_id, committed=END_OF_INPUT)
        )
        try:
            sink.batch(Batch(END_OF_INPUT, run_id, run_id))
        finally:
            sink.close()

    world.driver.job_rows = (0, 3)
    job("2026-11-20")
    world.driver.job_rows = (3, 8)
    arm("commit.placing", 1, crash)
    with pytest.raises(InjectedCrash):
        job()
    faults.arm(None)
    world.die()
    clean(world, 2)
    with pytest.raises(Corrupt) as told:
        job()
    done = follow(world, told.value)
    assert "streamsink.write" in str(done)
    job()
    assert world.ids() == list(range(8))


def test_the_public_command_on_a_disk(tmp_path):
    """As a user calls it, twice; the text says how to go on."""
    world = posix_world(tmp_path)
    assert die_at_step("precommit.saved", 2, world, boundaries=ENDS)
    world.die()
    clean(world, 2)
    done = streamsink.give_up(world.driver.root)
    assert done.records == (2,) and "Restart the query" in str(done)
    again = streamsink.give_up(world.driver.root)
    assert again.records == () and "nothing was given up" in str(again)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


# -- several records ---------------------------------------------------------------------------------------------------


def _several(bad, beside_a_topic=False, **settings) -> World:
    """Four batches are recorded and none is published; Spark has committed the first three of them."""
    world = memory_world(**GROUPED, **settings)
    if beside_a_topic:
        _read_a_topic_too(world)
    assert die_at_step("group.stopping", 1, world, boundaries=ENDS)
    assert world.checkpoint.committed == 4 and world.ids() == []
    clean(world, bad, 1)
    return world


def _read_a_topic_too(world) -> None:
    """Each batch has a message of a topic as well, whose rows stay away."""
    plain = world.driver.describe

    def describe(checkpoint, batch_id):
        batch = plain(checkpoint, batch_id)
        topic = world.driver.identified(SourceRange({"t": {"0": batch_id}}, {"t": {"0": batch_id + 1}}))
        return dataclasses.replace(batch, sources=(*batch.sources, topic))

    world.driver.describe = describe


def test_files_of_a_middle_record_are_gone_kafka():
    """Those before it are published, it and those behind it are given up: a new checkpoint where the table says reads
    them again.
    """
    world = _several(2)
    done = follow(world, refused(world, "pending.files-gone"))
    assert done.records == (2, 3, 4) and "starting_offsets" in str(done)
    publish_what_is_left(world)
    assert is_prefix(world.ids(), ENDS) and len(world.ids()) == 3
    refused(world, "positions.gap", (*ENDS, 15))
    start = recorded_end(world)
    world.checkpoint = SparkCheckpoint(OTHER)
    run_from(world, start, (8, 15))
    assert world.ids() == list(range(15))


@pytest.mark.parametrize("beside_a_topic", [False, True], ids=["alone", "beside-a-topic"])
def test_files_of_a_middle_record_are_gone_files(beside_a_topic):
    """The checkpoint goes back to the batch that the command names: Spark plans it again, and each row is there
    once.
    """
    world = _several(2, numeric=False, beside_a_topic=beside_a_topic)
    done = follow(world, refused(world, "pending.files-gone"))
    assert "starting_offsets" not in str(done)
    first = int(re.search(r"numbered (\d+) and higher", str(done))[1])
    refused(world, "batch.gap", (*ENDS, 15))
    del world.checkpoint.ends[first:]
    world.checkpoint.committed = first
    world.run(boundaries=(3, 12, 15))
    assert world.ids() == list(range(15))


@pytest.mark.parametrize("deleted", [1, 2, 3], ids="record-{}".format)
def test_a_record_was_deleted_by_hand_although_others_follow_it(deleted):
    """The others cannot be published in its place: an error that names the command, not one that repeats itself for
    ever.
    """
    world = left("group.stopping", **GROUPED)
    world.file_io(world.calls).delete(f"{world.driver.root}/streamsink/streamsink/record-{deleted}.json")
    told = refused(world, "journal.missing-record")
    done = follow(world, told)
    assert done.records == tuple(range(deleted + 1, 5))
    if deleted > 1:
        publish_what_is_left(world)
    start = 3 * (deleted - 1)
    world.checkpoint = SparkCheckpoint(OTHER)
    run_from(world, start, (12, 15))
    assert world.ids() == list(range(15))


def test_a_path_without_a_table_or_a_journal_is_said_so():
    """A mistyped one was given a journal, and the answer that everything is published."""
    world = memory_world()
    world.run(boundaries=ENDS[:1])
    with pytest.raises(Misuse) as refused:
        giving_up(world, "/lake/shop.db/ordres")
    assert refused.value.kind == "table.missing" and "/lake/shop.db/ordres" in str(refused.value)
    assert not world.file_io(world.calls).names("/lake/shop.db/ordres")


def test_a_damaged_record_is_given_up():
    """Its bytes tell nothing any more; the table's state tells that it was not published."""
    world = left("precommit.saved", 3)
    world.calls._names[f"{world.driver.root}/streamsink/streamsink/record-3.json"].data = b"torn"
    done = follow(world, refused(world, "journal.corrupt"))
    assert done.records == (3,)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_a_journal_of_files_knows_them_after_a_damaged_record_was_given_up():
    """Only of bounded runs is it unknown whose the record was: old files are told from new ones by themselves still."""
    world = left("precommit.saved", 3, tells_files=True, file_column="file", restore="restore-and-continue")
    world.calls._names[f"{world.driver.root}/streamsink/streamsink/record-3.json"].data = b"torn"
    follow(world, refused(world, "journal.corrupt"))
    world.checkpoint = SparkCheckpoint(OTHER)
    world.run(boundaries=(4, 12))
    assert world.ids() == expected(ENDS)


def test_a_rollback_that_was_meant_is_followed_to_a_new_checkpoint():
    """The lost batches are read again from the source, as the error says."""
    world = memory_world(journal_retain=10)
    world.run(boundaries=ENDS)
    io = world.file_io(world.calls)
    for snapshot in (3, 4):
        io.delete(f"{world.driver.root}/snapshot/snapshot-{snapshot}")
    io.delete(f"{world.driver.root}/snapshot/LATEST")
    done = follow(world, refused(world, "table.rolled-back", (*ENDS, 15)))
    assert done.records == (3, 4)
    refused(world, "positions.gap", (*ENDS, 15))
    assert recorded_end(world) == 6
    world.checkpoint = SparkCheckpoint(OTHER)
    run_from(world, 6, (8, 15))
    assert world.ids() == list(range(15))


def test_a_number_that_was_given_up_is_pending_again_when_its_next_record_is():
    """Nothing of the old record is left: the new one is published by the restart after a kill, and not taken for one
    that was.
    """
    world = memory_world(journal_retain=10)
    world.run(boundaries=ENDS)
    io = world.file_io(world.calls)
    for snapshot in (3, 4):
        io.delete(f"{world.driver.root}/snapshot/snapshot-{snapshot}")
    io.delete(f"{world.driver.root}/snapshot/LATEST")
    follow(world, refused(world, "table.rolled-back", (*ENDS, 15)))
    world.checkpoint = SparkCheckpoint(OTHER)
    arm("precommit.saved", 1, crash)
    with pytest.raises(InjectedCrash):
        run_from(world, 6, (8, 15))
    faults.arm(None)
    world.die()
    run_from(world, 6, (8, 15))
    assert world.ids() == list(range(15))


def test_rolled_back_further_than_the_journal_remembers():
    """The same way on."""
    world = memory_world(journal_retain=2)
    world.run(boundaries=(*ENDS, 15))
    io = world.file_io(world.calls)
    for snapshot in (2, 3, 4, 5):
        io.delete(f"{world.driver.root}/snapshot/snapshot-{snapshot}")
    io.delete(f"{world.driver.root}/snapshot/LATEST")
    world.driver.options = dataclasses.replace(world.driver.options, on_rollback="republish")
    follow(world, refused(world, "table.rolled-back-too-far", (*ENDS, 15, 18)))
    world.checkpoint = SparkCheckpoint(OTHER)
    run_from(world, 3, (15, 18))
    assert world.ids() == list(range(18))


# -- what it refuses, and what it survives -----------------------------------------------------------------------------


def test_nothing_is_given_up_that_can_be_published():
    """Neither pending records whose files are there, nor published ones whose mark is missing."""
    for step in ("precommit.saved", "commit.placed", "commit.published"):
        world = left(step, 2)
        records = set(world.file_io(world.calls).names(f"{world.driver.root}/streamsink/streamsink"))
        assert giving_up(world).records == ()
        assert {n for n in records if n.startswith("record-")} <= set(
            world.file_io(world.calls).names(f"{world.driver.root}/streamsink/streamsink")
        )
        world.run(boundaries=ENDS)
        assert world.ids() == expected(ENDS)


def test_a_live_query_keeps_its_records():
    """It holds the application."""
    world = memory_world()
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    with pytest.raises(Fenced) as refused:
        giving_up(world)
    assert refused.value.kind == "application.in-use"
    sink.close()


def test_a_record_that_a_snapshot_names_is_not_given_up():
    """Its files were deleted after it was published, by whoever; the state was hidden by another writer: its rows are
    not read again.
    """
    world = memory_world()
    world.run(boundaries=ENDS[:1])
    replacing = Prepared(world)
    assert die_at_step("commit.published", 1, world, boundaries=ENDS[:2])  # published, not marked
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    clean(world, 2, 1)
    with pytest.raises(StreamsinkError) as refused:
        giving_up(world)
    assert refused.value.kind == "give-up.published" and "record 2" in str(refused.value)


def test_a_paused_driver_that_wakes_up_publishes_nothing_that_was_given_up():
    """It is fenced; its batch is in the table once, as the restarted query wrote it."""
    world = memory_world()

    def sleep():
        faults.arm(None)
        world.die()  # its hold ends, as a lease does
        clean(world, 2)
        assert giving_up(world).records == (2,)

    arm("commit.before_filter", 2, sleep)
    with pytest.raises(StreamsinkError):
        world.driver._run_once(world.file_io(world.calls), world.checkpoint, ENDS)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_a_death_at_each_call_of_the_command(power):
    """Called again it ends the same."""
    world = _several(2)
    world.checkpoint = SparkCheckpoint(OTHER)
    options = SinkOptions.of(world.driver.root, {})
    states = deaths(world, power, run=lambda calls: give_up(world.file_io(calls), world.driver.root, options))
    for state in states:
        state.put_back(world, power)
        give_up(world.file_io(world.calls), world.driver.root, options)
        publish_what_is_left(world)
        run_from(world, 3, (7, 12))
        assert world.ids() == list(range(12)), str(state)
    assert len(states) >= (4 if power else 8)
