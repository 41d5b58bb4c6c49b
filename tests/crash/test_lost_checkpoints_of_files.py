"""Checkpoints over a source without positions, deleted or restored: decided by files where they are known, asked for
where they are not.
"""

import dataclasses
import shutil
from pathlib import Path

import pytest

from streamsink import events
from streamsink.clock import IdSource
from streamsink.commands.give_up import give_up
from streamsink.errors import Misuse
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.sweeps import deaths
from tests.crash.world import World, memory_world, posix_world
from tests.protocol.history import roll_back

FIRST, SECOND = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
OPTIONS = {"restore": "restore-and-continue", "tells_files": True}


def files_world(**options) -> World:
    return memory_world(**{**OPTIONS, "file_column": "file", **options})


def refused(world, kind: str, boundaries) -> str:
    """The run ends in this error, and what is in the table stays; the token of both ways on."""
    before = world.ids()
    with pytest.raises(Misuse) as caught:
        world.run(boundaries=boundaries)
    assert (caught.value.kind, "Nothing was written" in str(caught.value)) == (kind, True), caught.value
    assert world.ids() == before
    return str(caught.value).partition("accept_as_new='")[2][:12]


def accept(world, **tokens) -> None:
    world.driver.options = dataclasses.replace(world.driver.options, **tokens)


def written(world) -> list[int]:
    """Rows of each batch that was recorded."""
    return [e.rows for e in world.driver.events if isinstance(e, events.BatchWritten)]


# -- decided by files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boundaries", [(9,), (6, 9), (3, 6, 9), (6, 9, 12), (4, 7, 14), (14,), (1, 2, 3, 14)])
def test_s2_over_files_each_row_is_there_once_whatever_the_batches_of_the_new_checkpoint(boundaries):
    """Old files alone, new ones alone, and both in one batch; then it goes on, also over restarts."""
    world = files_world()
    world.run(boundaries=(6, 9))
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=boundaries)
    world.run(boundaries=(*boundaries, boundaries[-1] + 5))
    assert world.ids() == list(range(boundaries[-1] + 5)) and world.unknown_files() == []


@pytest.mark.parametrize("accident, kind", [("deleted", "checkpoint.replaced"), ("restored", "batch.backwards")])
@pytest.mark.parametrize("earlier", ["another name", "another sink", "a name between"])
def test_files_of_batches_before_the_first_one_of_a_name_are_not_new(earlier, accident, kind):
    """It was told to begin with batch 2.

    What was read before that was written, and its own records say nothing of it.
    """
    world = files_world()
    if earlier == "a name between":
        _under(world, "new-name", [], 0).run(boundaries=(6,))
        _under(world, "streamsink", [6], 1).run(boundaries=(6, 9))
    elif earlier == "another name":
        world.run(boundaries=(6, 9))
    before = world.ids()
    renamed = _under(world, "new-name", [6, 9], 2)
    renamed.run(boundaries=(6, 9, 12))
    renamed.checkpoint = SparkCheckpoint(SECOND) if accident == "deleted" else SparkCheckpoint(FIRST, [6], 1)
    accept(renamed, accept_as_seen=refused(renamed, kind, (7, 12)))
    assert renamed.ids() == [*before, *range(9, 12)]


def _under(world, name: str, ends: list[int], committed: int) -> World:
    """The query comes under this name, as its user has said."""
    other = World(
        world.calls,
        world.driver.root,
        **OPTIONS,
        file_column="file",
        application=name,
        adopt_from_batch=committed or None,
    )
    other.checkpoint = SparkCheckpoint(FIRST, ends, committed)
    return other


def test_s2_over_files_only_new_ones_are_left():
    """The old files were removed from the source: nothing is asked."""
    world = files_world()
    world.run(boundaries=(6, 9))
    world.checkpoint, world.driver.first_file = SparkCheckpoint(SECOND), 9
    world.run(boundaries=(11, 14))
    assert world.ids() == list(range(14))


@pytest.mark.parametrize("boundaries", [(6, 9, 14), (6, 10, 14), (6, 14), (6, 7, 8, 9, 10, 14)])
def test_s4_over_files_an_older_checkpoint_goes_on_whatever_its_batches(boundaries):
    """Restored after its first batch: the same batches, and others."""
    world = files_world()
    world.run(boundaries=(6, 9, 11))
    world.checkpoint = SparkCheckpoint(FIRST, [6], 1)
    world.run(boundaries=boundaries)
    assert world.ids() == list(range(14))


def test_s4_over_files_accidents_follow_each_other():
    """Deleted, the first one restored as it was after two batches, deleted again, the second one restored; each goes on
    with other batches.
    """
    world = files_world(journal_retain=20)
    world.run(boundaries=(1, 3, 6))
    first = SparkCheckpoint(FIRST, [1, 3], 2)
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=(5, 8, 12))
    second = SparkCheckpoint(SECOND, [5], 1)
    for checkpoint, boundaries in (
        (first, (1, 3, 7, 14)),
        (SparkCheckpoint("00000000-0000-0000-0000-000000000003"), (9, 18)),
        (second, (5, 16, 17, 20)),
    ):
        world.checkpoint = checkpoint
        world.run(boundaries=boundaries)
        assert world.ids() == list(range(boundaries[-1]))


def test_without_the_column_a_batch_of_old_and_new_files_is_an_error_that_names_it():
    """The advice is followed: the column and the token; old files alone and new files alone need neither."""
    world = files_world(file_column=None)
    world.run(boundaries=(6, 9))
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=(6,))
    with pytest.raises(Misuse) as caught:
        world.run(boundaries=(6, 12))
    assert caught.value.kind == "files.overlap"
    assert all(
        word in str(caught.value)
        for word in ("3 files whose rows are here", "3 whose rows are not", "_metadata.file_path", "file_column")
    )
    accept(world, file_column="file", accept_as_same=str(caught.value).partition("accept_as_same='")[2][:12])
    world.run(boundaries=(6, 12, 14))
    assert world.ids() == list(range(14)) and written(world) == [6, 3, 0, 3, 2]


def test_the_column_makes_another_query_of_it_and_the_token_of_the_error_covers_that():
    """The same word accepts the query that was changed as the error said."""
    world = files_world(file_column=None)
    world.run(boundaries=(6,))
    world.checkpoint = SparkCheckpoint(SECOND)
    word = refused(world, "files.overlap", (9,))
    world.driver.fingerprint = dataclasses.replace(
        world.driver.fingerprint, plan="with a column more", schema="with a column more"
    )
    accept(world, file_column="file")
    assert refused(world, "query.other", (9,)) == word
    accept(world, accept_as_same=word)
    world.run(boundaries=(9, 12))
    assert world.ids() == list(range(12))


@pytest.mark.parametrize("boundaries", [(14,), (1, 2, 3, 14), (4, 7, 14)])
def test_files_of_batches_that_were_given_up_are_read_again(boundaries):
    """The table was rolled back, what it lost was given up, some of it came again in other batches, and then the
    checkpoint was lost.
    """
    world = files_world(journal_retain=2)
    world.run(boundaries=(3, 6, 9))
    for to in (2, 1):
        roll_back(world, to)
    assert give_up(world.file_io(world.calls), world.driver.root, world.driver.options).records == (2, 3)
    world.checkpoint = SparkCheckpoint(FIRST, [3], 1)
    world.run(boundaries=(3, 4, 8))
    assert world.ids() == list(range(8))
    world.checkpoint = SparkCheckpoint(SECOND)
    world.run(boundaries=boundaries)
    assert world.ids() == list(range(14))


def test_a_file_that_was_written_anew_is_another_file():
    """The same path with another time: its rows are written beside those of the first one, when its user says that it
    is another one.
    """
    world = files_world()
    world.run(boundaries=(6,))
    world.checkpoint, world.driver.modified[2] = SparkCheckpoint(SECOND), 1_700_000_000_000
    accept(world, accept_as_new=refused(world, "files.other-times", (6,)))
    world.run(boundaries=(6,))
    assert world.ids() == [0, 1, 2, 2, 3, 4, 5]
    world.checkpoint = SparkCheckpoint(FIRST)
    world.run(boundaries=(8,))
    assert world.ids() == [0, 1, 2, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("boundaries", [(6,), (9,), (3, 6), (4, 9)])
def test_files_that_were_restored_without_their_times_do_not_come_twice(boundaries):
    """``cp -r``: each of them was another file, and 12 rows were there where 6 had been read."""
    world = files_world(journal_retain=2)
    world.run(boundaries=(2, 3, 4, 5, 6))
    world.checkpoint = SparkCheckpoint(SECOND)
    world.driver.modified = dict.fromkeys(range(6), 1700000000000)
    for batch in range(len(boundaries)):
        accept(world, accept_as_seen=refused(world, "files.other-times", boundaries[: batch + 1]))
        world.run(boundaries=boundaries[: batch + 1])
    assert world.ids() == list(range(boundaries[-1]))
    world.run(boundaries=(*boundaries, 12))
    assert world.ids() == list(range(12))
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000003")
    world.run(boundaries=(5, 14))
    assert world.ids() == list(range(14))


def test_a_folder_that_was_moved_is_an_error_and_no_new_data():
    """No file has its path any more, but each has its name and time; accept_as_seen goes on, and asks for the batches
    that follow.
    """
    world = files_world()
    world.run(boundaries=(6,))
    world.checkpoint, world.driver.folder = SparkCheckpoint(SECOND), "memory:/moved/in"
    for boundaries in ((3,), (3, 6)):
        accept(world, accept_as_seen=refused(world, "files.moved", boundaries))
        world.run(boundaries=boundaries)
    assert world.ids() == list(range(6))
    world.run(boundaries=(3, 6, 9))
    assert world.ids() == list(range(9))


@pytest.mark.parametrize("boundaries", [(8,), (3, 8), (4, 6, 8), (1, 2, 3, 4, 5, 6, 7, 8)])
@pytest.mark.parametrize("moved", [(2,), (1, 2, 5), (0, 1, 2, 3, 4)])
def test_files_of_which_a_part_was_moved_do_not_come_twice(moved, boundaries):
    """Moved files beside known ones were written again, without a word; new ones beside moved ones were lost by the
    answer.
    """
    world = files_world(journal_retain=2)
    world.run(boundaries=(2, 4, 6))
    world.checkpoint, stays = SparkCheckpoint(SECOND), world.driver.file
    world.driver.file = lambda number: (
        dataclasses.replace(stays(number), path=f"memory:/moved/{number:05}") if number in moved else stays(number)
    )
    for ends in (boundaries[:count] for count in range(1, len(boundaries) + 1)):
        if any(number in moved for number in range((0, *ends)[-2], ends[-1])):
            accept(world, accept_as_seen=refused(world, "files.moved", ends))
        world.run(boundaries=ends)
        assert world.ids() == list(range(max(6, ends[-1])))
    world.run(boundaries=(*boundaries, 12))
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000003")
    world.run(boundaries=(5, 14))
    assert world.ids() == list(range(14)), "under its new path it is known as well"


def test_another_query_over_the_same_files_is_asked_for_and_its_own_files_count_from_there():
    """Accepted as new it writes them all; when its checkpoint is lost, only what it has read itself is here."""
    world = files_world()
    world.run(boundaries=(6,))
    world.checkpoint = SparkCheckpoint(SECOND)
    world.driver.fingerprint = dataclasses.replace(world.driver.fingerprint, plan="another filter")
    accept(world, accept_as_new=refused(world, "query.other", (3,)))
    world.run(boundaries=(3,))
    assert world.ids() == sorted([*range(6), *range(3)])
    world.checkpoint = SparkCheckpoint("00000000-0000-0000-0000-000000000003")
    world.run(boundaries=(3, 6, 9))
    assert world.ids() == sorted([*range(6), *range(9)])


def test_a_gap_is_a_gap_although_the_files_are_new():
    """The table and its journal are an older copy: the files of the batches between are missing here, and no file tells
    that.
    """
    world = files_world()
    world.run(boundaries=(3,))
    world.checkpoint = SparkCheckpoint(FIRST, [3, 6], 2)
    refused(world, "batch.gap", (3, 6, 9))
    world.checkpoint = SparkCheckpoint(SECOND, [3, 6], 2)
    refused(world, "checkpoint.replaced", (3, 6, 9))


def test_files_of_batches_that_were_accepted_as_seen_are_known():
    """They were said to be in the table."""
    world = files_world()
    world.run(boundaries=(3,))
    world.checkpoint = SparkCheckpoint(FIRST, [3, 6], 2)
    accept(world, accept_as_seen=refused(world, "batch.gap", (3, 6, 9)))
    world.run(boundaries=(3, 6, 9))
    world.checkpoint = SparkCheckpoint(SECOND)
    world.driver.first_file = 6
    world.run(boundaries=(9, 12))
    assert world.ids() == [0, 1, 2, 9, 10, 11]


# -- what is not known stays not known -----------------------------------------------------------------------------


def test_a_query_with_a_past_elsewhere_does_not_know_its_first_files():
    """It was adopted from batch 2 on; the files before that are in no record of ours."""
    world = files_world(adopt_from_batch=2)
    world.checkpoint = SparkCheckpoint(FIRST, [3, 6], 2)
    world.run(boundaries=(3, 6, 9, 12))
    world.checkpoint = SparkCheckpoint(SECOND)
    refused(world, "checkpoint.replaced", (12,))


def test_a_new_journal_does_not_know_the_files_of_the_one_that_was_removed():
    world = files_world()
    world.run(boundaries=(6, 9))
    io = FileIO(world.calls, IdSource().new_id)
    io.delete_tree(f"{world.driver.root}/streamsink/streamsink")
    world.run(boundaries=(6, 9, 11))
    world.checkpoint = SparkCheckpoint(SECOND)
    refused(world, "checkpoint.replaced", (11,))


def test_records_that_tell_no_files_leave_a_hole():
    """As those of earlier code, whether they are retained still or not."""
    for end in (9, 20):
        world = files_world()
        world.driver.tells_files = False
        world.run(boundaries=(6,))
        world.driver.tells_files = True
        world.run(boundaries=(6, *range(7, end)))
        world.checkpoint = SparkCheckpoint(SECOND)
        refused(world, "checkpoint.replaced", (end,))


def test_an_older_copy_of_the_journal_does_not_know_the_files_since(tmp_path):
    world = posix_world(tmp_path, **OPTIONS, file_column="file")
    world.run(boundaries=(3,))
    journal, copy = Path(world.driver.root, "streamsink"), tmp_path / "copy"
    shutil.copytree(journal, copy)
    world.run(boundaries=(3, 6))
    shutil.rmtree(journal)
    shutil.copytree(copy, journal)
    world.checkpoint = SparkCheckpoint(SECOND)
    refused(world, "checkpoint.replaced", (6,))


def test_a12_one_answer_does_not_let_the_rest_of_a_replay_through():
    """A12: a checkpoint is lost over a source that cannot be compared; accept_as_seen was given once, and the next
    batch was doubled.
    """
    world = memory_world(numeric=False, restore="restore-and-continue")
    world.run(boundaries=(3, 6, 9))
    world.checkpoint = SparkCheckpoint(SECOND)
    accept(world, accept_as_seen=refused(world, "checkpoint.replaced", (3, 6, 9)))
    word = refused(world, "batch.in-replay", (3, 6, 9))
    assert world.ids() == list(range(9)), "the second batch is a part of the same replay"
    accept(world, accept_as_seen=word)
    accept(world, accept_as_seen=refused(world, "batch.in-replay", (3, 6, 9)))
    accept(world, accept_as_new=refused(world, "batch.in-replay", (3, 6, 9, 12)))
    world.run(boundaries=(3, 6, 9, 12, 14, 15))
    assert world.ids() == list(range(15)), "once a batch is new, so are those after it"


def test_a12_after_an_older_checkpoint_was_restored():
    """A12: batches go back, with other boundaries; the answer for one of them is for that one."""
    world = memory_world(numeric=False, restore="restore-and-continue")
    world.run(boundaries=(3, 6, 9))
    world.checkpoint = SparkCheckpoint(FIRST, [3], 1)
    accept(world, accept_as_seen=refused(world, "batch.backwards", (3, 5, 9)))
    word = refused(world, "batch.in-replay", (3, 5, 9, 12))
    accept(world, accept_as_seen=word)
    accept(world, accept_as_new=refused(world, "batch.in-replay", (3, 5, 9, 12)))
    world.run(boundaries=(3, 5, 9, 12, 15))
    assert world.ids() == list(range(15))


# -- crashes -------------------------------------------------------------------------------------------------------


_SOAK = pytest.mark.soak


@pytest.mark.parametrize("power", [True, pytest.param(False, marks=_SOAK)], ids=["power-failure", "killed"])
def test_a_death_at_any_call_and_then_a_lost_checkpoint(power, capsys):
    """What pruned records knew outlives each crash: seven batches with two retained records, then a new checkpoint with
    other batches.
    """
    world, boundaries = files_world(), tuple(range(2, 16, 2))
    states = deaths(world, power, run=lambda calls: world.run(calls, boundaries))
    for left in states:
        left.put_back(world, power)
        world.checkpoint = SparkCheckpoint(SECOND)
        world.run(boundaries=(3, 7, 11, 18))
        assert world.ids() == list(range(18)) and world.unknown_files() == [], str(left)
    with capsys.disabled():
        print(f"\n[crash states: {len(states)}, lost rows: 0, doubled rows: 0]", end=" ")
    assert len(states) > (50 if power else 300)
