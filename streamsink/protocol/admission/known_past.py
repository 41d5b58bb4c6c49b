"""What is known of an application when a batch comes, and what its user has said of exactly this batch. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.admission import files, query_rules
from streamsink.protocol.committable import AppState, Batch, KnownRun, LastOfOther
from streamsink.protocol.decision import Decision, Verdict
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import all_numeric
from streamsink.protocol.recorded import Recorded
from streamsink.protocol.recorded_files import KnownFiles


@dataclass(frozen=True)
class Past:
    """What the table and the journal know of one application. The functions are called only when they are needed.

    table, table_id: path and identity of the table. last: its last published state of this application, or None.
    earlier(query, checkpoint id): the state of that checkpoint of the same query in the journal, or None.
    known_run(run id): what is known of that run of a bounded job.
    others(): the last record of each other application that has written here, by name.
    known_files(): the files that the records were made of; None when the journal does not know them all.
    journal_id: identity of the journal that was asked. behind: as in ``JournalIdentity``.
    begins: this start of the query has recorded nothing yet.
    answers: words of ``accept_as_new`` that say which recorded positions hold; they are to stay in it until a batch is
    recorded. is_lowered: by such an answer ``last`` records less of a topic than the table.
    says_offsets: errors say where to begin, because ``streamsink.starting_offsets`` is not given the path. application:
    its name.
    """

    table: str
    table_id: str
    last: AppState | None
    earlier: Callable[[str, int], AppState | None]
    known_run: Callable[[str], KnownRun]
    others: Callable[[], Mapping[str, LastOfOther]] = dict
    known_files: Callable[[], KnownFiles | None] = lambda: None
    journal_id: str = ""
    behind: tuple[str, int] | tuple[()] = ()
    begins: bool = True
    answers: tuple[str, ...] = ()
    is_lowered: bool = False
    says_offsets: bool = False
    application: str = ""


def recorded_in(past: Past) -> Recorded:
    """The positions up to which everything is published; empty for an application without a state."""
    return past.last.recorded if past.last else Recorded()


def recorded_after(batch: Batch, past: Past) -> Recorded:
    """The positions up to which everything is published once the batch is."""
    return recorded_in(past).advanced(batch.sources)


def is_other(batch: Batch, past: Past) -> bool:
    """Whether the batch comes from another checkpoint than the last published one."""
    return past.last is not None and batch.query != past.last.query


def token(batch: Batch, past: Past) -> str:
    """The word that an option must repeat to accept exactly this accident, and no later one and none of another sink.

    A record is of one application. Without one its name tells the sinks apart that a batch function calls.
    """
    last = past.last.record_id if past.last else f"nothing of {past.application}"
    text = "|".join((past.table_id, batch.query, str(batch.batch_id), last))
    return ways.word(text)


def as_new(past: Past, word: str) -> str:
    """What ``accept_as_new`` must be to answer with this word, and to go on answering what it answers already.

    Without the answers the record would hold again, and where a topic has grown past it nobody would ask.
    """
    return " ".join((*past.answers, word))


def accepted(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision | None:
    """The decision that the user has taken for this batch with its token; None when no option has the token."""
    word, last = token(batch, past), past.last
    if word in words_of(options.accept_as_new):
        recorded = query_rules.recorded_as_new(batch, last, recorded_after(batch, past), options)
        anew, replaying = files.accepted_as_new(batch, last, past.known_files)
        if last is not None:
            replaying = replaying and not query_rules.is_new_behind_a_copy(batch, last, last, options, word)
        return Decision(Verdict.NEW, "accepted as new", generation, recorded, replaying=replaying, forgets_files=anew)
    if word in words_of(options.accept_as_seen):
        # The batches after this one may belong to the same accident.
        replaying = batch.batch_id != END_OF_INPUT and not all_numeric(batch.sources)
        recorded = recorded_after(batch, past)
        return Decision(Verdict.SEEN, "accepted as seen", generation, recorded, replaying=replaying)
    return None


def ways_on(batch: Batch, past: Past) -> str:
    """The end of an error message: which options accept this one batch, and what each of them does with later batches.

    It promises that ``accept_as_new`` covers the later batches too wherever ``accepted`` leaves nothing recorded by
    which they could be asked for.
    """
    word, goes_back = token(batch, past), past.last is not None and batch.batch_id <= past.last.checkpoint_id
    replay = not all_numeric(batch.sources) and past.last is not None and (past.last.replaying or goes_back)
    opaque = (
        ""
        if all_numeric(batch.sources) or batch.batch_id == END_OF_INPUT
        else ", and the batch after it is asked for as well"
    )
    after = (
        ", and all of the batches after it"
        if batch.batch_id != END_OF_INPUT and (is_other(batch, past) or replay)
        else ""
    )
    return (
        f" choose for this one batch: accept_as_new='{as_new(past, word)}' writes all its rows{after}; "
        f"accept_as_seen='{word}' records it without writing any{opaque}."
    )


def check_same_query(batch: Batch, past: Past, last: AppState, options: SinkOptions, generation: int) -> str | None:
    """Check that what is recorded was published by this same query. last: of ``past``.

    Returns what ``accept_as_same`` must be for a filter to be right, where the user has to say that each row is made of
    one row of the source; else None. Raises Misuse when another query may have published what is recorded.
    """
    word = token(batch, past)
    of_rows = query_rules.word_of_rows(batch, last, options, generation)
    new = as_new(past, word)
    query_rules.check_copied(batch, last, last, past.table, options, as_new=new)
    query_rules.check_same(batch, last, past.table, options, word, as_new=new, of_rows=of_rows)
    return query_rules.with_word_of_rows(batch, last, options, (word, of_rows)) if of_rows else None
