"""Admission of a micro-batch: is it new, a replay, an overlap, or a gap? A pure decision, taken before any byte is written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from streamsink.errors import Misuse
from streamsink.options import MODE_OVERWRITE, SinkOptions, words_of
from streamsink.protocol import run_inputs, ways
from streamsink.protocol.admission import files, opaque_errors, position_errors, renamed, run_errors
from streamsink.protocol.admission.continuity import Change, Relation, changes, relate, reset
from streamsink.protocol.admission.query_rules import (
    check_copied,
    check_query,
    check_same,
    check_state,
    is_new_behind_a_copy,
    left_out,
    recorded_as_new,
    with_word_of_rows,
    word_of_rows,
)
from streamsink.protocol.admission.resets import Answer, answer_in, answered, answered_late
from streamsink.protocol.committable import AppState, Batch, KnownRun, LastOfOther
from streamsink.protocol.decision import Decision, Verdict
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import all_numeric, follows, numeric_ones, same_ranges
from streamsink.protocol.recorded import Recorded


@dataclass(frozen=True)
class Past:
    """What is known of the application.

    earlier(query, checkpoint id): that checkpoint of the same query in the journal, or None.
    others(): the last record of each other application that has written here. begins: nothing of this run is recorded yet.
    known_run(run id): what is known of a bounded job's run.
    known_files(): the files that the records were made of; None when the journal does not know them all.
    journal_id: of the journal that is asked. behind: as of ``JournalIdentity``.
    """

    table: str
    table_id: str
    last: AppState | None
    earlier: Callable[[str, int], AppState | None]
    known_run: Callable[[str], KnownRun]
    others: Callable[[], Mapping[str, LastOfOther]] = dict
    known_files: Callable[[], files.KnownFiles | None] = lambda: None
    journal_id: str = ""
    behind: tuple[str, int] | tuple[()] = ()
    begins: bool = True


def admit(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    """Decide. Raises Misuse that says what happened, what was found and expected, and which two options go on."""
    if batch.batch_id == END_OF_INPUT:
        return _admit_job(batch, past, options)
    check_query(batch, past.table, options)
    changed = changes(_recorded_in(past), batch.sources)
    if not any(change.other_topic for change in changed):
        published, why = _replay_of(batch, past)
        if published is not None and not is_new_behind_a_copy(batch, published, past.last, options, token(batch, past)):
            check_copied(batch, published, past.last, past.table, options, as_new=token(batch, past))
            return Decision(Verdict.SKIP, why)
    name, earlier = _under_another_name(batch, past, options)
    if earlier:
        if batch.batch_id == earlier.checkpoint_id:
            check_copied(batch, earlier, earlier, past.table, options, as_new=token(batch, past), name=name)
            return Decision(Verdict.SKIP, "published under an earlier name, same source positions")
        past, changed = replace(past, last=renamed.past_of(past.last, earlier)), ()
    numeric = all_numeric(batch.sources) and bool(_recorded_in(past))
    past, seen = _settled(batch, past, options, changed)
    lowered = any(not change.other_topic for change in changed)  # then the user has said what is to become of them
    short = None if lowered else position_errors.beyond(past.table, batch, options, _recorded_in(past))
    if short:
        raise short
    generation = _generation(batch, past.last)
    decision = _admit_first(batch, past, options) if past.last is None else None
    if seen:
        return Decision(Verdict.SEEN, "accepted as seen", generation, _recorded(batch, past))
    if earlier:
        return Decision(
            Verdict.NEW,
            "follows what is published under an earlier name",
            generation,
            _recorded(batch, past),
            leads_on=(name, earlier.sequence),
        )
    if decision is not None:
        return decision
    accepted = _accepted(batch, past, options, generation)
    if accepted:
        return accepted
    check_state(batch, past.last, past.table, token(batch, past))
    if numeric:
        return _admit_numeric(batch, past, options, generation)
    if changed:  # the user has answered, and the query may go on in the middle of the new topic
        _check_gap(batch, past, options, relate(_recorded_in(past), batch.sources))
    return _admit_opaque(batch, past, options, generation)


def token(batch: Batch, past: Past) -> str:
    """The word that an option must repeat to accept exactly this accident and no later one."""
    last = past.last.record_id if past.last else ""
    text = "|".join((past.table_id, batch.query, str(batch.batch_id), last))
    return ways.word(text)


def _generation(batch: Batch, last: AppState | None) -> int:
    if last is None or batch.query != last.query:
        return 0
    return last.generation + (1 if batch.batch_id <= last.checkpoint_id else 0)


def _recorded_in(past: Past) -> Recorded:
    return past.last.recorded if past.last else Recorded()


def _recorded(batch: Batch, past: Past) -> Recorded:
    """Positions once the batch is published."""
    return _recorded_in(past).advanced(batch.sources)


def _admit_job(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    """A bounded job: its run id is its identity, and it has one checkpoint."""
    last = past.last
    is_last = last is not None and (last.checkpoint_id, last.query) == (END_OF_INPUT, batch.query)
    known = KnownRun.of(last) if is_last else past.known_run(batch.query)
    if known.is_published:
        return _admit_repeated(batch, known, past, options)
    accepted = _accepted(batch, past, options, 0)
    if accepted:
        # What was counted tells later calls of this run from those of another one.
        return replace(accepted, counts_rows=accepted.verdict is Verdict.SEEN and _can_be_counted(batch))
    if last is not None and last.checkpoint_id != END_OF_INPUT:
        raise run_errors.of_a_query(batch, last, past.table, options)
    never_repeated = _never_repeated(past)
    if known.is_published is None and never_repeated not in words_of(options.accept_as_new):
        raise run_errors.undecidable(batch, past.table, options, _ways_on(batch, past), never_repeated)
    return Decision(Verdict.NEW, "a bounded job", 0, _recorded_in(past))


def _admit_repeated(batch: Batch, known: KnownRun, past: Past, options: SinkOptions) -> Decision:
    """Skipped when it is the run that was published, as far as anybody can tell. One without rows has none to lose."""
    skipped = Decision(Verdict.SKIP, "this run is published already")
    if known.rows is not None and _can_be_counted(batch):
        return replace(skipped, counts_rows=True)
    if batch.rows == 0:
        return skipped
    differs = run_errors.differences(known, batch)
    if not differs and run_inputs.are_others(known, batch):
        if batch.compared is None:
            return replace(skipped, compares_rows=True)
        differs = run_errors.differences_of_files(known, batch)
    word = run_errors.word_of(batch, past.table_id)
    if differs and word not in words_of(options.accept_as_seen):
        raise run_errors.other(batch, differs, past.table, options, word)
    return skipped


def _can_be_counted(batch: Batch) -> bool:
    return batch.has_one_count and batch.rows is None


def _never_repeated(past: Past) -> str:
    """The word that says so of all runs that this journal does not know, and of no other journal's."""
    return ways.word(f"{past.table_id}|{past.journal_id}|never repeated")


def _admit_first(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    if options.accept_as_new == token(batch, past):
        return Decision(Verdict.NEW, "accepted as new", 0, _recorded(batch, past))
    if not options.adopt_from_batch and (form := renamed.of_the_other_form(options.application, past.others())):
        raise renamed.other_form(batch, *form, table=past.table, word=token(batch, past))
    if anew := renamed.begins_anew(
        batch, past.others, past.behind, table=past.table, options=options, word=token(batch, past)
    ):
        raise anew
    if batch.batch_id == 0 or options.adopt_from_batch == batch.batch_id:
        return Decision(Verdict.NEW, "first batch of this application", 0, _recorded(batch, past))
    raise Misuse(
        f"{past.table}: the first batch that this table sees from application '{options.application}' is "
        f"{batch.batch_id}, expected 0: the table was dropped, recreated or emptied under this query's checkpoint, or "
        f"the query wrote elsewhere before. Nothing was written. {ways.CALLED_FOR_EVERY_BATCH}. If that was all, or "
        f"if the query moves to streamsink with a checkpoint of its own past, set adopt_from_batch={batch.batch_id}; "
        "if rows are missing here, start a new checkpoint",
        kind="gap.first-batch",
    )


def _under_another_name(batch: Batch, past: Past, options: SinkOptions) -> tuple[str, AppState | None]:
    """The name that the query had before, and its last record under it, where its user has said that it has another one now.

    Raises Misuse when nobody has said so: what is there under that name would be written a second time.
    """
    word = token(batch, past)
    found = (
        renamed.ahead(batch, past.last, past.others(), options.application)
        if past.begins and options.accept_as_new != word
        else []
    )
    if not found:
        return "", None
    last = renamed.as_said(found[0][1], options)
    if options.adopt_from_batch == last.state.checkpoint_id + 1 and renamed.may_lead_on(batch, last):
        return found[0][0], last.state
    raise renamed.refused(batch, found, table=past.table, options=options, word=word)


def _replay_of(batch: Batch, past: Past) -> tuple[AppState | None, str]:
    """What published a batch of the same checkpoint that is repeated, with the same id and the same source positions, and why it is that one."""
    last = past.last
    if last is not None and batch.query == last.query and batch.batch_id <= last.checkpoint_id:
        is_last = batch.batch_id == last.checkpoint_id
        known = last if is_last else past.earlier(batch.query, batch.batch_id)
        if known and same_ranges(known.sources, batch.sources) and known.generation == last.generation:
            return known, f"{'the last' if is_last else 'an earlier'} published batch, same source positions"
    return None, ""


def _accepted(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision | None:
    word = token(batch, past)
    if options.accept_as_new == word:
        recorded = recorded_as_new(batch, past.last, _recorded(batch, past), options)
        anew, replaying = files.accepted_as_new(batch, past.last, past.known_files)
        replaying = replaying and not is_new_behind_a_copy(batch, past.last, past.last, options, word)
        return Decision(Verdict.NEW, "accepted as new", generation, recorded, replaying=replaying, forgets_files=anew)
    if options.accept_as_seen == word:
        # What follows may belong to the same accident.
        replaying = batch.batch_id != END_OF_INPUT and not all_numeric(batch.sources)
        return Decision(Verdict.SEEN, "accepted as seen", generation, _recorded(batch, past), replaying=replaying)
    return None


def _settled(batch: Batch, past: Past, options: SinkOptions, changed: tuple[Change, ...]) -> tuple[Past, bool]:
    """(the past without what does not hold any more, whether the batch is accepted as seen).

    Raises Misuse when a topic of the batch is not the one that is recorded, or has lost messages, and no token accepts it.
    """
    recorded = _recorded_in(past)
    answer = answer_in(options.accept_as_new, past.table_id, past.last, _topics(batch))
    if not changed:
        return _with_recorded(past, answered_late(recorded, batch, answer) if answer else recorded), False
    asked = Answer.about(changed)
    word = asked.word(past.table_id, past.last)
    if answer is not None and asked.topics <= answer.topics or options.accept_as_new == token(batch, past):
        return _with_recorded(past, answered(recorded, changed, answer or asked)), False
    dropped = tuple(change for change in changed if change.other_topic)
    if (
        options.accept_as_seen == word or not dropped and options.accept_as_seen == token(batch, past)
    ):  # which was said of the topic before
        return _with_recorded(past, reset(recorded, dropped)), True
    raise position_errors.changed(
        past.table, batch, changed, options, recorded=recorded, word=word, is_other=_is_other(batch, past)
    )


def recreated_meanwhile(batch: Batch, now: Batch, past: Past, options: SinkOptions) -> Misuse | None:
    """An error for a topic that became another one while its batch was written. now: the same batch, described again.

    Called when ``admit`` says nothing against ``now``: no id of the topic is recorded.
    """
    topic = next(iter(position_errors.changed_meanwhile(batch, now)), None)
    if topic is None:
        return None
    recorded = _recorded_in(past)
    word = Answer(frozenset((topic,))).word(past.table_id, past.last) if recorded.of_topic(topic) else None
    return position_errors.recreated_meanwhile(past.table, (batch, now), topic, options, recorded=recorded, word=word)


def _topics(batch: Batch) -> tuple[str, ...]:
    return tuple({topic: None for _, source in numeric_ones(batch.sources) for topic in source.end})


def _with_recorded(past: Past, recorded: Recorded) -> Past:
    return past if past.last is None else replace(past, last=replace(past.last, recorded=recorded))


def _admit_numeric(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision:
    relation = relate(_recorded_in(past), batch.sources)
    _check_gap(batch, past, options, relation)

    def refused(error: Callable[..., Misuse], **more) -> Misuse:
        return error(past.table, batch, relation, _begin(batch, past, options), _ways_on(batch, past), **more)

    recorded = _recorded(batch, past)
    if not relation.overlap:
        return Decision(Verdict.NEW, "continues the recorded positions", generation, recorded)
    of_rows = _check_same(batch, past, options, generation)  # before ways on that leave out what is recorded
    if batch.combines and (relation.mixed or not options.position_columns):  # else nothing of the batch is left
        raise refused(position_errors.combined)
    if not options.position_columns:
        may_filter = options.mode != MODE_OVERWRITE  # which takes no position columns
        raise refused(
            position_errors.overlap, same=token(batch, past) if _is_other(batch, past) else None, may_filter=may_filter
        )
    if relation.ambiguous:
        raise refused(position_errors.ambiguous)
    if of_rows and relation.mixed:
        raise refused(position_errors.may_combine, same=of_rows)
    return Decision(Verdict.FILTER, "overlaps the recorded positions", generation, recorded, relation.below)


def _check_same(batch: Batch, past: Past, options: SinkOptions, generation: int) -> str | None:
    """Raises Misuse when what is recorded may be another query's. What ``accept_as_same`` must be for a filter, where its rows are asked for."""
    last, word = past.last, token(batch, past)
    of_rows = word_of_rows(batch, last, options, generation)
    check_copied(batch, last, last, past.table, options, as_new=word)
    check_same(batch, last, past.table, options, word, of_rows=of_rows)
    return with_word_of_rows(batch, last, options, (word, of_rows)) if of_rows else None


def _check_gap(batch: Batch, past: Past, options: SinkOptions, relation: Relation) -> None:
    if relation.gap or relation.unread:
        begin, ways_on, by_another = _begin(batch, past, options), _ways_on(batch, past), left_out(batch, past.last)
        raise position_errors.gap(past.table, batch, relation, begin, ways_on, left_out=by_another)


def _begin(batch: Batch, past: Past, options: SinkOptions) -> str:
    return position_errors.starting_offsets(past.table, batch, options, _recorded_in(past))


def _admit_opaque(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision:
    last = past.last
    is_next = _follows(batch, last)
    if is_next and past.begins and (others := opaque_errors.of_another_past(last, batch)):
        by_files = files.can_tell(batch) and past.known_files() is not None
        raise opaque_errors.other_past(batch, others, _ways_on(batch, past), table=past.table, by_files=by_files)
    if is_next and not last.replaying:
        return Decision(Verdict.NEW, "the next batch", generation, _recorded(batch, past))
    if is_next or not _is_gap(batch, past):
        decision = _admit_by_files(batch, past, options, generation)
        if decision:
            return decision
    begin = _begin(batch, past, options) if any(numeric_ones(batch.sources)) and last.recorded else None
    by_files = files.can_tell(batch) and past.known_files() is not None
    raise opaque_errors.not_told(
        batch, last, options, _ways_on(batch, past), table=past.table, is_next=is_next, begin=begin, by_files=by_files
    )


def _follows(batch: Batch, before: AppState | None) -> bool:
    return (
        before is not None
        and (before.query, before.checkpoint_id + 1) == (batch.query, batch.batch_id)
        and follows(before.sources, batch.sources)
    )


def _is_gap(batch: Batch, past: Past) -> bool:
    """Whether batches of this checkpoint are missing here: their files are in no record, and may be in no later batch."""
    goes_back = batch.query == past.last.query and batch.batch_id <= past.last.checkpoint_id
    return batch.batch_id != 0 and not goes_back and not _follows(batch, past.earlier(batch.query, batch.batch_id - 1))


def _admit_by_files(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision | None:
    """None when the sources do not tell the batch's files, or the journal does not know all that were recorded."""
    known = past.known_files() if files.can_tell(batch) else None
    if known is None:
        return None
    word = token(batch, past)
    # Asked at the first batch of a checkpoint, whatever is in it: later ones may be filtered or taken as seen.
    of_rows = _check_same(batch, past, options, generation)
    parts = files.sort_out(batch.sources, known).answered(options, word)
    files.check(batch, parts, options, table=past.table, word=word, other=_is_other(batch, past), same=of_rows)
    if not parts.seen:
        verdict, reason = Verdict.NEW, "none of its files is recorded"
    elif not parts.new:
        verdict, reason = Verdict.SEEN, "all of its files are recorded"
    else:
        verdict, reason = Verdict.FILTER, "some of its files are recorded"
    recorded = _recorded(batch, past)
    seen = parts.seen if parts.new else frozenset()
    return Decision(
        verdict,
        reason,
        generation,
        recorded,
        seen_files=seen,
        replaying=True,
        same=word if _is_other(batch, past) else None,
    )


def _is_other(batch: Batch, past: Past) -> bool:
    """Whether the batch is of another checkpoint than the last one."""
    return past.last is not None and batch.query != past.last.query


def _ways_on(batch: Batch, past: Past) -> str:
    """accept_as_new covers what follows where ``_accepted`` leaves nothing by which it could be asked for."""
    word, goes_back = token(batch, past), past.last is not None and batch.batch_id <= past.last.checkpoint_id
    replay = not all_numeric(batch.sources) and past.last is not None and (past.last.replaying or goes_back)
    opaque = (
        ""
        if all_numeric(batch.sources) or batch.batch_id == END_OF_INPUT
        else ", and the batch after it is asked for as well"
    )
    after = (
        ", and all of the batches after it"
        if batch.batch_id != END_OF_INPUT and (_is_other(batch, past) or replay)
        else ""
    )
    return (
        f" choose for this one batch: accept_as_new='{word}' writes all its rows{after}; accept_as_seen='{word}' "
        f"records it without writing any{opaque}."
    )
