"""Admission decides from positions and identity: a batch is a replay, an overlap, a gap or new. Each rule of
docs/PROTOCOL.md has its row here."""

import dataclasses

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission.admit import Past, admit, token
from streamsink.protocol.committable import AppState, Batch, KnownRun
from streamsink.protocol.decision import Verdict
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.recorded import Recorded
from streamsink.protocol.same_query import QueryFingerprint
from tests.protocol import admitting

SAME_QUERY = QueryFingerprint("sources", "plan", "", "schema", "4.1", True)
KAFKA_COLUMNS = {"position_columns": ("topic", "partition", "offset")}


def kafka(start, end):
    """The range of one partition, or of several if they are dicts."""

    def side(value):
        return {"t": value if isinstance(value, dict) else {"0": value}}

    return (SourceRange(side(start), side(end)),)


def files(start, end, digest=""):
    """A file source's range, which means something only in its own checkpoint."""
    return (SourceRange({"logOffset": start}, {"logOffset": end}, digest),)


def state(sources, checkpoint=5, query="q", recorded=None, generation=0):
    """recorded: positions as a state of version 1 has them; by default where the sources end."""
    recorded = (
        recorded
        if recorded is not None
        else ({"t": dict(sources[0].end["t"])} if sources and sources[0].numeric else {})
    )
    return AppState(
        query=query,
        generation=generation,
        epoch=1,
        checkpoint_id=checkpoint,
        sequence=checkpoint + 1,
        record_id="r",
        table_id="t",
        sources=sources,
        recorded=Recorded.from_json(recorded, sources),
        fingerprint=SAME_QUERY,
    )


def offsets(decision):
    """What one source has published once the batch is published."""
    return {record.topic: record.next for record in decision.recorded.topics}


def decide(batch, last, *, earlier=None, runs=(), **options):
    past = Past("lake/t", "t", last, lambda query, checkpoint: earlier, lambda run: KnownRun(run in runs))
    return admit(dataclasses.replace(batch, fingerprint=SAME_QUERY), past, SinkOptions.of("lake/t", options))


def refused(kind, batch, last, **options):
    with pytest.raises(Misuse) as caught:
        decide(batch, last, **options)
    assert caught.value.kind == kind
    assert "lake/t" in str(caught.value) and "Nothing was written" in str(caught.value)
    return str(caught.value)


def test_the_first_batch_of_an_application_is_new():
    assert decide(Batch(0, "q", "r", kafka(0, 10)), None).verdict is Verdict.NEW


def test_a_first_batch_that_is_not_zero_is_a_gap_unless_adopted():
    batch = Batch(7, "q", "r", kafka(70, 80))
    assert "adopt_from_batch=7" in refused("gap.first-batch", batch, None)
    assert decide(batch, None, adopt_from_batch=7).verdict is Verdict.NEW
    refused("gap.first-batch", batch, None, adopt_from_batch=6)


def test_a_checkpoint_that_begins_anew_is_not_the_one_that_is_adopted():
    """What was written elsewhere before is not known here, so batch 0 would write it a second time."""
    batch = Batch(0, "q", "r", kafka(0, 4))
    assert "Start the query with its own checkpoint, whose next batch is 7" in refused(
        "checkpoint.begins-anew", batch, None, adopt_from_batch=7
    )
    assert decide(batch, None).verdict is Verdict.NEW


@pytest.mark.parametrize("make", [kafka, files])
def test_same_id_and_same_positions_is_a_replay(make):
    assert decide(Batch(5, "q", "r", make(50, 60)), state(make(50, 60))).verdict is Verdict.SKIP


@pytest.mark.parametrize("make", [kafka, files])
def test_the_next_batch_that_starts_where_the_last_ended_is_new(make):
    assert decide(Batch(6, "q", "r", make(60, 70)), state(make(50, 60))).verdict is Verdict.NEW


def test_a_query_whose_rows_come_out_of_state_is_not_told_of_position_columns():
    """They would be refused, so they are no way on."""
    given = Batch(7, "q", "r", kafka(50, 75), stateful=True)
    assert "position_columns" not in refused("positions.overlap", given, state(kafka(50, 60)))


def test_same_id_with_other_positions_is_never_skipped():
    """Other sinks skip such a batch by its number, and lose what is new in it."""
    assert "position_columns" in refused("positions.overlap", Batch(5, "q", "r", kafka(50, 75)), state(kafka(50, 60)))
    decision = decide(Batch(5, "q", "r", kafka(50, 75)), state(kafka(50, 60)), **KAFKA_COLUMNS)
    assert (decision.verdict, decision.below, offsets(decision)) == (Verdict.FILTER, {"t": {"0": 60}}, {"t": {"0": 75}})
    assert decision.generation == 1, "the ids of a commit user only grow"


def test_the_same_file_positions_with_other_files_are_no_replay():
    """After a checkpoint was restored, logOffset 5 may be another file. The digest of the source's own log tells."""
    message = refused("batch.backwards", Batch(5, "q", "r", files(4, 5, "new")), state(files(4, 5, "old")))
    assert "accept_as_new=" in message and "accept_as_seen=" in message


@pytest.mark.parametrize(
    "told, begins, journal_id, same",
    [
        (("other", ()), True, "j", False),
        (("d5", ()), True, "j", True),
        (("", None), True, "j", True),
        (("digest of nothing", None), True, "j", True),
        (None, True, "j", True),
        (("other", ()), False, "j", True),
        (("other", ()), True, "", True),
    ],
    ids=[
        "other files",
        "the same files",
        "a source that says nothing",
        "a log that Spark has deleted",
        "positions that Spark has deleted",
        "later in a run",
        "recorded by earlier code",
    ],
)
def test_the_batch_before_in_the_checkpoint_must_be_the_recorded_one(told, begins, journal_id, same):
    """A log's position counts the source's own steps:
    two checkpoints that went on in different ways after a restore have the same numbers."""
    last = dataclasses.replace(state(files(4, 5, "d5")), journal_id=journal_id)
    before = told and tuple(dataclasses.replace(source, files=told[1]) for source in files(4, 5, told[0]))
    batch = Batch(6, "q", "r", files(5, 6, "d6"), fingerprint=SAME_QUERY, before=lambda: before)
    past = Past("lake/t", "t", last, lambda query, checkpoint: None, lambda run: KnownRun(False), begins=begins)
    if same:
        assert admit(batch, past, SinkOptions.of("lake/t", {})).verdict is Verdict.NEW
        return
    with pytest.raises(Misuse) as caught:
        admit(batch, past, SinkOptions.of("lake/t", {}))
    assert caught.value.kind == "checkpoint.other-past" and "Nothing was written" in str(caught.value)
    word = token(batch, past)
    assert admit(batch, past, SinkOptions.of("lake/t", {"accept_as_new": word})).verdict is Verdict.NEW
    assert admit(batch, past, SinkOptions.of("lake/t", {"accept_as_seen": word})).verdict is Verdict.SEEN


def steps(start, end, *, told=False, of="logOffset"):
    """The range of a source whose position counts its steps, and whose log is understood or not."""
    return (SourceRange({of: start}, {of: end}, "d" if told else "", files=() if told else None),)


_PLANNED = pytest.mark.parametrize(
    "recorded_ms, planned_ms, ranges, same",
    [
        (1000, 2000, {}, False),
        (1000, 1000, {}, True),
        (0, 2000, {}, True),
        (1000, 0, {}, True),
        (1000, 2000, {"told": True}, True),
        (1000, 2000, {"of": "version"}, True),
    ],
    ids=[
        "planned at another time",
        "planned at the same time",
        "recorded by earlier code",
        "an offset log that does not say it",
        "a log that tells the same files",
        "positions that mean more than a step",
    ],
)


@_PLANNED
@pytest.mark.parametrize("tells_before", [True, False])
def test_a_batch_follows_the_recorded_one_that_was_planned_when_its_checkpoint_says(
    recorded_ms, planned_ms, ranges, same, tells_before
):
    """Found by a walk: table and checkpoint were restored and went on; then the checkpoint of the other past came back.

    Spark may have deleted the entry before the batch before, so that nothing tells where that one began.
    """
    last = dataclasses.replace(state(steps(4, 5, **ranges)), journal_id="j", planned_ms=recorded_ms)
    before = steps(4, 5, **ranges) if tells_before else None
    batch = Batch(6, "q", "r", steps(5, 6, **ranges), planned_ms=3000, before_ms=planned_ms, before=lambda: before)
    if same:
        assert decide(batch, last).verdict is Verdict.NEW
        return
    assert "its source '0' read something else" in refused("checkpoint.other-past", batch, last)
    word = token(batch, Past("lake/t", "t", last, lambda q, c: None, lambda r: KnownRun(False)))
    assert decide(batch, last, accept_as_new=word).verdict is Verdict.NEW
    assert decide(batch, last, accept_as_seen=word).verdict is Verdict.SEEN


@_PLANNED
@pytest.mark.parametrize("is_earlier", [False, True])
def test_a_replay_was_planned_when_the_record_says(recorded_ms, planned_ms, ranges, same, is_earlier):
    """Found by a walk: the checkpoint was restored from an older copy, and the batch that Spark planned once more under
    the same number had more files; it was skipped.
    """
    known = dataclasses.replace(state(steps(4, 5, **ranges)), planned_ms=recorded_ms)
    last = dataclasses.replace(state(steps(5, 6, **ranges), checkpoint=6), planned_ms=9) if is_earlier else known
    batch = Batch(5, "q", "r", steps(4, 5, **ranges), planned_ms=planned_ms)
    if same:
        assert decide(batch, last, earlier=known).verdict is Verdict.SKIP
        return
    with pytest.raises(Misuse, match="was planned at another time") as caught:
        decide(batch, last, earlier=known)
    assert caught.value.kind == "batch.backwards"


def test_a_state_says_when_its_batch_was_planned():
    """Code of before leaves that out, and is read as before."""
    known = dataclasses.replace(state(steps(4, 5)), planned_ms=1000)
    assert known.to_json()["planned_ms"] == 1000 and AppState.from_json(known.to_json()) == known
    assert "planned_ms" not in state(steps(4, 5)).to_json()


def test_an_earlier_batch_with_the_same_positions_is_a_replay():
    last = state(files(5, 6), checkpoint=6)
    assert (
        decide(Batch(4, "q", "r", files(3, 4)), last, earlier=state(files(3, 4), checkpoint=4)).verdict is Verdict.SKIP
    )


def test_a_new_checkpoint_over_a_source_without_positions_is_refused_with_two_ways_on():
    batch = Batch(0, "q2", "r", files(0, 1))
    message = refused("checkpoint.replaced", batch, state(files(4, 5)))
    assert "application=" in message
    word = token(batch, Past("lake/t", "t", state(files(4, 5)), lambda q, c: None, lambda r: KnownRun(False)))
    for said in (word, f"of-last-week {word}", f"{word} for-all-runs"):
        assert decide(batch, state(files(4, 5)), accept_as_new=said).verdict is Verdict.NEW
        assert decide(batch, state(files(4, 5)), accept_as_seen=said).verdict is Verdict.SEEN


def test_a_token_accepts_one_accident_only():
    """If it is left in the code, it must not accept the next accident."""
    batch, last = Batch(0, "q2", "r", files(0, 1)), state(files(4, 5))
    word = token(batch, Past("lake/t", "t", last, lambda q, c: None, lambda r: KnownRun(False)))
    later = dataclasses.replace(last, record_id="r2")
    refused("checkpoint.replaced", batch, later, accept_as_new=word)
    refused("checkpoint.replaced", Batch(0, "q3", "r", files(0, 1)), last, accept_as_new=word)


def test_a_new_checkpoint_on_kafka_that_continues_is_new():
    decision = decide(Batch(0, "q2", "r", kafka(60, 70)), state(kafka(50, 60)))
    assert (decision.verdict, decision.generation) == (Verdict.NEW, 0)


def test_a_new_checkpoint_on_kafka_that_replays_is_filtered():
    decision = decide(Batch(0, "q2", "r", kafka(0, 70)), state(kafka(50, 60)), **KAFKA_COLUMNS)
    assert (decision.verdict, decision.below) == (Verdict.FILTER, {"t": {"0": 60}})


def test_recorded_positions_never_go_back():
    decision = decide(Batch(0, "q2", "r", kafka(0, 30)), state(kafka(50, 60)), **KAFKA_COLUMNS)
    assert offsets(decision) == {"t": {"0": 60}}


def test_a_gap_in_positions_is_an_error_and_names_the_partition():
    message = refused("positions.gap", Batch(6, "q", "r", kafka(61, 70)), state(kafka(50, 60)), **KAFKA_COLUMNS)
    assert "t:0" in message


def test_a_gap_in_one_partition_counts_although_another_overlaps():
    batch = Batch(0, "q2", "r", kafka({"0": 0, "1": 9}, {"0": 5, "1": 12}))
    refused("positions.gap", batch, state(kafka({"0": 0, "1": 0}, {"0": 4, "1": 8})), **KAFKA_COLUMNS)


def test_a_partition_that_is_new_to_the_record_continues():
    batch = Batch(6, "q", "r", kafka({"0": 60, "1": 0}, {"0": 70, "1": 5}))
    decision = decide(batch, state(kafka(50, 60)))
    assert (decision.verdict, offsets(decision)) == (Verdict.NEW, {"t": {"0": 70, "1": 5}})


def test_a_partition_once_recorded_stays_recorded():
    """A topic that is left out for a while is still checked when it comes back."""
    last = state(kafka({"0": 5}, {"0": 6}), recorded={"t": {"0": 6, "1": 40}})
    assert offsets(decide(Batch(6, "q", "r", kafka({"0": 6}, {"0": 7})), last)) == {"t": {"0": 7, "1": 40}}


def test_an_unknown_start_counts_as_the_beginning():
    """Nothing can be lost by that, and what is already published is filtered."""
    batch = Batch(0, "q2", "r", (SourceRange(None, {"t": {"0": 70}}),))
    assert decide(batch, state(kafka(50, 60)), **KAFKA_COLUMNS).verdict is Verdict.FILTER


@pytest.mark.parametrize("batch_id, sources", [(7, files(60, 70)), (6, files(61, 70))])
def test_a_batch_that_does_not_follow_is_a_gap(batch_id, sources):
    refused("batch.gap", Batch(batch_id, "q", "r", sources), state(files(50, 60)))


def test_a_bounded_run_is_published_once():
    run = Batch(END_OF_INPUT, "2026-11-21", "r")
    assert decide(run, None).verdict is Verdict.NEW
    assert decide(run, state(files(1, 2)), runs=("2026-11-21",)).verdict is Verdict.SKIP
    assert decide(run, state((), END_OF_INPUT, "2026-11-21", {})).verdict is Verdict.SKIP
    assert decide(run, state((), END_OF_INPUT, "2026-11-20", {})).verdict is Verdict.NEW


def named(**ranges):
    """Ranges of file sources by name: (start, end), in the order given."""
    return tuple(
        SourceRange(None if start is None else {"logOffset": start}, {"logOffset": end}, f"d{end}", name=name)
        for name, (start, end) in ranges.items()
    )


def places(*ranges):
    return tuple(
        dataclasses.replace(source, name="") for source in named(**{str(i): pair for i, pair in enumerate(ranges)})
    )


def test_named_sources_stand_in_any_order_and_come_and_go():
    """A source is known by its name, not by its place."""
    last = state(named(a=(1, 2), b=(5, 6)))
    assert decide(Batch(6, "q", "r", named(b=(6, 7), a=(2, 2))), last).verdict is Verdict.NEW
    assert decide(Batch(6, "q", "r", named(b=(6, 7), c=(None, 3))), last).verdict is Verdict.NEW
    refused("batch.gap", Batch(6, "q", "r", named(a=(6, 7), b=(2, 3))), last)
    refused("batch.gap", Batch(6, "q", "r", named(a=(2, 3), b=(5, 7))), last)


def test_sources_of_a_recorded_batch_may_get_names():
    """The record knows places, and the checkpoint has names by now: the next batch follows, a replay is recognised, and
    another batch is not taken for one."""
    last = state(places((1, 2), (5, 6)))
    assert decide(Batch(6, "q", "r", named(a=(6, 7), z=(2, 3))), last).verdict is Verdict.NEW
    assert decide(Batch(5, "q", "r", named(a=(5, 6), z=(1, 2))), last).verdict is Verdict.SKIP
    refused("batch.gap", Batch(6, "q", "r", named(a=(5, 7), z=(2, 3))), last)
    refused("batch.gap", Batch(6, "q", "r", named(z=(2, 3))), last)
    refused("batch.backwards", Batch(5, "q", "r", named(a=(5, 7), z=(1, 2))), last)


def test_the_name_of_a_source_is_kept_in_the_state():
    """Where a source has no name the state says none."""
    for sources in (named(a=(1, 2)), places((1, 2))):
        told = state(sources).to_json()
        assert [("name" in source) for source in told["sources"]] == [bool(sources[0].name)]
        assert [source.name for source in AppState.from_json(told).sources] == [sources[0].name]


@pytest.mark.parametrize(
    "change, kind",
    [({"topic_id": "id-2"}, "positions.topic-recreated"), ({"cluster": "c-2"}, "positions.other-cluster")],
)
def test_a_batch_that_was_seen_is_another_one_when_its_topic_is_another_one(change, kind):
    """Found by a walk: the plan could not be compared and its user said that the rows were there; then the topic was
    created again, and Spark read the batch that it had planned from the new topic."""
    last = admitting.state(admitting.source(50, 60))
    given = dataclasses.replace(
        admitting.batch(admitting.source(0, 60)), fingerprint=dataclasses.replace(last.fingerprint, comparable=False)
    )
    with pytest.raises(Misuse) as told:
        admitting.decide(given, last)
    assert told.value.kind == "query.not-comparable"
    word = str(told.value).split("accept_as_seen='")[1].split("'")[0]
    assert admitting.decide(given, last, accept_as_seen=word).verdict is Verdict.SEEN
    other = dataclasses.replace(given, sources=(admitting.source(0, 60, **change),))
    again = admitting.refused(kind, other, last, accept_as_seen=word)
    assert admitting.decide(other, last, accept_as_seen=again).verdict is Verdict.SEEN
