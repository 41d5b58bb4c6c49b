"""Rows that were made of more than one message are not filtered by positions:
what is refused, and what each way on does."""

import dataclasses
import re

import pytest

from streamsink.errors import Misuse
from streamsink.protocol.decision import Verdict
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.testing.driver import SparkCheckpoint
from tests.crash.world import memory_world
from tests.protocol.two_queries import COLUMNS, QUERY, batch, decide, kafka, other, refused, state, token


def test_rows_that_were_combined_are_not_filtered():
    """One row stands for several messages, with the position of one of them. Formerly what came of old and new messages
    together was dropped or doubled."""
    combined = batch(kafka(0, 70), combines="Deduplicate")
    message = refused("positions.combined", combined, state(kafka(50, 60)), **COLUMNS)
    assert "Deduplicate" in message and "startingOffsets=streamsink.starting_offsets(" in message
    for word, verdict in (("accept_as_new", Verdict.NEW), ("accept_as_seen", Verdict.SEEN)):
        assert decide(combined, state(kafka(50, 60)), **COLUMNS, **{word: token(message, word)}).verdict is verdict


def test_rows_that_were_combined_go_on_where_old_and_new_ones_do_not_meet():
    """Nothing is left of a batch that is all old, whatever was made of it.
    Without the columns nothing tells which rows are old."""
    last = state(kafka(50, 60))
    assert decide(batch(kafka(60, 70), combines="Aggregate"), last, **COLUMNS).verdict is Verdict.NEW
    assert decide(batch(kafka(40, 60), number=4, combines="Aggregate"), last, **COLUMNS).verdict is Verdict.FILTER
    assert (
        decide(batch(kafka(0, 60), number=0, query="q2", combines="Aggregate"), last, **COLUMNS).verdict
        is Verdict.FILTER
    )
    refused("positions.combined", batch(kafka(40, 60), number=4, combines="Aggregate"), last)
    two = (SourceRange({"t": {"0": 40, "1": 10}}, {"t": {"0": 60, "1": 12}}),)
    known = state((SourceRange({"t": {"0": 50, "1": 0}}, {"t": {"0": 60, "1": 10}}),))
    refused("positions.combined", batch(two, number=4, combines="Aggregate"), known, **COLUMNS)


HIDDEN = other(comparable=False)


def hiding(sources, number=6, query="q", by="MapInPandas"):
    return batch(sources, number=number, query=query, fingerprint=HIDDEN, may_combine=by)


def word_of_rows(one, last, **options):
    return token(refused("positions.may-combine", one, last, **COLUMNS, **options), "accept_as_same")


def test_rows_that_may_have_been_combined_are_asked_for_before_they_are_filtered():
    back, last = hiding(kafka(40, 70), number=4), state(kafka(50, 60))
    message = refused("positions.may-combine", back, last, **COLUMNS)
    assert "MapInPandas" in message and "startingOffsets=streamsink.starting_offsets(" in message
    for option, verdict in (
        ("accept_as_same", Verdict.FILTER),
        ("accept_as_new", Verdict.NEW),
        ("accept_as_seen", Verdict.SEEN),
    ):
        assert decide(back, last, **COLUMNS, **{option: token(message, option)}).verdict is verdict


def test_rows_that_may_have_been_combined_go_on_where_old_and_new_ones_do_not_meet():
    last = state(kafka(50, 60))
    assert decide(hiding(kafka(60, 70)), last, **COLUMNS).verdict is Verdict.NEW
    assert decide(hiding(kafka(40, 60), number=4), last, **COLUMNS).verdict is Verdict.FILTER, "all of it is old"
    assert (
        decide(
            hiding(kafka(40, 60), number=0, query="q2"),
            dataclasses.replace(last, fingerprint=QUERY),
            **COLUMNS,
            accept_as_same=token(
                refused("query.not-comparable", hiding(kafka(40, 60), number=0, query="q2"), last, **COLUMNS),
                "accept_as_same",
            ),
        ).verdict
        is Verdict.FILTER
    )
    two = (SourceRange({"t": {"0": 40, "1": 10}}, {"t": {"0": 60, "1": 12}}),)
    known = state((SourceRange({"t": {"0": 50, "1": 0}}, {"t": {"0": 60, "1": 10}}),))
    refused("positions.may-combine", hiding(two, number=4), known, **COLUMNS)


def test_the_word_for_rows_is_of_one_replay():
    """The word holds for the batches that follow in the replay,
    but for no later accident, no other sink, and nothing else that hides rows."""
    back, last = hiding(kafka(40, 70), number=4), state(kafka(50, 60))
    word = word_of_rows(back, last)
    follows = dataclasses.replace(last, generation=1, checkpoint_id=4, record_id="r2")
    assert word_of_rows(hiding(kafka(50, 90), number=5), follows) == word
    assert word_of_rows(hiding(kafka(40, 70), number=4), follows, accept_as_same=word) != word, "it goes back once more"
    assert word_of_rows(back, last, application="second", accept_as_same=word) != word
    assert word_of_rows(hiding(kafka(40, 70), number=4, by="MapInArrow"), last, accept_as_same=word) != word


def test_the_word_for_the_query_is_not_the_one_for_its_rows():
    """Both questions about a lost checkpoint come in one message; or they come one after another, and the second
    message repeats the first answer."""
    lost, last = hiding(kafka(0, 70), number=0, query="q2"), state(kafka(50, 60), fingerprint=HIDDEN)
    message = refused("query.not-comparable", lost, last, **COLUMNS)
    word, both = token(message, "accept_as_same"), re.search(r"accept_as_same='(\w+ \w+)'", message)[1]
    assert decide(lost, last, **COLUMNS, accept_as_same=both).verdict is Verdict.FILTER
    second = refused("positions.may-combine", lost, last, **COLUMNS, accept_as_same=word)
    assert f"accept_as_same='{both}'" in second
    refused("query.not-comparable", lost, last, **COLUMNS, accept_as_same=both.split()[1])
    assert "accept_as_same='" + both not in refused(
        "query.not-comparable", lost, last, **COLUMNS, accept_as_same=both.split()[1]
    )


def test_a_batch_is_looked_at_again_before_it_is_filtered():
    """A function may do with this batch what it did not do with the first batch of the run."""

    class Later(BatchRows):
        def described(self, batch):
            return dataclasses.replace(batch, combines="Aggregate")

        def count(self):
            raise AssertionError("a micro-batch is not counted")

        def write(self, checkpoint, group):
            pytest.fail("rows of several are written")

    world = memory_world(restore="restore-and-continue", **COLUMNS)
    world.run(boundaries=(6, 9))
    world.checkpoint = SparkCheckpoint("another", ends=[12])
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    with pytest.raises(Misuse) as caught:
        sink.run.micro_batch(world.driver.describe(world.checkpoint, 0), Later())
    assert caught.value.kind == "positions.combined" and world.ids() == list(range(9))
    sink.close()
