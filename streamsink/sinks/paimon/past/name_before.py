"""What several tables had under the name that a query had before. Driver only.

The query's first record under the new name has a part in each of these tables, and says what they had. From then on
they are tables of the new name, as if it had written them, so that their chains show when one of them loses what it
had.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal, journal_dir
from streamsink.journal.others import newest_in
from streamsink.options import SinkOptions, with_word, words_of
from streamsink.protocol.committable import AppState, LastOfOther
from streamsink.protocol.journal import Mark
from streamsink.sinks.paimon.past import chain_errors
from streamsink.sinks.paimon.past.history_of import last_of_others, newest_now
from streamsink.sinks.paimon.past.marks import mark_of_table
from streamsink.sinks.paimon.past.place import SUFFIX, Existing, OpenMember, OpensMember, Place
from streamsink.sinks.paimon.past.record_of_tables import heads_in
from streamsink.storage.reading import Questions
from streamsink.table.table import is_table
from streamsink.table.write.spec import WrittenFile


@dataclass(frozen=True)
class Had:
    """A table, and the last record in it under the name that the query had before.

    path: relative to the folder of the tables. key: the name before, as tables know it. sequence: number of that
    record. where: the record was published there, or before that; None where it is not known.
    """

    name: str
    path: str
    table_id: str
    key: str
    sequence: int
    where: Mark | None = None

    @property
    def application(self) -> str:
        """The name before, as its user gives it, without the suffix that it has in the tables."""
        return self.key.removesuffix(SUFFIX)

    def to_json(self) -> dict[str, Any]:
        """What the first record under the new name says of the table, as entries of that table's part."""
        return {"had": [self.key, self.sequence]} | ({"had_at": self.where.to_json()} if self.where is not None else {})


class NameBefore:
    """Looks up what the tables have of the names that a query had before."""

    def __init__(self, place: Place, member: OpensMember, existing: Existing, options: SinkOptions):
        self._place = place
        self._member = member
        self._existing = existing
        self._options = options

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        """By name, the last record of each other application that has written one of the tables, or several of them.

        An application counts with its journal in the folder of the tables, too: not every record of it puts rows into a
        table that still exists. Where tables and journal differ, the journal is the authority: a table that has less
        than it says is not one that was rolled back, and a table that has its part of a record does not say that the
        others have theirs.
        """
        members = [self._member(name, path) for name, path in self._existing()]
        folder = os.path.dirname(journal_dir(self._place.root, application))
        folders = [member.table.layout.within(JOURNAL_DIR) for member in members]
        with self._place.file_io.asking(Questions(names=(folder, *folders))):
            return self._others(members, folder)

    def _others(self, members: Sequence[OpenMember], folder: str) -> Mapping[str, LastOfOther]:
        """As ``others``. members: the tables that exist. folder: of the journals."""
        found: dict[str, LastOfOther] = {}
        for member in members:
            for other, last in last_of_others(member.table, self._place.key).items():
                known = found.get(other)
                # Not every record is of every table: the newest that any of them names counts.
                if known is None or known.state.sequence < last.state.sequence:
                    found[other] = replace(last, is_whole=not other.endswith(SUFFIX))
        for entry in self._place.file_io.entries(folder):
            other = entry.name + SUFFIX
            if entry.is_dir and other != self._place.key:
                journal = FileJournal(self._place.file_io, self._place.root, entry.name, 2)
                newest = newest_in(journal, None, lambda record: True)
                known = found.get(other)
                if newest is not None and (
                    known is None or known.state.sequence <= newest.state.sequence and _knows(journal, known.state)
                ):
                    found[other] = newest
        return {
            other: last if last.is_whole else replace(last, forgotten_by=forgotten_by(members, other))
            for other, last in found.items()
        }

    def tables(self, key: str, query: str, path_of: Callable[[str], str | None]) -> list[Had]:
        """The tables that still have what they had under the name before, sorted by name.

        key: that name, as tables know it. query: id of the query that was renamed. path_of: as in
        ``ManyTables.had_before``. Raises Misuse when one of them does not have it any more, and no word in
        ``accept_as_seen`` says that the query is to go on without it.
        """
        journal = FileJournal(self._place.file_io, self._place.root, key.removesuffix(SUFFIX), 2)
        # By path, because a table may get another name together with the query.
        names = {path: name for name, path in self._existing()}
        said = (self._member(name, path).committer.history(key).state for path, name in names.items())
        newest = (
            journal.newest()
            if key.endswith(SUFFIX) and all(state is None or _knows(journal, state) for state in said)
            else None
        )
        had = {
            head["path"]: Had(
                names.get(head["path"], name),
                head["path"],
                head["table_id"],
                key,
                head["sequence"],
                mark_of_table(journal, head["sequence"], name),
            )
            for name, head in heads_in(newest).items()
        }
        kept = []
        for each in sorted((had | self._said_by_tables(names, had, key, query)).values(), key=lambda each: each.name):
            if (path_of(each.name) or each.path) != each.path:
                continue  # the rule has another path now, so that another table goes on under this name
            lost = self._loss(each)
            word = chain_errors.word_of_another_name(newest, each.name) if newest else ""
            if lost is None:
                kept.append(replace(each, where=each.where or newest_now(self._member(each.name, each.path).table)))
            elif word not in (given := words_of(self._options.accept_as_seen)):
                option = with_word(self._options.accept_as_seen, word, given)
                raise _lost_before(self._place, each, lost, option)
        return kept

    def _said_by_tables(
        self, names: Mapping[str, str], known: Mapping[str, Had], key: str, query: str
    ) -> dict[str, Had]:
        """By path, what the tables say: the journal of that name may be lost or older, or be that of a single table.

        names: by path, names of the tables. known: by path, what the journal says.
        """
        found = {}
        for path, name in names.items():
            member = self._member(name, path)
            state: AppState | None = member.committer.history(key).state
            if state is None or not key.endswith(SUFFIX) and state.query != query:
                continue
            if path not in known or state.sequence > known[path].sequence:
                found[path] = Had(name, path, member.table.table_id, key, state.sequence)
        return found

    def _loss(self, had: Had) -> str | None:
        """What has happened to the table since, as the kind of an error; None when it still has that record."""
        if not is_table(self._place.file_io, self._place.absolute(had.path)):
            return "table.gone"
        member = self._member(had.name, had.path)
        if member.table.table_id != had.table_id:
            return "table.recreated"
        return None if member.committer.has_reached(had.key, had.sequence, had.where) else "table.rolled-back"


def _knows(journal: FileJournal, state: AppState) -> bool:
    """Whether the journal has the record that a table names, as far as it remembers.

    It may not when it was restored from a copy, and has another past than the table.
    """
    try:
        record = journal.load(state.sequence)
    except Corrupt:
        return True  # a damaged record is reported where it is needed
    return record is None or record.state.record_id == state.record_id


def forgotten_by(members: Iterable[OpenMember], key: str) -> tuple[str, ...]:
    """Paths of the tables whose history has expired: they cannot tell whether this application has written them.

    key: the name of the application, as tables know it.
    """
    said = {member.table.root: member.committer.history(key) for member in members}
    return tuple(sorted(root for root, history in said.items() if history.state is None and not history.complete))


def parts_of_all(
    written: Mapping[str, tuple[str, Sequence[WrittenFile]]], had: Iterable[Had]
) -> dict[str, tuple[str, Sequence[WrittenFile]]]:
    """By table name, (path, files) of the tables that have rows, and (path, no files) of those in ``had`` alone."""
    return {each.name: (each.path, ()) for each in had} | dict(written)


def _lost_before(place: Place, had: Had, kind: str, option: str) -> Misuse:
    """The error for a table that does not have what it had under the name before.

    option: the value of ``accept_as_seen`` that goes on without it.
    """
    by = f"record {had.sequence} of application '{had.application}', which was the query's name before"
    what = {"table.gone": f"is gone: it had {by}", "table.recreated": f"was dropped and recreated: it had {by}"}.get(
        kind,
        f"does not have {by}: it was rolled back, restored or lost its metadata, or another writer's rename replaced "
        "its snapshot",
    )
    return Misuse(
        f"{place.absolute(had.path)}: table '{had.name}' {what}. Nothing was written to any table. Stop the query, and "
        f"restore the table; or, to go on without these rows, set accept_as_seen='{option}'",
        kind=kind,
    )
