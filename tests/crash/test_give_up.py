"""A pending record that can never be published: the error names one command, which settles it, and the query goes on; each row once."""

import contextlib
import copy
import dataclasses
import json
import os
import re

import pytest

import streamsink
from streamsink import faults
from streamsink.errors import Corrupt, Fenced, Misuse, RestoredThenFailed, StreamsinkError
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.sinks.give_up import give_up
from streamsink.sinks.offsets import offsets_of
from streamsink.sinks.verify import verify
from streamsink.storage.pending_log import decode_record
from streamsink.testing.crashing import CrashingCalls, Mode
from streamsink.testing.driver import Checkpoint
from streamsink.testing.faults import InjectedCrash, arm, crash
from tests.crash.many_world import ManyWorld, check_complete
from tests.crash.world import World, die_at_step, expected, is_prefix, memory_world, posix_world
from tests.table.foreign import Prepared

ENDS = (3, 6, 9, 12)
GROUPED = {"publish_every_batches": 9}
OTHER = "00000000-0000-0000-0000-000000000002"


def _follow(world, told: StreamsinkError | str):
    """Call what the message says, with the arguments that it says."""
    said = re.search(r"streamsink\.give_up\((.*?)\)", str(told))
    assert said, f"no command in: {told}"
    def call(path, **options):
        root = getattr(world, "root", None) or world.driver.root
        assert path == root
        options = SinkOptions.of(path, {**options, "commit_min_wait_ms": 0})
        return give_up(world.file_io(world.calls), path, options)

    return eval(f"call({said[1]})", {"call": call})  # noqa: S307


def _refused(world, kind, boundaries=ENDS) -> StreamsinkError:
    with pytest.raises(StreamsinkError) as refused:
        world.run(boundaries=boundaries)
    assert refused.value.kind == kind, refused.value
    return refused.value


def _record(world, sequence):
    path = f"{world.driver.root}/streamsink/streamsink/record-{sequence}.json"
    return decode_record(world.file_io(world.calls).read(path), path)


def _clean(world, sequence, count=None) -> list[str]:
    """Another engine's orphan cleaning: files of the record that no snapshot names go, wherever they are."""
    io, root = world.file_io(world.calls), world.driver.root
    gone = []
    for file in _record(world, sequence).files[:count]:
        for path in (f"{root}/{file.staged}", f"{root}/{file.final}"):
            if io.exists(path):
                gone.append(path)
                io.delete(path)
                io.sync_dir(os.path.dirname(path))
    assert gone
    return gone


def _left(step, occurrence=1, ends=ENDS, **settings) -> World:
    world = memory_world(**settings)
    assert die_at_step(step, occurrence, world, boundaries=ends)
    return world


def _recorded_end(world) -> int:
    """Where a new checkpoint begins, as ``startingOffsets``."""
    return json.loads(offsets_of(world.file_io(world.calls), world.driver.root, "streamsink", {}))["t"]["0"]


def _publish_what_is_left(world) -> None:
    """A start of the query that fails on purpose when it has published something."""
    with contextlib.suppress(RestoredThenFailed):
        world.driver.start(world.file_io(world.calls), world.checkpoint).close()


def _run_from(world, start, ends) -> None:
    """A new checkpoint whose first batch begins at ``start``."""
    plain = world.driver.describe

    def describe(checkpoint, batch_id):
        shifted = Checkpoint(checkpoint.query, [start, *checkpoint.ends])
        return dataclasses.replace(plain(shifted, batch_id + 1), batch_id=batch_id)

    world.driver.describe = describe
    try:
        world.run(boundaries=ends)
    finally:
        del world.driver.describe


# -- the one record of a query that publishes each batch ---------------------------------------------------------------


@pytest.mark.parametrize("numeric", [True, False], ids=["kafka", "files"])
@pytest.mark.parametrize("step", ["precommit.saved", "commit.adopted", "commit.before_publish"])
def test_files_of_the_last_record_are_gone(step, numeric):
    """Spark's commit log does not have the batch: given up, the same checkpoint writes it again, whatever the source is."""
    world = _left(step, 3, numeric=numeric)
    _clean(world, 3, 1)
    report = verify(world.file_io(world.calls), world.driver.root)
    assert not report.ok and "pending.files-gone" in {f.kind for f in report.findings}
    told = _refused(world, "pending.files-gone")
    assert "starting_offsets" not in str(told) or numeric
    done = _follow(world, told)
    assert done.records == (3,) and done.checkpoints == (2,)
    assert verify(world.file_io(world.calls), world.driver.root).ok
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_a_bounded_job_is_run_again_under_its_id():
    """Its batch has no source at all."""
    world = memory_world()

    def job():
        sink = world.driver.start(world.file_io(CrashingCalls(world.calls)), Checkpoint("2026-11-21", committed=END_OF_INPUT))
        try:
            sink.batch(Batch(END_OF_INPUT, "2026-11-21", "2026-11-21"))
        finally:
            sink.close()

    world.run(boundaries=(3,))
    world.driver.job_rows = (3, 8)
    arm("commit.adopting", 1, crash)
    with pytest.raises(InjectedCrash):
        job()
    faults.arm(None)
    world.die()
    _clean(world, 2)
    with pytest.raises(Corrupt) as told:
        job()
    done = _follow(world, told.value)
    assert "streamsink.write" in str(done)
    job()
    assert world.ids() == list(range(8))


def test_the_public_command_on_a_disk(tmp_path):
    """As a user calls it, twice; the text says how to go on."""
    world = posix_world(tmp_path)
    assert die_at_step("precommit.saved", 2, world, boundaries=ENDS)
    world.die()
    _clean(world, 2)
    done = streamsink.give_up(world.driver.root)
    assert done.records == (2,) and "Restart the query" in str(done)
    again = streamsink.give_up(world.driver.root)
    assert again.records == () and "nothing was given up" in str(again)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


# -- several records ---------------------------------------------------------------------------------------------------


def _several(bad, **settings) -> World:
    """Four batches are recorded and none is published; Spark has committed the first three of them."""
    world = _left("group.stopping", **GROUPED, **settings)
    assert world.checkpoint.committed == 4 and world.ids() == []
    _clean(world, bad, 1)
    return world


def test_files_of_a_middle_record_are_gone_kafka():
    """Those before it are published, it and those behind it are given up: a new checkpoint where the table says reads them again."""
    world = _several(2)
    done = _follow(world, _refused(world, "pending.files-gone"))
    assert done.records == (2, 3, 4) and "starting_offsets" in str(done)
    _publish_what_is_left(world)
    assert is_prefix(world.ids(), ENDS) and len(world.ids()) == 3
    _refused(world, "positions.gap", (*ENDS, 15))
    start = _recorded_end(world)
    world.checkpoint = Checkpoint(OTHER)
    _run_from(world, start, (8, 15))
    assert world.ids() == list(range(15))


def test_files_of_a_middle_record_are_gone_files():
    """The checkpoint goes back to the batch that the command names: Spark plans it again, and each row is there once."""
    world = _several(2, numeric=False)
    done = _follow(world, _refused(world, "pending.files-gone"))
    assert "starting_offsets" not in str(done)
    first = int(re.search(r"numbered (\d+) and higher", str(done))[1])
    _refused(world, "batch.gap", (*ENDS, 15))
    del world.checkpoint.ends[first:]
    world.checkpoint.committed = first
    world.run(boundaries=(3, 12, 15))
    assert world.ids() == list(range(15))


@pytest.mark.parametrize("deleted", [1, 2, 3], ids="record-{}".format)
def test_a_record_was_deleted_by_hand_although_others_follow_it(deleted):
    """The others cannot be published in its place: an error that names the command, not one that repeats itself for ever."""
    world = _left("group.stopping", **GROUPED)
    world.file_io(world.calls).delete(f"{world.driver.root}/streamsink/streamsink/record-{deleted}.json")
    told = _refused(world, "journal.missing-record")
    done = _follow(world, told)
    assert done.records == tuple(range(deleted + 1, 5))
    if deleted > 1:
        _publish_what_is_left(world)
    start = 3 * (deleted - 1)
    world.checkpoint = Checkpoint(OTHER)
    _run_from(world, start, (12, 15))
    assert world.ids() == list(range(15))


def test_a_damaged_record_is_given_up():
    """Its bytes tell nothing any more; the table's state tells that it was not published."""
    world = _left("precommit.saved", 3)
    world.calls._names[f"{world.driver.root}/streamsink/streamsink/record-3.json"].data = b"torn"
    done = _follow(world, _refused(world, "journal.corrupt"))
    assert done.records == (3,)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_a_rollback_that_was_meant_is_followed_to_a_new_checkpoint():
    """The lost batches are read again from the source, as the error says."""
    world = memory_world(journal_retain=10)
    world.run(boundaries=ENDS)
    io = world.file_io(world.calls)
    for snapshot in (3, 4):
        io.delete(f"{world.driver.root}/snapshot/snapshot-{snapshot}")
    io.delete(f"{world.driver.root}/snapshot/LATEST")
    done = _follow(world, _refused(world, "table.rolled-back", (*ENDS, 15)))
    assert done.records == (3, 4)
    _refused(world, "positions.gap", (*ENDS, 15))
    assert _recorded_end(world) == 6
    world.checkpoint = Checkpoint(OTHER)
    _run_from(world, 6, (8, 15))
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
    _follow(world, _refused(world, "table.rolled-back-too-far", (*ENDS, 15, 18)))
    world.checkpoint = Checkpoint(OTHER)
    _run_from(world, 3, (15, 18))
    assert world.ids() == list(range(18))


# -- what it refuses, and what it survives ------------------------------------------------------------------------------


def _give_up(world, path=None):
    return give_up(world.file_io(world.calls), path or world.driver.root, SinkOptions.of("t", {}))


def test_nothing_is_given_up_that_can_be_published():
    """Neither pending records whose files are there, nor published ones whose mark is missing."""
    for step in ("precommit.saved", "commit.adopted", "commit.published"):
        world = _left(step, 2)
        records = set(world.file_io(world.calls).names(f"{world.driver.root}/streamsink/streamsink"))
        assert _give_up(world).records == ()
        assert {n for n in records if n.startswith("record-")} <= set(world.file_io(world.calls).names(f"{world.driver.root}/streamsink/streamsink"))
        world.run(boundaries=ENDS)
        assert world.ids() == expected(ENDS)


def test_a_live_query_keeps_its_records():
    """It holds the application."""
    world = memory_world()
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    with pytest.raises(Fenced) as refused:
        _give_up(world)
    assert refused.value.kind == "application.in-use"
    sink.close()


def test_a_record_that_a_snapshot_names_is_not_given_up():
    """Its files were deleted after it was published, by whoever; the state was hidden by another writer: its rows are not read again."""
    world = memory_world()
    world.run(boundaries=ENDS[:1])
    replacing = Prepared(world)
    assert die_at_step("commit.published", 1, world, boundaries=ENDS[:2])  # published, not marked
    third = Prepared(world, 1)
    replacing.rename()
    third.rename()
    _clean(world, 2, 1)
    with pytest.raises(StreamsinkError) as refused:
        _give_up(world)
    assert refused.value.kind == "give-up.published" and "record 2" in str(refused.value)


def test_a_paused_driver_that_wakes_up_publishes_nothing_that_was_given_up():
    """It is fenced; its batch is in the table once, as the restarted query wrote it."""
    world = memory_world()

    def sleep():
        faults.arm(None)
        world.die()  # its hold ends, as a lease does
        _clean(world, 2)
        assert _give_up(world).records == (2,)

    arm("commit.before_filter", 2, sleep)
    with pytest.raises(StreamsinkError):
        world.driver._run_once(world.file_io(world.calls), world.checkpoint, ENDS)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-failure"])
def test_a_death_at_each_call_of_the_command(power):
    """Called again it ends the same."""
    left = _several(2)
    for n in range(1, 500):
        world = memory_world()
        world.calls, world.checkpoint = copy.deepcopy(left.calls), Checkpoint(OTHER)
        options = SinkOptions.of(world.driver.root, {})
        try:
            give_up(world.file_io(CrashingCalls(world.calls, n, Mode.BEFORE)), world.driver.root, options)
            break
        except InjectedCrash:
            world.die(power)
        give_up(world.file_io(world.calls), world.driver.root, options)
        _publish_what_is_left(world)
        _run_from(world, 3, (7, 12))
        assert world.ids() == list(range(12)), f"death at call {n}"
    assert n > 15


# -- several tables ----------------------------------------------------------------------------------------------------


def _clean_many(world, name) -> None:
    """Files of one table that the newest record names go."""
    io = world.file_io(world.calls)
    journal = f"{world.root}/streamsink/streamsink"
    newest = max(int(n[7:-5]) for n in io.names(journal) if n.startswith("record-"))
    record = decode_record(io.read(f"{journal}/record-{newest}.json"), journal)
    for file in record.files:
        if os.path.normpath(file.final).startswith(name + "/"):
            for path in (f"{world.root}/{file.staged}", f"{world.root}/{file.final}"):
                io.delete(path)


def test_files_of_one_of_several_tables_are_gone():
    """No table has the record: given up, the same checkpoint writes the batch again."""
    world = ManyWorld()
    arm("precommit.saved", 2, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    record = [n for n in world.file_io().names(f"{world.root}/streamsink/streamsink") if n == "record-2.json"]
    assert record
    path = f"{world.root}/streamsink/streamsink/record-2.json"
    tables = {t["name"] for t in decode_record(world.file_io().read(path), path).payload["tables"]}
    _clean_many(world, sorted(tables)[0])
    with pytest.raises(Corrupt) as told:
        world.run()
    assert told.value.kind == "pending.files-gone"
    assert _follow(world, told.value).records == (2,)
    world.run()
    check_complete(world.rows())


def test_a_record_that_one_of_several_tables_has_is_not_given_up():
    """Its rows would come twice. Rolled back as the error says, that table loses them, and then it can be given up."""
    world = ManyWorld()
    arm("tables.table_published", 1, crash)
    with pytest.raises(InjectedCrash):
        world.run()
    faults.arm(None)
    world.die()
    path = f"{world.root}/streamsink/streamsink/record-1.json"
    tables = sorted(t["name"] for t in decode_record(world.file_io().read(path), path).payload["tables"])
    _clean_many(world, tables[-1])
    with pytest.raises(Corrupt) as told:
        world.run()
    with pytest.raises(Misuse) as refused:
        _follow(world, told.value)
    assert refused.value.kind == "give-up.published" and f"{world.root}/{tables[0]}" in str(refused.value)
    for table in (table for table in tables if f"{world.root}/{table}" in str(refused.value)):
        for name in ("snapshot-1", "LATEST", "EARLIEST"):
            world.file_io().delete(f"{world.root}/{table}/snapshot/{name}")
    assert _follow(world, told.value).records == (1,)
    world.run()
    check_complete(world.rows())


# -- what cannot be told ------------------------------------------------------------------------------------------------


def test_an_altered_manifest_is_given_up():
    """Of the right size, with another content."""
    world = _left("precommit.saved", 2)
    manifest = _record(world, 2).payload["manifest"]
    file = world.calls._names[f"{world.driver.root}/{manifest['staged']}"]
    file.data = file.data[:-1] + bytes([file.data[-1] ^ 1])
    done = _follow(world, _refused(world, "pending.manifest"))
    assert done.records == (2,)
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS)


def test_whether_it_was_published_cannot_be_told():
    """Snapshots since the record have expired: the command wants to hear that its rows are not in the table, and then goes on."""
    world = memory_world(restore="restore-and-continue", journal_retain=10)
    assert die_at_step("precommit.saved", 3, world, boundaries=ENDS)
    io, root = world.file_io(world.calls), world.driver.root
    foreign = [Prepared(world), None]
    foreign[0].rename()
    foreign[1] = Prepared(world, 1)
    foreign[1].rename()
    for snapshot in (1, 2, 3):
        io.delete(f"{root}/snapshot/snapshot-{snapshot}")
    _clean(world, 3, 1)
    told = _refused(world, "journal.undecidable")
    with pytest.raises(Corrupt) as refused:
        _give_up(world)
    assert refused.value.kind == "give-up.undecidable"
    assert _follow(world, told).records == (3,)
    world.run(boundaries=ENDS)
    others = foreign[0].ids + foreign[1].ids
    assert [i for i in world.ids() if i not in others] == expected(ENDS)
