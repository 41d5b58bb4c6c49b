"""Admission of a batch that several sources of one query have read, on one topic or on a topic each."""

import pytest

from streamsink.protocol.decision import Verdict
from streamsink.protocol.positions import SourceRange
from tests.protocol.admitting import COLUMNS, batch, decide, recorded, refused, source, state


def test_each_source_is_told_its_own_topics():
    """Spark refuses startingOffsets of a source that name another source's topic,
    and those that leave out one of its own."""
    last = state(source(50, 60), source(5, 8, "id-u", topic="u"))
    first, second = (source(0, 70), source({"0": 0, "1": 0}, {"0": 9, "1": 2}, "id-u", topic="u"))
    refused(
        "positions.overlap",
        batch(first, second),
        last,
        "startingOffsets=streamsink.starting_offsets('lake/t', source=0) for source 0, "
        "streamsink.starting_offsets('lake/t', partitions={'u': 2}, source=1) for source 1 (in their order in the "
        "query, from 0), or",
    )
    anew = source(8, 9, "id-2", topic="u")
    refused(
        "positions.topic-recreated",
        batch(source(60, 70), anew),
        last,
        "starting_offsets('lake/t', source=0) for source 0",
        "starting_offsets('lake/t', partitions={'u': 1}, from_beginning=['u'], source=1) for source 1",
    )


def test_a_topic_that_the_query_reads_no_longer_is_left_out():
    """It was a topic of the query's only source, or of one of several."""
    both = SourceRange(
        {"t": {"0": 50}, "u": {"0": 5}},
        {"t": {"0": 60}, "u": {"0": 8}},
        cluster="c-1",
        topic_ids={"t": "id-1", "u": "id-u"},
    )
    refused("positions.overlap", batch(source(0, 70)), state(both), "starting_offsets('lake/t', without=['u'])")
    two = batch(source(0, 70), source(0, 3, "id-v", topic="v"))
    refused(
        "positions.overlap",
        two,
        state(both),
        "starting_offsets('lake/t', without=['u'], source=0) for source 0, 'earliest' for source 1",
    )


def test_sources_that_have_changed_places_are_told_their_own_topics():
    last = state(source(50, 60), source(5, 8, "id-u", topic="u"))
    calls = (
        "starting_offsets('lake/t', source=1) for source 0, streamsink.starting_offsets('lake/t', source=0) for "
        "source 1"
    )
    refused("positions.overlap", batch(source(0, 9, "id-u", topic="u"), source(0, 70)), last, calls)


def test_each_source_goes_on_from_its_own_position():
    """A8: with the lower position for both, the faster source left a gap or overlapped itself."""
    last = state(source(0, 20), source(0, 8))
    decision = decide(batch(source(20, 40), source(8, 16), query="q", number=6), last)
    assert (decision.verdict, [entry[-1] for entry in recorded(decision)]) == (Verdict.NEW, [{"0": 40}, {"0": 16}])
    refused("positions.gap", batch(source(20, 40), source(9, 16), query="q", number=6), last)


@pytest.mark.parametrize(
    "first, second, below",
    [
        ((0, 10), (0, 4), 20),  # All messages are old.
        ((0, 30), (10, 10), 20),  # One source has none.
        ((0, 10), (10, 16), 10),  # They are old for the first source, and from there on new for the second.
    ],
)
def test_an_overlap_of_two_sources_is_filtered_where_one_comparison_is_right_for_both(first, second, below):
    last = state(source(0, 20), source(0, 10))
    decision = decide(batch(source(*first), source(*second)), last, **COLUMNS)
    assert (decision.verdict, decision.below) == (Verdict.FILTER, {"t": {"0": below}})


def test_rows_that_are_old_for_one_source_and_new_for_another_are_refused():
    """A8: they were filtered by the lower position, and 12 rows of the faster source were doubled."""
    last, given = state(source(0, 20), source(0, 8)), batch(source(0, 30), source(0, 30))
    calls = ", ".join(f"streamsink.starting_offsets('lake/t', source={place}) for source {place}" for place in (0, 1))
    word = refused("positions.ambiguous", given, last, "t:0", f"{calls} (in their order", **COLUMNS)
    assert decide(given, last, accept_as_new=word, **COLUMNS).verdict is Verdict.NEW
    refused("positions.overlap", given, last)


def test_two_sources_that_stand_at_the_same_position_are_filtered():
    last, given = state(source(0, 20), source(0, 20)), batch(source(0, 30), source(0, 25))
    assert decide(given, last, **COLUMNS).below == {"t": {"0": 20}}


def test_sources_with_names_are_matched_by_name():
    last = state(source(0, 20, name="fast"), source(0, 8, name="slow"))
    given = batch(source(8, 16, name="slow"), source(20, 40, name="fast"), query="q", number=6)
    assert decide(given, last).verdict is Verdict.NEW
    unnamed = state(source(0, 20), source(0, 8))
    named = batch(source(20, 40, name="fast"), source(8, 16, name="slow"), query="q", number=6)
    assert decide(named, unnamed).verdict is Verdict.NEW, "they got names under the same checkpoint"
