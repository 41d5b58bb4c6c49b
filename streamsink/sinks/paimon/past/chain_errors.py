"""Errors about one of several tables that is lost, went back or is ahead of its journal. Driver only."""

from collections.abc import Mapping
from typing import Any

from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.protocol import ways
from streamsink.protocol.admission.renamed import BEHIND_THE_OTHERS, look_first, word_without_journal
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.run.restore import token_of
from streamsink.sinks.paimon.past.place import Place


def unknown_record(place: Place, root: str, found: AppState, last: LastOfOther) -> Misuse:
    """The error for a table that names a record which the journal does not know.

    root: path of the table. found: the state that it says. last: the newest record that any of the tables names.
    """
    return Misuse(
        f"{root}: it carries record {found.sequence} of application '{place.application}', which the journal of "
        f"{place.root} does not know: that journal was removed or replaced, or another warehouse writes this table "
        "under the same name. Nothing was written. Restore the journal's folder; or, where that is lost, "
        f"{without_journal(last)}: what was pending in the journal is then left out",
        kind="tables.unknown-record",
    )


def first_start(place: Place, root: str, word: str, adopts: int | None) -> Misuse:
    """The error for a table that cannot tell whether the application has written it, where the journal is empty.

    root: path of the table. word: the value of ``new_application`` with which the query starts all the same. adopts:
    the value of ``adopt_from_batch``.
    """
    return Misuse(
        f"{root}: the journal of {place.root} is empty and older snapshots of this table have expired, so whether "
        f"application '{place.application}' wrote here before cannot be told. Nothing was written. If it never did, "
        f"set new_application='{word}'.{ways.adopting(adopts)} If it did, look which of its rows are in the tables: "
        "delete there those of a batch that only some of its tables have, let it begin behind the others (a new "
        "checkpoint with startingOffsets; files whose rows are here moved away), and set "
        f"new_application='{word}'",
        kind="history.incomplete",
    )


def gone(place: Place, name: str, head: Mapping[str, Any], journal: FileJournal) -> Misuse:
    """The error for a table that does not exist any more. head: what the journal knows of it."""
    return Misuse(
        f"{place.absolute(head['path'])}: table '{name}' is gone: application '{place.application}' has written it up "
        f"to record {head['sequence']}. Nothing was written. Stop the query, and restore the "
        f"table{_without_it(place, name, journal)}",
        kind="table.gone",
    )


def lost(place: Place, root: str, kind: str, journal: FileJournal) -> Misuse:
    """The error for a table that existed when this process opened it and does not now, or that has another identity.

    root: path of the table. kind: ``table.gone`` or ``table.recreated``.
    """
    newest = journal.newest()
    heads = newest.payload["heads"] if newest is not None else {}
    name = next((name for name, head in heads.items() if place.absolute(head["path"]) == root), None)
    what = "is gone, which" if kind == "table.gone" else "was dropped and recreated since"
    return Misuse(
        f"{root}: the table {what} application '{place.application}' has written. Nothing was written. Stop the query, "
        f"and restore the table{_without_it(place, name, journal)}",
        kind=kind,
    )


def moved(place: Place, name: str, path: str, before: str) -> Misuse:
    """The error for a table whose rule has another path now. before: the path that the records say."""
    return Misuse(
        f"{place.absolute(path)}: table '{name}' was written at {place.absolute(before)} so far. Nothing was written. "
        "Give it that path, or another name",
        kind="tables.moved",
    )


def rolled_back(
    place: Place, name: str, head: Mapping[str, Any], sequence: int, *, journal: FileJournal, before: str | None = None
) -> Misuse:
    """The error for a table that does not have a published record any more.

    head: what the journal knows of the table. sequence: number of the record. before: the application that the record
    is of, when that is the name that the query had before.
    """
    by = f"'{place.application}'" if before is None else f"'{before}', which was the query's name before,"
    return Misuse(
        f"{place.absolute(head['path'])}: record {sequence} of application {by} was published in table '{name}', which "
        "does not have it: the table was rolled back, restored or lost its metadata, or another writer's rename "
        "replaced its snapshot. Nothing was written to any table. Restore the "
        f"table{_without_it(place, name, journal)}. (on_rollback='republish' is for a query of one table)",
        kind="table.rolled-back",
    )


def ahead(place: Place, name: str, head: Mapping[str, Any], known: int, last: LastOfOther) -> Misuse:
    """The error for a table that has later records than the journal.

    head: what the journal knows of the table. known: number of the last record that the table has. last: the newest
    record that any of the tables names.
    """
    return Misuse(
        f"{place.absolute(head['path'])}: table '{name}' has record {known} of application '{place.application}', but "
        f"the journal of {place.root} ends at record {head['sequence']} of it: the journal was restored from an older "
        f"copy. Nothing was written. Restore the newest copy; or, where that is lost, {without_journal(last)}: what "
        "was pending in the newest copy is then left out",
        kind="tables.journal-behind",
    )


def other_past(place: Place, head: Mapping[str, Any], found: AppState, own: str, last: LastOfOther) -> Misuse:
    """The error for a table and a journal that have different records of one number.

    head: what the journal knows of the table. found: the last state that the table says. own: id of the journal's
    record of that number. last: the newest record that any of the tables names.
    """
    return Misuse(
        f"{place.absolute(head['path'])}: the last record of application '{place.application}' here, number "
        f"{found.sequence}, has the id {found.record_id}, but in the journal of {place.root} the record of this number "
        f"has the id {own}: tables and journal have one past and went on in different ways, as when one of them was "
        "restored from a backup. Nothing was written. Restore the tables or the journal, so that both are of one time; "
        f"or, where that is lost, {without_journal(last)}: what was pending in the journal is then left out",
        kind="journal.other",
    )


def without_journal(last: LastOfOther) -> str:
    """The way on, for a message, where the journal is lost: another name that begins behind what the tables have.

    last: the newest record that any of the tables names; only the journal could tell whether all of them have their
    part of it.
    """
    way = _another_name(last.state.checkpoint_id, f" and accept_as_seen='{word_without_journal(last.state)}'")
    return f"{look_first(last, way)}, set another application and {BEHIND_THE_OTHERS}" if last.forgotten_by else way


def _another_name(last: int, word: str = "") -> str:
    """The way on under another name. last: the newest checkpoint that is published."""
    return (
        f"set another application and adopt_from_batch={last + 1}{word} for its first start, with the checkpoint as it "
        "is (a new one would write every row a second time)"
    )


def word_of_another_name(newest: Committable, name: str) -> str:
    """The word of ``accept_as_seen`` by which another name goes on without what this table has lost.

    newest: the newest record under the name before. name: of the table.
    """
    return token_of(newest, f"another name without {name}")


def _without_it(place: Place, name: str | None, journal: FileJournal) -> str:
    """The way on without the rows of a table that is lost.

    While a record is pending, it says to give that up first: under another name nothing that is pending would be
    published.
    """
    newest = journal.newest()
    if newest is None:
        return "; or restart the query: nothing of it is recorded yet"
    if not journal.is_marked(newest.state.sequence):
        return (
            f"; or, to go on without what it lost: record {newest.state.sequence} is pending for other tables, too, so "
            f"first call streamsink.give_up({place.root!r}, application={place.application!r}), which forgets that "
            "record, and restart the query: its next error says how"
        )
    word = f" and accept_as_seen='{word_of_another_name(newest, name)}'" if name is not None else ""
    return f"; or, to go on without what it lost, {_another_name(newest.state.checkpoint_id, word)}"
