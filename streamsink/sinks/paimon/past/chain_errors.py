"""What is said of one of several tables that is lost, went back, or is ahead of the coordinating journal, and which ways on there are."""

from collections.abc import Mapping
from typing import Any

from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.protocol.admission.renamed import BEHIND_THE_OTHERS, look_first, word_without_journal
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.run.restore import token_of


def unknown_record(place, root: str, found: AppState, last: LastOfOther) -> Misuse:
    """found: what the table at ``root`` says, of which the journal knows nothing. last: the newest record of all tables."""
    return Misuse(
        f"{root}: it carries record {found.sequence} of application '{place.application}', which the journal of {place.root} does not know: that "
        "journal was removed or replaced, or another warehouse writes this table under the same name. Nothing was written. Restore the journal's "
        f"folder; or, where that is lost, {without_journal(last)}: what was pending in the journal is then left out",
        kind="tables.unknown-record",
    )


def first_start(place, root: str, word: str) -> Misuse:
    """Of a table that cannot tell whether the application wrote it. root: its path. word: the ``new_application`` that says so."""
    return Misuse(
        f"{root}: the journal of {place.root} is empty and older snapshots of this table have expired, so whether application "
        f"'{place.application}' wrote here before cannot be told. Nothing was written. If it never did, set new_application='{word}'. If it did, look "
        "which of its rows are in the tables: delete there those of a batch that only some of its tables have, let it begin behind the others (a new "
        f"checkpoint with startingOffsets; files whose rows are here moved away), and set new_application='{word}'",
        kind="history.incomplete",
    )


def gone(place, name: str, head: Mapping[str, Any], journal: FileJournal) -> Misuse:
    """head: what the journal knows of the table. place: of ``many_tables.py``."""
    return Misuse(
        f"{place.absolute(head['path'])}: table '{name}' is gone: application '{place.application}' has written it up to record "
        f"{head['sequence']}. Nothing was written. Stop the query, and restore the table{_without_it(place, name, journal)}",
        kind="table.gone",
    )


def lost(place, root: str, kind: str, journal: FileJournal) -> Misuse:
    """Of a table that was there when this process opened it, or has another identity. root: its path."""
    newest = journal.newest()
    heads = newest.payload["heads"] if newest is not None else {}
    name = next((name for name, head in heads.items() if place.absolute(head["path"]) == root), None)
    what = "is gone, which" if kind == "table.gone" else "was dropped and recreated since"
    return Misuse(
        f"{root}: the table {what} application '{place.application}' has written. Nothing was written. Stop the query, and restore the "
        f"table{_without_it(place, name, journal)}",
        kind=kind,
    )


def rolled_back(
    place, name: str, head: Mapping[str, Any], sequence: int, *, journal: FileJournal, before: str | None = None
) -> Misuse:
    """sequence: number of the record that the table does not have any more. before: the application that it is of, the query's name before."""
    by = f"'{place.application}'" if before is None else f"'{before}', which was the query's name before,"
    return Misuse(
        f"{place.absolute(head['path'])}: record {sequence} of application {by} was published in table '{name}', which "
        "does not have it: the table was rolled back, restored or lost its metadata, or another writer's rename replaced its snapshot. "
        f"Nothing was written to any table. Restore the table{_without_it(place, name, journal)}. (on_rollback='republish' is for a query of one table)",
        kind="table.rolled-back",
    )


def lost_before(place, had, kind: str, option: str) -> Misuse:
    """Of a table that does not have what it had under the query's name before. had: of ``name_before.py``. option: ``accept_as_seen`` that goes
    on without it."""
    by = f"record {had.sequence} of application '{had.application}', which was the query's name before"
    what = {"table.gone": f"is gone: it had {by}", "table.recreated": f"was dropped and recreated: it had {by}"}.get(
        kind,
        f"does not have {by}: it was rolled back, restored or lost its metadata, or another writer's rename replaced its snapshot",
    )
    return Misuse(
        f"{place.absolute(had.path)}: table '{had.name}' {what}. Nothing was written to any table. Stop the query, and restore the table; or, to go "
        f"on without these rows, set accept_as_seen='{option}'",
        kind=kind,
    )


def ahead(place, name: str, head: Mapping[str, Any], known: int, last: LastOfOther) -> Misuse:
    """known: the last record that the table has. last: the newest one of all tables."""
    return Misuse(
        f"{place.absolute(head['path'])}: table '{name}' has record {known} of application '{place.application}', but the journal of "
        f"{place.root} ends at record {head['sequence']} of it: the journal was restored from an older copy. Nothing was written. Restore the "
        f"newest copy; or, where that is lost, {without_journal(last)}: what was pending in the newest copy is then left out",
        kind="tables.journal-behind",
    )


def other_past(place, head: Mapping[str, Any], found: AppState, own: str, last: LastOfOther) -> Misuse:
    """found: the last record that the table says. own: the id of the record of this number in the journal. last: the newest one of all tables."""
    return Misuse(
        f"{place.absolute(head['path'])}: the last record of application '{place.application}' here, number {found.sequence}, has the id "
        f"{found.record_id}, but in the journal of {place.root} the record of this number has the id {own}: tables and journal have one past and went "
        "on in different ways, as when one of them was restored from a backup. Nothing was written. Restore the tables or the journal, so that both "
        f"are of one time; or, where that is lost, {without_journal(last)}: what was pending in the journal is then left out",
        kind="journal.other",
    )


def without_journal(last: LastOfOther) -> str:
    """last: the newest record that the tables say, which only the journal could say that each of them has."""
    way = _another_name(last.state.checkpoint_id, f" and accept_as_seen='{word_without_journal(last.state)}'")
    return f"{look_first(last, way)}, set another application and {BEHIND_THE_OTHERS}" if last.forgotten_by else way


def _another_name(last: int, word: str = "") -> str:
    """last: the newest checkpoint that is published."""
    return (
        f"set another application and adopt_from_batch={last + 1}{word} for its first start, with the checkpoint as it is (a new one would write "
        "every row a second time)"
    )


def word_of_another_name(newest: Committable, name: str) -> str:
    """By which ``accept_as_seen`` says that another name goes on without what this table has lost. newest: of the name before."""
    return token_of(newest, f"another name without {name}")


def _without_it(place, name: str | None, journal: FileJournal) -> str:
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
    word = f" and accept_as_seen='{word_of_another_name(newest, name)}'" if name is not None else ""
    return f"; or, to go on without what it lost, {_another_name(newest.state.checkpoint_id, word)}"
