"""``streamsink.retire`` and ``starting_offsets`` for a sink: a destination that is no table. Driver only.

Whether an application can be taken out of a destination is said by ``Sink.never_forgets`` and done by
``Upkeep.forget``; a fan-out is taken apart into its destinations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.commands.offsets import Wanted, offsets_text
from streamsink.commands.own_sinks import (
    check_identity,
    check_not_of_fan_out,
    journal_of,
    open_existing,
    open_remembered,
    open_sink,
    published,
)
from streamsink.commands.retire import check_not_followed, check_settled
from streamsink.errors import Misuse, Retryable
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.journal.repair import RepairJournal
from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.committable import AppState
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.storage.file_io import FileIO


def retire_of_sink(file_io: FileIO, sink: Sink, options: SinkOptions) -> bool:
    """Forget ``options.application``, whose rows stay. False when neither the destination nor a journal knows it.

    file_io: of the store with the journals. Idempotent. After a crash: call it again. Raises Misuse, before anything is
    changed, for a destination that cannot forget, and while a record is pending, whose rows would be lost; Fenced while
    a query holds the application; and as opening the sink does.
    """
    _check_forgets(sink, options)
    opened = open_sink(file_io, sink, options)
    if not _known(sink, opened, options):
        return False
    parts, journals = _parts(opened)
    last = _newest(opened) if opened.parts else parts[0].committer.history(parts[0].application).state
    # A fan-out's own journal claims those of its destinations.
    opened.journal.claim(f"retire-{IdSource().new_id()}", last.epoch if last else 0)
    try:
        _check_settled(opened)
        for part, journal in zip((*opened.parts, opened), journals):
            _drop_staging(part, journal)
        for part, journal in zip(parts, journals):
            part.committer.forget(part.application)
            journal.remove()
        if opened.parts:
            journals[-1].remove()
    finally:
        opened.journal.release()
    return True


@dataclass(frozen=True)
class WouldForget:
    """What ``retire_of_sink`` would take away in one destination, or of a fan-out itself.

    path: of the destination. journal: its place; records: that it has. is_known: the destination remembers it.
    """

    path: str
    journal: str
    records: int
    is_known: bool


def look_of_sink(file_io: FileIO, sink: Sink, options: SinkOptions, place: str) -> list[WouldForget]:
    """What ``retire_of_sink`` would do; nothing where the application is not known.

    place: of the journals, or of the destination where these lie in it. Raises what that would raise, as far as it is
    known without claiming the application. Changes nothing.
    """
    _check_forgets(sink, options)
    opened = open_remembered(file_io, sink, options, place)
    if not _known(sink, opened, options):
        return []
    _, journals = _parts(opened)
    for journal in journals:
        journal.read_listing()
    _check_settled(opened)
    return [
        WouldForget(
            part.to.path,
            journal.place,
            len(journal.retained()),
            not part.parts and part.committer.history(part.application).state is not None,
        )
        for part, journal in zip((*opened.parts, opened), journals)
    ]


def _check_forgets(sink: Sink, options: SinkOptions) -> None:
    if sink.never_forgets:
        raise Misuse(
            f"{sink.path}: application '{options.application}' cannot be retired from a {type(sink).__name__}: "
            f"{sink.never_forgets}. Nothing was changed. To begin anew, start the query with a new checkpoint under "
            "another name, application='...': its first error says what is here under the name before, and what to do",
            kind="retire.keeps-names",
        )


def _parts(opened: OpenSink) -> tuple[Sequence[OpenSink], Sequence[RepairJournal]]:
    """(the destinations, their journals and that of the fan-out, if it is one)."""
    return opened.parts or (opened,), [journal_of(part) for part in (*opened.parts, opened)]


def _known(sink: Sink, opened: OpenSink, options: SinkOptions) -> bool:
    """Whether a destination or a journal knows the application. Raises Misuse where it is not to be retired alone."""
    parts, journals = _parts(opened)
    states = [part.committer.history(part.application).state for part in parts]
    if all(state is None for state in states) and not any(each.store.names(each.place) for each in journals):
        return False
    for part, journal, state in zip(parts, journals, states):
        _check_journal(part, journal, state, options)
    if not opened.parts:
        check_not_of_fan_out(sink.path, options, journals[0], *ways.OF_SINK)
    return True


def _check_settled(opened: OpenSink) -> None:
    """Raises Misuse while something is pending, here or for who goes on from this application."""
    parts, journals = _parts(opened)
    for part, journal in zip(parts, journals):
        state = part.committer.history(part.application).state
        check_identity(part, journal, state)
        check_settled(part.to.path, journal, state, *ways.OF_SINK)
    if opened.parts:
        check_settled(opened.to.path, journals[-1], None, *ways.OF_SINK)
    for part, journal in zip((*opened.parts, opened), journals):
        below = journal.place.removesuffix(f"/{JOURNAL_DIR}/{part.application}")
        check_not_followed(journal.store, below, part.application, part.application)


def _check_journal(part: OpenSink, journal: RepairJournal, state: AppState | None, options: SinkOptions) -> None:
    """Raises Misuse when what the destination has was recorded in another journal, unless the user says it is lost.

    That one would take it all for lost, and publish it again under on_rollback='republish'. A table has one journal.
    """
    if state is None or part.to.is_table or journal.is_of(state):
        return
    word = word_of_lost_journal(state, journal.place)
    if word not in words_of(options.accept_as_new):
        raise Misuse(
            f"{part.to.path}: record {state.sequence} of application '{part.application}', the last one there, is of "
            f"another journal than {journal.place}. Forgotten without that one, it would look lost there, and what is "
            "pending there would be lost. Nothing was changed. Give the sink with the journal that the query has. If "
            f"that is lost for good, with what may be pending in it, call this again with accept_as_new='{word}'",
            kind="retire.other-journal",
        )


def word_of_lost_journal(state: AppState, place: str) -> str:
    """The word by which the user says that the journal is lost which had the record of this state. place: of another
    one, which the sink is given.
    """
    return ways.word(f"{state.table_id}|{state.record_id}|{place}|its journal is lost")


def _drop_staging(part: OpenSink, journal: RepairJournal) -> None:
    """Raises Retryable when what dead attempts have begun elsewhere cannot be ended: only this journal knows of it."""
    left = journal.drop_staging()
    if left:
        raise Retryable(
            f"{part.to.path}: what dead attempts of application '{part.application}' have begun there cannot be ended "
            f"now, as the log says: the folder {left[0]} in {journal.place}/staging has the names. Nothing was "
            "forgotten. Mend what the log names, and call this again",
            kind="retire.left-open",
        )


def _newest(opened: OpenSink) -> AppState | None:
    newest = journal_of(opened).newest()
    return newest.state if newest is not None else None


def offsets_of_sink(file_io: FileIO, sink: Sink, options: SinkOptions, place: str, wanted: Wanted) -> str:
    """As ``starting_offsets``. place: of the journals, or of the destination where these lie in it.

    What is pending in the journal counts, too, because the next start publishes that first. Raises Misuse as that does,
    and when the destination has gone back, so that only a start of the query settles what is there.
    """
    opened = open_existing(file_io, sink, options, place)
    journal, state = journal_of(opened), published(opened)
    journal.read_listing()
    check_identity(opened, journal, state)
    base = state.sequence if state is not None else 0
    gone = [number for number in journal.retained() if number > base and journal.is_marked(number)]
    if gone:
        again = " with on_rollback='republish', if it was set before," if opened.to.republishes else ""
        raise Misuse(
            f"{sink.path}: record {gone[-1]} of application '{options.application}' was published, and the destination "
            f"has records up to {base} alone: it has gone back, or what it remembers was lost, and where a new "
            f"checkpoint begins cannot be told. Nothing was changed. Start the query once under that name{again} and "
            "follow its error; then call this again",
            kind="positions.unsettled",
        )
    newest = journal.newest()
    if newest is not None and newest.state.sequence > base:
        state = newest.state
    if state is None or not state.recorded:
        known = ", ".join(sorted(opened.committer.others(options.application))) or "none"
        raise Misuse(
            f"{sink.path}: no Kafka positions are recorded for application '{options.application}'. Other "
            f"applications that have written here: {known}",
            kind="positions.none",
        )
    return offsets_text(sink.path, state.recorded, wanted)
