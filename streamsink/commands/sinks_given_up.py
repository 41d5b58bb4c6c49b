"""``streamsink.give_up`` for a destination that is no table: forget what can never be published there. Driver only.

Such a destination has all of its history, so a record behind its last one is published nowhere.
"""

from collections.abc import Sequence

from streamsink.commands.give_up import CLAIMED_BY, GivenUp
from streamsink.commands.given_up_text import report
from streamsink.commands.own_sinks import check_of_no_fan_out, check_of_one
from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.repair import RepairJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.committable import AppState, Batch, Committable
from streamsink.protocol.ids import check_application
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
    check_application(sink.path, options.application)
    check_of_one(sink)
    opened = sink.open(file_io, options, Batch(0, "", ""), tuple, lambda event: None)
    journal = _journal_of(opened)
    before = _published(opened, options)
    writer = journal.claim(CLAIMED_BY, before.epoch if before else 0)
    try:
        state = _published(opened, options)
        _check_identity(opened, journal, state)
        records = _doomed(opened, journal, state, options)
        known = [record for record in (readable(journal, sequence) for sequence in records) if record is not None]
        check_of_no_fan_out(sink.path, options, known, journal.place)
        _check_apart(opened, journal, records)
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


def _journal_of(opened: OpenSink) -> RepairJournal:
    """The journal of the sink, which keeps what the sink does about transactions that nobody commits any more."""
    if not isinstance(opened.journal, FileJournal):
        raise Misuse(
            f"{opened.to.path}: the sink keeps its journal in a {type(opened.journal).__name__}, expected a "
            "FileJournal. Nothing was given up. Restore what the query's error names, and start the query again",
            kind="sink.no-tables",
        )
    return RepairJournal.of(opened.journal)


def _published(opened: OpenSink, options: SinkOptions) -> AppState | None:
    history = opened.committer.history(options.application)
    if not history.complete:
        raise Misuse(
            f"{opened.to.path}: a part of the destination's history has expired, so that nobody can tell which records "
            "are published. Nothing was given up. Restore what the query's error names, and start the query again",
            kind="sink.no-tables",
        )
    return history.state


def _check_identity(opened: OpenSink, journal: FileJournal, state: AppState | None) -> None:
    """Raises Misuse when what is recorded is of another destination: nothing of that is lost or doubled here."""
    newest = next((r for s in reversed(journal.retained()) if (r := readable(journal, s)) is not None), None)
    for found in (newest.state if newest else None, state):
        if found is not None and found.table_id != opened.to.table_id:
            raise Misuse(
                f"{opened.to.path}: record {found.sequence} is of the destination {found.table_id}, and the one that "
                f"is there is {opened.to.table_id}. Nothing was given up. Restore the first one; or remove the journal "
                f"{journal.place}, and what the destination remembers of the application, and start a new checkpoint, "
                "which reads the source from its beginning, or behind those of its rows that are here already",
                kind="table.recreated",
            )


def _check_apart(opened: OpenSink, journal: FileJournal, records: Sequence[int]) -> None:
    """Raises Misuse for a record that was committed where only notes of that were lost."""
    committed = [sequence for sequence in records if journal.is_marked(sequence)]
    if committed and opened.committer.tells_apart:
        raise Misuse(
            f"{opened.to.path}: record {committed[-1]} was committed, and only the note of that is lost: reading its "
            f"rows again would double them. Nothing was given up. {opened.to.way_back}",
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
    return not opened.committer.files_in_place(record)[2]
