"""What the user answers about topics that have lost messages is heard for each of them, and until a batch is recorded.

Where a topic has grown past its record meanwhile nobody asks again: what is not heard then is lost in silence.
"""

import dataclasses
import re

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission.admit import Past, recreated_meanwhile
from streamsink.protocol.committable import KnownRun
from streamsink.protocol.decision import Verdict
from tests.protocol.admitting import COLUMNS, SAME_QUERY, batch, decide, recorded, refused, source, state
from tests.protocol.test_mixed_sources import files_at

LOST = "positions.newest-below-recorded"


def t(begin, end, newest, topic_id="id-1"):
    """A range of the topic t. newest: the broker's next offset."""
    return source(begin, end, topic_id, newest={"t": {"0": newest}})


def u(begin, end, newest, topic_id="id-u"):
    return source(begin, end, topic_id, topic="u", newest={"u": {"0": newest}})


BOTH = state(source(50, 60), source(50, 60, "id-u", topic="u"))
# The answer that u has kept 40 messages, given before t has lost any.
OF_U = refused(LOST, batch(t(0, 70, 70), u(0, 40, 40)), BOTH, **COLUMNS)


def options_in(given, last, kind, **options):
    """(accept_as_new, accept_as_seen, the message) of the error."""
    with pytest.raises(Misuse) as caught:
        decide(given, last, **options)
    message = str(caught.value)
    assert caught.value.kind == kind, message
    return *(re.search(rf"{name}='([^']+)'", message)[1] for name in ("accept_as_new", "accept_as_seen")), message


@pytest.mark.parametrize("said", ["at once", "one by one"])
@pytest.mark.parametrize("ends", [(30, 40), (35, 90)])
def test_an_answer_about_two_topics_is_heard_for_the_one_that_has_grown_past_its_record(said, ends):
    """Formerly it was heard for those alone that were below their record still."""
    if said == "at once":
        word = refused(LOST, batch(t(0, 30, 30), u(0, 40, 40)), BOTH, **COLUMNS)
    else:
        word = f"{OF_U} {refused(LOST, batch(t(0, 30, 30), u(0, 90, 90)), BOTH, **COLUMNS)}"
    decision = decide(batch(t(0, ends[0], 35), u(0, ends[1], 90)), BOTH, accept_as_new=word, **COLUMNS)
    assert decision.below == {"t": {"0": 30}, "u": {"0": 40}}
    assert [entry[-1] for entry in recorded(decision)] == [{"0": ends[0]}, {"0": ends[1]}]


def test_an_answer_about_two_topics_without_ids_drops_both():
    last = state(source(50, 60, ""), source(50, 60, "", topic="u"))
    word = refused(LOST, batch(t(0, 30, 30, ""), u(0, 40, 40, "")), last, **COLUMNS)
    decision = decide(batch(t(0, 30, 35, ""), u(0, 40, 90, "")), last, accept_as_new=word, **COLUMNS)
    assert (decision.verdict, [entry[-1] for entry in recorded(decision)]) == (Verdict.NEW, [{"0": 30}, {"0": 40}])


def test_an_answer_is_heard_beside_the_token_of_the_batch():
    """The token writes this one batch of the same checkpoint. What u has up to its record comes after it."""
    token = refused("positions.overlap", batch(t(20, 65, 65), u(20, 65, 65), query="q"), BOTH)
    given = batch(t(20, 30, 30), u(20, 45, 90), query="q")
    decision = decide(given, BOTH, accept_as_new=f"{OF_U} {token}", **COLUMNS)
    assert decision.reason == "accepted as new" and recorded(decision)[1][-1] == {"0": 45}


def test_an_answer_is_heard_beside_a_batch_that_is_seen():
    """The batch's rows are given up, and no others: those of u behind it are new up to the record too."""
    given = batch(t(0, 30, 30), u(0, 45, 90))
    _, seen, _ = options_in(given, BOTH, LOST, accept_as_new=OF_U, **COLUMNS)
    decision = decide(given, BOTH, accept_as_new=OF_U, accept_as_seen=seen, **COLUMNS)
    assert (decision.verdict, [entry[-1] for entry in recorded(decision)]) == (Verdict.SEEN, [{"0": 60}, {"0": 45}])


def test_an_answer_says_what_each_source_of_a_topic_may_keep():
    """Two sources read a partition each of one topic. Formerly the word told the last one's alone."""
    last = state(source({"0": 50}, {"0": 60}), source({"1": 50}, {"1": 60}))
    lost = [source({part: 0}, {part: at}, newest={"t": {part: at}}) for part, at in (("0", 55), ("1", 57))]
    word = refused(LOST, batch(*lost), last, **COLUMNS)
    assert word.endswith("@t:0=55,t:1=57")
    grown = [source({part: 0}, {part: 90}, newest={"t": {part: 90}}) for part in "01"]
    assert decide(batch(*grown), last, accept_as_new=word, **COLUMNS).below == {"t": {"0": 55, "1": 57}}


@pytest.mark.parametrize("order", [1, -1])
def test_a_topic_that_was_asked_about_with_its_id_and_without(order):
    """The broker told no id the first time. Now its id says that it is the recorded one, which has lost messages."""
    last = state(source(50, 60))
    words = [refused(LOST, batch(t(0, 30, 30, topic_id)), last, **COLUMNS) for topic_id in ("", "id-1")]
    said = " ".join(words[::order])
    assert decide(batch(t(0, 90, 90)), last, accept_as_new=said, **COLUMNS).below == {"t": {"0": 30}}
    assert decide(batch(t(0, 90, 90, "")), last, accept_as_new=said, **COLUMNS).verdict is Verdict.NEW


# -- the words that errors print ------------------------------------------------------------------------------------


def test_an_error_about_one_topic_repeats_the_answer_about_another_one():
    """Formerly who set what the second error printed took the first answer away, and nobody asked again."""
    given = batch(t(0, 30, 30), u(0, 90, 90))
    new, seen, _ = options_in(given, BOTH, LOST, accept_as_new=f"of-last-week {OF_U}", **COLUMNS)
    assert new == f"{OF_U} {seen}", "the word of another record is not repeated"
    assert decide(given, BOTH, accept_as_new=new, **COLUMNS).below == {"t": {"0": 30}, "u": {"0": 40}}


@pytest.mark.parametrize(
    "kind, given, fingerprint, options",
    [
        ("positions.overlap", (t(60, 70, 70), u(0, 90, 90)), {}, {}),
        ("positions.gap", (t(60, 70, 70), u(60, 90, 90)), {}, {}),
        ("positions.topic-recreated", (t(0, 10, 10, "id-2"), u(0, 90, 90)), {}, {}),
        ("query.other", (t(60, 70, 70), u(0, 90, 90)), {"plan": "another"}, COLUMNS),
        ("checkpoint.replaced", (t(60, 70, 70), u(40, 90, 90), files_at(1)), {}, {}),
    ],
)
def test_each_error_of_admission_repeats_the_answer(kind, given, fingerprint, options):
    mine = dataclasses.replace(batch(*given), fingerprint=dataclasses.replace(SAME_QUERY, **fingerprint))
    last = BOTH if len(given) == 2 else dataclasses.replace(BOTH, sources=(*BOTH.sources, files_at(5)))
    new, seen, _ = options_in(mine, last, kind, accept_as_new=OF_U, **options)
    assert new == f"{OF_U} {seen}"


def test_the_error_about_lost_state_repeats_it_too():
    given = dataclasses.replace(batch(t(60, 70, 70), u(40, 90, 90)), stateful=True)
    with pytest.raises(Misuse, match=f"accept_as_new='{OF_U} ") as caught:
        decide(given, BOTH, accept_as_new=OF_U)
    assert caught.value.kind == "query.state-lost"


def test_a_topic_that_is_recreated_while_its_batch_is_written_takes_no_answer_away():
    last = state(source(50, 60, ""), source(50, 60, "id-u", topic="u"))
    given, now = batch(t(60, 70, 70), u(0, 90, 90)), batch(t(60, 70, 70, "id-2"), u(0, 90, 90))
    word = refused(LOST, batch(t(60, 70, 70), u(0, 40, 40)), last)
    past = Past("lake/t", "t", last, lambda *_: None, lambda _: KnownRun(False))
    error = recreated_meanwhile(given, now, past, SinkOptions.of("lake/t", {"accept_as_new": word}))
    assert f"accept_as_new='{word} " in str(error)


def test_the_rows_behind_an_overlap_are_new_when_its_token_is_set_beside_the_answer():
    """The token alone would write this batch, and leave the table's record as it was for the next one."""
    given = batch(t(60, 70, 70), u(30, 45, 90), query="q")
    new, _, _ = options_in(given, BOTH, "positions.overlap", accept_as_new=OF_U)
    assert recorded(decide(given, BOTH, accept_as_new=new))[1][-1] == {"0": 45}


# -- where to begin -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, begin", [("positions.overlap", 0), ("positions.gap", 60)])
def test_the_way_on_begins_where_the_answer_says(kind, begin):
    """starting_offsets reads what the table records. Formerly each of the two errors sent the user on to the other."""
    new, _, message = options_in(batch(t(60, 70, 70), u(begin, 90, 90)), BOTH, kind, accept_as_new=OF_U)
    assert """startingOffsets='{"t": {"0": 60}}' for source 0, '{"u": {"0": 40}}' for source 1 (in""" in message
    assert decide(batch(t(60, 70, 70), u(40, 90, 90)), BOTH, accept_as_new=OF_U).verdict is Verdict.NEW


def test_partitions_that_the_table_does_not_know_begin_at_their_beginning():
    last = state(source(50, 60))
    word = refused(LOST, batch(t(0, 30, 30)), last)
    with pytest.raises(Misuse) as caught:
        decide(batch(source(30, 90, newest={"t": {"0": 70, "1": 5}})), last, accept_as_new=word)
    assert caught.value.kind == "positions.newest-below-end"
    assert """startingOffsets='{"t": {"0": 30, "1": -2}}';""" in str(caught.value)
