"""The journals below a place: who owns each, what is pending in it, and what of that is there. Changes nothing."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal, journal_dir
from streamsink.journal.others import is_certain
from streamsink.protocol.committable import AppState, Committable
from streamsink.sinks.paimon.past.place import SUFFIX, folder_of
from streamsink.sinks.paimon.past.records import files_in_place
from streamsink.storage.file_io import FileIO
from streamsink.table.application_states import States
from streamsink.table.table import Table, is_table, open_table

# What a journal belongs to.
OF_TABLE, OF_TABLES, OF_SINK = "table", "tables", "sink"
_HEADS, _KIND = "heads", "kind"  # keys in the payloads of records of several tables, and of all Paimon tables
_BESIDE_FILES = ("_streamsink",)  # folders of a destination whose own folder readers list
_OWNER, _RECORD = "owner-", "record-"


@dataclass(frozen=True)
class Owner:
    """Who has claimed an application last. Empty texts and 0 where the owner's file does not say it."""

    epoch: int
    query: str
    host: str
    pid: int


@dataclass(frozen=True)
class Record:
    """A record that is not published yet, or whose publishing was undone.

    name: what the user calls the checkpoint. path: of the record's file. rows, files, bytes: None where the record
    cannot be read, which ``problem`` says. gone: paths of files of it that are nowhere. undone: a mark says that it
    was published, and the table does not have it.
    """

    sequence: int
    name: str
    path: str
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    written_ms: int | None = None
    gone: Sequence[str] = ()
    undone: bool = False
    problem: str = ""


@dataclass(frozen=True)
class JournalLook:
    """One application's journal.

    path: what it was found at, which commands about it are given: a table, a folder of several, or a sink's folder.
    place: its own folder. of: OF_TABLE, OF_TABLES or OF_SINK. published: number of the last record that is published,
    as far as table or marks tell. pending: records behind it, in order. missing: number of the first record that is
    missing between these, if one is.
    """

    application: str
    path: str
    place: str
    of: str
    owner: Owner | None
    published: int
    retained: int
    pending: Sequence[Record]
    missing: int | None = None


def journals_at(file_io: FileIO, root: str) -> str:
    """The place below which the journals of this table, folder or sink lie."""
    if not file_io.entries(os.path.join(root, JOURNAL_DIR)):
        for name in _BESIDE_FILES:
            if file_io.entries(os.path.join(root, name, JOURNAL_DIR)):
                return os.path.join(root, name)
    return root


def applications_of(file_io: FileIO, root: str) -> list[str]:
    """The names of the applications that have a journal here, in alphabetical order."""
    folder = os.path.join(journals_at(file_io, root), JOURNAL_DIR)
    return sorted(entry.name for entry in file_io.entries(folder) if entry.is_dir)


def look_at_journals(file_io: FileIO, root: str, application: str | None = None) -> list[JournalLook]:
    """Look at the journal of each application, or of this one.

    Raises Misuse when there is no journal of that name, or neither a journal nor a table; Corrupt when the table's
    schema or newest snapshot is damaged.
    """
    names = applications_of(file_io, root)
    if application is not None and application not in names:
        raise no_journal(root, application, names, file_io)
    table = open_table(file_io, root, for_writing=False) if is_table(file_io, root) else None
    if table is None and not names:
        raise nothing_here(root)
    states = table.states.read(table.snapshots.latest()) if table is not None else None
    place = journals_at(file_io, root)
    return [
        _Look(file_io, place, name, table, states).look(root)
        for name in ([application] if application is not None else names)
    ]


def journals_above(file_io: FileIO, root: str, application: str | None = None) -> list[JournalLook]:
    """The journals of queries into several tables that have written the one at ``root``; or of this query.

    Such a journal lies in a folder above the table. Empty where there is no table, and without those that are lost.
    Raises Corrupt when the table's newest snapshot is damaged.
    """
    found = [look_at_journals(file_io, folder, name) for name, folder in _places_above(file_io, root, application)]
    return [look for looks in found for look in looks]


def _places_above(file_io: FileIO, root: str, application: str | None) -> Iterator[tuple[str, str]]:
    """(application, folder above the table with its journal), as of ``journals_above``."""
    if not is_table(file_io, root):
        return
    table = open_table(file_io, root, for_writing=False)
    for key, said in sorted(table.states.read(table.snapshots.latest()).by_application.items()):
        name = key.removesuffix(SUFFIX)
        if name != key and application in (None, name):
            folder = folder_of(file_io, root, name, AppState.from_json(said))
            if folder is not None:
                yield name, folder


def has_state(file_io: FileIO, root: str, application: str) -> bool:
    """Whether the table at ``root``, if there is one, has a state of the application."""
    if not is_table(file_io, root):
        return False
    table = open_table(file_io, root, for_writing=False)
    return application in table.states.read(table.snapshots.latest()).by_application


def no_journal(root: str, application: str, known: Sequence[str], file_io: FileIO | None = None) -> Misuse:
    """The error for a name that has no journal here. known: those that have one. file_io: of a table, which may say
    that the query writes it among several.
    """
    above = ""
    with contextlib.suppress(Corrupt, FileNotFoundError):  # a damaged snapshot is told of by others
        above = next((at for _, at in _places_above(file_io, root, application)), "") if file_io is not None else ""
    way = f"The query writes several tables: give the path {above}, where its journal is" if above else ""
    return Misuse(
        f"{root}: there is no journal of application '{application}' here; those that have one: "
        f"{', '.join(known) or 'none'}. Nothing was changed. "
        f"{way or 'Give the path that the query writes to, and its own name'}",
        kind="journal.unknown",
    )


def nothing_here(root: str) -> Misuse:
    """The error for a place that nobody has written to, which most likely is misspelt."""
    return Misuse(
        f"{root}: there is neither a table nor a journal here. Nothing was changed. Give the path that the query "
        "writes to; of several tables that have a query each, give the path of one",
        kind="journal.no-place",
    )


def owner_of(file_io: FileIO, folder: str) -> Owner | None:
    """The newest owner of the journal in this folder; None where nobody has claimed it."""
    epochs = [
        int(n[len(_OWNER) :]) for n in file_io.names(folder) if n.startswith(_OWNER) and n[len(_OWNER) :].isdigit()
    ]
    if not epochs:
        return None
    try:
        said = json.loads(file_io.read(os.path.join(folder, f"{_OWNER}{max(epochs)}")))
        return Owner(max(epochs), str(said.get("query", "")), str(said.get("host", "")), int(said.get("pid", 0)))
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return Owner(max(epochs), "", "", 0)  # its file is damaged, or it was pruned since the listing


class _Look:
    def __init__(self, file_io: FileIO, root: str, application: str, table: Table | None, states: States | None):
        self._io, self._root, self._name, self._table, self._states = file_io, root, application, table, states
        self._journal = FileJournal(file_io, root, application, 2, of_table=table is not None)

    def look(self, path: str) -> JournalLook:
        self._journal.read_listing()
        retained = self._journal.retained()
        loaded = {sequence: self._load(sequence) for sequence in retained}
        published, is_known = self._published(retained)
        behind = [sequence for sequence in retained if sequence > published]
        first = published + 1 if is_known or not behind else behind[0]
        missing = next((number for number, s in enumerate(behind, first) if s != number), None)
        newest = next((found for s in reversed(retained) if isinstance(found := loaded[s], Committable)), None)
        kind = self._kind(newest)
        return JournalLook(
            self._name,
            path,
            self._journal.place,
            kind,
            owner_of(self._io, journal_dir(self._root, self._name)),
            published,
            len(retained),
            [self._record(sequence, loaded[sequence], kind) for sequence in behind],
            missing,
        )

    def _published(self, retained: Sequence[int]) -> tuple[int, bool]:
        """(number of the last published record as far as it is known, whether it is known)."""
        said = self._states.by_application.get(self._name) if self._states is not None else None
        if said is not None:
            return AppState.from_json(said).sequence, True
        marked = [sequence for sequence in retained if is_certain(self._journal, sequence)]
        return max(marked, default=0), bool(marked) or self._states is not None and self._states.complete

    def _load(self, sequence: int) -> Committable | Exception | None:
        try:
            return self._journal.load(sequence)
        except (Corrupt, Misuse) as broken:
            return broken

    def _kind(self, newest: Committable | None) -> str:
        if self._table is not None:
            return OF_TABLE
        payload: Mapping[str, object] = newest.payload if newest is not None else {}
        return OF_TABLES if _HEADS in payload else OF_TABLE if _KIND in payload else OF_SINK

    def _record(self, sequence: int, found: Committable | Exception | None, kind: str) -> Record:
        path = os.path.join(self._journal.place, f"{_RECORD}{sequence}.json")
        if not isinstance(found, Committable):
            problem = str(found) if found is not None else "it is gone"
            return Record(sequence, "", path, written_ms=self._io.modified_ms(path), problem=problem)
        return Record(
            sequence,
            found.state.checkpoint_name,
            path,
            found.rows,
            len(found.files),
            found.bytes,
            self._io.modified_ms(path),
            self._gone(found, kind),
            is_certain(self._journal, sequence),
        )

    def _gone(self, record: Committable, kind: str) -> Sequence[str]:
        if self._table is not None:
            return list(files_in_place(self._table, record)[2])
        if kind == OF_SINK:
            return ()  # only the sink knows where its files are
        places = [(os.path.join(self._root, f.staged), os.path.join(self._root, f.final)) for f in record.files]
        return [final for staged, final in places if not self._io.exists(final) and not self._io.exists(staged)]
