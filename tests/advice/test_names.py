"""Advice of errors about an application's name:
a query that comes under another name, and a name that two queries hold."""

import json
from types import SimpleNamespace

import pytest

from streamsink.commands.retire import retire
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.accidents import (
    POSITIONS,
    SECOND,
    accept,
    copy_of,
    lose_checkpoint,
    put_back,
    refused,
    renew_topic,
    start_over,
    starting_offset,
    take,
)
from tests.advice.following import Advice, follows
from tests.crash.giving_up import follow
from tests.crash.world import World, die_at_step, expected, memory_world

PLAIN = {"restore": "restore-and-continue"}


def _query(ends=(6, 9), **options) -> World:
    world = memory_world(**{**PLAIN, **options})
    world.run(boundaries=ends)
    return world


@follows("application.renamed")
@pytest.mark.parametrize("way", ["first-name", "adopt_from_batch"])
def test_a_query_that_comes_back_under_another_name(way):
    world = _query()
    accept(world, application="new")
    said = refused(world, "application.renamed", (6, 9, 12))
    if way == "first-name":
        accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    else:
        first = copy_of(world, application=said.find(r"under the name '([^']*)'"))
        first.run(boundaries=(6, 9))  # The query under the first name publishes everything and is stopped.
        world.calls = first.calls
        accept(world, adopt_from_batch=said.option("adopt_from_batch"))
    world.run(boundaries=(6, 9, 12))
    assert world.ids() == expected((12,))


@follows("application.renamed")
def test_a_query_that_comes_back_under_another_name_while_its_topic_was_recreated():
    """The advice leads to the first name, and from there to the recreated topic. Formerly the batch was skipped, and
    what the new topic holds at its offsets was lost."""
    world = _query(position_columns=POSITIONS)
    world.checkpoint.committed = 1
    renew_topic(world, topic_id="another")
    accept(world, application="new", adopt_from_batch=2)
    said = refused(world, "application.renamed", (6, 9))
    said.says("To change the name, first start the query once more under the first one")
    accept(world, application=said.find(r"Set application='([^']*)' to go on"))
    said = refused(world, "positions.topic-recreated", (6, 9))
    accept(world, accept_as_new=said.option("accept_as_new"))
    start_over(world, starting_offset(world, said), (4, 12))
    assert world.ids() == [*range(9), *range(1000, 1012)]


@follows("table.rolled-back-too-far")
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("way", ["restored", "given-up"])
def test_a_table_that_was_rolled_back_to_before_the_query_had_its_name(way, pending):
    """Formerly the command said to read the source from its beginning,
    although the table has a part of it under the first name."""
    world = _query()
    accept(world, application="new", adopt_from_batch=2, on_rollback="republish")
    if pending:
        assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9, 12))
    else:
        world.run(boundaries=(6, 9, 12))
    of_snapshots = ("snapshot-2", "LATEST") if pending else ("snapshot-2", "snapshot-3", "LATEST")
    gone = {path: take(world, path) for path in (f"{world.driver.root}/snapshot/{name}" for name in of_snapshots)}
    said = refused(world, "table.rolled-back-too-far", (6, 9, 12, 15))
    if way == "restored":
        said.says("Restore the table")
        for path, data in gone.items():
            put_back(world, path, data)
        world.run(boundaries=(6, 9, 12, 15))
    else:
        found = Advice(SimpleNamespace(kind=said.kind, message=str(follow(world, said))))
        accept(world, adopt_from_batch=None)
        start_over(world, starting_offset(world, found), (15,))
    assert world.ids() == expected((15,))


@follows("checkpoint.begins-anew")
def test_a_new_checkpoint_that_begins_behind_the_first_name_is_not_told_to_begin_there():
    """Found by a walk: where a journal was lost, the rows between were written a second time by what the error said."""
    world = _query()
    accept(world, application="new", adopt_from_batch=2)
    lose_checkpoint(world)
    world.checkpoint.ends = []
    world.driver.first_file = 10
    said = refused(world, "checkpoint.begins-anew", (12,))
    said.says(
        "leave adopt_from_batch out: this checkpoint begins behind what was 'streamsink' before (what lies between "
        "them in t:0 is left out)"
    )
    assert "startingOffsets" not in said.message
    accept(world, adopt_from_batch=None)
    world.run(boundaries=(12,))
    assert world.ids() == [*range(9), *range(10, 12)]


@follows("table.rolled-back")
def test_nothing_is_left_under_a_name_that_was_taken_back_with_the_batch_that_another_name_was_to_adopt():
    """Found by a walk: adopt_from_batch was left in the job, and the batch after what was given up was taken for the
    one to adopt, so that rows were lost."""
    world = _query((6,))
    accept(world, adopt_from_batch=1)
    gone = [f"{world.driver.root}/snapshot/{name}" for name in ("snapshot-1", "LATEST")]
    for path in gone:
        take(world, path)
    said = refused(world, "table.rolled-back", (6, 9))
    given_up = Advice(SimpleNamespace(kind=said.kind, message=str(follow(world, said))))
    given_up.says(
        "Restart the query with its checkpoint and without adopt_from_batch",
        "start a new checkpoint at the beginning of the source",
    )
    accept(world, adopt_from_batch=None)
    refused(world, given_up.find(r"the query stops with an error \(([\w.-]+)\)"), (6, 9))
    start_over(world, 0, (9,))
    assert world.ids() == expected((9,))


@follows("checkpoint.begins-anew")
@pytest.mark.parametrize("way", ["offsets", "all"])
def test_a_query_that_comes_back_under_another_name_without_its_checkpoint(way):
    """Its user says that batch 2 is the next one, and a new checkpoint begins with batch 0.
    Formerly all rows were written a second time."""
    world = _query()
    accept(world, application="new", adopt_from_batch=2)
    lose_checkpoint(world)
    said = refused(world, "checkpoint.begins-anew", (12,))
    said.says("leave adopt_from_batch out")
    accept(world, adopt_from_batch=None)
    if way == "offsets":
        at = json.loads(said.find(r"for what was 'streamsink' before with startingOffsets='([^']*)'"))
        start_over(world, at["t"]["0"], (12,))
        assert world.ids() == expected((12,))
    else:
        world.run(boundaries=(12,))
        assert world.ids() == sorted([*range(9), *range(12)])


@follows("checkpoint.begins-anew")
@pytest.mark.parametrize("way", ["offsets", "all"])
@pytest.mark.parametrize("committed", [[2, 4], [4]], ids=["batch 2 comes", "batch 1 comes"])
def test_a_query_that_comes_back_under_another_name_with_another_checkpoint(way, committed):
    """Batch 2 of that checkpoint does not follow the recorded batch 1. Found by walks: what that checkpoint had not
    read itself was written a second time, and so it was by a batch of another number when the error advised to adopt
    that one."""
    world = _query()
    accept(world, application="new", adopt_from_batch=2)
    world.checkpoint = SparkCheckpoint(SECOND, list(committed), len(committed))
    said = refused(world, "checkpoint.begins-anew", (*committed, 12))
    if way == "offsets":
        at = json.loads(said.find(r"for what was 'streamsink' before with startingOffsets='([^']*)'"))
        accept(world, adopt_from_batch=None)
        start_over(world, at["t"]["0"], (12,))
        assert world.ids() == expected((12,))
    else:
        accept(world, accept_as_new=said.option("accept_as_new"))
        world.run(boundaries=(*committed, 12))
        assert world.ids() == sorted([*range(9), *range(4, 12)])


@follows("checkpoint.begins-anew")
@pytest.mark.parametrize("numeric", [True, False], ids=["topic", "folder"])
def test_a_query_whose_past_no_name_knows_without_its_checkpoint(numeric):
    """No record has what was written before, but its user knows from the table's rows where that ends. Formerly the
    error named no way on except to write everything again."""
    world = _query(numeric=numeric)
    assert retire(world.file_io(world.calls), world.driver.root, world.driver.options)
    accept(world, adopt_from_batch=2)
    lose_checkpoint(world)
    said = refused(world, "checkpoint.begins-anew", (12,)).says(
        "where that is lost, leave adopt_from_batch out and start a new checkpoint "
    )
    accept(world, adopt_from_batch=None)
    behind = max(world.ids()) + 1
    if numeric:
        said.says("with startingOffsets behind the last message that is written")
        start_over(world, behind, (12,))
    else:
        said.says("whose source has only what is not written yet")
        world.driver.first_file = behind
        world.run(boundaries=(12,))
    assert world.ids() == expected((12,))


@follows("checkpoint.begins-anew")
@pytest.mark.parametrize("adopted", [1, 3])
def test_a_query_that_is_told_to_begin_with_another_batch_than_the_next_one_without_its_checkpoint(adopted):
    """No name ends at that batch. Formerly the error did not say where the first one ends."""
    world = _query()
    accept(world, application="new", adopt_from_batch=adopted)
    lose_checkpoint(world)
    said = refused(world, "checkpoint.begins-anew", (12,))
    at = json.loads(said.find(r"for what was 'streamsink' before with startingOffsets='([^']*)'"))
    accept(world, adopt_from_batch=None)
    start_over(world, at["t"]["0"], (12,))
    assert world.ids() == expected((12,))


@follows("checkpoint.begins-anew")
def test_a_query_that_comes_back_under_another_name_without_its_checkpoint_while_a_batch_is_pending():
    """A checkpoint that began behind the pending batch would leave out its rows: nobody would publish them."""
    world = _query((6,), position_columns=POSITIONS)
    assert die_at_step("precommit.saved", 1, world, boundaries=(6, 9))
    accept(world, application="new", adopt_from_batch=2)
    lose_checkpoint(world)
    said = refused(world, "checkpoint.begins-anew", (12,))
    assert "startingOffsets" not in said.message
    accept(
        world,
        application=said.find(
            r"for what was 'streamsink' before set application='([^']*)' and leave adopt_from_batch out"
        ),
        adopt_from_batch=None,
    )
    world.run(boundaries=(12,))
    assert world.ids() == expected((12,))
