"""Admission of a bounded run: is it new, or the repetition of a run that is published? A pure decision."""

from dataclasses import replace

from streamsink.options import SinkOptions, words_of
from streamsink.protocol import run_inputs, ways
from streamsink.protocol.admission import run_errors
from streamsink.protocol.admission.known_past import Past, accepted, recorded_in, ways_on
from streamsink.protocol.committable import Batch, KnownRun
from streamsink.protocol.decision import Decision, Verdict
from streamsink.protocol.ids import END_OF_INPUT


def admit_run(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    """Decide about a run of a bounded job, which has one checkpoint. Its run id (``batch.query``) is its identity.

    Raises Misuse when other rows come under the id of a published run, when the application belongs to a query, or when
    nobody can tell whether the run is published; the message says which options go on.
    """
    last = past.last
    if last is not None and (last.checkpoint_id, last.query) == (END_OF_INPUT, batch.query):
        known = KnownRun.of(last)
    else:
        known = past.known_run(batch.query)
    if known.is_published:
        return _admit_repeated(batch, known, past, options)
    by_user = accepted(batch, past, options, 0)
    if by_user:
        # The number of rows tells later calls of this run from those of another one.
        return replace(by_user, counts_rows=by_user.verdict is Verdict.SEEN and _can_be_counted(batch))
    if last is not None and last.checkpoint_id != END_OF_INPUT:
        raise run_errors.of_a_query(batch, last, past.table, options)
    never_repeated = _never_repeated(past)
    if known.is_published is None and never_repeated not in words_of(options.accept_as_new):
        raise run_errors.undecidable(batch, past.table, options, ways_on(batch, past), never_repeated)
    return Decision(Verdict.NEW, "a bounded job", 0, recorded_in(past))


def _admit_repeated(batch: Batch, known: KnownRun, past: Past, options: SinkOptions) -> Decision:
    """Skip the run when it is the published one, as far as anybody can tell. A run without rows has none to lose."""
    skipped = Decision(Verdict.SKIP, "this run is published already")
    if known.rows is not None and _can_be_counted(batch):
        return replace(skipped, counts_rows=True)
    if batch.rows == 0:
        return skipped
    differs = run_errors.differences(known, batch)
    if not differs and run_inputs.are_others(known, batch):
        if batch.compared is None:
            return replace(skipped, compares_rows=True)
        differs = run_errors.differences_of_files(known, batch, batch.compared)
    word = run_errors.word_of(batch, past.table_id)
    if differs and word not in words_of(options.accept_as_seen):
        raise run_errors.other(batch, differs, past.table, options, word)
    return skipped


def _can_be_counted(batch: Batch) -> bool:
    return batch.has_one_count and batch.rows is None


def _never_repeated(past: Past) -> str:
    """The word that says that no run which this journal does not know is a repetition. Each journal has its own."""
    return ways.word(f"{past.table_id}|{past.journal_id}|never repeated")
