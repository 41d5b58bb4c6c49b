"""Admission by ids: another cluster, a recreated topic, lost messages, and unknown partitions.

Each error comes before anything is written, and its way on is followed here.
"""

import dataclasses
import re

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission.admit import Past, recreated_meanwhile
from streamsink.protocol.committable import KnownRun
from streamsink.protocol.decision import Verdict
from streamsink.protocol.positions import SourceRange
from tests.crash.world import memory_world
from tests.protocol.admitting import COLUMNS, batch, decide, recorded, refused, source, state
from tests.protocol.query import Query


@pytest.mark.parametrize(
    "change, kind",
    [
        ({"topic_id": "id-2"}, "positions.topic-recreated"),
        ({"cluster": "c-2"}, "positions.other-cluster"),
        ({"topic_id": "id-2", "cluster": ""}, "positions.topic-recreated"),
    ],
)
@pytest.mark.parametrize("begin", [0, 60])
def test_another_topic_of_the_same_name_is_refused_and_the_token_drops_its_record(change, kind, begin):
    """It does not matter whether its offsets overlap or continue the recorded ones, which say nothing of this topic."""
    last, given = state(source(50, 60)), batch(source(begin, 70, **change))
    word = refused(kind, given, last, *change.values(), "from_beginning=['t']", **COLUMNS)
    assert refused(kind, batch(source(begin, 71, **change), query="q3"), last, **COLUMNS) == word, (
        "whichever checkpoint comes next"
    )
    fresh = batch(source(0, 70, **change))
    decision = decide(fresh, last, accept_as_new=word, **COLUMNS)
    assert decision.verdict is Verdict.NEW
    assert recorded(decision) == [("0", "t", fresh.sources[0].cluster, fresh.sources[0].topic_id("t"), {"0": 70})]
    assert decide(given, last, accept_as_seen=word, **COLUMNS).verdict is Verdict.SEEN
    refused(kind, given, dataclasses.replace(last, record_id="later"), accept_as_new=word, **COLUMNS)


def test_a_recreated_topic_that_is_not_read_from_its_beginning_is_a_gap_although_the_record_was_dropped():
    """The same checkpoint goes on in the middle of the new topic."""
    last, given = state(source(50, 60)), batch(source(60, 70, "id-2", earliest={"t": {"0": 0}}), query="q", number=6)
    word = refused("positions.topic-recreated", given, last)
    gap = refused("positions.gap", given, last, accept_as_new=word)
    assert decide(given, last, accept_as_new=gap).verdict is Verdict.NEW


def test_other_topics_of_the_batch_are_filtered_all_the_same():
    """A token for one topic does not let another one be written twice."""

    def both(begin, end, topic_id):
        ids = {"t": topic_id, "u": "id-u"}
        return SourceRange(
            {"t": {"0": begin}, "u": {"0": begin}}, {"t": {"0": end}, "u": {"0": end}}, cluster="c-1", topic_ids=ids
        )

    last, given = state(both(0, 60, "id-1")), batch(both(0, 70, "id-2"))
    word = refused("positions.topic-recreated", given, last, "id-1", "id-2", **COLUMNS)
    decision = decide(given, last, accept_as_new=word, **COLUMNS)
    assert (decision.verdict, decision.below) == (Verdict.FILTER, {"u": {"0": 60}})


def test_a_replay_of_the_last_batch_is_no_replay_when_its_topic_is_another_one():
    last = state(source(50, 60))
    assert decide(batch(source(50, 60), query="q", number=5), last).verdict is Verdict.SKIP
    refused("positions.topic-recreated", batch(source(50, 60, "id-2"), query="q", number=5), last)


@pytest.mark.parametrize(
    "known, told", [(("", ""), ("id-1", "c-1")), (("id-1", "c-1"), ("", "")), (("", ""), ("", ""))]
)
def test_an_id_that_is_not_known_is_never_an_alarm(known, told):
    """The table was written by an earlier version, or the broker does not tell the ids today."""
    last = state(source(50, 60, *known))
    assert decide(batch(source(60, 70, *told), query="q", number=6), last).verdict is Verdict.NEW
    assert decide(batch(source(0, 70, *told)), last, **COLUMNS).below == {"t": {"0": 60}}


def test_a_topic_that_moved_to_another_place_of_the_query_is_known_by_its_id():
    """The sources of a union were exchanged, and the checkpoint is new: there is no alarm, and no row comes twice."""
    one, two = source(0, 60, "id-1", topic="t"), source(0, 8, "id-2", topic="u")
    again = batch(source(0, 9, "id-2", topic="u"), source(0, 70, "id-1", topic="t"))
    decision = decide(again, state(one, two), **COLUMNS)
    assert decision.below == {"t": {"0": 60}, "u": {"0": 8}}
    assert [(r.source, r.topic) for r in decision.recorded.topics] == [("0", "u"), ("1", "t")]


def test_topics_of_one_name_in_two_clusters_have_positions_of_their_own():
    """A cluster that is added to the query raises no alarm."""
    first, second = source(50, 60), source(5, 6, "id-2", "c-2")
    going_on = batch(source(60, 70), source(6, 9, "id-2", "c-2"), query="q", number=6)
    assert recorded(decide(going_on, state(first, second))) == [
        ("0", "t", "c-1", "id-1", {"0": 70}),
        ("1", "t", "c-2", "id-2", {"0": 9}),
    ]
    added = batch(source(60, 70), source(0, 9, "id-2", "c-2"))
    assert decide(added, state(first)).verdict is Verdict.NEW


# -- messages that are gone -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, kind",
    [
        (source(60, 30), "positions.end-below-start"),
        (source(0, 30, newest={"t": {"0": 30}}), "positions.newest-below-recorded"),
    ],
)
def test_a_topic_whose_id_stayed_and_whose_end_moved_back_is_refused(given, kind):
    """Formerly the new messages below the recorded offset were taken for old ones.
    The token either takes the record back or leaves it."""
    last = state(source(50, 60))
    word = refused(kind, batch(given), last, "30", "60", **COLUMNS)
    lowered = decide(batch(given), last, accept_as_new=word, **COLUMNS)
    assert recorded(lowered)[0][-1] == {"0": 30}
    kept = decide(batch(given), last, accept_as_seen=word, **COLUMNS)
    assert (kept.verdict, recorded(kept)[0][-1]) == (Verdict.SEEN, {"0": 60})


def test_a_start_behind_the_record_is_of_a_checkpoint_that_is_older_than_the_topic():
    """Found by a walk:
    the checkpoint from before the topic was created again came back, and its end took the new topic's record back."""
    last, given = state(source(30, 40)), batch(source(60, 30, newest={"t": {"0": 45}}))
    with pytest.raises(Misuse) as caught:
        decide(given, last, **COLUMNS)
    message = str(caught.value)
    assert (
        caught.value.kind == "positions.end-below-start"
        and "Nothing was written" in message
        and "accept_as_new" not in message
    )
    assert "start a new checkpoint with startingOffsets=streamsink.starting_offsets('lake/t')" in message
    word = message.partition("accept_as_seen='")[2].partition("'")[0]
    for option in ("accept_as_new", "accept_as_seen"):
        assert recorded(decide(given, last, **COLUMNS, **{option: word}))[0][-1] == {"0": 40}


@pytest.mark.parametrize("begin", [40, 35])
def test_an_end_below_its_start_may_be_of_a_checkpoint_that_is_older_than_the_topic(begin):
    """Found by a bred walk: the new topic had grown to where the old checkpoint began, so that the checkpoint's end
    took the new topic's record back."""
    last, given = state(source(30, 40)), source(begin, 30, newest={"t": {"0": 45}})
    for query, is_said in (("q", False), ("q2", True)):
        with pytest.raises(Misuse) as caught:
            decide(batch(given, query=query, number=6), last, **COLUMNS)
        message = str(caught.value)
        assert caught.value.kind == "positions.end-below-start" and "If messages were lost, accept_as_new" in message
        assert (
            "another one than wrote last: if it is an older one, from before the topic was created again, restore the "
            "one that wrote last, or start a new checkpoint with startingOffsets="
            "streamsink.starting_offsets('lake/t')" in message
        ) is is_said


def test_without_ids_an_end_that_moved_back_drops_the_record():
    """It is most likely another topic then."""
    last, given = state(source(50, 60, "")), batch(source(0, 30, "", newest={"t": {"0": 30}}))
    word = refused("positions.newest-below-recorded", given, last, "from_beginning=['t']", **COLUMNS)
    decision = decide(given, last, accept_as_new=word, **COLUMNS)
    assert (decision.verdict, recorded(decision)[0][-1]) == (Verdict.NEW, {"0": 30})
    grown = batch(source(0, 90, "", newest={"t": {"0": 90}}))
    for said in (word, f"of-last-week {word}", f"{word} of-last-week"):
        assert decide(grown, last, accept_as_new=said, **COLUMNS).verdict is Verdict.NEW, (
            "it has grown until the user came: nobody would ask again, and what is new would be left out"
        )
    same_after_all = batch(source(0, 90, newest={"t": {"0": 90}}))
    assert decide(same_after_all, state(source(50, 60)), accept_as_new=word, **COLUMNS).verdict is Verdict.FILTER


@pytest.mark.parametrize("order", [1, -1])
def test_answers_about_two_topics_hold_together(order):
    """Each was asked for alone, before the batch that both are about was recorded."""
    last = state(source(50, 60), source(50, 60, "id-u", topic="u"))
    words = [
        refused("positions.newest-below-recorded", batch(*given), last, **COLUMNS)
        for given in (
            (source(0, 30, newest={"t": {"0": 30}}), source(0, 70, "id-u", topic="u", newest={"u": {"0": 70}})),
            (source(0, 70, newest={"t": {"0": 70}}), source(0, 40, "id-u", topic="u", newest={"u": {"0": 40}})),
        )
    ]
    grown = batch(source(0, 90, newest={"t": {"0": 90}}), source(0, 90, "id-u", topic="u", newest={"u": {"0": 90}}))
    decision = decide(grown, last, accept_as_new=" ".join(words[::order]), **COLUMNS)
    assert decision.below == {"t": {"0": 30}, "u": {"0": 40}}


@pytest.mark.parametrize("last, begin", [(None, 0), ("one", 60)])
def test_a_batch_that_ends_behind_what_the_broker_has_is_refused(last, begin):
    """It was planned, and the topic lost messages or was created again before its rows were read. Formerly the messages
    that come at these offsets now were taken for read."""
    last = last and state(source(50, 60))
    given = batch(source(begin, 90, newest={"t": {"0": 70, "1": 5}}), query="q", number=6 if last else 0)
    with pytest.raises(Misuse) as caught:
        decide(given, last, **COLUMNS)
    message = str(caught.value)
    assert caught.value.kind == "positions.newest-below-end" and "Nothing was written" in message
    says = "streamsink.starting_offsets('lake/t', partitions={'t': 2})" if last else "'earliest'"
    assert all(word in message for word in ("lake/t", "90", "70", f"startingOffsets={says};"))
    planned_anew = batch(source(begin, {"0": 70, "1": 5}, newest={"t": {"0": 70, "1": 5}}), query="anew")
    assert decide(planned_anew, last, **COLUMNS).verdict is Verdict.NEW


def test_a_replay_of_what_is_published_asks_nothing_of_the_broker():
    """What the broker has now matters to the next batch."""
    last = state(source(50, 60))
    given = batch(source(50, 60, newest={"t": {"0": 10}}), query="q", number=5)
    assert decide(given, last).verdict is Verdict.SKIP


def test_the_first_batch_of_an_application_may_not_end_before_its_start_either():
    word = refused("positions.end-below-start", batch(source(60, 30)), None)
    decision = decide(batch(source(60, 30)), None, accept_as_new=word)
    assert (decision.verdict, recorded(decision)[0][-1]) == (Verdict.NEW, {"0": 30})


def test_a_batch_that_was_accepted_is_a_replay_when_it_comes_again():
    given = batch(source(60, 30), query="q", number=6)
    last = state(source(50, 60))
    decision = decide(given, last, accept_as_new=refused("positions.end-below-start", given, last))
    after = dataclasses.replace(
        last, checkpoint_id=6, sources=given.sources, recorded=decision.recorded, record_id="r2"
    )
    assert decide(given, after).verdict is Verdict.SKIP


# -- partitions that the table does not know ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begin, earliest, verdict",
    [(7, 7, Verdict.NEW), (5, 7, Verdict.NEW), (7, 5, None), (7, None, None), (0, None, Verdict.NEW)],
)
def test_a_partition_unknown_to_the_table_begins_at_its_beginning_or_it_is_a_gap(begin, earliest, verdict):
    """A2b: a lost checkpoint and startingOffsets=latest.
    Retention moves the beginning, and a beginning that is not known proves nothing."""
    first = None if earliest is None else {"t": {"0": 0, "1": earliest}}
    given = batch(source({"0": 60, "1": begin}, {"0": 70, "1": 9}, earliest=first))
    if verdict:
        assert decide(given, state(source(50, 60))).verdict is verdict
    else:
        word = refused("positions.gap", given, state(source(50, 60)), "t:1", "partitions={'t': 2}")
        assert decide(given, state(source(50, 60)), accept_as_new=word).verdict is Verdict.NEW


def test_an_error_counts_the_partitions_that_the_broker_has_now():
    """Spark refuses startingOffsets that leave out a partition which was added after the batch was planned."""
    newest = {"t": {"0": 60, "1": 0, "2": 0}}
    refused(
        "positions.topic-recreated",
        batch(source(0, 60, "id-2", newest=newest)),
        state(source(50, 60)),
        "partitions={'t': 3}",
    )


def _of_two(starts, ends, topic_id, **more):
    return SourceRange(starts, ends, cluster="c-1", topic_ids={"t": topic_id, "u": "id-u"}, **more)


def test_an_error_about_one_topic_counts_new_partitions_of_the_others():
    """Found by a walk: starting_offsets left them out."""
    last = state(_of_two({"t": {"0": 50}, "u": {"0": 0}}, {"t": {"0": 60}, "u": {"0": 9}}, "id-1"))
    ends = {"t": {"0": 70}, "u": {"0": 9, "1": 0}}
    recreated = _of_two({"t": {"0": 60}, "u": {"0": 9}}, ends, "id-2")
    refused("positions.topic-recreated", batch(recreated), last, "partitions={'t': 1, 'u': 2}, from_beginning=['t']")
    behind = _of_two({"t": {"0": 60}, "u": {"0": 9}}, ends, "id-1", newest={"t": {"0": 65}, "u": {"0": 9, "1": 0}})
    with pytest.raises(Misuse) as caught:
        decide(batch(behind), last)
    assert caught.value.kind == "positions.newest-below-end" and "partitions={'t': 1, 'u': 2})" in str(caught.value)


@pytest.mark.parametrize("kind, begin", [("positions.overlap", 50), ("positions.gap", 65)])
@pytest.mark.parametrize("known", ["planned", "added since"])
def test_the_way_on_names_partitions_that_the_table_does_not_know(kind, begin, known):
    """starting_offsets would leave them out, and Spark refuses startingOffsets without them."""
    more = {"newest": {"t": {"0": 70, "1": 0}}} if known == "added since" else {}
    starts, ends = ({"0": begin}, {"0": 70}) if more else ({"0": begin, "1": 0}, {"0": 70, "1": 0})
    refused(kind, batch(source(starts, ends, **more)), state(source(50, 60)), "partitions={'t': 2}")
    known_ones = source({"0": begin, "1": 0}, {"0": 70, "1": 0})
    with pytest.raises(Misuse) as caught:
        decide(batch(known_ones), state(source({"0": 50, "1": 0}, {"0": 60, "1": 0})))
    assert caught.value.kind == kind and "partitions=" not in str(caught.value)


def test_a_partition_that_appears_under_a_running_checkpoint_continues():
    """Spark begins it at its earliest offset, and says no start for it."""
    given = batch(source({"0": 60}, {"0": 70, "1": 9}, earliest={"t": {"0": 0, "1": 5}}), query="q", number=6)
    assert decide(given, state(source(50, 60))).verdict is Verdict.NEW


def test_a_new_application_begins_wherever_the_user_said():
    assert decide(batch(source(60, 70, earliest={"t": {"0": 0}})), None).verdict is Verdict.NEW


# -- within a run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recorded_id, kind", [("before", "positions.topic-recreated"), ("", "positions.recreated-meanwhile")]
)
def test_a_topic_recreated_while_its_batch_is_written_is_found_before_the_record(recorded_id, kind):
    """Nothing of the batch is durable. Where the topic's id is recorded, the error has the ways on."""
    world = memory_world()
    query = Query(world)
    driver, rows = world.driver, world.driver.rows
    driver.topic_id = recorded_id
    query.batch(6)
    driver.topic_id = "before"

    def recreated_meanwhile(start, end):
        driver.topic_id = "after"
        return rows(start, end)

    driver.rows = recreated_meanwhile
    with pytest.raises(Misuse) as caught:
        query.batch(9)
    assert caught.value.kind == kind and "after" in str(caught.value)
    query.sink.close()
    assert world.ids() == list(range(6)) and world.unknown_files() == []


@pytest.mark.parametrize(
    "recorded_in, kind", [("before", "positions.other-cluster"), ("", "positions.recreated-meanwhile")]
)
def test_a_cluster_that_tells_no_topics_ids_is_another_one_when_its_batch_is_written(recorded_in, kind):
    """Found by a walk: only the topics' ids were compared, and rows of the new cluster came twice."""
    world = memory_world()
    query = Query(world)
    driver, rows = world.driver, world.driver.rows
    driver.topic_id, driver.cluster = "", recorded_in
    query.batch(6)
    driver.cluster = "before"

    def moved_meanwhile(start, end):
        driver.cluster = "after"
        return rows(start, end)

    driver.rows = moved_meanwhile
    with pytest.raises(Misuse, match="after") as caught:
        query.batch(9)
    assert caught.value.kind == kind
    query.sink.close()
    assert world.ids() == list(range(6)) and world.unknown_files() == []


def test_all_topics_of_a_cluster_that_moved_meanwhile_begin_anew_by_one_word():
    """Positions of the other topics would say as little of theirs in the new cluster."""
    ends = [{"t": {"0": end}, "u": {"0": end}} for end in (5, 9)]
    last = state(SourceRange(None, ends[0]))
    was, now = (batch(SourceRange(*ends, cluster=cluster)) for cluster in ("c-1", "c-2"))
    past = Past("lake/t", "t", last, lambda query, checkpoint: None, lambda run: KnownRun(False))
    said = str(recreated_meanwhile(was, now, past, SinkOptions.of("lake/t", {})))
    assert "the cluster of topic 't' and of 1 more was c-1 when the batch began, and is c-2 now" in said
    assert "from_beginning=['t', 'u']" in said and "the table's record of these topics and of no other" in said
    word = re.search("accept_as_new='([^']+)'", said)[1]
    anew = batch(SourceRange(None, ends[1], cluster="c-2"), query="q3")
    decision = decide(anew, last, accept_as_new=word)
    assert decision.verdict is Verdict.NEW
    assert {(cluster, *at.values()) for _, _, cluster, _, at in recorded(decision)} == {("c-2", 9)}


def test_who_only_says_that_a_topic_is_another_one_is_told_to_begin_with_it():
    """The earlier topic's record stands in the table until a batch is written.
    Formerly a new checkpoint was told the offsets of that topic."""
    two = {"cluster": "c-1", "topic_ids": {"t": "id-2", "u": "id-u"}}
    last = state(
        SourceRange(
            {"t": {"0": 50}, "u": {"0": 5}},
            {"t": {"0": 60}, "u": {"0": 8}},
            cluster="c-1",
            topic_ids={"t": "id-1", "u": "id-u"},
        )
    )
    given = batch(
        SourceRange({"t": {"0": 60}, "u": {"0": 8}}, {"t": {"0": 70}, "u": {"0": 9}}, **two), query="q", number=6
    )
    word = refused("positions.topic-recreated", given, last)
    refused(
        "positions.gap",
        given,
        last,
        "starting_offsets('lake/t', partitions={'t': 1}, from_beginning=['t'])",
        accept_as_new=word,
    )
