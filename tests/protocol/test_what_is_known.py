"""What is not known stays not known: other writers, expired history, lost journals, and tables that take another one's place."""

import dataclasses
import re

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Conflict, Corrupt, Misuse, RestoredThenFailed
from streamsink.format.snapshot import Snapshot
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.sinks.verify import verify
from streamsink.storage.file_io import FileIO
from streamsink.table.table import open_table
from streamsink.testing.driver import Checkpoint
from tests.crash.giving_up import follow
from tests.crash.world import World, die_at_step, memory_world
from tests.table.foreign import FIRST_ID, Prepared, _shifted

OTHERS = range(FIRST_ID, FIRST_ID + 10_000)


def _io(world) -> FileIO:
    return FileIO(world.calls, IdSource().new_id)


def _expire(world, first: int, last: int) -> None:
    """Snapshots are gone, as Paimon's expiry leaves it. Their data files stay: the newest snapshot has them."""
    for number in range(first, last + 1):
        _io(world).delete(f"{world.driver.root}/snapshot/snapshot-{number}")


def _newest(world) -> int:
    return open_table(_io(world), world.driver.root, for_writing=False).snapshots.latest().id


def _other_application(world, name: str, **options) -> World:
    """One batch of three rows of another application of streamsink."""
    other = World(world.calls, world.driver.root, application=name, **options)
    rows = other.driver.rows
    other.driver.rows = lambda start, end: _shifted(rows(start, end), FIRST_ID + 5_000)
    other.run(boundaries=(3,))
    return other


def _mine(world) -> list[int]:
    return [i for i in world.ids() if i not in OTHERS]


def _lost_history(world) -> None:
    """Ours is published, a foreign writer commits, ours expires, and another application of streamsink commits."""
    world.run(boundaries=(6, 9))
    Prepared(world).rename()
    _expire(world, 1, _newest(world) - 1)
    _other_application(world, "other", new_application=True)


def test_an_application_whose_history_expired_goes_on_after_another_one_has_committed():
    """A5: the other one's snapshot looked as if ours had never been here: a false `table.rolled-back`, for ever."""
    world = memory_world(restore="restore-and-continue")
    _lost_history(world)
    world.run(boundaries=(6, 9, 14))
    assert _mine(world) == list(range(14))


def test_expired_history_is_not_published_again_after_another_one_has_committed():
    """A5: with `republish`, which the false alarm recommended, every row was doubled."""
    world = memory_world(restore="restore-and-continue", on_rollback="republish")
    _lost_history(world)
    world.run(boundaries=(6, 9, 14))
    assert _mine(world) == list(range(14))


def test_without_its_journal_nobody_knows_it_and_the_answer_is_an_error():
    """A5: instead of `history.incomplete` the whole source was written a second time."""
    world = memory_world()
    _lost_history(world)
    _io(world).delete_tree(f"{world.driver.root}/streamsink/streamsink")
    world.checkpoint = Checkpoint(world.checkpoint.query)
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "history.incomplete" and "new_application=True" in str(refused.value)
    assert _mine(world) == list(range(9))


@pytest.mark.parametrize("others_came", [False, True], ids=["ends before", "another in its place"])
def test_a_rollback_is_seen_although_the_history_before_it_has_expired(others_came):
    """A mark says which snapshot published the record: the table ends before it, or a later one has its number. It was a silent skip."""
    world = memory_world(restore="restore-and-continue")
    _of_others(world)
    world.run(boundaries=(6,))
    published = _newest(world)
    _roll_back(world, published - 1)
    if others_came:
        Prepared(world, 1).rename()
    _expire(world, 1, published - 2)
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9, 14))
    assert refused.value.kind == "table.rolled-back" and "on_rollback='republish'" in str(refused.value)
    assert _mine(world) == []
    world.driver.options = dataclasses.replace(world.driver.options, on_rollback="republish")
    world.run(boundaries=(6, 9, 14))
    assert _mine(world) == list(range(14))


def _of_others(world) -> None:
    """A table with two snapshots of writers that have no properties and no journal."""
    name = "first"
    _other_application(world, name)
    io, path = _io(world), f"{world.driver.root}/snapshot/snapshot-1"
    io.delete_tree(f"{world.driver.root}/streamsink/{name}")
    io.replace(path, dataclasses.replace(Snapshot.from_json(io.read(path), path), properties=None).to_json(), IdSource().new_id())
    Prepared(world).rename()


def _roll_back(world, to: int) -> None:
    """The newest snapshot goes, and nothing else."""
    assert _newest(world) == to + 1
    _io(world).delete(f"{world.driver.root}/snapshot/snapshot-{to + 1}")
    _io(world).replace(f"{world.driver.root}/snapshot/LATEST", str(to).encode(), IdSource().new_id())


# -- bounded runs --------------------------------------------------------------------------------------------------


def _bounded(world, run_id: str, end: int) -> None:
    """One bounded run, as ``streamsink.write`` makes it."""
    for _ in range(2):
        sink = world.driver.start(_io(world), Checkpoint(run_id))
        try:
            sink.batch(_job(world, run_id, end))
            return
        except RestoredThenFailed:
            continue
        finally:
            sink.close()


def _job(world, run_id: str, end: int) -> Batch:
    described = world.driver.describe(Checkpoint(run_id, [end]), 0)
    return dataclasses.replace(described, batch_id=END_OF_INPUT, run=run_id, sources=())


@pytest.fixture
def jobs():
    """Three runs of one application, of which each has rows of its own."""
    world = memory_world(application="batch", restore="restore-and-continue")
    ends = {"monday": (0, 3), "tuesday": (3, 6), "wednesday": (6, 9)}
    for run_id, rows in ends.items():
        _run_job(world, run_id, rows)
    return world, ends


def _run_job(world, run_id: str, rows: tuple[int, int]) -> None:
    world.driver.job_rows = rows
    _bounded(world, run_id, rows[1])


def test_a_run_is_found_in_the_table_when_the_journal_was_deleted(jobs):
    """A6: an old run id was written a second time although every snapshot was there."""
    world, ends = jobs
    _io(world).delete_tree(f"{world.driver.root}/streamsink/batch")
    for run_id, rows in ends.items():
        _run_job(world, run_id, rows)
    assert world.ids() == list(range(9))
    _run_job(world, "thursday", (9, 12))
    _run_job(world, "monday", (0, 3))  # the new journal does not know it either, and says so by its identity
    assert world.ids() == list(range(12))


def test_a_run_is_found_in_the_table_when_the_journal_is_an_older_copy(jobs):
    """A6: the copy does not know the runs since, and nothing said that it was a copy."""
    world, ends = jobs
    io, root = _io(world), f"{world.driver.root}/streamsink/batch"
    for name in ("record-2.json", "record-3.json", "done-2", "done-3", "runs/tuesday", "runs/wednesday"):
        io.delete(f"{root}/{name}")
    for run_id, rows in ends.items():
        _run_job(world, run_id, rows)
    assert world.ids() == list(range(9))


def test_a_run_that_nobody_can_know_is_an_error_with_a_way_on(jobs):
    """A6: journal gone and its snapshot expired: the token writes it, or takes it as seen."""
    world, ends = jobs
    _io(world).delete_tree(f"{world.driver.root}/streamsink/batch")
    _expire(world, 1, 2)
    with pytest.raises(Misuse) as refused:
        _run_job(world, "monday", (0, 3))
    assert refused.value.kind == "run.undecidable"
    assert world.ids() == list(range(9))
    token = str(refused.value).partition("accept_as_seen='")[2][:12]
    world.driver.options = dataclasses.replace(world.driver.options, accept_as_seen=token)
    _run_job(world, "monday", (0, 3))
    assert world.ids() == list(range(9))


@pytest.mark.parametrize("pruned", [False, True], ids=["", "records between are pruned"])
def test_runs_that_are_given_up_after_a_rollback_are_written_again(jobs, pruned):
    """Their marks said that they are published, so that each was skipped in silence. Of a pruned record nobody knows whose it was."""
    world, ends = jobs
    if pruned:
        ends["thursday"] = (9, 12)
        _run_job(world, "thursday", ends["thursday"])
    for to in range(_newest(world) - 1, 0, -1):
        _roll_back(world, to)
    with pytest.raises(Misuse) as refused:
        _run_job(world, "wednesday", ends["wednesday"])
    assert refused.value.kind == "table.rolled-back"
    assert _io(world).exists(f"{world.driver.root}/streamsink/batch/record-2.json") is not pruned
    given_up = follow(world, refused.value)
    assert "wednesday" in str(given_up) or "tuesday" in str(given_up)
    for run_id, rows in ends.items():
        try:
            _run_job(world, run_id, rows)
        except Misuse as undecidable:
            assert undecidable.kind == "run.undecidable" and pruned and run_id != "monday"
            token = re.search(r"accept_as_new='(\w+)'", str(undecidable))[1]
            world.driver.options = dataclasses.replace(world.driver.options, accept_as_new=token)
            _run_job(world, run_id, rows)
    assert world.ids() == list(range(max(end for _, end in ends.values())))


def test_a_journal_of_which_all_was_given_up_still_knows_every_run():
    """It has no record any more, which looked like an older copy: each later run was undecidable once snapshots had expired."""
    world = memory_world(application="batch", restore="restore-and-continue")
    _run_job(world, "monday", (0, 3))
    _other_application(world, "other")
    _expire(world, 1, 1)
    base = _newest(world)
    for run_id, rows in (("tuesday", (3, 6)), ("wednesday", (6, 9))):
        _run_job(world, run_id, rows)
    for to in range(_newest(world) - 1, base - 1, -1):
        _roll_back(world, to)
    with pytest.raises(Misuse) as refused:
        _run_job(world, "tuesday", (3, 6))
    assert refused.value.kind == "table.rolled-back"
    assert follow(world, refused.value).records == (2, 3)
    for run_id, rows in (("monday", (0, 3)), ("tuesday", (3, 6)), ("wednesday", (6, 9))):
        _run_job(world, run_id, rows)
    assert _mine(world) == list(range(9))


def test_a_run_whose_record_was_pruned_is_undecidable_when_no_snapshot_tells_of_the_application():
    """Given up beside expired history, its mark was dropped, and the journal said that it knew every run: the run was written again."""
    world = memory_world(application="batch", restore="restore-and-continue")
    _of_others(world)
    _run_job(world, "monday", (0, 3))
    Prepared(world, 1).rename()
    base = _newest(world)
    for run_id, rows in (("tuesday", (3, 6)), ("wednesday", (6, 9))):
        _run_job(world, run_id, rows)
    _expire(world, 1, base - 1)
    for to in range(_newest(world) - 1, base - 1, -1):
        _roll_back(world, to)
    with pytest.raises(Misuse) as refused:
        _run_job(world, "tuesday", (3, 6))
    assert refused.value.kind == "table.rolled-back"
    assert follow(world, refused.value).records == (2, 3)
    world.driver.options = dataclasses.replace(world.driver.options, new_application=True)
    with pytest.raises(Misuse) as undecidable:
        _run_job(world, "monday", (0, 3))
    assert undecidable.value.kind == "run.undecidable"
    assert _mine(world) == [0, 1, 2]


def test_verify_knows_that_expired_history_is_not_a_rollback():
    """It called a whole table damaged as soon as the last snapshot of an application had expired."""
    world = memory_world(restore="restore-and-continue")
    _lost_history(world)
    report = verify(_io(world), world.driver.root)
    assert report.ok, report


def test_a_journal_that_a_dropped_table_left_is_named_with_the_way_on():
    """A driver that was at work when the table was dropped writes it again; the next start found a folder that is neither."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    for name in [name for name in _io(world).names(world.driver.root) if name != "streamsink"]:
        _io(world).delete_tree(f"{world.driver.root}/{name}")
    world.checkpoint = Checkpoint("00000000-0000-0000-0000-000000000009")
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "table.not-empty"
    _io(world).delete_tree(re.search(r"remove (\S+) as well", str(refused.value))[1])
    world.run(boundaries=(6, 9))
    assert world.ids() == list(range(9))


# -- published and not marked --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"on_rollback": "republish"}, {}], ids=["originals-stay", "final-names-stay"])
def test_a_record_that_may_be_published_is_not_published_again(options):
    """A9: killed before the mark, then every snapshot that could tell expired while the files stayed (under a tag): doubled."""
    world = memory_world(restore="restore-and-continue", **options)
    assert die_at_step("commit.hinted", 2, world, boundaries=(6, 9))
    prepared = Prepared(world)
    prepared.rename()
    _drop_from_newest(world, prepared)
    _expire(world, 1, _newest(world) - 1)
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "journal.undecidable"


def _drop_from_newest(world, prepared) -> None:
    """As after a compaction whose result was deleted with its rows: no retained snapshot names our files."""
    io = _io(world)
    table = open_table(io, world.driver.root, for_writing=False)
    newest = table.snapshots.latest()
    alone = dataclasses.replace(newest, base_manifest_list=newest.delta_manifest_list, base_manifest_list_size=newest.delta_manifest_list_size)
    io.replace(f"{world.driver.root}/snapshot/snapshot-{newest.id}", alone.to_json(), IdSource().new_id())


def test_a_record_of_which_all_snapshots_since_are_there_is_pending_for_certain():
    """A9, the other side: an expiry of what was before the record is no reason for an error."""
    world = memory_world(restore="restore-and-continue")
    world.run(boundaries=(6,))
    Prepared(world).rename()
    world.checkpoint.ends.append(9)
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    _expire(world, 1, _newest(world) - 1)
    world.run(boundaries=(6, 9))
    assert _mine(world) == list(range(9))


# -- another table in its place ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["precommit.saved", "commit.marked"], ids=["pending", "published"])
def test_records_of_a_dropped_table_are_not_published_into_the_new_one(step):
    """C3: the journal outlived its table; its pending rows went into one with other columns."""
    world = memory_world(restore="restore-and-continue")
    assert die_at_step(step, 1, world, boundaries=(6,))
    io, root = _io(world), world.driver.root
    table = open_table(io, root, for_writing=False)
    for name in [e.name for e in io.entries(root) if e.name != "streamsink"]:
        io.delete_tree(f"{root}/{name}")
    io.create_if_absent(f"{root}/schema/schema-0", dataclasses.replace(table.schema, time_millis=1).to_json())
    with pytest.raises(Misuse) as refused:
        world.run(boundaries=(6,))
    assert refused.value.kind == "table.recreated"
    assert table.table_id in str(refused.value) and f"{root}/streamsink/streamsink" in str(refused.value)
    # The advice: delete that folder, and start a new checkpoint.
    io.delete_tree(f"{root}/streamsink/streamsink")
    world.checkpoint = Checkpoint("00000000-0000-0000-0000-000000000009")
    world.run(boundaries=(6,))
    assert world.ids() == list(range(6))


# -- overwriting late ----------------------------------------------------------------------------------------------


def _pending_overwrite() -> World:
    """An overwrite of all partitions is recorded and its driver dies; then another application repairs the table."""
    world = memory_world(mode="overwrite", restore="restore-and-continue")
    world.run(boundaries=(6,))
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    _other_application(world, "repair")
    return world


def test_an_overwrite_does_not_delete_what_others_wrote_since_its_record():
    """A10: days later the first application started again, and the repair was gone."""
    world = _pending_overwrite()
    before = world.ids()
    with pytest.raises(Conflict) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "overwrite.changed-since" and "snapshot" in str(refused.value)
    assert world.ids() == before


@pytest.mark.parametrize("option, expected", [("accept_as_new", [6, 7, 8]), ("accept_as_seen", None)])
def test_both_ways_on_that_the_conflict_names(option, expected):
    """A10: the token overwrites all the same, or leaves the table as it is and goes on."""
    world = _pending_overwrite()
    before = world.ids()
    with pytest.raises(Conflict) as refused:
        world.run(boundaries=(6, 9))
    token = str(refused.value).partition(f"{option}='")[2][:12]
    world.driver.options = dataclasses.replace(world.driver.options, **{option: token})
    world.run(boundaries=(6, 9))
    assert world.ids() == (expected if expected is not None else before)
    world.run(boundaries=(6, 9, 14))
    assert set(range(9, 14)) <= set(world.ids())


def test_an_overwrite_behind_pending_ones_of_its_own_is_no_conflict():
    """A10: two are pending, and the first one's snapshot comes after the second one's record: nobody else has changed anything."""
    world = memory_world(mode="overwrite", restore="restore-and-continue", publish_every_batches=5)
    assert die_at_step("precommit.saved", 2, world, boundaries=(6, 9))
    assert world.ids() == []
    world.run(boundaries=(6, 9))
    assert world.ids() == [6, 7, 8]


def test_a_pending_overwrite_of_which_files_are_gone_says_so():
    """A10: whether it is still meant is asked of an overwrite that can be published."""
    world = memory_world(mode="overwrite", restore="restore-and-continue")
    world.run(boundaries=(6,))
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    io, staging = _io(world), f"{world.driver.root}/streamsink/streamsink/staging"
    for folder in io.names(staging):
        for name in io.names(f"{staging}/{folder}"):
            io.delete(f"{staging}/{folder}/{name}")
    with pytest.raises(Corrupt) as refused:
        world.run(boundaries=(6, 9))
    assert refused.value.kind == "pending.files-gone"
