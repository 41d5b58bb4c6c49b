"""Admission of a micro-batch: is it new, a replay, an overlap, or a gap? A pure decision, taken before any write."""

from dataclasses import replace

from streamsink.errors import Misuse
from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.admission import opaque_errors, position_errors, renamed, renamed_errors
from streamsink.protocol.admission.admit_by_source import admit_by_position, admit_opaque, check_gap
from streamsink.protocol.admission.admit_run import admit_run
from streamsink.protocol.admission.continuity import Change, changes, relate, reset
from streamsink.protocol.admission.known_past import (
    Past,
    accepted,
    as_new,
    is_other,
    recorded_after,
    recorded_in,
    token,
)
from streamsink.protocol.admission.query_rules import check_copied, check_query, check_state, is_new_behind_a_copy
from streamsink.protocol.admission.resets import Answer, answer_in, answered, words_in
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.decision import Decision, Verdict
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import all_numeric, numeric_ones, same_ranges
from streamsink.protocol.recorded import Recorded

__all__ = ["Past", "admit", "recreated_meanwhile", "token"]


def admit(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    """Decide what to do with a batch: write all of it, write its new rows, record it without rows, or skip it.

    Raises Misuse when that cannot be decided, or when rows would be lost or written twice. The message says what
    happened, what was found and expected, and which options go on.
    """
    if batch.batch_id == END_OF_INPUT:
        return admit_run(batch, past, options)
    check_query(batch, past.table, options)
    past = replace(past, answers=words_in(options.accept_as_new, past.table_id, past.last, _topics(batch)))
    changed = changes(recorded_in(past), batch.sources)
    if past.last is not None and not any(change.other_topic for change in changed):
        published, why = _replay_of(batch, past.last, past)
        if published is not None and not is_new_behind_a_copy(batch, published, past.last, options, token(batch, past)):
            check_copied(batch, published, past.last, past.table, options, as_new=as_new(past, token(batch, past)))
            return Decision(Verdict.SKIP, why)
    name, earlier = _under_another_name(batch, past, options)
    if earlier:
        if batch.batch_id == earlier.checkpoint_id:
            word = as_new(past, token(batch, past))
            check_copied(batch, earlier, earlier, past.table, options, as_new=word, name=name)
            return Decision(Verdict.SKIP, "published under an earlier name, same source positions")
        past, changed = replace(past, last=renamed.past_of(past.last, earlier)), ()
    numeric = all_numeric(batch.sources) and bool(recorded_in(past))
    past, seen = _settled(batch, past, options, changed)
    # When the recorded topic itself has lost messages, the user has said by now what is to become of them.
    lowered = any(not change.other_topic for change in changed)
    said = past.is_lowered or past.says_offsets
    short = None if lowered else position_errors.beyond(past.table, batch, options, recorded_in(past), said=said)
    if short:
        raise short
    last, generation = past.last, _generation(batch, past.last)
    if last is None:
        # Asked also of a batch that is accepted as seen.
        first = _admit_first(batch, past, options)
        return _accepted_as_seen(batch, past, generation) if seen else first
    if seen:
        return _accepted_as_seen(batch, past, generation)
    if earlier:
        why, recorded = "follows what is published under an earlier name", recorded_after(batch, past)
        return Decision(Verdict.NEW, why, generation, recorded, leads_on=(name, earlier.sequence))
    by_user = accepted(batch, past, options, generation)
    if by_user:
        return by_user
    check_state(batch, last, past.table, as_new(past, token(batch, past)))
    if numeric:
        return admit_by_position(batch, past, last, options, generation)
    if changed:  # the user has answered, and the query may go on in the middle of the new topic
        check_gap(batch, past, last, options, relate(last.recorded, batch.sources))
    return admit_opaque(batch, past, last, options, generation)


def _accepted_as_seen(batch: Batch, past: Past, generation: int) -> Decision:
    """The decision for a batch of which the user has said, about a changed topic, that its rows are not written."""
    return Decision(Verdict.SEEN, "accepted as seen", generation, recorded_after(batch, past))


def _generation(batch: Batch, last: AppState | None) -> int:
    """The generation of ``Writer.commit_user``: it grows when the batch ids of the checkpoint go back."""
    if last is None or batch.query != last.query:
        return 0
    return last.generation + (1 if batch.batch_id <= last.checkpoint_id else 0)


def _admit_first(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    """Admit the first batch that the table sees of this application. Raises Misuse unless it is known to be that."""
    if token(batch, past) in words_of(options.accept_as_new):
        return Decision(Verdict.NEW, "accepted as new", 0, recorded_after(batch, past))
    if not options.adopt_from_batch and (form := renamed.of_the_other_form(options.application, past.others())):
        raise renamed_errors.other_form(batch, *form, table=past.table, word=token(batch, past))
    if anew := renamed_errors.begins_anew(
        batch, past.others, past.behind, table=past.table, options=options, word=token(batch, past)
    ):
        raise anew
    if batch.batch_id == 0 or options.adopt_from_batch == batch.batch_id:
        return Decision(Verdict.NEW, "first batch of this application", 0, recorded_after(batch, past))
    raise Misuse(
        f"{past.table}: the first batch that this table sees from application '{options.application}' is "
        f"{batch.batch_id}, expected 0: the table was dropped, recreated or emptied under this query's checkpoint, or "
        f"the query wrote elsewhere before. Nothing was written. {ways.CALLED_FOR_EVERY_BATCH}. If that was all, or if "
        f"the query moves to streamsink with a checkpoint of its own past, set adopt_from_batch={batch.batch_id}, "
        "which writes this batch, so take out rows of it that are here; if rows are missing, start a new checkpoint "
        "behind those that are here",
        kind="gap.first-batch",
    )


def _under_another_name(batch: Batch, past: Past, options: SinkOptions) -> tuple[str, AppState | None]:
    """The name that the query had before, with its last record there; ('', None) when it had no other name.

    Raises Misuse when the user has not said that the query has another name now: what is published under the name
    before would be written a second time.
    """
    word = token(batch, past)
    found = (
        renamed.ahead(batch, past.last, past.others(), options.application)
        if past.begins and word not in words_of(options.accept_as_new)
        else []
    )
    if not found:
        return "", None
    last = renamed.as_said(found[0][1], options)
    if options.adopt_from_batch == last.state.checkpoint_id + 1 and renamed.may_lead_on(batch, last):
        return found[0][0], last.state
    raise renamed_errors.refused(batch, found, table=past.table, options=options, word=as_new(past, word))


def _replay_of(batch: Batch, last: AppState, past: Past) -> tuple[AppState | None, str]:
    """The published state that this batch repeats, and how it was found; (None, '') for a batch that is no replay.

    A replay has the same checkpoint, the same batch id and the same source positions, and was planned at the same time
    where positions do not say enough. last: of ``past``.
    """
    if batch.query == last.query and batch.batch_id <= last.checkpoint_id:
        is_last = batch.batch_id == last.checkpoint_id
        known = last if is_last else past.earlier(batch.query, batch.batch_id)
        if (
            known
            and same_ranges(known.sources, batch.sources)
            and known.generation == last.generation
            and not opaque_errors.planned_apart(known.planned_ms, batch.planned_ms, batch.sources)
        ):
            return known, f"{'the last' if is_last else 'an earlier'} published batch, same source positions"
    return None, ""


def _settled(batch: Batch, past: Past, options: SinkOptions, changed: tuple[Change, ...]) -> tuple[Past, bool]:
    """(the past without recorded positions that no longer hold, whether the batch is accepted as seen).

    Raises Misuse when a topic of the batch is not the recorded one, or has lost messages, and no token accepts that.
    """
    recorded = recorded_in(past)
    answer = answer_in(options.accept_as_new, past.table_id, past.last, _topics(batch))
    if not changed:
        return _with_recorded(past, answered(recorded, batch, answer)), False
    asked = Answer.about(changed)
    word = asked.word(past.table_id, past.last)
    if answer is not None and asked.topics <= answer.topics or token(batch, past) in words_of(options.accept_as_new):
        return _with_recorded(past, answered(reset(recorded, changed), batch, answer)), False
    dropped = tuple(change for change in changed if change.other_topic)
    # The token of the batch answers only while the topics are the recorded ones: it may have been said of the topic
    # that was there before.
    as_seen = words_of(options.accept_as_seen)
    if word in as_seen or not dropped and token(batch, past) in as_seen:
        others = answer.without(asked.topics) if answer else None
        return _with_recorded(past, answered(reset(recorded, dropped), batch, others)), True
    raise position_errors.changed(
        past.table,
        batch,
        changed,
        options,
        recorded=recorded,
        word=word,
        as_new=as_new(past, word),
        is_other=is_other(batch, past),
        said=past.says_offsets,
    )


def recreated_meanwhile(batch: Batch, now: Batch, past: Past, options: SinkOptions) -> Misuse | None:
    """The error for topics that became others while their batch was written; None when no topic did.

    now: the same batch, described again. Called when ``admit`` says nothing against ``now``, which is so when no id of
    these topics is recorded.
    """
    topics = tuple(dict.fromkeys(position_errors.changed_meanwhile(batch, now)))
    if not topics:
        return None
    recorded = recorded_in(past)
    word = None
    known = frozenset(topic for topic in topics if recorded.of_topic(topic))
    if known:
        past = replace(past, answers=words_in(options.accept_as_new, past.table_id, past.last, _topics(now)))
        word = as_new(past, Answer(known).word(past.table_id, past.last))
    said = past.says_offsets
    batches = (batch, now)
    return position_errors.recreated_meanwhile(
        past.table, batches, topics, options, recorded=recorded, word=word, said=said
    )


def _topics(batch: Batch) -> tuple[str, ...]:
    return tuple({topic: None for _, source in numeric_ones(batch.sources) for topic in source.end})


def _with_recorded(past: Past, recorded: Recorded) -> Past:
    if past.last is None:
        return past
    before = past.last.recorded
    is_lowered = recorded is not before and any(record not in before.topics for record in recorded.topics)
    return replace(past, last=replace(past.last, recorded=recorded), is_lowered=is_lowered)
