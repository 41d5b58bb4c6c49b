"""The query into several tables of which one table carries the state: its journal, which alone says how far it is, lies above. Driver only."""

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal, journal_dir
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.sinks.paimon.past.history_of import is_undone, newest_in
from streamsink.sinks.paimon.past.marks import mark_of_table
from streamsink.sinks.paimon.past.name_before import SUFFIX
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import FileStatus
from streamsink.table.table import Table


def identity_path(folder: str, application: str) -> str:
    """The file that says which journal of several tables this is: states say its text as their table's id. folder: of the tables."""
    return os.path.join(journal_dir(folder, application), "journal-id")


def folder_of(file_io: FileIO, root: str, application: str, state: AppState) -> str | None:
    """The folder of the tables, in which the journal lies that this state is of; None when that is lost. root: of one of them."""
    for folder in _folders_above(root):
        said = identity_path(folder, application)
        if file_io.exists(said) and file_io.read(said).decode() == state.table_id:
            return folder
    return None


def _folders_above(root: str) -> Iterator[str]:
    """The nearest one first."""
    scheme, colon, rest = root.rpartition("://")
    parts = rest.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        yield f"{scheme}{colon}{'/'.join(parts[:depth])}" or "/"


def as_journals_say(table: Table, others: Mapping[str, LastOfOther]) -> dict[str, LastOfOther]:
    """The last records of other applications, of which some have written several tables: each has its journal's last record, and the number that this table has."""
    said = {
        name: _as_journal_says(table, name, last) if name.endswith(SUFFIX) else last for name, last in others.items()
    }
    is_whole = table.states.read(table.snapshots.latest()).complete
    return said if is_whole else _forgotten(table) | said


def _forgotten(table: Table) -> dict[str, LastOfOther]:
    """By name, what journals above say of queries into several tables, this one among them: every snapshot that could say so may have expired."""
    found = {}
    for folder in _folders_above(table.root):
        for entry in _journals_in(table.file_io, folder):
            journal = FileJournal(table.file_io, folder, entry.name, 2)
            last = (
                newest_in(journal, None, functools.partial(_has_its_part, table, journal, folder))
                if entry.is_dir
                else None
            )
            here = _heads_here(table, folder, journal.newest()) if last is not None else {}
            for head in here.values():
                found[entry.name + SUFFIX] = LastOfOther(
                    replace(last.state, sequence=head["sequence"]), last.is_published
                )
    return found


def _journals_in(file_io: FileIO, folder: str) -> list[FileStatus]:
    """None where the folder may not be looked into: no query of this user has one there."""
    try:
        return file_io.entries(os.path.join(folder, JOURNAL_DIR))
    except PermissionError:
        return []


def _heads_here(table: Table, folder: str, newest: Committable) -> dict[str, Mapping[str, Any]]:
    """By name, the number that this table has of a query into several; none where it is none of them. newest: its last record."""
    heads = newest.payload.get("heads", {})
    return {
        name: head
        for name, head in heads.items()
        if os.path.join(folder, head["path"]) == table.root and head["table_id"] == table.table_id
    }


def _has_its_part(table: Table, journal: FileJournal, folder: str, newest: Committable) -> bool:
    """Whether nothing that is retained shows that it went with a rollback."""
    here = _heads_here(table, folder, newest)
    return not any(
        is_undone(table, None, mark_of_table(journal, head["sequence"], name)) for name, head in here.items()
    )


def _as_journal_says(table: Table, name: str, last: LastOfOther) -> LastOfOther:
    """One that has its part of a record does not say that the others have theirs; and the last record may have no part for it."""
    application = name.removesuffix(SUFFIX)
    folder = folder_of(table.file_io, table.root, application, last.state)
    journal = FileJournal(table.file_io, folder, application, 2) if folder is not None else None
    newest = newest_in(journal, None, lambda record: True) if journal is not None else None
    if newest is None or newest.state.sequence < last.state.sequence:
        return replace(last, is_whole=False)
    is_as_it_was = [head["sequence"] for head in _heads_here(table, folder, journal.newest()).values()] == [
        last.state.sequence
    ]
    return LastOfOther(replace(newest.state, sequence=last.state.sequence), newest.is_published and is_as_it_was)
