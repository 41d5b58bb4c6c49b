"""Where each of several tables has its last record, as their journal says it. Driver only.

This is the proof where the tables say nothing any more. The mark of a record says it, and is deleted together with the
record when that is pruned. So each record repeats it for all tables, as of when the record was made.
"""

from collections.abc import Mapping
from typing import Any

from streamsink.journal.file_journal import FileJournal
from streamsink.protocol.committable import Committable
from streamsink.protocol.journal import Mark, MarkOfTables

# In the payload of a record: by table, the number of the last record that the table had, and that record's mark.
PUBLISHED = "published"


def so_far(journal: FileJournal, newest: Committable | None) -> dict[str, Mapping[str, Any]]:
    """What the next record says of all tables; nothing of a table where it is not known, as after earlier code.

    newest: the journal's newest record.
    """
    return so_far_of(newest, _of_tables(journal, newest.state.sequence)) if newest is not None else {}


def so_far_of(newest: Committable, at: Mapping[str, Mark]) -> dict[str, Mapping[str, Any]]:
    """As ``so_far``. newest: the last record, which is published. at: by table, where."""
    last = {name: {"sequence": newest.state.sequence} | mark.to_json() for name, mark in at.items()}
    return {**_repeated(newest), **last}


def mark_of_table(journal: FileJournal, sequence: int, name: str) -> Mark | None:
    """Where this table got its part of the record; None when neither the record's mark nor the newest record says it.

    sequence: of the last record that the table has. The table may lack its part of the newest record, which repeats
    where the tables had their last records before it.
    """
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
