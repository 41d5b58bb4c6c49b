"""Admission of a batch that is no known replay, by what its sources tell: positions that compare, or files. Pure.

In each function ``last`` is the last published state of ``past``.
"""

from collections.abc import Callable
from typing import Any

from streamsink.errors import Misuse
from streamsink.options import MODE_OVERWRITE, SinkOptions
from streamsink.protocol.admission import files, opaque_errors, position_errors
from streamsink.protocol.admission.continuity import Relation, relate
from streamsink.protocol.admission.known_past import Past, check_same_query, is_other, recorded_after, token, ways_on
from streamsink.protocol.admission.query_rules import left_out
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.decision import Decision, Verdict
from streamsink.protocol.positions import follows, numeric_ones


def admit_by_position(batch: Batch, past: Past, last: AppState, options: SinkOptions, generation: int) -> Decision:
    """Decide about a batch all of whose sources have positions that compare with the recorded ones.

    Raises Misuse for a gap, and for an overlap whose new rows cannot be told from the published ones.
    """
    relation = relate(last.recorded, batch.sources)
    check_gap(batch, past, last, options, relation)

    def refused(error: Callable[..., Misuse], **more: Any) -> Misuse:
        return error(past.table, batch, relation, _begin(batch, past, last, options), ways_on(batch, past), **more)

    recorded = recorded_after(batch, past)
    if not relation.overlap:
        return Decision(Verdict.NEW, "continues the recorded positions", generation, recorded)
    # Asked before the errors below, because the ways on that they name leave out what is recorded.
    of_rows = check_same_query(batch, past, last, options, generation)
    # A batch without new messages is filtered as a whole, however its rows were made.
    if batch.combines and (relation.mixed or not options.position_columns):
        raise refused(position_errors.combined)
    if not options.position_columns:
        # An overwrite takes no position columns, nor does a query whose rows come out of state.
        may_filter = options.mode != MODE_OVERWRITE and not batch.stateful
        raise refused(
            position_errors.overlap, same=token(batch, past) if is_other(batch, past) else None, may_filter=may_filter
        )
    if relation.ambiguous:
        raise refused(position_errors.ambiguous)
    if of_rows and relation.mixed:
        raise refused(position_errors.may_combine, same=of_rows)
    return Decision(Verdict.FILTER, "overlaps the recorded positions", generation, recorded, relation.below)


def check_gap(batch: Batch, past: Past, last: AppState, options: SinkOptions, relation: Relation) -> None:
    """Raises Misuse when messages between the recorded positions and the batch would be missing in the table."""
    if relation.gap or relation.unread:
        begin, by_another = _begin(batch, past, last, options), left_out(batch, last)
        raise position_errors.gap(past.table, batch, relation, begin, ways_on(batch, past), left_out=by_another)


def _begin(batch: Batch, past: Past, last: AppState, options: SinkOptions) -> str:
    """The ``startingOffsets`` of a new checkpoint that reads only what is not recorded."""
    # The call would read what the table records.
    said = past.is_lowered or past.says_offsets
    return position_errors.starting_offsets(past.table, batch, options, last.recorded, said=said)


def admit_opaque(batch: Batch, past: Past, last: AppState, options: SinkOptions, generation: int) -> Decision:
    """Decide about a batch with a source whose positions mean something only inside of their own checkpoint.

    It is the next batch of that checkpoint, or its files tell which rows are published. Else raises Misuse.
    """
    is_next = _follows(batch, last)
    if is_next and past.begins and (others := opaque_errors.of_another_past(last, batch)):
        raise opaque_errors.other_past(
            batch, others, ways_on(batch, past), table=past.table, by_files=_can_ask_files(batch, past)
        )
    if is_next and not last.replaying:
        return Decision(Verdict.NEW, "the next batch", generation, recorded_after(batch, past))
    if is_next or not _is_gap(batch, past, last):
        decision = _admit_by_files(batch, past, last, options, generation)
        if decision:
            return decision
    begin = _begin(batch, past, last, options) if any(numeric_ones(batch.sources)) and last.recorded else None
    by_files = _can_ask_files(batch, past)
    raise opaque_errors.not_told(
        batch, last, options, ways_on(batch, past), table=past.table, is_next=is_next, begin=begin, by_files=by_files
    )


def _can_ask_files(batch: Batch, past: Past) -> bool:
    """Whether the batch's files can be compared with all files that are recorded."""
    return files.can_tell(batch) and past.known_files() is not None


def _follows(batch: Batch, before: AppState | None) -> bool:
    """Whether the batch comes next after this one of the same checkpoint, and starts where that one ended."""
    return (
        before is not None
        and (before.query, before.checkpoint_id + 1) == (batch.query, batch.batch_id)
        and follows(before.sources, batch.sources)
    )


def _is_gap(batch: Batch, past: Past, last: AppState) -> bool:
    """Whether batches of this checkpoint are missing here.

    Their files are in no record, and may be in no later batch.
    """
    goes_back = batch.query == last.query and batch.batch_id <= last.checkpoint_id
    return batch.batch_id != 0 and not goes_back and not _follows(batch, past.earlier(batch.query, batch.batch_id - 1))


def _admit_by_files(batch: Batch, past: Past, last: AppState, options: SinkOptions, generation: int) -> Decision | None:
    """Decide by the batch's files. None when its sources do not tell them, or the journal does not know all of its own.

    Raises Misuse when the files do not decide either.
    """
    known = past.known_files() if files.can_tell(batch) else None
    if known is None:
        return None
    word = token(batch, past)
    # Asked at the first batch of a checkpoint whatever files it has: later ones may be filtered or taken as seen.
    of_rows = check_same_query(batch, past, last, options, generation)
    parts = files.sort_out(batch.sources, known).answered(options, word)
    files.check(batch, parts, options, table=past.table, word=word, other=is_other(batch, past), same=of_rows)
    if not parts.seen:
        verdict, reason = Verdict.NEW, "none of its files is recorded"
    elif not parts.new:
        verdict, reason = Verdict.SEEN, "all of its files are recorded"
    else:
        verdict, reason = Verdict.FILTER, "some of its files are recorded"
    return Decision(
        verdict,
        reason,
        generation,
        recorded_after(batch, past),
        seen_files=parts.seen if parts.new else frozenset(),
        replaying=True,
        same=word if is_other(batch, past) else None,
    )
