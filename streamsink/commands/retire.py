"""``streamsink.retire``: take an application out of a table on purpose: its state, and its journal. Driver only."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.commands.own_sinks import check_not_of_fan_out, check_of_tables
from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.journal.identity import behind_of
from streamsink.journal.others import is_certain
from streamsink.journal.repair import RepairJournal, is_of_replay
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState
from streamsink.protocol.ids import check_application
from streamsink.sinks.paimon.history import forget
from streamsink.sinks.paimon.letter_tables import heads_of
from streamsink.sinks.paimon.past.place import SUFFIX, folder_of
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table, is_table, open_table


def retire(file_io: FileIO, root: str, options: SinkOptions) -> bool:
    """Forget ``options.application``, whose rows stay. False when neither the table nor a journal knows it.

    root: path of a table, or of the folder of several tables. The application's state also leaves the tables for its
    dead letters. Idempotent. After a crash: call it again. Raises Fenced while another query holds the application;
    Misuse when a checkpoint of it is pending, whose rows would be lost; and what a commit raises.
    """
    application = check_application(root, options.application)
    check_of_tables(file_io, root, application, "retire")
    file_io = under_lock(file_io, root, options)
    if not is_table(file_io, root) and file_io.names(journal_dir(root, application)):
        return _of_several_tables(file_io, root, application, options)
    table = open_table(file_io, root, for_writing=True)
    said = table.states.read(table.snapshots.latest()).by_application.get(application)
    has_journal = bool(file_io.names(journal_dir(root, application)))
    if said is None and not has_journal:
        return _of_another_form(table, application, options)
    last = AppState.from_json(said) if said is not None else None
    journal = RepairJournal(file_io, root, application, options.journal_retain, of_table=True)
    check_no_replays(root, journal, application, last)
    check_not_of_fan_out(root, options, journal)
    journal.claim(f"retire-{IdSource().new_id()}", last.epoch if last else 0)
    try:
        check_settled(root, journal, last)
        check_not_followed(file_io, root, application, application)
        # The tables for dead letters come first: a state that stayed in one of them would belong to nobody.
        for name, head in _heads(journal, last).items():
            path = f"{root.rpartition('/')[0]}/{name}"
            if is_table(file_io, path):
                forget(open_table(file_io, path, for_writing=True), head["key"], replace(options, lock_id=None))
        forget(table, application, options)
        journal.remove()
    finally:
        journal.release()
    return True


def check(file_io: FileIO, root: str, options: SinkOptions) -> None:
    """Raise what ``retire`` would raise, as far as that is known without claiming the application. Changes nothing."""
    application = check_application(root, options.application)
    check_of_tables(file_io, root, application, "retire")
    last = None
    if is_table(file_io, root):
        table = open_table(file_io, root, for_writing=False)
        said = table.states.read(table.snapshots.latest()).by_application.get(application)
        last = AppState.from_json(said) if said is not None else None
    if last is None and not file_io.names(journal_dir(root, application)):
        return
    journal = RepairJournal(file_io, root, application, options.journal_retain, of_table=True)
    journal.read_listing()
    check_no_replays(root, journal, application, last)
    check_not_of_fan_out(root, options, journal)
    check_settled(root, journal, last)


def _of_several_tables(file_io: FileIO, folder: str, application: str, options: SinkOptions) -> bool:
    """As ``retire``. The tables that the newest record knows are all that the application has written."""
    journal = RepairJournal(file_io, folder, application, options.journal_retain, of_table=True)
    newest = journal.newest()
    journal.claim(f"retire-{IdSource().new_id()}", newest.state.epoch if newest else 0)
    try:
        check_settled(folder, journal, None)
        newest = journal.newest()
        paths = [os.path.join(folder, head["path"]) for head in newest.payload["heads"].values()] if newest else []
        for place in (folder, *paths):
            check_not_followed(file_io, place, application, application + SUFFIX)
        for path in paths:
            if is_table(file_io, path):
                forget(open_table(file_io, path, for_writing=True), application + SUFFIX, options)
        journal.remove()
    finally:
        journal.release()
    return True


def _of_another_form(table: Table, application: str, options: SinkOptions) -> bool:
    """As ``retire``, for a table that the application has written as one of several, or as one for dead letters.

    The state is taken out of this table alone where what it belongs to is lost. Raises Misuse when that is there. False
    when the table says nothing of the application.
    """
    states = table.states.read(table.snapshots.latest()).by_application
    keys = [key for key in states if key.startswith(f"{application}@")]
    for key in keys:
        belongs_to = _belongs_to(table, application, key, AppState.from_json(states[key]))
        if belongs_to is not None:
            raise Misuse(
                f"{table.root}: application '{application}' has written this table as "
                f"{'one of several' if key.endswith(SUFFIX) else 'dead letters'}, and its journal lies in "
                f"{belongs_to}: taken out of this table alone, it would find it rolled back. Nothing was changed. To "
                f"take it out of all of them, call streamsink.retire({belongs_to!r}, {application!r}) "
                f"{shell.in_a_shell('retire', belongs_to, '-a', application, '--yes')}",
                kind="retire.elsewhere",
            )
    for key in keys:
        forget(table, key, options)
    return bool(keys)


def _belongs_to(table: Table, application: str, key: str, state: AppState) -> str | None:
    """The folder of the several tables, or the table whose dead letters these are; None when it is lost."""
    if key.endswith(SUFFIX):
        return folder_of(table.file_io, table.root, application, state)
    path = f"{table.root.rpartition('/')[0]}/{key.split('@')[1]}"
    is_there = (
        is_table(table.file_io, path) and open_table(table.file_io, path, for_writing=False).table_id == state.table_id
    )
    return path if is_there else None


def check_not_followed(file_io: FileIO, place: str, application: str, key: str) -> None:
    """Raises Misuse while the first record of a query that had this name before is pending.

    That record can be published only where the table still says this name. place: path of the table, or of the folder
    of several. key: the name as tables know it.
    """
    for entry in file_io.entries(os.path.dirname(journal_dir(place, application))):
        if not entry.is_dir or entry.name == application:
            continue
        journal = FileJournal(file_io, place, entry.name, 2)
        journal.read_listing()
        if not journal.retained() and behind_of(file_io, journal_dir(place, entry.name))[:1] == (key,):
            raise Misuse(
                f"{place}: all that application '{entry.name}' had recorded behind '{application}' was given up, and "
                f"nothing was written under that name since: what is here of '{application}' would not be known any "
                f"more. Nothing was changed. Start that query once more, and retire '{application}' then",
                kind="retire.pending",
            )
        for sequence in journal.retained():
            record = journal.load(sequence) if not is_certain(journal, sequence) else None
            if record is not None and record.state.leads_on[:1] == (key,):
                raise Misuse(
                    f"{place}: record {sequence} of application '{entry.name}', which goes on from '{application}', is "
                    f"pending in {journal.place}: it could not be told any more that nothing before it is lost. "
                    "Nothing was changed. Start that query once more, so that it is published, and retire "
                    f"'{application}' then",
                    kind="retire.pending",
                )


def check_no_replays(root: str, journal: RepairJournal, application: str, last: AppState | None) -> None:
    """Raises Misuse when the application has replayed dead letters, since only it knows which. last: its state."""
    if journal.replays() or is_of_replay(last):
        raise Misuse(
            f"{root}: application '{application}' has replayed dead letters into this table, and only its journal "
            f"{journal.place}, and its state in the table, know which: after they are gone the next replay would write "
            "these rows once more. Nothing was changed. Leave it as it is: no driver, no expiry and no replay waits "
            "for it. What is left to replay is written by the next one "
            f"{shell.in_a_shell('dead-letters', 'replay', 'LETTERS', '--yes')}",
            kind="retire.replay",
        )


def check_settled(root: str, journal: FileJournal, last: AppState | None, *sink: str) -> None:
    """Raises Misuse when a record is pending. last: the state that the table has, None without one.

    sink: how a command is given the sink, where the destination is none of Paimon's tables.
    """
    pending = [s for s in journal.retained() if s > (last.sequence if last else 0) and not is_certain(journal, s)]
    if pending:
        published = shell.command("recover", root, "-a", os.path.basename(journal.place), *sink, "--yes")
        raise Misuse(
            f"{root}: record {pending[0]} of the application in {journal.place} is pending: retiring the application "
            "would lose its rows. Nothing was changed. Start the query once more, so that what is pending is "
            f"published, stop it, and retire it then; or publish it without the query {published} before",
            kind="retire.pending",
        )


def _heads(journal: FileJournal, last: AppState | None) -> Mapping[str, Mapping[str, Any]]:
    """For each table that got dead letters of the application, by name, what ``heads_of`` says.

    The state is the newest one, of the journal or of the table, which knows all of these tables. Nothing is pending.
    """
    newest = journal.newest()
    found = newest.state if newest is not None and (last is None or newest.state.sequence > last.sequence) else last
    return heads_of(found) if found is not None else {}
