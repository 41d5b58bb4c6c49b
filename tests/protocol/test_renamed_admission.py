"""What the first name of a query would not have let through is not let through under another name:
admission without a table."""

import dataclasses

import pytest

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission.admit import Past, admit
from streamsink.protocol.committable import KnownRun, LastOfOther
from streamsink.protocol.decision import Verdict
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.recorded import Recorded
from tests.protocol.admitting import batch, source, state


def _led_on(given, last, adopt):
    """The decision about a batch that comes under the name "new",
    when the query's last record is under the name "first"."""
    others = {"first": LastOfOther(last, True)}
    past = Past("lake/t", "t", None, lambda query, checkpoint: None, lambda run: KnownRun(False), others=lambda: others)
    return admit(given, past, SinkOptions.of("lake/t", {"application": "new", "adopt_from_batch": adopt}))


@pytest.mark.parametrize("ids", [{"topic_id": "id-2"}, {"cluster": "c-2"}])
@pytest.mark.parametrize("given, number", [((50, 60), 5), ((60, 70), 6)])
def test_a_topic_that_is_another_one_by_now_is_for_the_first_name_to_judge(given, number, ids):
    """Found by a walk:
    batch 0 was to be repeated, its topic was recreated, and what the new topic holds at these offsets was skipped."""
    last = state(source(50, 60))
    assert _led_on(batch(source(*given), query="q", number=number), last, adopt=6)
    with pytest.raises(Misuse) as refused:
        _led_on(batch(source(*given, **ids), query="q", number=number), last, adopt=6)
    said = str(refused.value)
    assert refused.value.kind == "application.renamed" and "Set application='first' to go on" in said
    assert "first start the query once more under the first one" in said and "set adopt_from_batch" not in said


@pytest.mark.parametrize(
    "given",
    [
        source(65, 70),
        source(55, 70),
        source(60, 70, topic="u", earliest={"u": {"0": 0}}),
        source(60, 70, newest={"t": {"0": 59}}),
    ],
)
def test_a_batch_that_does_not_continue_the_first_name_is_for_that_name_to_judge(given):
    """There is a gap, an overlap, an unknown topic that is not read from its beginning,
    or a topic that has lost messages."""
    with pytest.raises(Misuse, match="first start the query once more under the first one") as refused:
        _led_on(batch(given, query="q", number=6), state(source(50, 60)), adopt=6)
    assert refused.value.kind == "application.renamed"


_FILES = SourceRange({"logOffset": 0}, {"logOffset": 1}), SourceRange({"logOffset": 1}, {"logOffset": 2})


@pytest.mark.parametrize("before, given, number", [(source(50, 60), source(60, 70), 3), (*_FILES, 3), (*_FILES, 7)])
def test_a_batch_that_is_not_the_next_one_is_not_told_to_adopt(before, given, number):
    """The checkpoint was restored, or batches never came.
    Formerly the error asked for adopt_from_batch again and again."""
    with pytest.raises(Misuse, match="first start the query once more under the first one") as refused:
        _led_on(batch(given, query="q", number=number), state(before), adopt=6)
    assert refused.value.kind == "application.renamed"


def test_batches_that_never_came_had_no_rows_where_positions_continue():
    """The first name decides in the same way."""
    assert _led_on(batch(source(60, 70), query="q", number=7), state(source(50, 60)), adopt=6).verdict is Verdict.NEW


def test_what_is_recorded_under_the_first_name_is_recorded_under_the_new_one():
    """This is about topics that the query has read before and may read again: their rows are in the table."""
    last = dataclasses.replace(
        state(source(50, 60)), recorded=Recorded().advanced((source(0, 8, "id-u", topic="u"), source(50, 60)))
    )
    decision = _led_on(batch(source(60, 70), query="q", number=6), last, adopt=6)
    assert {record.topic: record.next for record in decision.recorded.topics} == {"t": {"0": 70}, "u": {"0": 8}}


def test_files_that_another_checkpoint_has_read_are_filtered_under_the_first_name_only():
    """The checkpoint took the place of another one, whose files may come in any batch."""
    before, given = _FILES
    last = state(before)
    assert _led_on(batch(given, query="q", number=6), last, adopt=6)
    with pytest.raises(
        Misuse, match="The name cannot be changed: what an earlier checkpoint has read is filtered by it"
    ) as refused:
        _led_on(batch(given, query="q", number=6), dataclasses.replace(last, replaying=True), adopt=6)
    assert refused.value.kind == "application.renamed" and "set adopt_from_batch" not in str(refused.value)
    # Without it nobody could go on when a table is lost.
    assert "start a new checkpoint whose source has only what is not written yet" in str(refused.value)


@pytest.mark.parametrize("number", [5, 6])
def test_steps_that_were_planned_at_another_time_are_for_the_first_name_to_judge(number):
    """No log tells what they read: the last batch is no replay then, and the next one does not follow it."""
    last = dataclasses.replace(state(_FILES[0]), journal_id="j", planned_ms=1000)
    given = batch(_FILES[number - 5], query="q", number=number)
    same = dataclasses.replace(given, planned_ms=1000, before_ms=1000)
    assert _led_on(same, last, adopt=6).verdict is (Verdict.SKIP if number == 5 else Verdict.NEW)
    with pytest.raises(Misuse, match="first start the query once more under the first one"):
        _led_on(dataclasses.replace(same, planned_ms=2000, before_ms=2000), last, adopt=6)


def test_files_of_another_past_are_for_the_first_name_to_judge():
    """Positions of a file source count its own steps, so those of a checkpoint that went on in another way agree."""
    (recorded, told), given = (
        (dataclasses.replace(_FILES[0], fingerprint=digest, files=()) for digest in "ab"),
        batch(_FILES[1], query="q", number=6),
    )
    with pytest.raises(Misuse, match="first start the query once more under the first one"):
        _led_on(
            dataclasses.replace(given, before=lambda: (told,)),
            dataclasses.replace(state(recorded), journal_id="j"),
            adopt=6,
        )
