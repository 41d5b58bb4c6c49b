"""Advice for a query that has had several names one after another,
or several checkpoints under them, and whose table goes back."""

import json
from types import SimpleNamespace

import pytest

from streamsink.commands.retire import retire
from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from tests.advice.accidents import SECOND, THIRD, accept, damage, lose_checkpoint, refused, start_over, starting_offset
from tests.advice.following import Advice, follows, told
from tests.crash.giving_up import follow, run_from
from tests.crash.world import memory_world
from tests.protocol.history import io_of, newest_of, roll_back

ENDS = (6, 9, 12, 15, 18)


def _named(*names, retain: int = 10):
    """A query with two batches under the first name and one under each other name,
    whose user has said each time with which batch the name begins."""
    world = memory_world(restore="restore-and-continue", journal_retain=retain)
    for number, application in enumerate(names, 2):
        accept(world, application=application, adopt_from_batch=number - 1 if number > 2 else None)
        world.run(boundaries=ENDS[:number])
    accept(world, adopt_from_batch=None)
    return world


def _go_back(world, to: int) -> None:
    for newest in range(newest_of(world) - 1, to - 1, -1):
        roll_back(world, newest)


def _begins_behind(world, given_up, end: int, query: str) -> None:
    """A new checkpoint that reads everything is refused;
    one that begins where the command has said has each row once."""
    lose_checkpoint(world, query)
    world.checkpoint.ends = []
    refused(world, "checkpoint.begins-anew", (end,))
    start_over(world, starting_offset(world, Advice(SimpleNamespace(kind="", message=str(given_up)))), (end,), query)
    assert world.ids() == list(range(end))


def test_three_names_and_the_table_goes_back_behind_the_second_one():
    """Formerly the command asked for the second name, of which the table says nothing,
    and said to read the source from its beginning."""
    world = _named("first", "second", "third")
    _go_back(world, 2)
    given_up = follow(world, refused(world, "table.rolled-back", ENDS))
    _begins_behind(world, given_up, 18, SECOND)


def test_records_are_given_up_a_second_time():
    """Formerly what the new checkpoint had recorded in between said nothing of the first name."""
    world = _named("first", "second")
    _go_back(world, 2)
    given_up = follow(world, refused(world, "table.rolled-back", ENDS))
    start = starting_offset(world, Advice(SimpleNamespace(kind="", message=str(given_up))))
    start_over(world, start, (12, 15))
    assert world.ids() == list(range(15))
    _go_back(world, 2)
    given_up = follow(world, refused(world, "table.rolled-back", ENDS, lambda: run_from(world, start, (12, 15, 18))))
    _begins_behind(world, given_up, 18, THIRD)


def test_a_new_checkpoint_goes_on_under_the_later_name_and_its_first_record_is_pruned():
    """Formerly records of the new checkpoint said nothing of the first name."""
    world = _named("first", "second", retain=2)
    start_over(world, 12, (15, 18, 21, 24))
    _go_back(world, 2)
    given_up = follow(
        world, refused(world, "table.rolled-back", ENDS, lambda: run_from(world, 12, (15, 18, 21, 24, 27)))
    )
    _begins_behind(world, given_up, 27, THIRD)


@follows("retire.pending")
def test_the_first_name_is_not_retired_while_nothing_is_written_behind_it():
    """Otherwise nothing would show any more what the table has of the query."""
    world = _named("first", "second")
    _go_back(world, 2)
    given_up = follow(world, refused(world, "table.rolled-back", ENDS))

    def retire_first():
        retire(io_of(world), world.driver.root, SinkOptions.of(world.driver.root, {"application": "first"}))

    told("retire.pending", retire_first).says("Start that query once more")
    _begins_behind(world, given_up, 18, SECOND)
    retire_first()
    run_from(world, 9, (18, 20))
    assert world.ids() == list(range(20))


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("names", [("a", "b", "c", "a"), ("a", "b", "c", "a", "b")], ids=str)
def test_names_in_a_ring_and_the_table_goes_back_behind_all(names):
    """Formerly each name was sent to the next one, for ever."""
    world = memory_world(restore="restore-and-continue", journal_retain=10)
    ends = (3, 6, 9, 12, 15, 18)
    for number, application in enumerate(names, 1):
        accept(world, application=application, adopt_from_batch=number - 1 if number > 1 else None)
        world.run(boundaries=ends[:number])
    _go_back(world, 1)
    accept(world, on_rollback="republish", adopt_from_batch=None)
    for _ in range(12):
        try:
            world.run(boundaries=ends)
            break
        except Misuse as stopped:
            said = Advice(stopped)
            to_first = stopped.kind == "table.rolled-back-too-far" and "start the query once under" in said.message
            pattern = (
                r"start the query once under application='([^']*)'"
                if to_first
                else r"Set application='([^']*)' to go on"
            )
            accept(world, application=said.find(pattern))
    assert world.ids() == list(range(18))


def test_records_are_given_up_a_second_time_and_cannot_be_read():
    """Formerly nothing of these records named the name before, and the journal forgot what it had known of it."""
    world = _named("first", "second")
    _go_back(world, 2)
    given_up = follow(world, refused(world, "table.rolled-back", ENDS))
    start = starting_offset(world, Advice(SimpleNamespace(kind="", message=str(given_up))))
    start_over(world, start, (12,))
    _go_back(world, 2)
    damage(world, f"{world.driver.root}/streamsink/second/record-1.json")
    follow(world, told("journal.corrupt", lambda: run_from(world, start, (12, 15))))
    lose_checkpoint(world, THIRD)
    world.checkpoint.ends = []
    begin = refused(world, "checkpoint.begins-anew", (18,)).find(r"startingOffsets='([^']*)'")
    start_over(world, json.loads(begin)["t"]["0"], (18,), THIRD)
    assert world.ids() == list(range(18))
