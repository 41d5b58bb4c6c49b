"""What admission asks of the query: can its rows be told apart by position, and is it the same query as before? Pure.

``same_query.py`` compares; this module says which batches are asked about, and what the user is told.
"""

import json

from streamsink.errors import Misuse
from streamsink.options import MODE_OVERWRITE, SinkOptions, with_word, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.positions import all_numeric
from streamsink.protocol.recorded import Recorded
from streamsink.protocol.same_query import compare

APPEND, COMPLETE = "append", "complete"


def check_query(batch: Batch, table: str, options: SinkOptions) -> None:
    """Raises Misuse for a query whose rows this sink cannot keep once.

    That is said at the query's first batch, and not only when something has gone wrong.
    """
    given = options.position_columns or options.file_column
    if batch.stateful and given:
        option, columns = ("position_columns", ", ".join(given)) if options.position_columns else ("file_column", given)
        raise Misuse(
            f"{table}: {option} names {columns}, but the query is stateful (an aggregation, deduplication, limit, "
            "join of two streams, or a function with state): its rows come out of state later than they were read, "
            "with positions that are old by then, so positions do not tell which rows are new. Nothing was written. "
            f"Leave {option} out; the columns may stay as plain columns of the data",
            kind="query.stateful-positions",
        )
    if batch.output_mode == APPEND or options.append_changes:
        return
    if batch.output_mode == COMPLETE and options.mode == MODE_OVERWRITE:
        return
    raise Misuse(
        f"{table}: the query's output mode is '{batch.output_mode}' and it aggregates, so a result comes again "
        f"whenever it changes, and with mode='{options.mode}' the table would not hold each result once. Nothing was "
        "written. Use output mode 'append' with a watermark, which gives each result once, when it is final; or "
        "output mode 'complete' with mode='overwrite' and overwrite_partition={}, which replaces the whole table by "
        "each batch; or, if a table of all changes is what is wanted, set append_changes=True",
        kind="query.output-mode",
    )


def check_state(batch: Batch, last: AppState, table: str, word: str) -> None:
    """Raises Misuse, with the ways on, for a batch of a stateful query that does not follow the recorded ones.

    Such a query has lost its state. Called for a batch that is no replay and was not accepted. word: the token.
    """
    if not batch.stateful:
        return
    if batch.query != last.query:
        happened = (
            f"batch {last.checkpoint_id} of checkpoint {last.query} is the last one published here, and this is batch "
            f"{batch.batch_id} of checkpoint {batch.query}: the checkpoint was deleted, or this is another query"
        )
    elif batch.batch_id <= last.checkpoint_id:
        happened = (
            f"batch {batch.batch_id} goes back: batch {last.checkpoint_id} of checkpoint {batch.query} is published, "
            f"and batch {batch.batch_id} is another one now: the checkpoint was restored from an older copy"
        )
    else:
        return
    raise Misuse(
        f"{table}: the query is stateful, and its state is not the one that the table's rows came of: {happened}. "
        "Rows that waited in the lost state would be missing, and results that are here already would come again. "
        "Nothing was written. To have each result once, bring back the newest checkpoint; or begin again from the "
        "first position of the source, with a new checkpoint, under a name of its own (application='...') and into a "
        f"table of its own. To go on with what is lost and doubled, choose for this one batch: accept_as_new='{word}' "
        "writes all its rows, and the batches after it follow",
        kind="query.state-lost",
    )


def check_same(
    batch: Batch, last: AppState, table: str, options: SinkOptions, word: str, *, as_new: str, of_rows: str | None
) -> None:
    """Raises Misuse, with the ways on, where rows would be filtered as seen that may be another query's.

    The rows of a new checkpoint may be filtered only if its query is the same. word: the token. as_new: what
    ``accept_as_new`` must be to write the batch. of_rows: the word of ``word_of_rows``.
    """
    if batch.query == last.query or word in words_of(options.accept_as_same):
        return
    found = compare(last.fingerprint, batch.fingerprint)
    if found.same:
        return
    overlap = (
        f"{table}: batch {batch.batch_id} of checkpoint {batch.query}, or one after it, reads again what application "
        f"'{options.application}' has published under checkpoint {last.query}"
    )
    both = (
        ""
        if of_rows is None
        else (
            " (a batch of old and new rows is asked for then, as it may have made rows of several, which "
            f"{batch.may_combine} hides; if each row that the sink is given is of one row of the source, set "
            f"accept_as_same='{word} {of_rows}' at once)"
        )
    )
    ways = (
        "Nothing was written. If this is another query, give it a name of its own (application='...'). Else choose for "
        f"this checkpoint: accept_as_same='{word}' takes it for the same query: rows that are recorded are filtered, "
        f"in this batch and the following ones{both}; accept_as_new='{as_new}' writes all its rows, and all of the "
        f"batches after it; accept_as_seen='{word}' records this batch without writing any, and filters the following "
        "ones"
    )
    if found.differs:
        raise Misuse(
            f"{overlap}, and it is another query: its fingerprint differs in {', '.join(found.differs)}. Rows that "
            f"the earlier query left out would be filtered as if they were here. {ways}",
            kind="query.other",
        )
    raise Misuse(
        f"{overlap}, and whether it is the same query cannot be told: {'; '.join(found.unknown)}. If it is another "
        f"one, rows that the earlier query left out would be filtered as if they were here. {ways}",
        kind="query.not-comparable",
    )


def left_out(batch: Batch, last: AppState) -> str:
    """What is said of recorded positions behind which a new checkpoint would begin; '' for the same query.

    They may be another query's, which may have left out rows of this one.
    """
    found = compare(last.fingerprint, batch.fingerprint)
    if batch.query == last.query or found.same:
        return ""
    whose = (
        f"by another query: its fingerprint differs in {', '.join(found.differs)}"
        if found.differs
        else f"by a query of which it cannot be told whether it is the same: {'; '.join(found.unknown)}"
    )
    return (
        f" What is recorded was published under checkpoint {last.query} {whose}. It is one which may have left out "
        "rows of this one: to have them, start a new checkpoint with startingOffsets='earliest', and the next error "
        "asks what is to become of the recorded ones"
    )


def _is_copied(batch: Batch, published: AppState, last: AppState, options: SinkOptions) -> bool:
    """Whether this checkpoint may be a copy, with another query, of the one that has published.

    It is when the checkpoint of the same id that published lies in another folder, and the query is not known to be the
    same. A copy has the id of its original, and may go on from its records only with the same query, such as one whose
    folder was moved. In the folder that is recorded, an upgraded query goes on. published: the record that the batch
    would repeat. last: the newest record.
    """
    if batch.query != published.query or batch.place == published.place or not (batch.place and published.place):
        return False
    is_same = compare(published.fingerprint, batch.fingerprint).same
    return not is_same and word_of_copy(batch, published, last) not in words_of(options.accept_as_same)


def is_new_behind_a_copy(batch: Batch, published: AppState, last: AppState, options: SinkOptions, as_new: str) -> bool:
    """Whether a copy has published under the batch's id, and the user has said that these are not the batch's rows.

    as_new: the word with which he says so.
    """
    return as_new in words_of(options.accept_as_new) and _is_copied(batch, published, last, options)


def check_copied(
    batch: Batch, published: AppState, last: AppState, table: str, options: SinkOptions, *, as_new: str, name: str = ""
) -> None:
    """Raises Misuse, with the ways on, where the id of a checkpoint that is a copy would make rows count as published.

    as_new: what ``accept_as_new`` must be to write the batch. name: an earlier name of the query, when the records are
    of that name.
    """
    if not _is_copied(batch, published, last, options):
        return
    found, word = compare(published.fingerprint, batch.fingerprint), word_of_copy(batch, published, last)
    raise Misuse(
        f"{table}: batch {batch.batch_id} of checkpoint {batch.query} reads again what application "
        f"'{name or options.application}' has published under a checkpoint of this id in another folder: the folder "
        "was moved, or this one is a copy of it, and "
        + (
            f"the query is another one: its fingerprint differs in {', '.join(found.differs)}"
            if found.differs
            else f"whether the query is the same cannot be told: {'; '.join(found.unknown)}"
        )
        + ". Rows that the query there left out would be skipped as if they were here. Nothing was written. If this is "
        "a second job that was given a copy, start it with a new checkpoint and a name of its own "
        f"(application='...'). If it is the same query, moved and changed, set accept_as_same='{word}': what is "
        "recorded is skipped, and it goes on. If this is the first job, and the other one is a copy of it that took "
        f"these rows before it, end that one, and set accept_as_new='{as_new}': it writes all rows of this batch, and "
        "all of the batches after it, beside those that the copy has written",
        kind="checkpoint.copied",
    )


def word_of_copy(batch: Batch, published: AppState, last: AppState) -> str:
    """The word that says that the query as it is now is the one that published from the other folder.

    It holds up to that query's last record, and for no later one.
    """
    made_of = batch.fingerprint.to_json() if batch.fingerprint is not None else None
    text = json.dumps(
        [last.table_id, last.record_id, batch.query, published.place, batch.place, made_of], sort_keys=True
    )
    return ways.word(text)


def word_of_rows(batch: Batch, last: AppState, options: SinkOptions, generation: int) -> str | None:
    """The word by which ``accept_as_same`` says that each row which the sink is given is made of one row of the source.

    It is asked for where no plan shows that, because a filter would go by the position of an old row or of a new one
    where a row was made of both. None where nothing has to be said, or it is said already. The word is for all batches
    until the checkpoint is lost or goes back once more, which makes another generation of it.
    """
    if not batch.may_combine:
        return None
    word = ways.word(
        json.dumps([last.table_id, options.application, batch.query, generation, "rows of one", batch.may_combine])
    )
    return None if word in words_of(options.accept_as_same) else word


def with_word_of_rows(batch: Batch, last: AppState, options: SinkOptions, words: tuple[str, str]) -> str:
    """What ``accept_as_same`` must be to say that, and to keep answering what it has answered.

    words: the token, and the word of the rows.
    """
    token, of_rows = words
    return with_word(options.accept_as_same, of_rows, (token, word_of_copy(batch, last, last)))


def recorded_as_new(batch: Batch, last: AppState | None, recorded: Recorded, options: SinkOptions) -> Recorded:
    """The recorded positions once a batch was accepted as new. recorded: the highest positions seen.

    Under another checkpoint, behind a copy, and where rows come out of state, everything that follows is new too. Then
    the positions go back to where the batch ends, so that one decision covers the accident.
    """
    if last is None or not all_numeric(batch.sources):
        return recorded
    if batch.query == last.query and not batch.stateful and not _is_copied(batch, last, last, options):
        return recorded
    return recorded.ending_with(batch.sources)
