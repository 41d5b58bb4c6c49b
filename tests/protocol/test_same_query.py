"""A3, A4, A13 without Spark: for which batches the query is compared, what is an error, and what each way on does."""

import dataclasses
import json

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission.admit import Past, admit
from streamsink.protocol.committable import AppState, Batch, KnownRun, LastOfOther
from streamsink.protocol.decision import Verdict
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.recorded import Recorded
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.same_query import compare
from tests.crash.world import memory_world
from tests.protocol.two_queries import COLUMNS, QUERY, batch, decide, files, kafka, other, refused, state, token


def test_the_same_query_on_a_new_checkpoint_is_filtered():
    assert decide(batch(kafka(0, 70)), state(kafka(50, 60)), **COLUMNS).verdict is Verdict.FILTER


@pytest.mark.parametrize("options", [COLUMNS, {}], ids=["columns", "no columns"])
@pytest.mark.parametrize("part", ["sources", "plan", "schema"])
def test_another_query_is_refused_and_the_part_that_differs_is_named_with_both_digests(part, options):
    found = getattr(QUERY, part) + "ee"
    message = refused(
        "query.other", batch(kafka(0, 70), fingerprint=other(**{part: found})), state(kafka(50, 60)), **options
    )
    assert f"{part} (found {found}, recorded {getattr(QUERY, part)})" in message
    assert "checkpoint q2" in message and "checkpoint q." not in message and "application=" in message


def test_an_upgraded_query_of_the_same_checkpoint_is_not_asked():
    """The batch was planned again with other boundaries, by a program that was changed meanwhile."""
    upgraded = batch(kafka(50, 75), number=5, query="q", fingerprint=other(plan="new", spark="4.2", comparable=False))
    assert decide(upgraded, state(kafka(50, 60)), **COLUMNS).verdict is Verdict.FILTER


def test_another_query_that_reads_only_new_positions_goes_on():
    """A version 2 starts at starting_offsets: nothing is filtered, so nothing is asked."""
    assert (
        decide(batch(kafka(60, 70), fingerprint=other(plan="new")), state(kafka(50, 60)), **COLUMNS).verdict
        is Verdict.NEW
    )


@pytest.mark.parametrize(
    "recorded, found, word",
    [
        (None, QUERY, "older streamsink"),
        (QUERY, None, "no fingerprint"),
        (QUERY, other(spark="4.2", plan="other words"), "Spark 4.2"),
        (QUERY, other(comparable=False), "Python"),
        (other(comparable=False), QUERY, "Python"),
        (QUERY, other(dates="ff"), "dates"),
    ],
)
def test_what_cannot_be_compared_is_an_error_and_no_guess(recorded, found, word):
    for options in (COLUMNS, {}):
        message = refused(
            "query.not-comparable", batch(kafka(0, 70), fingerprint=found), state(kafka(50, 60), recorded), **options
        )
        assert word in message and "accept_as_same=" in message


def test_a_certain_difference_comes_before_one_that_cannot_be_told():
    """Other topics make another query, whatever Spark or Python function it runs on."""
    found = other(sources="zz", spark="4.2", comparable=False)
    assert "sources" in refused("query.other", batch(kafka(0, 70), fingerprint=found), state(kafka(50, 60)), **COLUMNS)
    assert compare(QUERY, other(plan="new", comparable=False)).differs, "a text that differs differs"


def test_accepted_as_the_same_it_is_filtered_by_this_token_only():
    found, last = batch(kafka(0, 70), fingerprint=other(plan="new")), state(kafka(50, 60))
    word = token(refused("query.other", found, last, **COLUMNS), "accept_as_same")
    decision = decide(found, last, accept_as_same=word, **COLUMNS)
    assert (decision.verdict, decision.below) == (Verdict.FILTER, {"t": {"0": 60}})
    refused("query.other", found, dataclasses.replace(last, record_id="later"), accept_as_same=word, **COLUMNS)


def test_accepted_as_new_the_batches_after_it_are_new_too():
    """One token covers the accident: the recorded positions go back to the end of the accepted batch."""
    found, last = batch(kafka(0, 20), fingerprint=other(plan="new")), state(kafka(50, 60))
    word = token(refused("query.other", found, last, **COLUMNS), "accept_as_new")
    decision = decide(found, last, accept_as_new=word, **COLUMNS)
    assert (decision.verdict, decision.recorded) == (Verdict.NEW, Recorded().advanced(kafka(0, 20)))
    after = dataclasses.replace(last, query="q2", checkpoint_id=0, sources=found.sources, recorded=decision.recorded)
    assert decide(batch(kafka(20, 70), number=1), after, accept_as_new=word, **COLUMNS).verdict is Verdict.NEW


def test_accepted_as_seen_the_batch_is_recorded_and_the_batches_after_it_are_filtered():
    found, last = batch(kafka(0, 20), fingerprint=other(plan="new")), state(kafka(50, 60))
    word = token(refused("query.other", found, last, **COLUMNS), "accept_as_seen")
    decision = decide(found, last, accept_as_seen=word, **COLUMNS)
    assert (decision.verdict, decision.recorded) == (Verdict.SEEN, Recorded().advanced(kafka(0, 60)))
    after = dataclasses.replace(last, query="q2", checkpoint_id=0, sources=found.sources, fingerprint=found.fingerprint)
    following = batch(kafka(20, 70), number=1, fingerprint=found.fingerprint)
    assert decide(following, after, **COLUMNS).verdict is Verdict.FILTER


def test_under_a_name_of_its_own_another_query_is_new():
    """This is the first way on of each of these errors: that name has no past."""
    assert (
        decide(batch(kafka(0, 70), fingerprint=other(plan="new")), None, application="second", **COLUMNS).verdict
        is Verdict.NEW
    )
    assert decide(batch(kafka(0, 70), stateful=True), None, application="second").verdict is Verdict.NEW


def test_a_state_without_a_fingerprint_is_read_and_written_as_it_was():
    """Earlier code wrote it. The field is there only when the fingerprint is known."""
    plain = state(kafka(0, 1), fingerprint=None)
    assert "fingerprint" not in plain.to_json() and AppState.from_json(json.loads(json.dumps(plain.to_json()))) == plain
    known = state(kafka(0, 1))
    assert AppState.from_json(json.loads(json.dumps(known.to_json()))) == known


def test_every_record_carries_the_fingerprint_of_its_query():
    """What the next checkpoint is compared with is in the state of the newest snapshot."""
    world = memory_world(position_columns=("t", "p", "o"))
    world.run()
    same = world.driver.fingerprint
    world.checkpoint = type(world.checkpoint)("00000000-0000-0000-0000-000000000002")
    world.driver.fingerprint = other(plan="new")
    with pytest.raises(Misuse) as caught:
        world.run()
    assert caught.value.kind == "query.other"
    before = world.ids()
    world.driver.fingerprint = same
    world.run()
    assert world.ids() == before


# -- state ---------------------------------------------------------------------------------------------------------


def test_position_columns_on_a_stateful_query_are_refused_at_its_first_batch():
    refused("query.stateful-positions", batch(kafka(0, 10), stateful=True), None, **COLUMNS)
    assert decide(batch(kafka(0, 10), stateful=True), None).verdict is Verdict.NEW


@pytest.mark.parametrize(
    "sources", [kafka(0, 70), kafka(60, 70), files(0, 1)], ids=["overlap", "starting offsets", "files"]
)
def test_a_stateful_query_on_a_new_checkpoint_has_lost_its_state(sources):
    """This holds even where it reads only new positions: what waited in the state is lost."""
    last = state(kafka(50, 60) if sources[0].numeric else files(4, 5))
    found = batch(sources, stateful=True)
    message = refused("query.state-lost", found, last)
    assert "checkpoint q2" in message and "checkpoint q " in message
    assert decide(found, last, accept_as_new=token(message, "accept_as_new")).verdict is Verdict.NEW


@pytest.mark.parametrize("make", [kafka, files])
def test_a_stateful_query_whose_checkpoint_was_restored_goes_back(make):
    """The batch has other boundaries than at first, so its results would come again.
    With the same boundaries it is a replay."""
    found, last = batch(make(40, 55), number=4, query="q", stateful=True), state(make(50, 60))
    message = refused("query.state-lost", found, last)
    assert "goes back" in message
    decision = decide(found, last, accept_as_new=token(message, "accept_as_new"))
    after = dataclasses.replace(last, checkpoint_id=4, sources=found.sources, recorded=decision.recorded)
    following = batch(make(55, 80), number=5, query="q", stateful=True)
    assert decide(following, after).verdict is Verdict.NEW, "one token covers the accident"
    replay = batch(make(50, 60), number=5, query="q", stateful=True)
    assert decide(replay, last).verdict is Verdict.SKIP


def test_a_stateful_query_that_goes_on_is_not_disturbed():
    assert decide(batch(kafka(60, 70), number=6, query="q", stateful=True), state(kafka(50, 60))).verdict is Verdict.NEW


@pytest.mark.parametrize("stateful", [True, False])
def test_the_rows_of_a_replay_are_computed_for_their_state(stateful):
    """Spark ends a stateful query whose batch was not computed. A replay of any other query costs nothing."""

    class Counted(BatchRows):
        times = 0

        def count(self):
            raise AssertionError("a micro-batch is not counted")

        def write(self, checkpoint, group):
            raise AssertionError("a replay is not written")

        def read_over(self):
            self.times += 1

    world = memory_world()
    world.run()
    sink = world.driver.start(world.file_io(world.calls), world.checkpoint)
    rows, last = Counted(), world.driver.describe(world.checkpoint, len(world.checkpoint.ends) - 1)
    assert sink.run.micro_batch(dataclasses.replace(last, stateful=stateful), rows) == 0
    assert rows.times == (1 if stateful else 0)
    sink.close()


# -- output modes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_results_that_change_are_refused_unless_that_is_meant(mode):
    found = batch(files(0, 1), output_mode=mode)
    assert f"'{mode}'" in refused("query.output-mode", found, None)
    assert decide(found, None, append_changes=True).verdict is Verdict.NEW


def test_a_complete_result_may_overwrite_but_changes_may_not():
    """Each batch of complete mode is the whole result; a batch of update mode is only the changes."""
    overwrite = {"mode": "overwrite", "overwrite_partition": {}}
    assert decide(batch(files(0, 1), output_mode="complete"), None, **overwrite).verdict is Verdict.NEW
    refused("query.output-mode", batch(files(0, 1), output_mode="update"), None, **overwrite)


def test_a_bounded_job_is_not_asked():
    last = state((), fingerprint=None, checkpoint=END_OF_INPUT, query="2026-11-20")
    assert decide(Batch(END_OF_INPUT, "2026-11-21", "r"), last, **COLUMNS).verdict is Verdict.NEW


# -- copies of a checkpoint ----------------------------------------------------------------------------------------


def _copied(one, last, **options):
    """The decision about a batch that comes from a copy of the recorded folder."""
    return decide(dataclasses.replace(one, place="copy"), dataclasses.replace(last, place="original"), **options)


@pytest.mark.parametrize(
    "changed, asks",
    [({"plan": "another"}, True), ({"comparable": False}, True), ({}, False)],
    ids=["other", "unknown", "same"],
)
@pytest.mark.parametrize("end, verdict", [(60, Verdict.SKIP), (70, Verdict.FILTER)])
def test_what_is_skipped_or_filtered_by_the_id_of_a_copied_checkpoint(end, verdict, changed, asks):
    """The same id is the same query where the folder is the same, or the query is."""
    one, last = batch(kafka(50, end), number=5, query="q", fingerprint=other(**changed)), state(kafka(50, 60))
    assert decide(one, last, **COLUMNS).verdict is verdict, "an upgraded query"
    assert decide(dataclasses.replace(one, place="copy"), last, **COLUMNS).verdict is verdict, (
        "an older streamsink wrote it"
    )
    if not asks:
        assert _copied(one, last, **COLUMNS).verdict is verdict
        return
    for options in ({}, COLUMNS):
        with pytest.raises(Misuse) as caught:
            _copied(one, last, **options)
        assert caught.value.kind == "checkpoint.copied"
    word = {"accept_as_same": token(str(caught.value), "accept_as_same")}
    assert _copied(one, last, **COLUMNS, **word).verdict is verdict
    later = dataclasses.replace(one, fingerprint=other(plan="a third one"))
    with pytest.raises(Misuse):
        _copied(later, last, **COLUMNS, **word)


def test_a_copied_checkpoint_that_reads_what_is_new_is_not_asked_for():
    assert (
        _copied(
            batch(kafka(60, 70), number=6, query="q", fingerprint=other(plan="another")), state(kafka(50, 60))
        ).verdict
        is Verdict.NEW
    )


def test_what_is_skipped_under_an_earlier_name_is_asked_for_as_well():
    """Found by a walk: a second job was given a copy of the checkpoint, and a name of its own with adopt_from_batch."""
    others = {"first": LastOfOther(dataclasses.replace(state(kafka(50, 60)), place="original"), True)}
    past = Past("lake/t", "t", None, lambda query, checkpoint: None, lambda run: KnownRun(False), others=lambda: others)
    options = SinkOptions.of("lake/t", {"application": "new", "adopt_from_batch": 6})
    one = dataclasses.replace(
        batch(kafka(50, 60), number=5, query="q", fingerprint=other(plan="another")), place="copy"
    )
    with pytest.raises(Misuse, match="what application 'first' has published") as caught:
        admit(one, past, options)
    assert caught.value.kind == "checkpoint.copied"
    word = token(str(caught.value), "accept_as_same")
    assert admit(one, past, dataclasses.replace(options, accept_as_same=word)).verdict is Verdict.SKIP
    assert admit(dataclasses.replace(one, place="original"), past, options).verdict is Verdict.SKIP, "an upgraded query"
