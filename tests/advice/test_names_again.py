"""Advice for a query that had another name, got its first name back, and comes under the other one once more."""

import copy
import dataclasses
import json
from types import SimpleNamespace

import pytest

from streamsink.format.snapshot import Snapshot
from streamsink.table.application_states import HISTORY
from tests.advice.accidents import POSITIONS, accept, lose_checkpoint, refused, renew_topic, start_over, starting_offset
from tests.advice.following import Advice, follows, told
from tests.crash.giving_up import follow, run_from
from tests.crash.world import expected, memory_world
from tests.protocol.history import io_of, newest_of, roll_back

ENDS = (6, 9, 12, 15, 18)


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("on_rollback", ["fail", "republish"])
@pytest.mark.parametrize("way", ["first-name", "given-up"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_query_has_gone_on_under_its_first_name_since_the_table_was_rolled_back(way, on_rollback, is_whole):
    """Found by a bred walk: what the other name had lost was published again, as its error said, although the first
    name had written it since. The first name had not been told of it, because the other name's last record is of
    another checkpoint. is_whole: all of the table's history is known."""
    world = memory_world(restore="restore-and-continue", position_columns=POSITIONS)
    world.run(boundaries=ENDS[:2])
    accept(world, application="new", adopt_from_batch=2)
    world.run(boundaries=ENDS[:3])
    checkpoint = copy.deepcopy(world.checkpoint)
    lose_checkpoint(world)
    accept(world, adopt_from_batch=None)
    world.run(boundaries=ENDS[:1])
    for newest in (3, 2):
        roll_back(world, newest)
    world.checkpoint = checkpoint
    world.checkpoint.committed -= 1
    accept(world, application="streamsink", adopt_from_batch=None)
    world.run(boundaries=ENDS[:4])
    if not is_whole:
        _says_that_history_is_incomplete(world)
    accept(world, application="new", on_rollback=on_rollback)
    said = refused(world, "table.rolled-back-too-far", ENDS)
    if way == "first-name":
        accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    else:
        follow(world, said)
        if not is_whole:
            accept(world, new_application=refused(world, "history.incomplete", ENDS).option("new_application"))
        said = refused(world, "application.renamed", ENDS)
        accept(world, adopt_from_batch=said.option("adopt_from_batch"))
    world.run(boundaries=ENDS)
    assert world.ids() == expected(ENDS[-1:])


def _says_that_history_is_incomplete(world) -> None:
    """Mark the newest snapshot as if snapshots had expired before anybody read what they said of applications."""
    path = f"{world.driver.root}/snapshot/snapshot-{newest_of(world)}"
    newest = Snapshot.from_json(io_of(world).read(path), path)
    io_of(world).replace(
        path,
        dataclasses.replace(newest, properties={**newest.properties, HISTORY: "incomplete"}).to_json(),
        "incomplete",
    )


def _went_back(first, ends, *, to: int = 1, retain: int = 10, **options):
    """A query that gets another name after the batches ``first``, and whose table goes back to this snapshot."""
    world = memory_world(restore="restore-and-continue", journal_retain=retain, **options)
    world.run(boundaries=first)
    accept(world, application="new", adopt_from_batch=len(first))
    world.run(boundaries=ends)
    for newest in range(newest_of(world) - 1, to - 1, -1):
        roll_back(world, newest)
    accept(world, on_rollback="republish", adopt_from_batch=None)
    return world


def _to_the_first_name(world, ends) -> Advice:
    said = refused(world, "table.rolled-back-too-far", ends)
    accept(world, **said.options("application", "on_rollback"))
    return said


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("start", [0, 9])
def test_the_checkpoint_is_lost_too_and_the_query_goes_on_under_its_first_name(start):
    """The query has another checkpoint then.
    Formerly what the other name had lost was published again beside what the first name had read again."""
    world = _went_back(ENDS[:2], ENDS[:3], position_columns=POSITIONS)
    lose_checkpoint(world)
    said = _to_the_first_name(world, (15,))
    run_from(world, start, (15,))
    assert world.ids() == list(range(15))
    accept(world, application=said.find(r"under application='([^']*)' again"))
    said = refused(world, "table.rolled-back-too-far", (15, 18), lambda: run_from(world, start, (15, 18)))
    accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    run_from(world, start, (15, 18))
    assert world.ids() == list(range(18))


@follows("table.rolled-back-too-far")
def test_the_first_name_has_given_up_and_read_again_what_the_other_one_went_on_from():
    """The first name's new records have the numbers of those that were given up. Formerly the other name took them for
    the ones that it had gone on from."""
    world = _went_back((3, 6, 9, 12), (3, 6, 9, 12, 15), retain=2)
    first = _to_the_first_name(world, (3, 6, 9, 12, 15, 18))
    given_up = follow(world, refused(world, "table.rolled-back-too-far", (3, 6, 9, 12, 15, 18)))
    start = starting_offset(world, Advice(SimpleNamespace(kind="", message=str(given_up))))
    start_over(world, start, (6, 9, 12, 15, 18))
    assert world.ids() == list(range(18))
    accept(world, application=first.find(r"under application='([^']*)' again"))
    said = refused(world, "table.rolled-back-too-far", (6,), lambda: run_from(world, start, (6, 9, 12, 15, 18, 20)))
    accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    run_from(world, start, (6, 9, 12, 15, 18, 20))
    assert world.ids() == list(range(20))


@follows("table.rolled-back-too-far")
def test_another_query_has_the_first_name_by_now():
    """That query reads other things, so what was lost may come again."""
    world = _went_back(ENDS[:2], ENDS[:3])
    _to_the_first_name(world, ENDS)
    world.run(boundaries=ENDS[:2])
    assert world.ids() == list(range(9))
    _another_query_writes(world)
    accept(world, application="new")
    world.run(boundaries=ENDS)
    assert world.ids() == [*range(18), 1000, 1001, 1002]


def test_another_query_has_the_first_name_and_the_number_of_the_record_that_was_given_up():
    """What the other name went on from is not in the table; a record with the same number is."""
    world = _went_back(ENDS[:2], ENDS[:3])
    accept(world, application="streamsink", on_rollback="fail")
    assert follow(world, refused(world, "table.rolled-back", ENDS)).records == (2,)
    _another_query_writes(world)
    accept(world, application="new", on_rollback="republish")
    refused(world, "table.rolled-back-too-far", ENDS)


def _another_query_writes(world) -> None:
    """Write one batch of another query under the name that the driver has,
    then make the driver the first query's again."""
    mine, rows = world.checkpoint, world.driver.rows
    renew_topic(world, numeric=False)
    lose_checkpoint(world)
    accept(world, accept_as_new=refused(world, "checkpoint.replaced", (3,)).option("accept_as_new"))
    world.run(boundaries=(3,))
    world.checkpoint, world.driver.rows, world.driver.numeric = mine, rows, True


def test_a_query_is_not_sent_to_a_first_name_whose_journal_is_lost():
    """Formerly it was sent to and fro for ever."""
    world = _went_back(ENDS[:2], ENDS[:3])
    io_of(world).delete_tree(f"{world.driver.root}/streamsink/streamsink")
    said = refused(world, "table.rolled-back-too-far", ENDS).says("Restore the table")
    assert "start the query once" not in said.message
    given_up = follow(world, said)
    start = starting_offset(world, Advice(SimpleNamespace(kind="", message=str(given_up))))
    start_over(world, start, (9, 12, 15))
    assert world.ids() == list(range(15))


@follows("table.rolled-back-too-far")
def test_the_other_name_has_pruned_the_record_that_says_what_it_went_on_from():
    """Formerly the command named the other name, of which the table says nothing."""
    world = _went_back(ENDS[:2], (*ENDS, 21), to=2, retain=2)
    given_up = follow(world, refused(world, "table.rolled-back-too-far", (*ENDS, 21, 24)))
    start = starting_offset(world, Advice(SimpleNamespace(kind="", message=str(given_up))))
    start_over(world, start, (12, 24))
    assert world.ids() == list(range(24))


@follows("table.rolled-back-too-far")
def test_names_there_and_back_and_the_table_goes_back_behind_both():
    """Formerly each name was sent to the other one. What the first name wrote after the second one is not in the table,
    and is published after the second one's rows."""
    world = memory_world(restore="restore-and-continue", journal_retain=10)
    for application, ends, adopted in (
        ("streamsink", ENDS[:2], None),
        ("new", ENDS[:3], 2),
        ("streamsink", ENDS[:4], 3),
    ):
        accept(world, application=application, adopt_from_batch=adopted)
        world.run(boundaries=ends)
    for newest in (3, 2):
        roll_back(world, newest)
    accept(world, on_rollback="republish", adopt_from_batch=None)
    _to_the_first_name(world, ENDS)
    said = told("application.renamed", lambda: world.run(boundaries=ENDS))
    accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    world.run(boundaries=ENDS)
    assert world.ids() == list(range(18))


@follows("checkpoint.begins-anew")
@pytest.mark.parametrize("way", ["behind it", "all of it is to be written"])
@pytest.mark.parametrize("retain", [2, 10])
def test_records_are_given_up_that_went_on_from_another_name_and_the_checkpoint_is_lost(retain, way):
    """The table says nothing of the name any more.
    Formerly everything in the source was written, beside what the first name has."""
    world = _went_back(ENDS[:2], (*ENDS, 21), to=2, retain=retain)
    accept(world, on_rollback="fail")
    given_up = follow(world, refused(world, "table.rolled-back", (*ENDS, 21, 24)))
    lose_checkpoint(world)
    said = refused(world, "checkpoint.begins-anew", (24,))
    at = json.loads(said.find(r"startingOffsets='([^']*)'"))["t"]["0"]
    assert at == starting_offset(world, Advice(SimpleNamespace(kind="", message=str(given_up))))
    if way == "behind it":
        start_over(world, at, (24,))
        assert world.ids() == list(range(24))
        return
    accept(world, **said.options("accept_as_new"))
    world.run(boundaries=(24,))
    assert world.ids() == sorted([*range(9), *range(24)])


@follows("checkpoint.begins-anew")
def test_the_first_name_went_back_too_and_is_to_be_started_first():
    """The first name's journal has what the table has lost."""
    world = _went_back(ENDS[:2], ENDS[:3], position_columns=POSITIONS)
    follow(world, refused(world, "table.rolled-back-too-far", ENDS))
    lose_checkpoint(world)
    said = refused(world, "checkpoint.begins-anew", (15,))
    accept(world, application=said.find(r"before set application='([^']*)' and leave adopt_from_batch out"))
    world.run(boundaries=(15,))
    assert world.ids() == list(range(15))


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("way", [{}, {"publish_as": "one-snapshot"}], ids=str)
def test_names_there_and_back_and_the_table_goes_back_behind_all_three(way):
    """Formerly each name was sent to the other one: what the first name had before the second one was not published
    because of what it has after it."""
    world = memory_world(restore="restore-and-continue", journal_retain=10, **way)
    for application, ends, adopted in (
        ("streamsink", ENDS[:2], None),
        ("new", ENDS[:3], 2),
        ("streamsink", ENDS[:4], 3),
    ):
        accept(world, application=application, adopt_from_batch=adopted)
        world.run(boundaries=ends)
    for newest in (3, 2, 1):
        roll_back(world, newest)
    accept(world, on_rollback="republish", adopt_from_batch=None)
    said = told("table.rolled-back-too-far", lambda: world.run(boundaries=ENDS))
    accept(world, application=said.find(r"start the query once under application='([^']*)'"))
    said = told("application.renamed", lambda: world.run(boundaries=ENDS))
    accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    world.run(boundaries=ENDS)
    assert world.ids() == list(range(18))
