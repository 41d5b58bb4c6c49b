"""``streamsink accept``: what the words stand for that errors print, before one is given to a query. Changes nothing.

A word is the digest of a question about exactly one record, or one journal. So what it stands for is found by asking
all the questions that can be asked about what is here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streamsink.commands.own_sinks import word_of_no_fan_out
from streamsink.errors import Corrupt, Misuse
from streamsink.format.snapshot import OVERWRITE
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.journal.identity import newest_id
from streamsink.operations.journals import applications_of, journals_at, no_journal, nothing_here
from streamsink.options import SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.admission.renamed import word_without_journal
from streamsink.protocol.committable import DEAD_LETTERS, OF_FAN_OUT, AppState, Committable
from streamsink.protocol.run.restore import IS_PUBLISHED, MAY_OVERWRITE, token_of, word_of_new_application
from streamsink.sinks.fan_out.parts import is_of_fan_out, parts_of, word_of_leaving
from streamsink.sinks.paimon.past.chain_errors import word_of_another_name
from streamsink.sinks.paimon.past.progress import word_without
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table, is_table, open_table

SEEN, NEW, _NEW_NAME = "accept_as_seen", "accept_as_new", "new_application"


@dataclass(frozen=True)
class Meaning:
    """What a word stands for. options: {option: what the query does when that option has the word}."""

    word: str
    application: str
    question: str
    options: dict[str, str]


def meanings(file_io: FileIO, root: str, application: str | None = None) -> list[Meaning]:
    """All words that questions about what is here have, in the order of journals and records.

    Words of the admission of a batch are not among them: these questions are about a batch that only its query knows.
    Raises Misuse when there is nothing, or nobody has written as ``application``; Corrupt when the table's newest
    snapshot is damaged. A damaged record has no words.
    """
    table = open_table(file_io, root, for_writing=False) if is_table(file_io, root) else None
    states = table.states.read(table.snapshots.latest()).by_application if table is not None else {}
    known = sorted({*applications_of(file_io, root), *states})
    if table is None and not known:
        raise nothing_here(root)
    if application is not None and application not in known:
        raise no_journal(root, application, known, file_io)
    names = [application] if application is not None else known
    found: dict[str, Meaning] = {}
    for name in names:
        for meaning in _of_application(file_io, root, name, table, states):
            found.setdefault(meaning.word, meaning)
    return list(found.values())


def _of_application(
    file_io: FileIO, root: str, name: str, table: Table | None, states: Mapping[str, Any]
) -> Iterator[Meaning]:
    place = journals_at(file_io, root)
    journal = FileJournal(file_io, place, name, 2, of_table=True)
    journal.read_listing()
    state = AppState.from_json(states[name]) if name in states else None
    base = state.sequence if state is not None else 0
    for sequence in journal.retained():
        try:
            record = journal.load(sequence)
        except (Corrupt, Misuse):
            continue
        if record is not None and (sequence > base or not journal.is_marked(sequence)):
            yield from _of_record(root, name, record)
        if record is not None and OF_FAN_OUT in record.payload:
            yield _of_no_fan_out(name, record)  # for who retires it, also of the last one that is published
    journal_id = newest_id(file_io, journal_dir(place, name))
    if table is not None and journal_id:
        options = SinkOptions(application=name)
        yield Meaning(
            word_of_new_application(table.table_id, journal_id, options),
            name,
            f"Has application '{name}' written here before its journal began, in snapshots that have expired?",
            {_NEW_NAME: "It has not, or the query begins behind what is here: it goes on."},
        )
        yield Meaning(
            ways.word(f"{table.table_id}|{journal_id}|never repeated"),
            name,
            f"May a bounded run of '{name}' that its journal does not know be a repeated one?",
            {NEW: "No: each run that the journal does not know is written."},
        )
    if state is not None:
        yield _without_journal(name, state)


def _without_journal(name: str, state: AppState) -> Meaning:
    return Meaning(
        word_without_journal(state),
        name,
        f"May another name go on although the journal of '{name}' is lost, and with it what was pending behind record "
        f"{state.sequence}?",
        {SEEN: "It goes on without what that journal held."},
    )


def _of_record(root: str, name: str, record: Committable) -> Iterator[Meaning]:
    state = record.state
    what = f"record {state.sequence} of '{name}' ({state.checkpoint_name}, {record.rows} rows)"
    yield Meaning(
        token_of(record, IS_PUBLISHED),
        name,
        f"Are the rows of {what} in the table?",
        {
            SEEN: "They are, and those of the records before it: these are recorded as published, and not written. "
            "The query goes on behind them.",
            NEW: "They are not: the record is published, with those behind it. Rows that are there would be doubled.",
        },
    )
    if record.payload.get("kind") == OVERWRITE:
        yield Meaning(
            token_of(record, MAY_OVERWRITE),
            name,
            f"May {what}, which overwrites, replace what others have written since it was made?",
            {NEW: "It may: what they wrote is replaced.", SEEN: "It may not: the table stays as it is."},
        )
    yield from _of_tables(root, name, record, what)
    letters = record.payload.get(DEAD_LETTERS)
    if letters is not None:
        place = f"{root.rpartition('/')[0]}/{letters['name']}"
        yield Meaning(
            token_of(record, f"dead letters published in {place}"),
            name,
            f"Are the dead letters of {what} in {place}?",
            {SEEN: "They are: that table stays as it is.", NEW: "They are not: they are published."},
        )
    for part in parts_of(record).values() if is_of_fan_out(record) else ():
        yield Meaning(
            word_of_leaving(record, part.identity),
            name,
            f"Is the destination '{part.name}' ({part.path}), which is left out of the fan-out, given up with what "
            f"{what} gives it?",
            {SEEN: "It is: what is not published there by now is not written there. The others have it."},
        )


def _of_no_fan_out(name: str, record: Committable) -> Meaning:
    state = record.state
    return Meaning(
        word_of_no_fan_out(record),
        name,
        f"Is the fan-out not used any more which gave record {state.sequence} of '{name}' ({state.checkpoint_name}, "
        f"{record.rows} rows) to its destination '{record.payload[OF_FAN_OUT]['name']}'?",
        {NEW: "It is not: the record may be given up (streamsink.give_up), and the query retired here alone."},
    )


def _of_tables(root: str, name: str, record: Committable, what: str) -> Iterator[Meaning]:
    """The words of a record of several tables. what: the record, in words."""
    for entry in record.payload.get("tables", ()):
        place = f"{root}/{entry['path']}"
        yield Meaning(
            token_of(record, f"published in {place}"),
            name,
            f"Are the rows of {what} in the table {place}?",
            {SEEN: "They are: nothing is written there.", NEW: "They are not: its part of the record is published."},
        )
    for table in record.payload.get("heads", {}):
        lost = f"May {{}} without the table '{table}', which is lost or was rolled back?"
        yield Meaning(
            word_without(record, table),
            name,
            lost.format(f"{what} be published"),
            {SEEN: "It is published in the other tables; the rows for that one are not written."},
        )
        yield Meaning(
            word_of_another_name(record, table),
            name,
            lost.format(f"another name go on behind {what}"),
            {SEEN: "It goes on without what that table has lost."},
        )
