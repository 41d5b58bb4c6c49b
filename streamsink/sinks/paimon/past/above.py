"""Queries into several tables, seen from one of these tables: their journals lie in a folder above it. Driver only.

A table carries a state of such a query, but only its journal says how far the query is.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal
from streamsink.journal.others import newest_in
from streamsink.protocol.committable import Committable, LastOfOther
from streamsink.sinks.paimon.past.history_of import is_undone
from streamsink.sinks.paimon.past.marks import mark_of_table
from streamsink.sinks.paimon.past.place import SUFFIX, folder_of, folders_above
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import FileStatus
from streamsink.table.table import Table


def as_journals_say(table: Table, others: Mapping[str, LastOfOther]) -> dict[str, LastOfOther]:
    """The last records of other applications; those that wrote several tables have the last one of their journal.

    others: by name, what the table and its own journals say. A record of several tables gets the number that this table
    has. Where a part of the table's history has expired, applications are added that only the journals above name.
    """
    said = {
        name: _as_journal_says(table, name, last) if name.endswith(SUFFIX) else last for name, last in others.items()
    }
    is_whole = table.states.read(table.snapshots.last_seen()).complete
    return said if is_whole else _forgotten(table) | said


def _forgotten(table: Table) -> dict[str, LastOfOther]:
    """By name, what the journals above say of queries that wrote this table among others.

    It is needed where every snapshot that could say so may have expired.
    """
    found = {}
    for folder in folders_above(table.root):
        for entry in _journals_in(table.file_io, folder):
            journal = FileJournal(table.file_io, folder, entry.name, 2)
            last = (
                newest_in(journal, None, functools.partial(_has_its_part, table, journal, folder))
                if entry.is_dir
                else None
            )
            if last is None:
                continue
            for head in _heads_here(table, folder, journal.newest()).values():
                found[entry.name + SUFFIX] = LastOfOther(
                    replace(last.state, sequence=head["sequence"]), last.is_published
                )
    return found


def _journals_in(file_io: FileIO, folder: str) -> list[FileStatus]:
    """The journals in this folder. Empty where it may not be read: no query of this user has a journal there."""
    try:
        return file_io.entries(os.path.join(folder, JOURNAL_DIR))
    except PermissionError:
        return []


def _heads_here(table: Table, folder: str, newest: Committable | None) -> dict[str, Mapping[str, Any]]:
    """What the newest record of such a query says of this table, by name; empty where it is not one of its tables."""
    heads = newest.payload.get("heads", {}) if newest is not None else {}
    return {
        name: head
        for name, head in heads.items()
        if os.path.join(folder, head["path"]) == table.root and head["table_id"] == table.table_id
    }


def _has_its_part(table: Table, journal: FileJournal, folder: str, newest: Committable) -> bool:
    """Whether nothing that is retained shows that the table has lost its part of this record by a rollback."""
    here = _heads_here(table, folder, newest)
    return not any(
        is_undone(table, None, mark_of_table(journal, head["sequence"], name)) for name, head in here.items()
    )


def _as_journal_says(table: Table, name: str, last: LastOfOther) -> LastOfOther:
    """As the journal above says, because the state in one table does not say enough.

    A table that has its part of a record does not say that the others have theirs, and the last record may have no part
    for it.
    """
    application = name.removesuffix(SUFFIX)
    folder = folder_of(table.file_io, table.root, application, last.state)
    journal = FileJournal(table.file_io, folder, application, 2) if folder is not None else None
    newest = newest_in(journal, None, lambda record: True) if journal is not None else None
    if folder is None or journal is None or newest is None or newest.state.sequence < last.state.sequence:
        return replace(last, is_whole=False)
    is_as_it_was = [head["sequence"] for head in _heads_here(table, folder, journal.newest()).values()] == [
        last.state.sequence
    ]
    return LastOfOther(replace(newest.state, sequence=last.state.sequence), newest.is_published and is_as_it_was)
