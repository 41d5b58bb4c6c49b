"""Letters whose rows may have come again: those of an earlier table, or of a record that the table does not know.

A table for dead letters stays when its table is dropped, restored or loaded again. Then rows of the source come again,
and become letters again, or rows. A letter says what its query wrote to, by the id that the query's states say as well:
another table, or another journal for several, has another one. It does not say of which record it is, but the table for
letters knows that of the last one, below the key that its table has there.
"""

from collections.abc import Mapping, Sequence

from streamsink.journal.file_journal import FileJournal
from streamsink.journal.repair import is_of_replay
from streamsink.operations.letters.selection import Letter
from streamsink.protocol.committable import DEAD_LETTERS, AppState
from streamsink.sinks.paimon.letter_tables import heads_of
from streamsink.table.table import Table


def not_of_the_present(
    target: Table, known: Mapping[str, AppState], letters: Sequence[Letter], *, complete: bool
) -> set[str | None]:
    """The ids of these letters of which rows may be in the table already, or among other letters.

    letters: all of a table of this name. known: what the table says, by application. complete: whether that is of all
    applications. Where no query has written to the table since it was made, no row can have come again, unless there
    are letters of two.
    """
    found = {letter.table_id for letter in letters}
    others = found - {target.table_id, *(state.table_id for state in known.values())}
    is_written = not complete or not all(map(is_of_replay, known.values()))
    return others if is_written or len(found) > 1 else set()


def unknown_record(target: Table, letters: Table, found: Mapping[str, AppState], known: Mapping[str, AppState]) -> int:
    """The number of the last record that has letters there and that their table does not know; 0 where it knows all.

    found: what the table for letters says, by key. known: what the table says, by application. A record that is pending
    is known.
    """
    own = letters.table_id  # and not its name, under which it may not be any more
    heads = [head for each in known.values() for head in heads_of(each).values() if head["table_id"] == own]
    for key, state in found.items():
        parts = _parts(key)
        if parts is None or not target.table_id.startswith(parts[2]):
            continue
        if any(head["key"] == key and head["sequence"] >= state.sequence for head in heads):
            continue
        # An application that is gone from the table goes on under another name, or was retired.
        is_renamed = parts[0] not in known and bool(heads)
        if not is_renamed and not _is_pending(target, parts[0], own, state.sequence):
            return state.sequence
    return 0


def _is_pending(target: Table, application: str, letters_id: str, sequence: int) -> bool:
    journal = FileJournal(target.file_io, target.root, application, 2, of_table=True)
    journal.read_listing()
    record = journal.load(sequence) if sequence in journal.retained() else None
    return record is not None and record.payload.get(DEAD_LETTERS, {}).get("table_id") == letters_id


def _parts(key: str) -> tuple[str, str, str] | None:
    """Application, name and beginning of the id of the table that has this key; None for a key of another form."""
    parts = key.rsplit("@", 2)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None
