"""The committer's own rules: many checkpoints at once, none twice, restore policies, takeover and fencing."""

import errno
import json
from dataclasses import replace

import pytest

from streamsink import events
from streamsink.clock import IdSource
from streamsink.errors import Fenced, Misuse, RestoredThenFailed
from streamsink.faults import arm
from streamsink.protocol.decision import Verdict
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import SparkCheckpoint, columns, written
from tests.crash.world import expected, memory_world


def _sink(world, query="00000000-0000-0000-0000-000000000001"):
    return world.driver.start(FileIO(world.calls, IdSource().new_id), SparkCheckpoint(query))


def _pre_commit(world, sink, start, end, batch_id):
    """A checkpoint up to and including its pre-commit, not published."""
    checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000001", [0] * batch_id + [end])
    if batch_id:
        checkpoint.ends[batch_id - 1] = start
    batch = world.driver.describe(checkpoint, batch_id)
    decision = sink.protocol.admit(batch)
    assert decision.verdict is Verdict.NEW
    return _save(world, sink, batch, decision, (start, end))


def _save(world, sink, batch, decision, rows):
    checkpoint = sink.protocol.begin(batch, decision)
    with sink.opened.group() as group:
        of_all = written(
            sink.opened.writing(checkpoint, columns(world.driver.schema), ()), sink._io, world.driver.rows(*rows), group
        )
        files, payload = sink.opened.stage(checkpoint, of_all, group)
        sink.protocol.pre_commit(checkpoint, files, payload, group)
    return batch, decision


def test_a_flush_that_fails_leaves_nothing_of_the_checkpoint(monkeypatch):
    """Neither a record nor files are left, even before a restart: a full disk gets its room back."""
    world = memory_world()
    sink = _sink(world)

    def full(actions):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(sink._io, "at_once", full)
    with pytest.raises(OSError, match="no space left"):
        _pre_commit(world, sink, 0, 5, 0)
    monkeypatch.undo()
    assert sink._io.names(f"{world.driver.root}/streamsink/{world.driver.options.application}/staging") == []
    assert sink.protocol._journal.retained() == []
    world.die()
    world.run()
    assert world.ids() == expected() and world.unknown_files() == []


def test_a_batch_that_cannot_be_written_leaves_nothing_and_the_next_one_is_written():
    """When writing itself fails, neither a record nor files are left, even before a restart."""
    world = memory_world()
    sink = _sink(world)

    def fail(step: str) -> None:
        if step == "write.staged":
            raise OSError(errno.EIO, "the disk is broken")

    arm(fail)
    batch = world.driver.describe(SparkCheckpoint("00000000-0000-0000-0000-000000000001", [5]), 0)
    try:
        with pytest.raises(OSError, match="broken"):
            sink.batch(batch)
    finally:
        arm(None)
    assert sink._io.names(f"{world.driver.root}/streamsink/{world.driver.options.application}/staging") == []
    sink.batch(batch)
    assert world.ids() == list(range(5))


@pytest.mark.parametrize("where", ["write", "flush", "record"])
def test_an_error_of_the_clean_up_does_not_hide_the_error_that_ended_the_batch(monkeypatch, caplog, where):
    """The store refuses to delete as well: the user sees the cause, and the next start cleans up."""
    world = memory_world(restore="restore-and-continue")
    sink, batch = _sink(world), world.driver.describe(SparkCheckpoint("00000000-0000-0000-0000-000000000001", [5]), 0)

    def stuck(path):
        raise OSError(errno.EACCES, "may not be deleted", path)

    def broken(*_):
        raise OSError(errno.EIO, "the disk is broken")

    def taken(*_):
        raise Fenced("another driver was first", kind="journal.record-taken")

    monkeypatch.setattr(sink._io, "delete_tree", stuck)
    monkeypatch.setattr(sink._io, "at_once", broken) if where == "flush" else None
    monkeypatch.setattr(sink.protocol._journal, "create_record", taken) if where == "record" else None
    arm(lambda step: broken() if step == "write.staged" and where == "write" else None)
    try:
        with pytest.raises((OSError, Fenced), match="another driver was first" if where == "record" else "broken"):
            sink.batch(batch)
    finally:
        arm(None)
    assert "may not be deleted" in caplog.text and f"{world.driver.root}: batch 0" in caplog.text
    world.die()
    world.run()
    assert world.ids() == expected() and world.unknown_files() == []


def test_batches_that_fail_behind_their_manifest_fill_no_memory():
    """The entries of a manifest are kept for publishing it: of an aborted batch nobody publishes it."""
    world = memory_world()
    sink = _sink(world)
    checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000001", [5])

    def fail(step: str) -> None:
        if step == "precommit.manifest_staged":
            raise OSError(errno.EIO, "the disk is broken")

    arm(fail)
    try:
        for _ in range(3):
            with pytest.raises(OSError, match="broken"):
                sink.batch(world.driver.describe(checkpoint, 0))
    finally:
        arm(None)
    assert len(sink.opened.committer._entries) == 1
    sink.batch(world.driver.describe(checkpoint, 0))
    assert world.ids() == list(range(5)) and sink.opened.committer._entries == {}


def test_what_a_zombie_gives_up_is_its_own():
    """Its writing fails after its successor has pre-committed under the same number: the successor's files stay."""
    world = memory_world(restore="restore-and-continue")
    zombie = _sink(world)
    batch = world.driver.describe(SparkCheckpoint("00000000-0000-0000-0000-000000000001", [5]), 0)
    opened = zombie.protocol.begin(batch, zombie.protocol.admit(batch))
    successor = _sink(world)
    _pre_commit(world, successor, 0, 5, 0)
    zombie.protocol.abort(opened, zombie._io.flush_group())
    successor.protocol.commit_up_to_checkpoint(0)
    assert world.ids() == list(range(5)) and world.unknown_files() == []


def test_a_checkpoint_registered_twice_is_an_error():
    """This is Flink's "repeatedly committed": the second pre-commit of one id changes nothing."""
    world = memory_world()
    sink = _sink(world)
    batch, decision = _pre_commit(world, sink, 0, 5, 0)
    with pytest.raises(Misuse, match="repeatedly committed"):
        _save(world, sink, batch, decision, (0, 5))
    sink.protocol.commit_up_to_checkpoint(0)
    assert world.ids() == list(range(5))


def test_commit_up_to_checkpoint_publishes_all_pending_in_order_and_no_more():
    """With three checkpoints pending, a commit up to the second one makes two snapshots.
    The third stays pending and is restored."""
    world = memory_world(restore="restore-and-continue")
    sink = _sink(world)
    _pending_chain(world, sink, [5, 9, 12])
    outcomes = sink.protocol.commit_up_to_checkpoint(1)
    assert [o.checkpoint_id for o in outcomes] == [0, 1]
    assert world.ids() == list(range(9))
    assert sink.protocol.commit_up_to_checkpoint(1) == [], "idempotent"
    sink.close()
    _sink(world).close()
    assert world.ids() == list(range(12))


def _pending_chain(world, sink, ends):
    """Pre-commits of several batches, of which none is published yet."""
    first = world.driver.describe(SparkCheckpoint("00000000-0000-0000-0000-000000000001", [ends[0]]), 0)
    decision = sink.protocol.admit(first)
    start = 0
    for batch_id, end in enumerate(ends):
        checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000001", ends[: batch_id + 1])
        _save(world, sink, world.driver.describe(checkpoint, batch_id), decision, (start, end))
        start = end


def test_restore_and_fail_publishes_then_fails_on_purpose():
    """This is the default policy. The start after it finds nothing to do."""
    world = memory_world()
    sink = _sink(world)
    _pre_commit(world, sink, 0, 5, 0)
    sink.close()
    with pytest.raises(RestoredThenFailed):
        _sink(world)
    assert world.ids() == list(range(5))
    _sink(world).close()
    assert world.ids() == list(range(5))


def test_restore_and_continue_goes_on():
    """What was pending is published, and the run continues."""
    world = memory_world(restore="restore-and-continue")
    sink = _sink(world)
    _pre_commit(world, sink, 0, 5, 0)
    sink.close()
    _sink(world).close()
    assert world.ids() == list(range(5))


def test_the_same_name_at_the_same_time_is_refused_and_the_first_is_not_harmed():
    """Another checkpoint comes under a name that is held: the error names the holder, and the first query goes on."""
    world = memory_world()
    first = _sink(world)
    with pytest.raises(Fenced, match="application='...'") as caught:
        _sink(world, "00000000-0000-0000-0000-000000000002")
    assert caught.value.kind == "application.in-use"
    _pre_commit(world, first, 0, 5, 0)
    first.protocol.commit_up_to_checkpoint(0)
    assert world.ids() == list(range(5))


def test_a_successor_of_the_same_checkpoint_fences_the_zombie():
    """The zombie has a pre-commit, wakes up after its successor has published it, and may publish nothing more."""
    world = memory_world(restore="restore-and-continue")
    zombie = _sink(world)
    _pre_commit(world, zombie, 0, 5, 0)
    successor = _sink(world)
    assert world.ids() == list(range(5))
    with pytest.raises(Fenced):
        zombie.protocol.commit_up_to_checkpoint(0)
    _pre_commit(world, successor, 5, 8, 1)
    successor.protocol.commit_up_to_checkpoint(1)
    assert world.ids() == list(range(8))


def test_a_zombie_gives_no_file_its_name_back():
    """Others may have compacted and removed what its successor has published, so it checks that it still owns the
    application before it touches a file."""
    world = memory_world(restore="restore-and-continue", on_rollback="republish", partition_by=())
    zombie = _sink(world)
    _pre_commit(world, zombie, 0, 5, 0)
    _sink(world)
    bucket, io = f"{world.driver.root}/bucket-0", FileIO(world.calls, IdSource().new_id)
    (name,) = io.names(bucket)
    io.delete(f"{bucket}/{name}")
    with pytest.raises(Fenced):
        zombie.protocol.commit_up_to_checkpoint(0)
    assert io.names(bucket) == []


def test_each_guard_against_a_zombie_holds_alone():
    """The owner's record, the taken record number and the epoch in the newest snapshot: each of them is enough."""
    world = memory_world(restore="restore-and-continue")
    zombie = _sink(world)
    committable = _committed(world, zombie)
    writer = zombie.protocol.writer
    zombie.protocol._journal.check_owner(writer)
    successor = _sink(world)
    with pytest.raises(Fenced) as early:
        zombie.protocol._journal.check_owner(writer)
    assert early.value.kind == "writer.fenced"
    other = replace(committable, state=replace(committable.state, record_id="of-another-try"))
    with zombie._io.flush_group() as group:
        zombie.protocol._journal.stage_record(other, group)
        group.flush()
    with pytest.raises(Fenced):
        zombie.protocol._journal.create_record(other)
    _pre_commit(world, successor, 5, 8, 1)
    successor.protocol.commit_up_to_checkpoint(1)
    with pytest.raises(Fenced, match="epoch"):
        zombie.opened.committer.publish(committable, expect=0, restored=False, fence=lambda: None)
    assert world.ids() == list(range(8))


def test_a_zombie_is_fenced_although_all_snapshots_that_could_tell_have_expired():
    """It passed its own check, slept before it read the table,
    and finds a history without a word of its application."""
    world = memory_world(restore="restore-and-continue")
    zombie = _sink(world)
    _pre_commit(world, zombie, 0, 5, 0)

    def while_it_sleeps(step):
        if step == "commit.before_filter":
            arm(None)
            _sink(world)
            _expire_and_forget(world)

    arm(while_it_sleeps)
    try:
        with pytest.raises(Fenced):
            zombie.protocol.commit_up_to_checkpoint(0)
    finally:
        arm(None)
    assert world.ids() == list(range(5))


def _expire_and_forget(world):
    """Add a foreign snapshot 2 without our states, and delete snapshot 1."""
    root, io = world.driver.root, FileIO(world.calls, IdSource().new_id)
    foreign = json.loads(io.read(f"{root}/snapshot/snapshot-1"))
    foreign.update(id=2, commitUser="foreign", properties={})
    io.write(f"{root}/snapshot/snapshot-2", json.dumps(foreign).encode())
    io.delete(f"{root}/snapshot/snapshot-1")


def test_publishing_a_record_twice_is_published_once():
    """The committer recognises its own record in the newest snapshot, whether it is restored or not."""
    world = memory_world()
    sink = _sink(world)
    committable = _committed(world, sink)
    for restored in (False, True):
        outcome = sink.opened.committer.publish(committable, expect=0, restored=restored, fence=lambda: None)
        assert (outcome.checkpoint_id, outcome.snapshot_id, outcome.attempts) == (0, 1, 0)
    assert world.ids() == list(range(5))


def test_a_record_is_not_published_over_a_later_one():
    """The error ends the query. No restart could publish the record, so the error does not ask for one."""
    world = memory_world()
    sink = _sink(world)
    _pending_chain(world, sink, [5, 9])
    first = sink.protocol._journal.load(1)
    sink.protocol.commit_up_to_checkpoint(1)
    with pytest.raises(Fenced, match="record 1 .* is published") as refused:
        sink.opened.committer.publish(first, expect=0, restored=False, fence=lambda: None)
    assert refused.value.kind == "writer.fenced"
    assert world.ids() == list(range(9))


def _committed(world, sink):
    """Publish one checkpoint. Returns its record."""
    _pre_commit(world, sink, 0, 5, 0)
    committable = sink.protocol._journal.load(1)
    sink.protocol.commit_up_to_checkpoint(0)
    return committable


def test_a_zombie_that_saves_first_is_published_by_its_successor_not_twice():
    """Two drivers of one checkpoint want the same record number: one gets it, and the other is told so."""
    world = memory_world(restore="restore-and-continue")
    zombie, successor = _sink(world), None
    batch = world.driver.describe(SparkCheckpoint("00000000-0000-0000-0000-000000000001", [5]), 0)
    decision = zombie.protocol.admit(batch)
    successor = _sink(world)
    _save(world, successor, batch, successor.protocol.admit(batch), (0, 5))
    with pytest.raises(Fenced):
        _save(world, zombie, batch, decision, (0, 5))
    successor.protocol.commit_up_to_checkpoint(0)
    assert world.ids() == list(range(5))


def test_a_journal_that_was_deleted_does_not_lock_the_writer_out():
    """Epochs go on above the one that the newest snapshot carries."""
    world = memory_world()
    world.run(boundaries=(5,))
    FileIO(world.calls, IdSource().new_id).delete_tree(f"{world.driver.root}/streamsink")
    world.run(boundaries=(5, 9))
    assert world.ids() == list(range(9))
    epochs = [e.epoch for e in world.driver.events if isinstance(e, events.Claimed)]
    assert epochs == sorted(set(epochs))
