"""The query into several tables of which one table carries the state: its journal, which alone says how far it is, lies above. Driver only."""

import os
from collections.abc import Mapping
from dataclasses import replace

from streamsink.protocol.committable import AppState, LastOfOther
from streamsink.sinks.history_of import newest_in
from streamsink.sinks.name_before import SUFFIX
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog, journal_dir
from streamsink.table.table import Table


def identity_path(folder: str, application: str) -> str:
    """The file that says which journal of several tables this is: states say its text as their table's id. folder: of the tables."""
    return os.path.join(journal_dir(folder, application), "journal-id")


def folder_of(file_io: FileIO, root: str, application: str, state: AppState) -> str | None:
    """The folder of the tables, in which the journal lies that this state is of; None when that is lost. root: of one of them."""
    scheme, colon, rest = root.rpartition("://")
    parts = rest.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        folder = f"{scheme}{colon}{'/'.join(parts[:depth])}"
        said = identity_path(folder, application)
        if file_io.exists(said) and file_io.read(said).decode() == state.table_id:
            return folder
    return None


def as_journals_say(table: Table, others: Mapping[str, LastOfOther]) -> dict[str, LastOfOther]:
    """The last records of other applications, of which some have written several tables: each has its journal's last record, and the number that this table has."""
    return {name: _as_journal_says(table, name, last) if name.endswith(SUFFIX) else last for name, last in others.items()}


def _as_journal_says(table: Table, name: str, last: LastOfOther) -> LastOfOther:
    """One that has its part of a record does not say that the others have theirs; and the last record may have no part for it."""
    application = name.removesuffix(SUFFIX)
    folder = folder_of(table.file_io, table.root, application, last.state)
    journal = PendingLog(table.file_io, folder, application, 2) if folder is not None else None
    newest = newest_in(journal, None, lambda record: True) if journal is not None else None
    if newest is None or newest.state.sequence < last.state.sequence:
        return replace(last, is_whole=False)
    heads = journal.newest().payload["heads"].values()
    here = [head["sequence"] for head in heads if os.path.join(folder, head["path"]) == table.root]
    is_as_it_was = here == [last.state.sequence]
    return LastOfOther(replace(newest.state, sequence=last.state.sequence), newest.is_published and is_as_it_was)
