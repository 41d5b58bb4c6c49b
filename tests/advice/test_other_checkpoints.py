"""Advice of errors about checkpoints and queries whose rows cannot be compared by offsets, and about another query."""

import dataclasses

import pytest

from streamsink.protocol.same_query import QueryFingerprint
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.accidents import POSITIONS, SECOND, THIRD, accept, lose_checkpoint, refused, renew_topic, stopped_by
from tests.advice.following import follows
from tests.crash.giving_up import run_from
from tests.crash.world import World, expected, memory_world

PLAIN = {"restore": "restore-and-continue"}


def query(ends=(6, 9), **options) -> World:
    world = memory_world(**{**PLAIN, **options})
    world.run(boundaries=ends)
    return world


def _under_its_own_name(world, ends) -> World:
    """Run the query under another application in the same table; its rows are other ones."""
    renew_topic(world)
    accept(world, application="own")
    world.run(boundaries=ends)
    return world


# -- a source without positions ------------------------------------------------------------------------------------


def _replaced() -> tuple:
    world = query(numeric=False)
    lose_checkpoint(world)
    return world, refused(world, "checkpoint.replaced", (6, 9))


@follows("checkpoint.replaced")
def test_another_query_that_takes_a_name_of_its_own():
    world, said = _replaced()
    said.says("give it a name of its own (application=...)")
    assert _under_its_own_name(world, (4, 7)).ids() == [*range(9), *range(1000, 1007)]


@follows("checkpoint.replaced", "batch.in-replay")
def test_a_lost_checkpoint_accepted_as_seen_until_new_data_begins():
    """Each batch of the replay asks, and the first one with new rows is accepted as new."""
    world, said = _replaced()
    accept(world, accept_as_seen=said.option("accept_as_seen"))
    assert stopped_by(world, (6, 9)) == "batch.in-replay"
    accept(world, accept_as_seen=refused(world, "batch.in-replay", (6, 9)).option("accept_as_seen"))
    assert stopped_by(world, (6, 9, 12)) == "batch.in-replay"
    accept(world, accept_as_new=refused(world, "batch.in-replay", (6, 9, 12)).option("accept_as_new"))
    world.run(boundaries=(6, 9, 12, 14))
    assert world.ids() == expected((14,))


@follows("checkpoint.replaced")
def test_a_lost_checkpoint_accepted_as_new():
    """There is only new data, in this batch and, as the error says, in all batches after it."""
    world, said = _replaced()
    renew_topic(world)
    accept(world, accept_as_new=said.says("and all of the batches after it").option("accept_as_new"))
    world.run(boundaries=(6, 9, 12))
    assert world.ids() == [*range(9), *range(1000, 1012)]


@follows("batch.backwards")
@pytest.mark.parametrize("way", ["accept_as_new", "accept_as_seen"])
def test_an_older_checkpoint_with_other_batches(way):
    """Accepted as seen, the next batch asks as well.
    Accepted as new, everything that follows is written, as the error says."""
    world = query(ends=(3, 6), numeric=False)
    world.checkpoint = SparkCheckpoint(world.checkpoint.query, [3], 1)
    if way == "accept_as_new":
        renew_topic(world)
    said = refused(world, "batch.backwards", (3, 5))
    accept(world, **{way: said.option(way)})
    if way == "accept_as_new":
        said.says("and all of the batches after it")
        world.run(boundaries=(3, 5, 9))
        assert world.ids() == [*range(6), *range(1003, 1009)]
    else:
        assert stopped_by(world, (3, 5, 6)) == "batch.in-replay"
        accept(world, accept_as_seen=refused(world, "batch.in-replay", (3, 5, 6)).option("accept_as_seen"))
        assert stopped_by(world, (3, 5, 6, 9)) == "batch.in-replay"
        accept(world, accept_as_new=refused(world, "batch.in-replay", (3, 5, 6, 9)).option("accept_as_new"))
        world.run(boundaries=(3, 5, 6, 9, 12))
        assert world.ids() == expected((12,))


@follows("batch.gap")
@pytest.mark.parametrize("way", ["accept_as_new", "accept_as_seen"])
def test_batches_that_are_missing(way):
    """Either the batch is written, and the query goes on;
    or it is recorded without rows, and then the next one asks, as the error says."""
    world = query(ends=(3, 6), numeric=False)
    world.checkpoint.ends, world.checkpoint.committed = [3, 6, 8], 3
    said = refused(world, "batch.gap", (3, 6, 8, 10))
    accept(world, **{way: said.option(way)})
    if way == "accept_as_seen":
        said.says("the batch after it is asked for as well")
        assert stopped_by(world, (3, 6, 8, 10, 12)) == "batch.in-replay"
        accept(world, accept_as_new=refused(world, "batch.in-replay", (3, 6, 8, 10, 12)).option("accept_as_new"))
    world.run(boundaries=(3, 6, 8, 10, 12))
    assert world.ids() == [*range(6), *range(8 if way == "accept_as_new" else 10, 12)]


@follows("batch.gap")
def test_batches_of_files_that_are_missing():
    """The table is yesterday's copy.
    Formerly the words of the error left out what the missing batches had; a new checkpoint loses nothing."""
    world = query(ends=(3, 6), tells_files=True, file_column="file")
    world.checkpoint.ends, world.checkpoint.committed = [3, 6, 8], 3
    refused(world, "batch.gap", (3, 6, 8, 10)).says("To have their rows written, start a new checkpoint")
    lose_checkpoint(world)
    world.run(boundaries=(4, 8, 10))
    assert world.ids() == expected((10,))


@follows("gap.first-batch")
@pytest.mark.parametrize("way", ["adopt_from_batch", "new-checkpoint"])
def test_a_first_batch_that_is_not_the_first(way):
    """The query moves here with its past, or the table was emptied and is filled again."""
    world = query(ends=())
    world.driver.start(world.file_io(world.calls), world.checkpoint).close()  # There is a table.
    world.checkpoint = SparkCheckpoint(world.checkpoint.query, [3, 6], 2)
    said = refused(world, "gap.first-batch", (3, 6, 9))
    if way == "adopt_from_batch":
        accept(world, adopt_from_batch=said.option("adopt_from_batch"))
        world.run(boundaries=(3, 6, 9, 12))
        assert world.ids() == list(range(6, 12))
    else:
        said.says("start a new checkpoint")
        lose_checkpoint(world)
        world.run(boundaries=(7, 12))
        assert world.ids() == expected((12,))


# -- another query -------------------------------------------------------------------------------------------------


OTHER = {
    "query.other": QueryFingerprint(
        sources="a numbered source", plan="another filter", dates="", schema="", spark="", comparable=True
    ),
    "query.not-comparable": None,
}


@follows(*OTHER)
@pytest.mark.parametrize("kind", OTHER)
@pytest.mark.parametrize("way", ["application", "accept_as_same", "accept_as_new", "accept_as_seen"])
@pytest.mark.parametrize("columns", [POSITIONS, ()], ids=["columns", "no columns"])
def test_another_query_under_the_first_one_s_name(kind, way, columns):
    """Each of four ways is followed over several batches: what the error says is written, and nothing else. Found by a
    walk: without columns the error was positions.overlap, which said nothing of another query, and who followed its
    advice left out what the first query had left out."""
    world = query(position_columns=columns)
    lose_checkpoint(world)
    world.driver.fingerprint = OTHER[kind]
    if way == "application":
        renew_topic(world)
    said = refused(world, kind, (5, 8))
    if way == "application":
        said.says("give it a name of its own (application='...')")
        accept(world, application="own")
    else:
        accept(world, **{way: said.option(way)})
    # Columns tell which rows to filter; the next error asks for them.
    if not columns and way in ("accept_as_same", "accept_as_seen"):
        again = refused(world, "positions.overlap", (5, 8, 12)).says("option position_columns")
        accept(world, position_columns=POSITIONS)
        if way == "accept_as_same":
            accept(world, accept_as_same=again.option(way))
    world.run(boundaries=(5, 8, 12))
    assert (
        world.ids()
        == {
            "application": [*range(9), *range(1000, 1012)],
            "accept_as_same": expected((12,)),
            "accept_as_new": sorted([*range(9), *range(12)]),
            "accept_as_seen": expected((12,)),
        }[way]
    )


@follows("positions.gap", *OTHER)
@pytest.mark.parametrize("kind", OTHER)
@pytest.mark.parametrize("way", ["application", "accept_as_new"])
def test_another_query_under_the_first_one_s_name_that_begins_behind_the_recorded_positions(kind, way):
    """Found by a walk: who began where the table ends, as the error says, left out what the first query had left out,
    and nothing was said of another query."""
    world = query(position_columns=POSITIONS)
    world.driver.fingerprint = OTHER[kind]
    renew_topic(world)
    lose_checkpoint(world)
    said = refused(world, "positions.gap", (), lambda: run_from(world, 12, (14,)))
    said.says(
        "which may have left out rows of this one: to have them, start a new checkpoint with startingOffsets='earliest'"
    )
    lose_checkpoint(world, THIRD)
    again = refused(world, kind, (5, 14))
    if way == "application":
        again.says("give it a name of its own (application='...')")
        accept(world, application="own")
    else:
        accept(world, **{way: again.option(way)})
    world.run(boundaries=(5, 14))
    assert world.ids() == [*range(9), *range(1000, 1014)]


def described(world, **changes) -> None:
    """Make its batches say this of their query."""
    plain = world.driver.describe
    world.driver.describe = lambda checkpoint, batch_id: dataclasses.replace(plain(checkpoint, batch_id), **changes)


@follows("query.stateful-positions")
@pytest.mark.parametrize("option, value", [("position_columns", POSITIONS), ("file_column", "file")])
def test_position_columns_of_a_stateful_query_are_left_out(option, value):
    world = memory_world(**PLAIN, **{option: value})
    described(world, stateful=True)
    said = refused(world, "query.stateful-positions", (6,))
    accept(world, **{said.find(r"Leave (\w+) out"): None})
    world.run(boundaries=(6, 9))
    assert world.ids() == expected((9,))


@follows("query.state-lost")
@pytest.mark.parametrize("way", ["newest-checkpoint", "another-table", "accept_as_new"])
def test_a_stateful_query_that_lost_its_state(way):
    world = memory_world(**PLAIN)
    described(world, stateful=True)
    world.run(boundaries=(6, 9))
    newest = world.checkpoint
    lose_checkpoint(world)
    said = refused(world, "query.state-lost", (6, 9))
    if way == "newest-checkpoint":
        said.says("bring back the newest checkpoint")
        world.checkpoint = newest
    elif way == "another-table":
        said.says(
            "from the first position of the source, with a new checkpoint",
            "application='...'",
            "into a table of its own",
        )
        world.driver.root += "_own"
        accept(world, application="own")
    else:
        accept(world, accept_as_new=said.says("and the batches after it follow").option("accept_as_new"))
    world.run(boundaries=(6, 9, 12))
    assert world.ids() == (sorted([*range(9), *range(12)]) if way == "accept_as_new" else expected((12,)))


@follows("query.output-mode")
@pytest.mark.parametrize("way", ["append", "complete", "append_changes"])
def test_an_aggregation_whose_results_change(way):
    world = memory_world(**PLAIN)
    described(world, output_mode="update", stateful=True)
    said = refused(world, "query.output-mode", (6,))
    del world.driver.describe
    if way == "append":
        said.says("Use output mode 'append' with a watermark")
        described(world, output_mode="append", stateful=True)
    elif way == "complete":
        said.says("output mode 'complete'")
        mode = said.find(r"mode='(overwrite)'")
        accept(world, mode=mode, overwrite_partition=said.option("overwrite_partition"))
        described(world, output_mode="complete", stateful=True)
    else:
        accept(world, append_changes=said.option("append_changes"))
        described(world, output_mode="update", stateful=True)
    world.run(boundaries=(6, 9))
    assert world.ids() == (list(range(6, 9)) if way == "complete" else expected((9,)))


@follows("checkpoint.copied")
@pytest.mark.parametrize("way", ["own-name", "accept_as_same"])
@pytest.mark.parametrize("numeric", [True, False])
@pytest.mark.parametrize("last", [True, False], ids=["last", "earlier"])
def test_a_checkpoint_that_was_copied_to_another_job(last, numeric, way):
    """Formerly its batches were taken for replays of the first job's,
    and the rows that the first job has left out were lost without an error."""
    world = memory_world(numeric=numeric, journal_retain=10, **PLAIN)
    world.run(boundaries=(6, 9, 12))
    copied = World(world.calls, world.driver.root, numeric=numeric, journal_retain=10, **PLAIN)
    copied.checkpoint = SparkCheckpoint(world.checkpoint.query, [6, 9, 12], 2 if last else 1)
    copied.driver.place = "a copy of the folder"
    copied.run(boundaries=(6, 9, 12))  # It is the same query, whose folder was moved.
    copied.checkpoint.committed = 2 if last else 1
    copied.driver.fingerprint = dataclasses.replace(copied.driver.fingerprint, plan="another filter")
    said = refused(copied, "checkpoint.copied", (6, 9, 12, 15))
    if way == "accept_as_same":
        accept(copied, accept_as_same=said.option(way))
        copied.run(boundaries=(6, 9, 12, 15))
        assert world.ids() == list(range(15))
        return
    said.says("start it with a new checkpoint and a name of its own (application='...')")
    accept(copied, application="own")
    copied.checkpoint = SparkCheckpoint(SECOND)
    whole = copied.driver.rows
    copied.driver.rows = lambda start, end: whole(start + 100, end + 100)
    copied.run(boundaries=(6, 9))
    assert world.ids() == [*range(12), *range(100, 109)]


def _with_a_copy(ends, **options) -> tuple[World, World]:
    """A query after these batches, and another program with a copy of its checkpoint,
    whose rows have ids from 100 on."""
    world = memory_world(journal_retain=10, **options)
    world.run(boundaries=ends)
    copy = World(world.calls, world.driver.root, journal_retain=10, **options)
    copy.checkpoint = dataclasses.replace(world.checkpoint, ends=list(world.checkpoint.ends))
    copy.driver.place = "a copy of the folder"
    copy.driver.fingerprint = dataclasses.replace(copy.driver.fingerprint, plan="another filter")
    whole = copy.driver.rows
    copy.driver.rows = lambda start, end: whole(start + 100, end + 100)
    return world, copy


@follows("checkpoint.copied")
@pytest.mark.parametrize("taken", [1, 2])
@pytest.mark.parametrize("kind", ["positions", "filtered positions", "opaque", "files"])
def test_a_copy_that_took_the_first_job_s_batches(kind, taken):
    """A second job with another program ran one or two batches from a copy of the checkpoint;
    then the first job goes on."""
    by_rows = {"filtered positions": {"position_columns": POSITIONS}, "files": {"file_column": "file"}}
    world, copy = _with_a_copy(
        (6, 9), **{**PLAIN, **by_rows.get(kind, {}), "numeric": "positions" in kind, "tells_files": kind == "files"}
    )
    copy.run(boundaries=(6, 9, 12, 15)[: 2 + taken])
    said = refused(world, "checkpoint.copied", (6, 9, 12, 15, 18))
    said.says("this is the first job", "all of the batches after it, beside those that the copy has written")
    accept(world, accept_as_new=said.option("accept_as_new"))
    world.run(boundaries=(6, 9, 12, 15, 18))
    assert world.ids() == [*range(18), *range(109, 109 + 3 * taken)]


@follows("checkpoint.copied")
@pytest.mark.parametrize("numeric", [True, False])
def test_batches_of_its_own_that_the_first_job_repeats_are_no_copy_s(numeric):
    """The job's checkpoint came back from an older backup after a copy had taken a batch. Formerly it was told that all
    batches were the copy's, and wrote them twice."""
    world, copy = _with_a_copy((3, 6, 9), numeric=numeric, **PLAIN)
    copy.run(boundaries=(3, 6, 9, 12))
    world.checkpoint = SparkCheckpoint(world.checkpoint.query, [3, 6, 9], 1)
    said = refused(world, "checkpoint.copied", (3, 6, 9, 12, 15))
    said.says("batch 3 of checkpoint")
    accept(world, accept_as_new=said.option("accept_as_new"))
    world.run(boundaries=(3, 6, 9, 12, 15))
    assert world.ids() == [*range(15), *range(109, 112)]


@follows("checkpoint.copied")
@pytest.mark.parametrize("numeric", [True, False])
def test_the_word_for_a_moved_checkpoint_that_is_left_in_the_job_accepts_no_later_copy(numeric):
    """Formerly the word named the folders alone,
    so that batches which another program took later were skipped in silence."""
    world, moved = _with_a_copy((6, 9), numeric=numeric, **PLAIN)
    moved.driver.rows = world.driver.rows
    moved.checkpoint.committed = 1
    accept(moved, accept_as_same=refused(moved, "checkpoint.copied", (6, 9, 12)).option("accept_as_same"))
    moved.run(boundaries=(6, 9, 12))
    world.checkpoint = dataclasses.replace(moved.checkpoint, ends=list(moved.checkpoint.ends))
    whole = world.driver.rows
    world.driver.rows = lambda start, end: whole(start + 100, end + 100)
    world.run(boundaries=(6, 9, 12, 15))
    moved.driver.rows = whole
    said = refused(moved, "checkpoint.copied", (6, 9, 12, 15, 18))
    accept(moved, accept_as_new=said.option("accept_as_new"))
    moved.run(boundaries=(6, 9, 12, 15, 18))
    assert moved.ids() == [*range(18), *range(112, 115)]
