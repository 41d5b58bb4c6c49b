"""Grouped and asynchronous publishing:
what a group's snapshot says, admission against what is recorded, fences, errors, and stopping."""

import dataclasses
import errno
import json
import threading

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Conflict, Fenced, Misuse, Retryable
from streamsink.faults import arm
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState
from streamsink.protocol.decision import Verdict
from streamsink.storage.file_io import FileIO
from streamsink.table.table import open_table
from tests.advice.following import advice, follows
from tests.crash.world import die_at_step, memory_world
from tests.protocol.history import expire, io_of, mine_of, newest_of, of_others, roll_back_to
from tests.protocol.query import WAIT_S, Query, published, snapshots

GROUPS_OF_THREE = {"publish_every_batches": 3, "publish_as": "one-snapshot", "restore": "restore-and-continue"}


def test_a_group_becomes_visible_as_one_snapshot_that_says_what_its_last_checkpoint_would():
    """It has the sequence, checkpoint id and positions of the highest record, and the rows of all.
    The next group builds on it."""
    world = memory_world(**GROUPS_OF_THREE)
    query = Query(world)
    for end in (6, 9):
        query.batch(end)
        assert world.ids() == []
    query.batch(14)
    assert world.ids() == list(range(14))
    (snapshot,) = snapshots(world)
    state = AppState.from_json(json.loads(snapshot.properties["streamsink.app.streamsink"]))
    (record,) = state.recorded.of_topic("t")
    assert (state.sequence, state.checkpoint_id, record.next) == (3, 2, {"0": 14})
    assert (snapshot.commit_identifier, snapshot.delta_record_count, snapshot.total_record_count) == (2, 14, 14)
    (event,) = published(world)
    assert (event.checkpoint_id, event.checkpoints, event.rows, event.pending) == (2, 3, 14, 0)
    for end in (15, 16, 20):
        query.batch(end)
    assert [s.commit_identifier for s in snapshots(world)] == [2, 5]
    assert world.ids() == list(range(20)) and world.unknown_files() == []


def test_a_lock_that_cannot_be_opened_ends_no_batch(caplog):
    """A driver that took over asks for it in the middle of batches. The error of the store ended each of them."""
    world = memory_world()
    Query(world).batch(3)
    newer = Query(world)
    newer.ends = [3]

    def refused(path):
        raise OSError(errno.EMFILE, "Too many open files", path)

    world.calls.try_hold = refused
    for end in (6, 9):
        newer.batch(end)
    assert world.ids() == list(range(9)) and caplog.text.count("cannot be opened") == 1


def test_a_snapshot_for_each_checkpoint_keeps_their_order():
    """By default a group only defers publishing: each of its snapshots is as if it had been published at once."""
    world = memory_world(publish_every_batches=3)
    query = Query(world)
    for end in (6, 9, 14):
        query.batch(end)
    assert [s.commit_identifier for s in snapshots(world)] == [0, 1, 2]
    assert [e.pending for e in published(world)] == [2, 1, 0]


@pytest.mark.parametrize("way", [{"publish_every_batches": 9}, {"publish": "async"}], ids=["grouped", "async"])
def test_a_replay_of_a_pending_checkpoint_is_skipped_and_a_gap_after_it_refused(way):
    """Admission judges against what is recorded, not against what is published."""
    world = memory_world(**way)
    query = Query(world)
    query.batch(6)
    query.batch(9)
    assert world.ids() == []
    for batch_id in (1, 0):
        assert query.admit(batch_id).verdict is Verdict.SKIP
    query.ends = [6, 9, 12, 15]
    with pytest.raises(Misuse) as refused:
        query.again(3)
    assert refused.value.kind == "positions.gap"
    query.sink.close()
    assert world.ids() == list(range(9))


def test_stopping_publishes_what_is_pending_and_a_death_leaves_it_to_the_next_start():
    """A second close() does nothing. The next start after a death finds the records."""
    world = memory_world(**GROUPS_OF_THREE)
    query = Query(world)
    query.batch(6)
    query.batch(9)
    query.sink.close()
    query.sink.close()
    assert world.ids() == list(range(9)) and len(snapshots(world)) == 1
    with pytest.raises(Retryable, match="closed"):
        query.batch(14)
    dead = Query(world)
    dead.ends = [6, 9]
    dead.batch(14)
    world.die()
    assert world.ids() == list(range(9))
    Query(world).sink.close()
    assert world.ids() == list(range(14))


def test_the_next_start_may_group_differently_and_sweeps_the_dead_group_by_name():
    """A driver died while it published a group, and then the records are published one by one:
    nothing of the dead attempt is left."""
    world = memory_world(**GROUPS_OF_THREE)
    query = Query(world)
    arm(_die_at("commit.before_publish", query))
    with pytest.raises(ZeroDivisionError):
        for end in (6, 9, 14):
            query.batch(end)
    arm(None)
    world.die()
    assert world.unknown_files() != []
    singly = memory_world(restore="restore-and-continue")
    singly.calls = world.calls
    Query(singly).sink.close()
    assert world.ids() == list(range(14)) and len(snapshots(world)) == 3
    assert world.unknown_files() == []


def _die_at(step, query):
    def hook(reached):
        if reached == step:
            query.sink._io._calls.dead = True
            raise ZeroDivisionError

    return hook


def test_pending_records_are_kept_whatever_the_journal_retains():
    """journal_retain counts published records only, and at least so many of them stay."""
    world = memory_world(publish_every_batches=9, journal_retain=2)
    query = Query(world)
    for end in range(1, 10):
        query.batch(end)
    for end in range(10, 18):
        query.batch(end)
    names = [
        e.name for e in FileIO(world.calls, IdSource().new_id).entries(f"{world.driver.root}/streamsink/streamsink")
    ]
    assert sorted(int(n[7:-5]) for n in names if n.startswith("record-")) == list(range(8, 18))
    world.die()


@pytest.mark.parametrize("way", [{}, {"publish": "async", "publish_queue": 6, "delay": None}], ids=["grouped", "async"])
def test_no_record_is_forgotten_before_its_snapshot_exists(way):
    """After a death between two snapshots of a group the restart has
    the records of all checkpoints that are not published yet."""
    boundaries = (1, 2, 3, 4, 5, 6)
    for died_after in range(1, len(boundaries)):
        world = memory_world(publish_every_batches=6, restore="restore-and-continue", **way)
        assert die_at_step("forget.pruned", died_after, world, boundaries=boundaries)
        assert world.ids() == list(range(died_after))
        names = world.file_io(world.calls).names(f"{world.driver.root}/streamsink/streamsink")
        # These are the two newest that are published, and all that are not.
        retained = range(max(1, died_after - 1), 7)
        assert [name for name in names if name.startswith("record-")] == [
            f"record-{number}.json" for number in retained
        ]
        Query(world).sink.close()
        assert world.ids() == list(range(6)) and world.unknown_files() == []


def test_a_rollback_under_pending_checkpoints_is_refused_before_the_next_batch_or_mended_with_them():
    """The snapshot of the first group is deleted. Under 'republish' it comes back, and what was pending follows it."""
    for rollback in ("fail", "republish"):
        world = memory_world(on_rollback=rollback, publish_every_batches=2, publish_as="one-snapshot")
        query = Query(world)
        for end in (2, 4, 6, 8, 9):
            query.batch(end)
        io = FileIO(world.calls, IdSource().new_id)
        io.delete(f"{world.driver.root}/snapshot/snapshot-2")
        if rollback == "fail":
            with pytest.raises(Misuse) as refused:
                query.batch(10)
            assert refused.value.kind == "table.rolled-back" and world.ids() == list(range(4))
        else:
            query.batch(10)
            assert world.ids() == list(range(9))
            query.sink.close()
            assert world.ids() == list(range(10))


def test_a_group_is_published_over_the_record_before_it_and_nothing_else():
    """The table was rolled back between admission and publishing.
    The group would hide the loss, so it stays pending."""
    world = memory_world(publish_every_batches=2, publish_as="one-snapshot")
    query = Query(world)
    for end in (2, 4, 6, 8, 9):
        query.batch(end)
    FileIO(world.calls, IdSource().new_id).delete(f"{world.driver.root}/snapshot/snapshot-2")
    with pytest.raises(Retryable) as refused:
        query.sink.close()
    assert refused.value.kind == "table.history-changed" and world.ids() == list(range(4))


@pytest.mark.parametrize("way", [{}, {"publish_every_batches": 2}], ids=["in the batch", "grouped"])
def test_nothing_is_published_over_another_writers_snapshot_that_the_table_went_back_to(way):
    """That snapshot says nothing of the application, and all snapshots before it have expired. The mark says that what
    came before the record is gone."""
    world = memory_world(restore="restore-and-continue", **way)
    of_others(world)
    query, base = Query(world), newest_of(world)

    def go_back() -> None:
        arm(None)
        expire(world, 1, base - 1)
        roll_back_to(open_table(io_of(world), world.driver.root, for_writing=False), base)

    query.batch(2)
    query.batch(4)
    if way:
        query.batch(6)
        go_back()
    else:
        arm(lambda step: step == "precommit.saved" and go_back())
    with pytest.raises(Retryable) as refused:
        query.sink.close() if way else query.batch(6)
    assert refused.value.kind == "table.history-changed" and mine_of(world) == []
    with pytest.raises(Misuse) as refused:
        Query(world)
    assert refused.value.kind == "table.rolled-back"
    world.driver.options = dataclasses.replace(world.driver.options, on_rollback="republish")
    Query(world).sink.close()
    assert mine_of(world) == list(range(6))


def test_a_dead_group_that_is_published_within_a_larger_one_leaves_nothing():
    """The dead attempt's files carry the name of the group's highest record, which no snapshot carries."""
    world = memory_world(
        publish="async", publish_every_batches=2, publish_as="one-snapshot", restore="restore-and-continue"
    )
    query = Query(world)
    query.batch(6)
    query.batch(9)

    def fail_beside_the_third(step):
        if step == "write.staged":
            query.sink.protocol._schedule._background.hurry()
        elif step == "commit.before_publish":
            raise ZeroDivisionError

    arm(fail_beside_the_third)
    query.batch(14)
    arm(None)
    with pytest.raises(ZeroDivisionError):
        query.sink.close()
    assert world.unknown_files() != []
    Query(world).sink.close()
    assert world.ids() == list(range(14)) and len(snapshots(world)) == 1
    assert world.unknown_files() == []


def test_a_zombie_of_a_group_publishes_nothing_after_its_takeover():
    """The fence is checked in each attempt, whichever thread publishes."""
    world = memory_world(publish="async", publish_as="one-snapshot", restore="restore-and-continue")
    zombie = Query(world)
    zombie.batch(6)
    zombie.batch(9)
    successor = Query(world)
    assert world.ids() == list(range(9))
    with pytest.raises(Fenced):
        zombie.sink.protocol.commit_up_to_checkpoint(1)
    with pytest.raises(Fenced):
        zombie.batch(12)
    zombie.sink.protocol.finish()
    successor.ends = [6, 9]
    successor.batch(12)
    successor.sink.close()
    assert world.ids() == list(range(12)) and world.unknown_files() == []


@follows("restore.overtaken")
def test_a_predecessors_group_that_lands_during_the_restore_is_planned_anew():
    """It ends in the middle of ours: nothing is doubled, and the start after it goes on from there."""
    world = memory_world(
        publish="async", publish_every_batches=2, publish_as="one-snapshot", restore="restore-and-continue"
    )
    zombie, held, may_land, landed = Query(world, background=None), *(threading.Event() for _ in range(3))

    def hook(step):
        if threading.current_thread().name.startswith("streamsink-publisher"):
            if step == "commit.before_publish":
                held.set()
                assert may_land.wait(WAIT_S)
            elif step == "commit.marked":
                landed.set()
        elif step == "restore.before_publish":
            may_land.set()
            assert landed.wait(WAIT_S)

    arm(hook)
    zombie.batch(6)
    zombie.batch(9)
    assert held.wait(WAIT_S)
    zombie.batch(12)
    with pytest.raises(Retryable) as overtaken:
        Query(world)
    advice(overtaken.value, "restore.overtaken").says(
        "Nothing is lost or doubled", "the next start sees it and goes on from there"
    )
    arm(None)
    with pytest.raises(Fenced):
        zombie.sink.close()
    assert world.ids() == list(range(9))
    Query(world).sink.close()
    assert world.ids() == list(range(12)) and world.unknown_files() == []


def test_an_error_beside_the_batches_is_raised_by_the_next_one_as_it_was():
    """The batch during which it happened ends well.
    Nothing is published after the error, and the next start settles it."""
    world = memory_world(publish="async", restore="restore-and-continue")
    query = Query(world, delay=0)
    query.batch(6)
    broken = Conflict("injected", kind="test")

    def fail(step):
        if step == "commit.lists_written":
            raise broken

    arm(fail)
    query.batch(9)
    arm(None)
    assert world.ids() == list(range(6))
    with pytest.raises(Conflict) as raised:
        query.batch(14)
    assert raised.value is broken
    query.sink.close()  # A batch has raised it, so it is not raised again.
    assert world.ids() == list(range(6))
    Query(world).sink.close()
    assert world.ids() == list(range(9)) and world.unknown_files() == []


def test_an_error_after_the_last_batch_is_raised_by_stopping():
    """Nobody has been told of it before."""
    world = memory_world(publish="async", restore="restore-and-continue")
    query = Query(world, delay=0)
    broken = Conflict("injected", kind="test")

    def fail(step):
        if step == "group.before_publish":
            raise broken

    arm(fail)
    query.batch(6)
    with pytest.raises(Conflict) as raised:
        query.sink.close()
    assert raised.value is broken
    query.sink.close()


def test_a_batch_waits_for_room_before_it_writes():
    """With publish_queue checkpoints pending the next batch makes the committer publish before it has files."""
    world = memory_world(publish="async", publish_queue=2)
    query = Query(world)
    seen = []
    arm(lambda step: seen.append(step) if step in ("write.begin", "commit.published") else None)
    for end in (6, 9, 14):
        query.batch(end)
    assert seen == ["write.begin", "write.begin", "commit.published", "commit.published", "write.begin"]


@pytest.mark.parametrize(
    "given, option",
    [
        ({"publish": "later"}, "publish"),
        ({"publish_as": "both"}, "publish_as"),
        ({"publish_every_batches": 0}, "publish_every_batches"),
        ({"publish_interval_ms": 100}, "publish_interval_ms"),
        ({"publish_interval_ms": -1}, "publish_interval_ms"),
        ({"publish": "async", "publish_every_batches": 9, "publish_queue": 8}, "publish_queue"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(given, option):
    """The refusal comes before anything is written."""
    with pytest.raises(Misuse, match=f"option '{option}'"):
        SinkOptions.of("/lake/orders", given)
