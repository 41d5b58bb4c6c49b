"""What several tables had under the name that a query had before. Its first record under the new name has a part in each of them. Driver only.

From then on they are tables of the new name, as if it had written them: one that loses what it had is noticed by its chain.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamsink.errors import Corrupt
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.options import SinkOptions, with_word, words_of
from streamsink.protocol.committable import AppState, LastOfOther
from streamsink.protocol.journal import Mark
from streamsink.sinks.paimon.past import chain_errors
from streamsink.sinks.paimon.past.history_of import last_of_others, newest_in, newest_now
from streamsink.sinks.paimon.past.marks import mark_of_table
from streamsink.table.table import is_table

# An application of several tables has this behind its name in each of them.
SUFFIX = "@tables"


@dataclass(frozen=True)
class Had:
    """A table, and the last record of the name before in it. key: that name, as tables know it. where: it was there, or before that."""

    name: str
    path: str
    table_id: str
    key: str
    sequence: int
    where: Mark | None = None

    @property
    def application(self) -> str:
        """The name before, as its user gives it."""
        return self.key.removesuffix(SUFFIX)

    def to_json(self) -> dict[str, Any]:
        """What the first record under the new name says of the table."""
        return {"had": [self.key, self.sequence]} | ({"had_at": self.where.to_json()} if self.where is not None else {})


class NameBefore:
    """What the tables had under the name before."""

    def __init__(self, place, member: Callable[..., Any], existing: Callable, options: SinkOptions):
        """place, member: as of ``ManyTables``. existing(): (name, path) of each table that is there and that the query might write."""
        self._place = place
        self._member = member
        self._existing = existing
        self._options = options

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        """By name, the last record of each other application that has written one of the tables, or several of them."""
        found: dict[str, LastOfOther] = {}
        members = [self._member(name, path) for name, path in self._existing()]
        for member in members:
            for other, last in last_of_others(member.table, self._place.key).items():
                known = found.get(other)
                if known is None or known.state.sequence < last.state.sequence:  # not every record is of every table
                    found[other] = replace(last, is_whole=not other.endswith(SUFFIX))
        folder = os.path.dirname(journal_dir(self._place.root, application))
        for entry in self._place.file_io.entries(folder):  # nor does every record put rows into one that is there still
            other = entry.name + SUFFIX
            if entry.is_dir and other != self._place.key:
                # The journal is the authority: a table that has less than it is not one that was rolled back, and one that has its part
                # of a record does not say that the others have theirs.
                journal = FileJournal(self._place.file_io, self._place.root, entry.name, 2)
                last = newest_in(journal, None, lambda record: True)
                known = found.get(other)
                if last is not None and (
                    known is None or known.state.sequence <= last.state.sequence and _knows(journal, known.state)
                ):
                    found[other] = last
        return {
            other: last if last.is_whole else replace(last, forgotten_by=forgotten_by(members, other))
            for other, last in found.items()
        }

    def tables(self, key: str, query: str, path_of: Callable[[str], str | None]) -> list[Had]:
        """Those that have it still. query: the id of the one that was renamed. path_of: as of ``ManyTables``.

        Raises Misuse: one of them has not, and no word in ``accept_as_seen`` says that the query is to go on without it.
        """
        journal = FileJournal(self._place.file_io, self._place.root, key.removesuffix(SUFFIX), 2)
        names = {path: name for name, path in self._existing()}  # a table may get another name with the query
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
            for name, head in (newest.payload["heads"] if newest else {}).items()
        }
        kept = []
        for each in sorted((had | self._said_by_tables(names, had, key, query)).values(), key=lambda each: each.name):
            if (path_of(each.name) or each.path) != each.path:
                continue  # the rule has another path now, and another table follows
            lost = self._loss(each)
            word = chain_errors.word_of_another_name(newest, each.name) if newest else ""
            if lost is None:
                kept.append(replace(each, where=each.where or newest_now(self._member(each.name, each.path).table)))
            elif word not in (given := words_of(self._options.accept_as_seen)):
                option = with_word(self._options.accept_as_seen, word, given)
                raise chain_errors.lost_before(self._place, each, lost, option)
        return kept

    def _said_by_tables(
        self, names: Mapping[str, str], known: Mapping[str, Had], key: str, query: str
    ) -> dict[str, Had]:
        """What tables say where the journal of that name is lost, or older, or is one of a single table. names, known: by path."""
        found = {}
        for path, name in names.items():
            member = self._member(name, path)
            state: AppState | None = member.committer.history(key).state
            is_its = state is not None and (key.endswith(SUFFIX) or state.query == query)
            if is_its and (path not in known or state.sequence > known[path].sequence):
                found[path] = Had(name, path, member.table.table_id, key, state.sequence)
        return found

    def _loss(self, had: Had) -> str | None:
        """What has befallen the table since, as the kind of an error; None when nothing has."""
        if not is_table(self._place.file_io, self._place.absolute(had.path)):
            return "table.gone"
        member = self._member(had.name, had.path)
        if member.table.table_id != had.table_id:
            return "table.recreated"
        return None if member.committer.has_reached(had.key, had.sequence, had.where) else "table.rolled-back"


def _knows(journal: FileJournal, state: AppState) -> bool:
    """Whether the journal has this record of a table, as far as it remembers: it may have been put back, and be of another past."""
    try:
        record = journal.load(state.sequence)
    except Corrupt:
        return True  # what is damaged is told where it is read
    return record is None or record.state.record_id == state.record_id


def forgotten_by(members: Iterable[Any], key: str) -> tuple[str, ...]:
    """Paths of the tables that cannot tell whether the application of that name has written them. members: of ``ManyTables``."""
    said = {member.table.root: member.committer.history(key) for member in members}
    return tuple(sorted(root for root, history in said.items() if history.state is None and not history.complete))


def parts_of_all(written: Mapping[str, tuple[Any, ...]], had: Iterable[Had]) -> dict[str, tuple]:
    """By table name, path and files: those that have rows, and without files those that had some under the name before."""
    return {each.name: (each.path, ()) for each in had} | dict(written)
