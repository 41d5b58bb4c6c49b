"""Where each of several tables has its last record, as their journal says it: a proof when the tables say nothing any more. Driver only.

The mark of a record says it, which goes with the record when that is pruned. So each record repeats it for all tables, as of when it was made.
"""

from collections.abc import Mapping
from typing import Any

from streamsink.journal.file_journal import FileJournal
from streamsink.protocol.committable import Committable
from streamsink.protocol.journal import Mark, MarkOfTables

# In the payload of a record: by table, the number of the last record that it had, and its mark.
PUBLISHED = "published"


def so_far(journal: FileJournal) -> dict[str, Mapping[str, Any]]:
    """What the next record says of all tables; none of one of which it is not known, or of earlier code."""
    newest = journal.newest()
    if newest is None:
        return {}
    last = {
        name: {"sequence": newest.state.sequence} | mark.to_json()
        for name, mark in _of_tables(journal, newest.state.sequence).items()
    }
    return {**_repeated(newest), **last}


def mark_of_table(journal: FileJournal, sequence: int, name: str) -> Mark | None:
    """Where this table got its part of the record, which is the last one that it has, or has and lacks the newest one."""
    mark = _of_tables(journal, sequence).get(name)
    if mark is not None:
        return mark
    newest = journal.newest()
    said = _repeated(newest).get(name) if newest is not None else None
    return Mark.from_json(said) if said is not None and said["sequence"] == sequence else None


def _of_tables(journal: FileJournal, sequence: int) -> Mapping[str, Mark]:
    mark = journal.mark_of(sequence)
    return mark.tables if isinstance(mark, MarkOfTables) else {}


def _repeated(record: Committable) -> Mapping[str, Mapping[str, Any]]:
    return record.payload.get(PUBLISHED, {})
