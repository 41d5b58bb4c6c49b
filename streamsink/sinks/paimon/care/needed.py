"""What the journals of queries need of a table: snapshots and files of records that nobody has marked as published.

A restart asks the snapshots since such a record was made whether they name it (``past/filter_of.py``), and whether the
snapshot on which its own is built is that one still (``table/commit/late.py``). So these snapshots stay.
"""

import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from streamsink.errors import Misuse
from streamsink.journal.announced import announced_in, compactions_in
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal
from streamsink.journal.identity import is_of
from streamsink.journal.others import is_certain
from streamsink.protocol.committable import DEAD_LETTERS, AppState, Committable
from streamsink.sinks.paimon.past.place import SUFFIX
from streamsink.table.care.removal import Needed, Needing
from streamsink.table.history.retained import branches
from streamsink.table.table import Table

# In how many folders above a table the journal of a query of several tables is looked for that the table does not know.
_ABOVE = 3


def needed_by_journals(table: Table, places: Sequence[str] = ()) -> Needing:
    """What the journals need now, each time it is asked.

    Journals lie in the table itself, in the folders above it (queries of several tables), and, of a table for dead
    letters, in the tables beside it. places: paths of further tables or folders that have journals. What it returns
    raises Corrupt, naming the file, for a record that cannot be read: then nothing may be deleted.
    """

    def needed() -> Needed:
        states = table.states.read(table.snapshots.latest()).by_application
        found = Needed()
        for place in dict.fromkeys([*_places(table, states, everywhere=False), *_given(table, places)]):
            for application in _applications(table, place):
                for part in _pending(table, place, application, states):
                    found = found.with_other(part)
        return found

    return needed


def needed_of_all(table: Table, places: Sequence[str] = (), without: Collection[str] = ()) -> Needing:
    """As ``needed_by_journals``, for who deletes what no snapshot names: branches and all tables beside this one are
    asked, records that are being made count, and each application that the table knows must have its journal where it
    is looked for. So do compactions that may yet commit: they are announced until somebody has settled them.

    without: names of applications whose journals are gone for good. What it returns raises Misuse
    ``orphans.journal-unknown`` where another one is missing.
    """

    def needed() -> Needed:
        states = table.states.read(table.snapshots.latest()).by_application
        found, missing = Needed(), {name for name in states if _journal_of(name) not in without}
        for place in dict.fromkeys([*_places(table, states, everywhere=True), *_given(table, places)]):
            applications = _applications(table, place)
            missing -= {name for name in missing if _is_of(table, place, applications, name, states[name])}
            journals = [os.path.join(place, JOURNAL_DIR, name) for name in applications]
            compactions = compactions_in(table.file_io, os.path.join(place, JOURNAL_DIR))
            attempts = frozenset(compactions | announced_in(table.file_io, journals))
            found = found.with_other(Needed(attempts=attempts))
            for application in applications:
                for part in _pending(table, place, application, states):
                    found = found.with_other(part)
        if missing:
            raise _unknown(table, sorted(set(map(_journal_of, missing))))
        return found

    return needed


def _journal_of(name: str) -> str:
    """The application whose journal it is. name: as the table's states have it."""
    return name.partition("@")[0]


def _is_of(table: Table, place: str, applications: Sequence[str], name: str, said: Mapping[str, Any]) -> bool:
    """Whether the journal that wrote this state lies there. Those of other tables may have the same name."""
    application, state = _journal_of(name), AppState.told(said)
    if application not in applications:
        return False
    if is_of(table.file_io, os.path.join(place, JOURNAL_DIR, application), state):
        return True
    journal = FileJournal(table.file_io, place, application, 2)  # earlier code gave it no identity
    journal.read_listing()
    return not state.journal_id and bool(journal.retained())


def _unknown(table: Table, missing: Sequence[str]) -> Misuse:
    names = ", ".join(f"'{name}'" for name in missing)
    return Misuse(
        f"{table.root}: the journal of {names} is not in the table, above it or beside it, so which files it is about "
        "to publish is not known. Nothing was deleted. Give the folder or table that holds it: journals=['<path>']. "
        f"Where it is gone for good, and no query of that name runs: without_journals=[{names}]",
        kind="orphans.journal-unknown",
    )


def _places(table: Table, states: Iterable[str], *, everywhere: bool) -> Iterator[str]:
    """Where journals may lie: as the table's path says it, and where that leads by links."""
    beside = everywhere or any("@" in name and not name.endswith(SUFFIX) for name in states)
    yield from (path for _, path in branches(table))  # the table itself first
    for root in dict.fromkeys((table.layout.main, _real(table.layout.main))):
        yield root
        yield from _above(table, root, states)
        folder = root.rpartition("/")[0]
        entries = table.file_io.entries(folder) if beside else ()
        yield from (f"{folder}/{e.name}" for e in entries if e.is_dir and e.name != JOURNAL_DIR)


def _above(table: Table, root: str, states: Iterable[str]) -> Iterator[str]:
    """The folders above, further up only while the journal of a query of several tables has not been found."""
    missing = {_journal_of(name) for name in states if name.endswith(SUFFIX)}
    above, _, name = root.rpartition("/")
    for depth in itertools.count():
        if not name or not above or above.endswith("/") or depth >= _ABOVE and not missing:
            return
        yield above
        missing -= set(_applications(table, above)) if missing else set()
        above, _, name = above.rpartition("/")


def _real(path: str) -> str:
    """Without symbolic links, which only a local disk has."""
    return path if "://" in path else os.path.realpath(path)


def _is_at(table: Table, path: str) -> bool:
    return path == table.root or _real(path) == _real(table.root)


def _given(table: Table, places: Sequence[str]) -> Sequence[str]:
    """The same. Raises Misuse for one in which no journal lies: then it is another one that is meant."""
    for place in places:
        if not _applications(table, place):
            raise Misuse(
                f"{table.root}: journals names {place}, and no journal lies there, expected a table or folder that has "
                f"a folder '{JOURNAL_DIR}' with the journal of an application. Nothing was deleted. Give that one",
                kind="journals.none",
            )
    return places


def _applications(table: Table, place: str) -> list[str]:
    return [entry.name for entry in table.file_io.entries(os.path.join(place, JOURNAL_DIR)) if entry.is_dir]


def _pending(table: Table, place: str, application: str, states: Mapping[str, Mapping[str, Any]]) -> Iterator[Needed]:
    """What each record needs that may yet be published, or be looked for."""
    journal = FileJournal(table.file_io, place, application, 2, of_table=True)
    journal.read_listing()
    said = states.get(application)
    published = AppState.told(said).sequence if said is not None and _is_at(table, place) else 0
    of_tables = f"{application}{SUFFIX}" in states
    for sequence in journal.retained():
        # A mark is read only where it may be that of a record that comes again: not of one that the table says it has,
        # nor of one of several tables.
        if journal.is_marked(sequence) and (sequence <= published or of_tables or is_certain(journal, sequence)):
            continue
        record = journal.load(sequence)
        if record is not None:
            base, why = _base(table, place, record), _why(place, record)
            yield Needed(base, why, frozenset(_names(record)), folders=frozenset(_folders(record)))


def _why(place: str, record: Committable) -> str:
    return (
        f"record {record.state.sequence} of application '{record.application}' in {place} is not marked as published; "
        "the query's next batch, or its next start, marks it; where the query is no more, "
        f"streamsink.retire({place!r}, application='{record.application}') takes it out"
    )


def _base(table: Table, place: str, record: Committable) -> int | None:
    """Number of the snapshot on which the record was made; None where it has no part for this table."""
    payload, found = record.payload, list[int | None]()
    letters = payload.get(DEAD_LETTERS)
    if letters is not None and _is_at(table, f"{place.rpartition('/')[0]}/{letters['name']}"):
        found.append(letters.get("base"))
    if "tables" in payload:
        found += [e.get("base") for e in payload["tables"] if _is_at(table, os.path.join(place, e["path"]))]
    elif _is_at(table, place) and record.state.table_id == table.table_id:
        found.append(payload.get("base"))
    return min((base or 0 for base in found), default=None)


def _names(record: Committable) -> Iterator[str]:
    """Names of all data files and manifests of the record, in whatever table."""
    payload = record.payload
    parts: list[Mapping[str, Any]] = [payload, *payload.get("tables", ()), *payload.get("joined", ())]
    letters = payload.get(DEAD_LETTERS)
    if letters is not None:
        parts.append(letters)
        yield from (os.path.basename(file["final"]) for file in letters["files"])
    yield from (os.path.basename(file.final) for file in record.files)
    yield from (os.path.basename(part["manifest"]["final"]) for part in parts if part.get("manifest"))


def _folders(record: Committable) -> Iterator[str]:
    """Folders of all data files of the record, in whatever table, relative to that or to the record's place."""
    letters = record.payload.get(DEAD_LETTERS)
    yield from (os.path.dirname(file.final) for file in record.files)
    yield from (os.path.dirname(file["final"]) for file in (letters["files"] if letters is not None else ()))
