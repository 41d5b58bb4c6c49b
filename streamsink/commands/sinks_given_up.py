"""``streamsink.give_up`` for a destination that is no table: forget what can never be published there. Driver only.

Such a destination has all of its history, so a record behind its last one is published nowhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from streamsink.commands.give_up import CLAIMED_BY, GivenUp
from streamsink.commands.given_up_text import report
from streamsink.commands.own_sinks import (
    check_identity,
    check_of_no_fan_out,
    check_of_one,
    journal_of,
    open_sink,
    published,
)
from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.journal import readable
from streamsink.protocol.run.first_name import is_cut_off
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.storage.file_io import FileIO

# For the report: the error that comes then has the offsets.
_AS_TOLD = "as that error says"


def give_up_of_sink(file_io: FileIO, sink: Sink, options: SinkOptions) -> GivenUp:
    """As ``give_up``: forget the first pending record that the next start cannot publish, and all behind it.

    With it goes what is recorded as published and is not there any more, unless ``options`` say 'republish' and its
    files are there. Raises as opening the sink does; Fenced while the query runs; Misuse for a destination or a journal
    that cannot tell what is published.
    """
    check_of_one(sink)
    opened = open_sink(file_io, sink, options)
    journal = journal_of(opened)
    before = published(opened)
    writer = journal.claim(CLAIMED_BY, before.epoch if before else 0)
    try:
        state = published(opened)
        check_identity(opened, journal, state)
        records = _doomed(opened, journal, state, options)
        known = [record for record in (readable(journal, sequence) for sequence in records) if record is not None]
        check_of_no_fan_out(sink.path, options, known, journal.place)
        _check_apart(opened, journal, records)
        again = replace(options, on_rollback=ON_ROLLBACK_REPUBLISH)
        _check_unpublished(opened, known, lambda: _doomed(opened, journal, state, again))
        journal.check_owner(writer)
        for sequence in records:
            opened.committer.give_up(options.application, sequence)
        first = known[0].state if known else None
        behind = (first.leads_on or first.behind) if first and state is None else ()
        base = state.sequence if state else 0
        journal.give_up(records, base=base, knows_runs=len(known) == len(records), behind=behind)
    finally:
        journal.release()
    begins = "at the beginning of the source" if state is None and not behind else _AS_TOLD
    text = report(sink.path, options, state, records, known=known, runs=(), begins=begins)
    return GivenUp(tuple(records), tuple(record.state.checkpoint_id for record in known), text)


def _check_apart(opened: OpenSink, journal: FileJournal, records: Sequence[int]) -> None:
    """Raises Misuse for a record that was committed where only notes of that were lost."""
    committed = [sequence for sequence in records if journal.is_marked(sequence)]
    if committed and opened.committer.tells_apart:
        raise Misuse(
            f"{opened.to.path}: record {committed[-1]} was committed, and only the note of that is lost: reading its "
            f"rows again would double them. Nothing was given up. {opened.to.way_back}",
            kind="give-up.published",
        )


def _check_unpublished(opened: OpenSink, known: Sequence[Committable], lost: Callable[[], Sequence[int]]) -> None:
    """Raises Misuse for a record whose files somebody has made visible by hand.

    lost(): the numbers of the records that not even a start with 'republish' can publish.
    """
    for record in known:
        if record.files and opened.committer.holds(record, 0):
            way_on = (
                "Take its files out of the destination, by going back to what it was before they came, and call this "
                "again; or restore what the query's error names"
                if record.state.sequence in lost()
                else f"Start the query with on_rollback='{ON_ROLLBACK_REPUBLISH}', which finds them there, and records "
                "that they are"
            )
            raise Misuse(
                f"{opened.to.path}: the destination has files of record {record.state.sequence} "
                f"({record.state.checkpoint_name}), although it was not published, or was rolled back: somebody has "
                "added them, and reading its rows again would double them. Nothing was given up. "
                f"{way_on}",
                kind="give-up.published",
            )


def _doomed(opened: OpenSink, journal: FileJournal, state: AppState | None, options: SinkOptions) -> Sequence[int]:
    """The numbers of the records from the first one on that the next start cannot publish."""
    base = state.sequence if state else 0
    ahead = [sequence for sequence in journal.retained() if sequence > base]
    for number, sequence in enumerate(ahead, base + 1):
        if sequence != number or not _can_be_published(opened, journal, sequence, options):
            return ahead[number - base - 1 :]
    return []


def _can_be_published(opened: OpenSink, journal: FileJournal, sequence: int, options: SinkOptions) -> bool:
    record: Committable | None = readable(journal, sequence)
    if record is None:
        return False
    if is_cut_off(record, opened.committer):
        return False  # what the name before had is not known any more
    if journal.is_marked(sequence) and options.on_rollback != ON_ROLLBACK_REPUBLISH:
        return False  # the destination has gone back
    return not opened.committer.files_in_place(record)[2] and opened.committer.is_readable(record)
