"""What is said of one of several tables that is lost, went back, or is ahead of the coordinating journal, and which ways on there are."""

from collections.abc import Mapping

from streamsink.errors import Misuse
from streamsink.protocol.committable import AppState
from streamsink.protocol.renamed import word_without_journal
from streamsink.storage.pending_log import PendingLog


def gone(place, name: str, head: Mapping, journal: PendingLog) -> Misuse:
    """head: what the journal knows of the table. place: of ``many_tables.py``."""
    return Misuse(
        f"{place.absolute(head['path'])}: table '{name}' is gone: application '{place.application}' has written it up to record "
        f"{head['sequence']}. Nothing was written. Stop the query, and restore the table{_without_it(place, journal)}",
        kind="table.gone",
    )


def lost(place, root: str, kind: str, journal: PendingLog) -> Misuse:
    """Of a table that was there when this process opened it, or has another identity. root: its path."""
    what = "is gone, which" if kind == "table.gone" else "was dropped and recreated since"
    return Misuse(
        f"{root}: the table {what} application '{place.application}' has written. Nothing was written. Stop the query, and restore the "
        f"table{_without_it(place, journal)}",
        kind=kind,
    )


def rolled_back(place, name: str, head: Mapping, sequence: int, *, journal: PendingLog) -> Misuse:
    """sequence: number of the record that the table does not have any more."""
    return Misuse(
        f"{place.absolute(head['path'])}: record {sequence} of application '{place.application}' was published in table '{name}', which "
        "does not have it: the table was rolled back, restored or lost its metadata, or another writer's rename replaced its snapshot. "
        f"Nothing was written to any table. Restore the table{_without_it(place, journal)}. (on_rollback='republish' is for a query of one table)",
        kind="table.rolled-back",
    )


def ahead(place, name: str, head: Mapping, known: int, last: AppState) -> Misuse:
    """known: the last record that the table has. last: the newest one of all tables."""
    return Misuse(
        f"{place.absolute(head['path'])}: table '{name}' has record {known} of application '{place.application}', but the journal of "
        f"{place.root} ends at record {head['sequence']} of it: the journal was restored from an older copy. Nothing was written. Restore the "
        f"newest copy; or, where that is lost, {without_journal(last)}: what was pending in the newest copy is then left out",
        kind="tables.journal-behind",
    )


def without_journal(last: AppState) -> str:
    """last: the newest record of all tables, which only the journal could say that each of them has."""
    return _another_name(last.checkpoint_id, f" and accept_as_seen='{word_without_journal(last)}'")


def _another_name(last: int, word: str = "") -> str:
    """last: the newest checkpoint that is published."""
    return (
        f"set another application and adopt_from_batch={last + 1}{word} for its first start, with the checkpoint as it is (a new one would write "
        "every row a second time)"
    )


def _without_it(place, journal: PendingLog) -> str:
    """The way on without the rows of a table that is lost. Under another name nothing that is pending would be published."""
    newest = journal.newest()
    if newest is None:
        return "; or restart the query: nothing of it is recorded yet"
    if not journal.is_marked(newest.state.sequence):
        return (
            f"; or, to go on without what it lost: record {newest.state.sequence} is pending for other tables, too, so first call "
            f"streamsink.give_up({place.root!r}, application={place.application!r}), which forgets that record, and restart the query: its next "
            "error says how"
        )
    return f"; or, to go on without what it lost, {_another_name(newest.state.checkpoint_id)}"
