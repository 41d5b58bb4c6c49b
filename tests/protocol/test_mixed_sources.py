"""A topic that a query reads beside a folder, whose positions cannot be compared,
is known by its ids and offsets all the same."""

import re

import pytest

from streamsink.errors import Misuse
from streamsink.protocol.decision import Verdict
from streamsink.protocol.positions import SourceRange
from tests.protocol.admitting import batch, decide, refused, source, state


def files_at(number):
    """A batch's range of the folder."""
    return SourceRange({"logOffset": number - 1}, {"logOffset": number}, f"digest-{number}")


@pytest.mark.parametrize(
    "given, kind",
    [
        (source(60, 70, "id-2"), "positions.topic-recreated"),
        (source(60, 70, cluster="c-2"), "positions.other-cluster"),
        (source(60, 55), "positions.end-below-start"),
        (source(60, 60, newest={"t": {"0": 58}}), "positions.newest-below-recorded"),
        (source(60, 70, newest={"t": {"0": 65}}), "positions.newest-below-end"),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_topic_beside_a_folder_is_known_by_its_id_and_its_offsets(given, kind, place):
    """A topic is recreated under a query that reads a folder too. Formerly what the new topic had below the recorded
    offsets was never read, in silence."""

    def both(topic, number):
        return (topic, files_at(number)) if place == 0 else (files_at(number), topic)

    last = state(*both(source(50, 60), 5))
    assert decide(batch(*both(source(60, 70), 6), query="q", number=6), last).verdict is Verdict.NEW
    with pytest.raises(Misuse) as caught:
        decide(batch(*both(given, 6), query="q", number=6), last)
    message = str(caught.value)
    assert caught.value.kind == kind and "Nothing was written" in message
    assert (
        kind in ("positions.end-below-start", "positions.newest-below-recorded")
        or f"source={place}) for source {place} (in" in message
    )


def test_the_way_on_from_a_topic_recreated_beside_a_folder():
    """A new checkpoint reads all that the topic holds. As it reads the folder again, it is asked about that."""
    last = state(source(50, 60), files_at(5))
    given = batch(source(60, 70, "id-2"), files_at(6), query="q", number=6)
    word = refused(
        "positions.topic-recreated",
        given,
        last,
        "from_beginning=['t'], source=0) for source 0",
        "with no positions that compare",
    )
    gap = refused("positions.gap", given, last, "'earliest' for source 0", accept_as_new=word)
    assert decide(given, last, accept_as_new=gap).verdict is Verdict.NEW
    anew = batch(source(0, 70, "id-2"), files_at(0))
    asked = refused("checkpoint.replaced", anew, last, accept_as_new=word)
    lost = batch(source(0, 70), files_at(0))
    refused(
        "checkpoint.replaced",
        lost,
        last,
        "startingOffsets=streamsink.starting_offsets('lake/t', source=0) for source 0",
    )
    decision = decide(anew, last, accept_as_new=asked)
    assert decision.verdict is Verdict.NEW
    assert [(record.topic_id, record.next) for record in decision.recorded.topics] == [("id-2", {"0": 70})]


def test_messages_that_a_topic_beside_a_folder_has_lost_are_read_when_they_come_again():
    last = state(source(50, 60), files_at(5))
    back = batch(source(60, 55), files_at(6), query="q", number=6)
    with pytest.raises(Misuse) as caught:
        decide(back, last)
    word = re.search("accept_as_new='([^']+)'", str(caught.value))[1]
    decision = decide(back, last, accept_as_new=word)
    assert (decision.verdict, decision.recorded.topics[0].next) == (Verdict.NEW, {"0": 55})
    planned = batch(source(60, 70, newest={"t": {"0": 58}}), files_at(6), query="q", number=6)
    with pytest.raises(Misuse) as caught:
        decide(planned, last)
    word = re.search("accept_as_new='([^']+)'", str(caught.value))[1]
    refused("positions.gap", planned, last, "t:0", accept_as_new=word)
