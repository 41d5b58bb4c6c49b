"""Advice of errors about positions and checkpoints:
each way on that a message names is followed, and the account is exact."""

import dataclasses

import pyarrow as pa
import pytest

from streamsink.errors import Misuse
from streamsink.protocol.positions import SourceRange
from streamsink.testing.driver import SparkCheckpoint
from tests.advice.accidents import (
    POSITIONS,
    THIRD,
    accept,
    lose_checkpoint,
    other_rows,
    refused,
    renew_topic,
    start_over,
    starting_offset,
    stopped_by,
)
from tests.advice.following import Advice, advice, follows
from tests.crash.world import World, expected, memory_world

PLAIN = {"restore": "restore-and-continue"}


def _query(ends=(6, 9), **options) -> World:
    world = memory_world(**PLAIN, **options)
    world.run(boundaries=ends)
    return world


# -- Kafka ---------------------------------------------------------------------------------------------------------


def _overlap():
    """A query whose checkpoint is lost, and which reads again from the beginning."""
    world = _query()
    lose_checkpoint(world)
    return world, refused(world, "positions.overlap", (5, 8))


@follows("positions.overlap")
def test_overlapping_positions_are_filtered_when_columns_are_named_as_the_error_says():
    """Naming the columns changes the query, which the token that the error names accepts."""
    world, said = _overlap()
    said.says("option position_columns", "topic, partition and offset")
    world.driver.fingerprint = dataclasses.replace(
        world.driver.fingerprint, plan="three columns more", schema="three columns more"
    )
    accept(world, position_columns=POSITIONS, accept_as_same=said.option("accept_as_same"))
    world.run(boundaries=(5, 8, 14))
    assert world.ids() == expected((14,))


@follows("positions.overlap")
def test_overlapping_positions_a_checkpoint_that_begins_where_the_table_ends():
    world, said = _overlap()
    start_over(world, starting_offset(world, said), (12, 14), THIRD)
    assert world.ids() == expected((14,))


@follows("positions.combined")
def test_overlapping_positions_of_rows_that_were_made_of_several():
    """Position columns do not help where a row is made of several messages, so the error does not ask for them."""
    world = _query(position_columns=POSITIONS)
    lose_checkpoint(world)
    plain = world.driver.describe
    world.driver.describe = lambda checkpoint, batch_id: dataclasses.replace(
        plain(checkpoint, batch_id), combines="Aggregate"
    )
    assert stopped_by(world, (5, 8, 12)) == "positions.combined"
    assert world.checkpoint.committed == 2, "the batches that are all old go on"
    said = refused(world, "positions.combined", (5, 8, 12))
    assert "position_columns" not in said.message
    start = starting_offset(world, said)
    del world.driver.describe
    start_over(world, start, (12, 14), THIRD)
    assert world.ids() == expected((14,))


@follows("positions.may-combine")
@pytest.mark.parametrize("way", ["accept_as_same", "starting_offsets", "accept_as_new", "accept_as_seen"])
def test_overlapping_positions_of_rows_that_may_be_of_several(way):
    """Here one batch holds old and new messages. That one word holds for a whole replay whose partitions go at
    different speeds is tested with files."""
    world = _query(position_columns=POSITIONS)
    plain = world.driver.describe
    world.driver.describe = lambda checkpoint, batch_id: dataclasses.replace(
        plain(checkpoint, batch_id), may_combine="MapInPandas"
    )
    lose_checkpoint(world)
    assert stopped_by(world, (5, 8, 12)) == "positions.may-combine", "the batches that are all old went on"
    said = refused(world, "positions.may-combine", (5, 8, 12))
    if way == "starting_offsets":
        start_over(world, starting_offset(world, said), (12, 14), THIRD)
    else:
        accept(world, **{way: said.option(way)})
        world.run(boundaries=(5, 8, 12, 14))
    seen, new = range(9), range(8, 12)
    assert world.ids() == {"accept_as_seen": [*seen, 12, 13], "accept_as_new": sorted([*seen, *new, 12, 13])}.get(
        way, expected((14,))
    )


@follows("positions.overlap")
def test_overlapping_positions_accepted_as_seen_each_time_they_are_asked_for():
    world, said = _overlap()
    accept(world, accept_as_seen=said.option("accept_as_seen"))
    again = refused(world, "positions.overlap", (5, 9))
    accept(world, accept_as_seen=again.option("accept_as_seen"))
    world.run(boundaries=(5, 9, 14))
    assert world.ids() == expected((14,))


@follows("positions.overlap")
@pytest.mark.parametrize("lost", [True, False], ids=["another-checkpoint", "an-older-copy"])
def test_overlapping_positions_accepted_as_new_write_what_the_error_says(lost):
    """With the same checkpoint this batch alone is written; with another one all batches that follow are written as
    well. The message says which of the two it is."""
    world = _query()
    if lost:
        lose_checkpoint(world)
        said = refused(world, "positions.overlap", (5, 9))
        said.says("and all of the batches after it")
    else:
        world.checkpoint = SparkCheckpoint(world.checkpoint.query)
        said = refused(world, "positions.overlap", (5, 9))
        assert "batches after it" not in said.message
    accept(world, accept_as_new=said.option("accept_as_new"))
    if not lost:
        assert stopped_by(world, (5, 9, 12)) == "positions.overlap"
        assert world.ids() == sorted([*range(9), *range(5)])
        return
    world.run(boundaries=(5, 9, 12))
    assert world.ids() == sorted([*range(9), *range(12)])


@follows("positions.gap")
@pytest.mark.parametrize("way", ["starting_offsets", "accept_as_new"])
def test_a_gap_in_positions(way):
    """A new checkpoint that begins where the table ends reads what would be missing.
    Accepted as new, it stays missing, as the error says."""
    world = _query()
    said = refused(world, "positions.gap", (), lambda: start_over(world, 11, (14,)))
    said.says("messages between would be missing")
    if way == "starting_offsets":
        start_over(world, starting_offset(world, said), (12, 14), THIRD)
        assert world.ids() == expected((14,))
    else:
        accept(world, accept_as_new=said.option("accept_as_new"))
        start_over(world, 11, (14, 16))
        assert world.ids() == [*range(9), *range(11, 16)]


@follows("positions.gap")
def test_a_gap_in_positions_accepted_as_seen():
    """The rows are written elsewhere, so the batch is recorded without them."""
    world = _query()
    said = refused(world, "positions.gap", (), lambda: start_over(world, 11, (14,)))
    accept(world, accept_as_seen=said.option("accept_as_seen"))
    start_over(world, 11, (14, 16))
    assert world.ids() == [*range(9), *range(14, 16)]


RENEWED = {"positions.topic-recreated": {"topic_id": "another"}, "positions.other-cluster": {"cluster": "another"}}


@follows(*RENEWED)
@pytest.mark.parametrize("kind", RENEWED)
@pytest.mark.parametrize("way", ["accept_as_new", "accept_as_seen"])
def test_another_topic_of_the_name(kind, way):
    """A new checkpoint at the topic's beginning, with the token, writes all that it holds.
    Taken as seen, only what comes after is written."""
    world = _query(position_columns=POSITIONS)
    renew_topic(world, **RENEWED[kind])
    said = refused(world, kind, (6, 9, 12))
    accept(world, **{way: said.option(way)})
    if way == "accept_as_new":
        start_over(world, starting_offset(world, said), (4, 12))
        world.run(boundaries=(4, 12, 14))
        assert world.ids() == [*range(9), *range(1000, 1014)]
    else:
        world.run(boundaries=(6, 9, 12, 14))
        assert world.ids() == [*range(9), 1012, 1013]


@follows("positions.newest-below-recorded")
@pytest.mark.parametrize(
    "grown", [None, 8, 12], ids=["at-once", "when-it-has-grown", "when-it-has-outgrown-the-record"]
)
def test_a_topic_that_lost_messages_at_its_end(grown):
    """The messages that got the numbers of the lost ones are written, even those that came before the user answered."""
    world = _query(position_columns=POSITIONS)
    world.driver.newest = 7
    renew_topic(world)
    lose_checkpoint(world)
    said = refused(world, "positions.newest-below-recorded", (7,))
    accept(world, accept_as_new=said.option("accept_as_new"))
    world.driver.newest = grown or 7
    world.run(boundaries=(7,))
    world.driver.newest = 12
    world.run(boundaries=(7, 12))
    assert world.ids() == [*range(9), *range(1007, 1012)]


@follows("positions.newest-below-recorded")
def test_a_broker_that_was_behind():
    """Nothing was lost, so nothing is written twice when the batch is accepted as seen."""
    world = _query(position_columns=POSITIONS)
    world.driver.newest = 7
    lose_checkpoint(world)
    accept(world, accept_as_seen=refused(world, "positions.newest-below-recorded", (7,)).option("accept_as_seen"))
    world.run(boundaries=(7,))
    world.driver.newest = 12
    world.run(boundaries=(7, 12))
    assert world.ids() == expected((12,))


@follows("positions.newest-below-end")
@pytest.mark.parametrize("way", ["starting_offsets", "restart"])
def test_messages_that_were_gone_before_they_were_read(way):
    """A new checkpoint reads what comes to these offsets now.
    If the broker was only behind, the restarted query reads the messages."""
    world = _query(position_columns=POSITIONS)
    world.driver.newest = 12
    said = refused(world, "positions.newest-below-end", (6, 9, 14))
    if way == "restart":
        said.says("a plain restart helps only when it was a broker that was behind that had answered")
        world.driver.newest = 16
        world.run(boundaries=(6, 9, 14, 16))
    else:
        start_over(world, starting_offset(world, said), (12,))
        world.driver.newest = 16
        world.run(boundaries=(12, 16))
    assert world.ids() == expected((16,))


@follows("positions.end-below-start")
@pytest.mark.parametrize("way", ["accept_as_new", "accept_as_seen"])
def test_a_batch_that_ends_before_its_start(way):
    """Spark planned it from its checkpoint up to the end that the topic has now."""
    world = _query(position_columns=POSITIONS)
    if way == "accept_as_new":
        renew_topic(world)
    said = refused(world, "positions.end-below-start", (6, 9, 7))
    accept(world, **{way: said.option(way)})
    world.run(boundaries=(6, 9, 7, 12))
    assert world.ids() == ([*range(9), *range(1007, 1012)] if way == "accept_as_new" else expected((12,)))


@follows("positions.recreated-meanwhile")
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded-without-id", "nothing-recorded"])
@pytest.mark.parametrize("told", ["topic_id", "cluster"])
def test_a_topic_recreated_while_its_batch_is_written(recorded, told):
    """The recorded positions have no id, or there are none; or the topic is in another cluster, whose id alone is told.
    All that the new topic holds is written, each message once."""
    world = memory_world(**PLAIN, position_columns=POSITIONS)
    driver, rows = world.driver, world.driver.rows
    driver.topic_id = driver.cluster = ""
    if recorded:
        world.run(boundaries=(6,))
    setattr(driver, told, "before")

    def recreated_meanwhile(start, end):
        driver.rows = rows
        renew_topic(world, **{told: "after"})
        return rows(start, end)

    driver.rows = recreated_meanwhile
    ends = (6, 9) if recorded else (9,)
    with pytest.raises(Misuse) as refused_with:
        world.run(boundaries=ends)
    said = advice(refused_with.value, "positions.recreated-meanwhile")
    assert world.ids() == list(range(6 if recorded else 0))
    accept(world, accept_as_new=said.option("accept_as_new")) if recorded else said.says("startingOffsets='earliest'")
    start_over(world, starting_offset(world, said) if recorded else 0, (8, 12))
    assert world.ids() == [*range(6 if recorded else 0), *range(1000, 1012)]


@follows("positions.ambiguous")
def test_two_sources_of_one_topic_that_stand_at_different_positions():
    """Each source of a new checkpoint begins where the call in the error says for it."""
    world = memory_world(**PLAIN, position_columns=POSITIONS)
    two = _two_sources(world)
    two((6, 3), (9, 8))
    lose_checkpoint(world)
    said = refused(world, "positions.ambiguous", (), lambda: two((12, 12)))
    begins = []
    for place in (0, 1):
        one = Advice(said)
        one.message = said.find(rf"(streamsink\.starting_offsets\([^()]*\)) for source {place}")
        begins.append(starting_offset(world, one))
    lose_checkpoint(world, THIRD)
    two((12, 12), begins=begins)
    assert world.ids() == [*range(12), *range(1000, 1012)]


def _two_sources(world):
    """Run, up to these ends of its two sources, a query that reads the topic twice.
    Rows of the second source have ids from 1,000 on."""
    driver, rows = world.driver, world.driver.rows
    plain = driver.describe

    def run(*ends, begins=(0, 0)):
        planned = [begins, *ends]

        def describe(checkpoint, batch_id):
            sides = list(zip(planned[batch_id], planned[batch_id + 1]))
            sources = tuple(driver.identified(SourceRange({"t": {"0": a}}, {"t": {"0": b}})) for a, b in sides)
            driver.rows = lambda start, end: pa.concat_batches([rows(*sides[0]), other_rows(rows(*sides[1]))])
            return dataclasses.replace(plain(checkpoint, batch_id), sources=sources)

        driver.describe = describe
        try:
            world.run(boundaries=tuple(max(pair) for pair in ends))
        finally:
            del driver.describe
            driver.rows = rows

    return run


@follows("positions.overlap")
def test_a_lost_checkpoint_of_a_query_that_replaces():
    """Formerly the error told it to name position columns, which are refused for such a query."""
    world = _query(mode="overwrite")
    lose_checkpoint(world)
    said = refused(world, "positions.overlap", (12,))
    assert "position_columns" not in said.message
    start_over(world, starting_offset(world, said), (12, 14), THIRD)
    assert world.ids() == [11, 12, 13]  # The newest offset of each of three partitions.
