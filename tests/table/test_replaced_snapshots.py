"""Paimon's own writers replace snapshots on a bare local disk.
Ours notice it, and lose and double nothing of theirs."""

import dataclasses
import errno

import pytest

from streamsink import events, faults
from streamsink.clock import Clock, IdSource
from streamsink.errors import Conflict, Corrupt, Misuse
from streamsink.format.manifest import read_manifest
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.world import BOUNDARIES, World, die_at_step, expected, memory_world
from tests.protocol.history import expire, mine_of, other_application, published_not_marked
from tests.table.entries import commit
from tests.table.foreign import Prepared, compact, files_of_record, opened, record_of

# Where in our second commit (snapshot 2) the other writer's rename may come, and where in the third one, when ours is
# long published.
AFTER_OURS = ["commit.published", "commit.hinted", "commit.marked", "forget.staging_removed", "batch.end"]
BEFORE_NEXT = ["write.begin", "write.staged", "precommit.saved", "commit.placed", "commit.before_filter"]
WHILE_BUILDING = ["commit.lists_written", "commit.before_publish"]


def _replaced_at(step, occurrence, then=None, **settings):
    """Run to the end while a foreign snapshot 2 is renamed over ours at that step.
    Returns the world and the foreign commit."""
    world = memory_world(**settings)
    world.run(boundaries=BOUNDARIES[:1])
    prepared = Prepared(world)
    # The fault is armed for a run that goes on with batch 1.
    arm(step, occurrence, lambda: (prepared.rename(), then() if then else None))
    try:
        world.run()
    finally:
        faults.arm(None)
    return world, prepared


def _told(world):
    return [e for e in world.driver.events if isinstance(e, events.SnapshotReplaced)]


@pytest.mark.parametrize("step", AFTER_OURS)
def test_a_replaced_checkpoint_is_published_again(step):
    """The next batch notices it:
    every row of ours and of the other writer is there once, and a warning names the snapshot."""
    world, prepared = _replaced_at(step, 1)
    assert world.ids() == expected() + prepared.ids
    assert [(e.snapshot_id, e.checkpoints) for e in _told(world)] == [(2, (1,))]


@pytest.mark.parametrize("step", BEFORE_NEXT)
def test_it_is_noticed_before_the_next_snapshot_is_built(step):
    """The rename comes late, in our next batch. The commit's filter finds out at the latest, and a restart mends it."""
    world, prepared = _replaced_at(step, 2)
    assert world.ids() == expected() + prepared.ids
    assert [e.snapshot_id for e in _told(world)] == [2] and _told(world)[0].checkpoints[0] == 1


@pytest.mark.parametrize("step", WHILE_BUILDING)
def test_replaced_while_the_next_one_is_built_hides_the_other_and_says_so(step):
    """Ours is built on what it read:
    nothing of ours is lost or doubled, the other writer's rows are not seen, and a warning says so."""
    world, _ = _replaced_at(step, 2)
    assert world.ids() == expected()
    assert [(e.snapshot_id, e.checkpoints) for e in _told(world)] == [(2, ())]


@pytest.mark.parametrize("step", AFTER_OURS + BEFORE_NEXT)
def test_a_death_in_that_moment_changes_nothing(step):
    """The driver is killed right after the rename, with or without our mark.
    The restart publishes again what was lost."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    prepared = Prepared(world)
    arm(step, 1 if step in AFTER_OURS else 2, lambda: (prepared.rename(), crash()))
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    world.run()
    assert world.ids() == expected() + prepared.ids


@pytest.mark.parametrize(
    "second", ["restore.before_publish", "commit.lists_written", "commit.published", "restore.published"]
)
def test_a_death_while_publishing_again(second):
    """The mending itself is killed, and is completed by the next start."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    prepared = _prepared_before_the_last(world)
    prepared.rename()
    arm(second, 1, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    world.run()
    assert world.ids() == expected() + prepared.ids


def _prepared_before_the_last(world):
    """A foreign commit built on the snapshot before the newest one,
    as by a writer that read it before ours was there."""
    io = FileIO(world.calls, IdSource().new_id)
    newest = f"{world.driver.root}/snapshot/snapshot-2"
    data = io.read(newest)
    io.delete(newest)
    io.replace(f"{world.driver.root}/snapshot/LATEST", b"1", "x")
    prepared = Prepared(world)
    # It took its time before it looked whether the number was free.
    prepared.snapshot = dataclasses.replace(prepared.snapshot, time_millis=Snapshot.from_json(data, newest).time_millis)
    io.create_if_absent(newest, data)
    io.replace(f"{world.driver.root}/snapshot/LATEST", b"2", "x")
    return prepared


def test_two_in_a_row_are_replaced():
    """Our snapshots 2 and 3 are both renamed over, the second by one that was built on the first replacement.
    Both are published again."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    first = Prepared(world)
    first.rename()
    second = Prepared(world, 1)
    io = FileIO(world.calls, IdSource().new_id)
    io.delete(f"{world.driver.root}/snapshot/snapshot-2")
    io.replace(f"{world.driver.root}/snapshot/LATEST", b"1", "x")
    world.run(boundaries=BOUNDARIES[:3])
    first.rename()
    second.rename()
    world.run()
    assert world.ids() == expected() + first.ids + second.ids
    assert [(e.snapshot_id, e.checkpoints) for e in _told(world)] == [(2, (1, 2)), (3, (1, 2))]


def test_files_that_a_third_writer_built_on_are_not_added_twice():
    """It read our snapshot before that was replaced:
    our rows are in its snapshot, and only the state is published again."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:1])
    replacing = Prepared(world)
    world.run(boundaries=BOUNDARIES[:2])
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    world.run()
    assert world.ids() == expected() + third.ids


def test_a_rollback_is_no_replacement():
    """What another writer wrote after a rollback is later than our mark,
    so the rule for rollbacks holds, and nothing is published again."""
    for option in ("fail", "republish"):
        world = memory_world(on_rollback=option, journal_retain=10)
        world.run(boundaries=BOUNDARIES[:2])
        prepared = _prepared_before_the_last(world)
        prepared.rename(Clock().now_ms() + 1)
        if option == "fail":
            with pytest.raises(Misuse) as caught:
                world.run()
            assert caught.value.kind == "table.rolled-back" and world.ids() == list(range(6)) + prepared.ids
        else:
            world.run()
            assert world.ids() == expected() + prepared.ids
        assert _told(world) == []


def test_a_mark_of_an_older_version_says_nothing():
    """The mark is empty, so the rule for rollbacks holds."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    world.calls._names[f"{world.driver.root}/streamsink/streamsink/done-2"].data = b""
    _prepared_before_the_last(world).rename()
    with pytest.raises(Misuse) as caught:
        world.run()
    assert caught.value.kind == "table.rolled-back"


def test_files_that_are_gone_are_an_error():
    """Somebody's cleaning took the replaced snapshot's files for orphans.
    The error names one of them, and nothing is published."""
    world = memory_world()
    world.run(boundaries=BOUNDARIES[:2])
    prepared = _prepared_before_the_last(world)
    before = {p for p in world.calls._names if "/data-" in p}
    prepared.rename()
    lost = sorted(before - _files_of(world))
    assert lost
    FileIO(world.calls, IdSource().new_id).delete(lost[0])
    with pytest.raises(Corrupt, match=lost[0].rsplit("/", 1)[-1]) as caught:
        world.run()
    assert caught.value.kind == "pending.files-gone"


def _files_of(world):
    from tests.table.test_commit import _table

    table = _table(world)
    live = {entry.file.file_name for entry in table.manifests.entries_of(table.snapshots.latest())}
    return {p for p in world.calls._names if p.rsplit("/", 1)[-1] in live}


# -- the reply to publishing is lost ---------------------------------------------------------------------------------


class _ReplyLost(CrashingCalls):
    """Gives the name ``snapshot-2`` and says that it failed; ``meanwhile`` happens before that.
    blind: nor can the snapshot be read back, once."""

    def __init__(self, inner, meanwhile, blind):
        super().__init__(inner)
        self._meanwhile, self._blind, self._lost = meanwhile, blind, False

    def link(self, source, target):
        won = super().link(source, target)
        if won and target.endswith("/snapshot/snapshot-2") and not self._lost:
            self._lost = True
            self._meanwhile()
            raise OSError(errno.EIO, "done, reply lost", target)
        return won

    def read(self, path):
        if self._lost and self._blind and path.endswith("/snapshot/snapshot-2"):
            self._blind = False
            raise OSError(errno.EIO, "unreachable", path)
        return super().read(path)


@pytest.mark.parametrize("settings", [{}, {"publish_as": "one-snapshot", "publish_every_batches": 2}], ids=str)
@pytest.mark.parametrize("blind", [False, True], ids=["read-back", "not-read-back"])
@pytest.mark.parametrize("is_built_on", [False, True], ids=["not-built-on", "built-on"])
def test_replaced_before_it_was_known_whether_ours_was_there(is_built_on, blind, settings):
    """Ours was published, and no reply said so.
    It is published again, or only its state where a third writer had built on it."""
    world = memory_world(**settings)
    world.run(boundaries=BOUNDARIES[:1])
    replacing, ids = Prepared(world), []

    def meanwhile():
        third = Prepared(world, 1) if is_built_on else None
        replacing.rename()
        ids.extend((third or replacing).ids)
        if third:
            third.rename()

    world.run(_ReplyLost(world.calls, meanwhile, blind))
    assert ids and world.ids() == expected() + ids


# -- killed before the mark ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"publish_as": "one-snapshot", "publish_every_batches": 2}, {"on_rollback": "republish"}], ids=str
)
def test_a_third_writer_built_on_ours_and_the_mark_is_missing(settings):
    """Our rows are in the table although no state says so.
    Only the state is published, and there is no Conflict at every start."""
    world, third = published_not_marked()
    world.driver.options = dataclasses.replace(world.driver.options, **settings)
    world.run()
    assert world.ids() == expected() + third.ids


def test_and_its_compaction_rewrote_our_files():
    """They are no longer live, but a snapshot since the record was made says that they were."""
    world, third = published_not_marked()
    compact(world)
    for name in files_of_record(world, 2):  # They have been removed since.
        FileIO(world.calls, IdSource().new_id).delete(name)
    world.run()
    assert world.ids() == expected() + third.ids


def test_and_our_manifest_was_merged_and_has_expired():
    """Found by a walk:
    its files were said to be gone, with a command by which rows that are in the table were to be read again."""
    world, third = published_not_marked()
    merging = other_application(world, "merging")
    table = opened(world)
    newest = table.snapshots.latest()
    manifest = record_of(world, 2).payload["manifest"]["final"]
    assert manifest.rsplit("/", 1)[-1] not in {meta.file_name for meta in table.manifests.all_of(newest)}
    table.file_io.delete(f"{world.driver.root}/{manifest}")
    expire(world, 1, newest.id - 1)
    world.run()
    assert mine_of(world) == expected() and merging.ids()


def test_a_file_of_ours_that_is_in_the_table_alone_is_a_conflict():
    """Somebody added one of two files by hand:
    it is wrong to publish both again, and wrong to leave out the other one."""
    world = memory_world(restore="restore-and-continue")
    arm("precommit.saved", 1, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    table = opened(world)
    manifest = record_of(world, 1).payload["manifest"]
    entries = read_manifest(table.file_io.read(f"{world.driver.root}/{manifest['staged']}"), "staged")
    assert len(entries) > 1
    record = record_of(world, 1)
    table.file_io.write(
        f"{world.driver.root}/{record.files[0].final}",
        table.file_io.read(f"{world.driver.root}/{record.files[0].staged}"),
    )
    commit(table, Changes(tuple(entries[:1])), user="foreign")
    for _ in range(2):
        with pytest.raises(Conflict, match="already in the map"):
            world.run()


def test_what_others_had_built_on_a_replaced_snapshot_of_the_first_name_is_there():
    """Found by a walk: the query was refused, and told to restore a table that has all of its rows."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    replacing = Prepared(world)
    world.run(boundaries=(6, 9))
    other = World(
        world.calls, world.driver.root, application="new-name", restore="restore-and-continue", adopt_from_batch=2
    )
    other.checkpoint = world.checkpoint
    assert die_at_step("precommit.saved", 1, other, boundaries=(6, 9, 14))
    Prepared(world, 1).rename()
    replacing.rename()
    expire(world, 1, 1)
    other.run(boundaries=(6, 9, 14))
    assert mine_of(world) == list(range(14))
