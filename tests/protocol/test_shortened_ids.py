"""A state of very many topics has shortened ids, by which a topic is recognised and another one is refused."""

import json

import pytest

from streamsink.protocol.committable import AppState
from streamsink.protocol.decision import Verdict
from streamsink.protocol.positions import SourceRange, same_id, shortened
from tests.protocol.admitting import COLUMNS, batch, decide, refused, state

MANY = 1_001
# Like Kafka's ids they have 22 characters.
OURS = {f"t{number:04}": f"{number:04}AbCdEfGhIjKlMnOpQr" for number in range(MANY)}


def _read(begin, end, ids):
    return SourceRange(
        {topic: {"0": begin} for topic in ids},
        {topic: {"0": end} for topic in ids},
        cluster="c-1",
        topic_ids=ids,
        earliest={topic: {"0": 0} for topic in ids},
    )


def _last(ids=OURS):
    """The state as it is read back from a snapshot."""
    return AppState.from_json(json.loads(json.dumps(state(_read(50, 60, ids)).to_json())))


def test_ids_are_shortened_where_there_are_very_many():
    few = dict(list(OURS.items())[:-1])
    assert dict(_last(few).sources[0].topic_ids) == few and {
        record.topic_id for record in _last(few).recorded.topics
    } == set(few.values())
    short = {shortened(topic_id) for topic_id in OURS.values()}
    assert (
        set(_last().sources[0].topic_ids.values()) == short == {record.topic_id for record in _last().recorded.topics}
    )
    assert AppState.from_json(_last().to_json()) == _last(), "what is short is not shortened again"


WHOLE, SHORT = OURS["t0001"], shortened(OURS["t0001"])


@pytest.mark.parametrize(
    "one, other, is_same",
    [
        (SHORT, WHOLE, True),
        (SHORT, SHORT, True),
        (SHORT, OURS["t0002"], False),
        (SHORT, shortened(OURS["t0002"]), False),
        (SHORT, "0001", False),
        (SHORT, WHOLE[:-1] + "s", False),
        (SHORT, shortened("1" + WHOLE[1:]), False),
        (SHORT, "", True),
    ],
)
def test_a_short_id_is_one_of_many(one, other, is_same):
    """It tells ids apart wherever they differ: a broker may count its topics."""
    assert same_id(one, other) == same_id(other, one) == is_same
    assert len(SHORT) == 11 and SHORT.startswith("000~")


def test_what_was_read_of_the_same_topics_is_filtered():
    decision = decide(batch(_read(0, 70, OURS)), _last(), **COLUMNS)
    assert decision.verdict is Verdict.FILTER and decision.below == {topic: {"0": 60} for topic in OURS}
    assert {record.topic_id for record in decision.recorded.topics} == set(OURS.values()), (
        "whole again as the broker says them"
    )


def test_a_topic_that_was_created_again_is_refused():
    word = refused(
        "positions.topic-recreated",
        batch(_read(0, 70, OURS | {"t0007": "new"})),
        _last(),
        shortened(OURS["t0007"]),
        "new",
        **COLUMNS,
    )
    decision = decide(batch(_read(0, 70, OURS | {"t0007": "new"})), _last(), accept_as_new=word, **COLUMNS)
    assert "t0007" not in decision.below and len(decision.below) == MANY - 1


def test_a_topic_that_lost_messages_is_told_from_another_one():
    """Its id is the same, so the record goes back to where the topic ends now."""
    given = batch(
        SourceRange(
            {topic: {"0": 60} for topic in OURS},
            {topic: {"0": 70} for topic in OURS} | {"t0007": {"0": 30}},
            cluster="c-1",
            topic_ids=OURS,
            newest={topic: {"0": 70} for topic in OURS} | {"t0007": {"0": 30}},
        )
    )
    word = refused("positions.end-below-start", given, _last())
    again = batch(_read(30, 70, {"t0007": OURS["t0007"]}))
    (record,) = [
        each for each in decide(again, _last(), accept_as_new=word, **COLUMNS).recorded.topics if each.topic == "t0007"
    ]
    assert record.next == {"0": 70}
