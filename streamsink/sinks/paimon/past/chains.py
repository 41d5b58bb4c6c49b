"""How far each of several tables is along the coordinating journal, and whether that can be true. Changes nothing."""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions, with_word, words_of
from streamsink.protocol.admission.renamed import same_program
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.journal import Mark, readable
from streamsink.protocol.run.restore import places_of_rows, token_of, word_of_new_application
from streamsink.protocol.sink import History
from streamsink.sinks.paimon.past import chain_errors
from streamsink.sinks.paimon.past.history_of import is_undone
from streamsink.sinks.paimon.past.marks import mark_of_table
from streamsink.sinks.paimon.past.name_before import SUFFIX, forgotten_by
from streamsink.table.table import is_table

# Of a table in which nothing can be published any more, whatever its part of a record says.
LOST = ("table.gone", "table.recreated", "table.rolled-back")


class Chains:
    """Compares the journal with the tables. The records that touched one table are its chain, newest first."""

    def __init__(
        self, place, journal: FileJournal, member: Callable[..., Any], own_parts: Callable, options: SinkOptions
    ):
        """member(name, path): an open table. own_parts(record): its tables' parts; see ``ManyTables``."""
        self._place = place
        self._journal = journal
        self._member = member
        self._own_parts = own_parts
        self._options = options
        self._expected: Callable[[], Sequence[tuple[str, str]]] = list
        self._record_id = functools.cache(
            lambda sequence: _record_id(journal, sequence)
        )  # many tables have one record as their last one

    def is_at(self, settled: Committable) -> bool:
        """Whether each table of that record has it as its last one: nothing happened since it was published."""
        without = self.left_out()
        for entry, mine in self._own_parts(settled):
            if entry["name"] in without:
                continue
            member = self._member(entry["name"], entry["path"])
            self._check_identity(member, entry)
            state = member.committer.history(self._place.key).state
            if state is None or state.record_id != mine.state.record_id:
                return False
        return True

    def last_settled(self, expected: Callable[[], Sequence[tuple[str, str]]]) -> Committable | None:
        """The newest record that all of its tables have, as all records before it are; None when there is none.

        Raises Misuse: a table was rolled back, dropped, recreated, or is ahead of the journal; the journal was removed.
        """
        self._expected = expected
        newest = self._journal.newest()
        heads = newest.payload["heads"] if newest is not None else {}
        unknown = [self._member(name, path) for name, path in expected() if name not in heads]
        for (
            member
        ) in unknown:  # also those without rows in the batch that comes, which would be recorded after what they have
            self.check_unknown(member)
        if newest is None:
            for member in unknown:
                self._check_first_start(member)
            return None
        missing: dict[int, str] = {}
        at: dict[str, int] = {}
        without = self.left_out()
        for name, head in heads.items():
            if name in without:
                continue
            at[name], behind = self._behind(name, head)
            for sequence in behind:
                missing.setdefault(sequence, name)
        first = min(missing, default=newest.state.sequence + 1)
        for sequence in at.values():
            if sequence > first:  # later records are published only after earlier ones
                raise chain_errors.rolled_back(
                    self._place, missing[first], heads[missing[first]], first, journal=self._journal
                )
        return _load(self._place, self._journal, first - 1) if first > 1 else None

    def check_head(self, name: str, member, head: Mapping[str, Any] | None) -> None:
        """The table must have exactly the record that the journal says (``head``; None: no record yet)."""
        if head is None:
            return  # its first record is pending
        self._check_identity(member, head)
        history = member.committer.history(self._place.key)
        found = history.state.sequence if history.state else 0
        is_expired = history.state is None and not history.complete  # then the journal tells
        if self.is_undone(head["sequence"], name, member) if is_expired else found != head["sequence"]:
            raise chain_errors.rolled_back(self._place, name, head, head["sequence"], journal=self._journal)

    def check_unknown(self, member) -> None:
        """A table that no record names must not know the application either."""
        root = member.table.root
        history = member.committer.history(self._place.key)
        if history.state is not None:
            raise chain_errors.unknown_record(self._place, root, history.state, self._newest_of_all(history.state))
        if member.committer.history(self._place.application).state is not None:
            raise Misuse(
                f"{root}: application '{self._place.application}' has written it through streamsink.to_table, whose records "
                f"this query cannot continue. Nothing was written. {same_program('streamsink.to_table')}. If it is another program, set another application",
                kind="tables.other-protocol",
            )

    def _check_first_start(self, member) -> None:
        """Where the journal is empty, a table must have all of its history, or its user says that nothing of the application is there."""
        word = word_of_new_application(self._place.root, self._place.journal_id, self._options)
        if not member.committer.history(self._place.key).complete and word not in words_of(
            self._options.new_application
        ):
            raise chain_errors.first_start(self._place, member.table.root, word)

    def check_name_before(self, member, entry: Mapping[str, Any]) -> None:
        """The table must have what it had under the query's name before. entry: of a record, the first one under this name, that it does not have."""
        key, sequence = entry.get("had") or ("", 0)
        where = Mark.from_json(entry["had_at"]) if "had_at" in entry else None
        if key and not member.committer.has_reached(key, sequence, where):
            before = key.removesuffix(SUFFIX)
            raise chain_errors.rolled_back(
                self._place, entry["name"], entry, sequence, journal=self._journal, before=before
            )

    def has_without_saying(self, member, mine: Committable) -> bool:
        """Whether the table has its part of a record although every snapshot that could say so has expired."""
        history = member.committer.history(self._place.key)
        if history.state is not None or history.complete:
            return False
        return self._is_accepted_as_seen(member, mine) or member.committer.mentions(mine)

    def has(self, sequence: int, name: str, path: str) -> bool:
        """Whether the table, which is there, has its part of a record. Raises Corrupt when nobody can tell, and no token does."""
        member = self._member(name, path)
        return self._has(sequence, _last_of(member.committer.history(self._place.key)), name, member)

    # -- tables that are lost --------------------------------------------------------------------------------------

    def lost(self) -> tuple[str, ...]:
        """Names of tables that were dropped, recreated or rolled back, or whose files of a pending record are gone: it cannot be published in them."""
        newest = self._journal.newest()
        heads = newest.payload["heads"] if newest else {}
        return tuple(name for name in sorted(heads) if self._is_lost(name, heads[name]))

    def left_out(self) -> Collection[str]:
        """Tables that are lost, and of which the user has said that the newest record, which is pending, is to do without them."""
        newest, said = self._journal.newest(), words_of(self._options.accept_as_seen)
        heads = newest.payload["heads"] if newest and said else {}
        return [
            name for name, head in heads.items() if _word_without(newest, name) in said and self._is_lost(name, head)
        ]

    def option_without(self, lost: Sequence[str]) -> str:
        """``accept_as_seen`` that says so of these, and still answers what else it has answered of that record."""
        option, others = self._options.accept_as_seen, self._words_of(self._journal.newest())
        for name in lost:
            option = with_word(option, _word_without(self._journal.newest(), name), others)
        return option

    def _is_lost(self, name: str, head: Mapping[str, Any]) -> bool:
        try:
            _, behind = self._behind(name, head)
        except Misuse as lost:
            if lost.kind not in LOST:
                raise
            return True
        return any(self._has_lost_files(sequence, name) for sequence in behind)

    def _has_lost_files(self, sequence: int, name: str) -> bool:
        """Whether files of a table's part of a record, which it does not have, are nowhere any more."""
        [(entry, mine)] = self._part_of(self._journal.load(sequence), name)
        _, _, gone = self._member(name, entry["path"]).committer.files_in_place(mine)
        return bool(gone)

    def _part_of(self, record: Committable, name: str) -> list[tuple[Mapping[str, Any], Committable]]:
        """One table's part of a record, of which others may be lost."""
        return [(entry, part) for entry, part in self._own_parts(record) if entry["name"] == name]

    def _words_of(self, record: Committable) -> set[str]:
        """All by which a question about one of its tables is answered."""
        of_parts = {_word(self._place.absolute(each["path"]), part) for each, part in self._own_parts(record)}
        return of_parts | {_word_without(record, name) for name in record.payload["heads"]}

    # -- one chain -------------------------------------------------------------------------------------------------

    def _behind(self, name: str, head: Mapping[str, Any]) -> tuple[int, list[int]]:
        """(the last record that the table has, those of its chain that it does not have yet)."""
        if not is_table(self._place.file_io, self._place.absolute(head["path"])):
            raise chain_errors.gone(self._place, name, head, self._journal)
        member = self._member(name, head["path"])
        self._check_identity(member, head)
        history = member.committer.history(self._place.key)
        if history.state is not None and history.state.table_id != self._place.journal_id:
            self.check_unknown(member)
        known = _last_of(history)
        behind, at = [], head["sequence"]
        while at > 0 and not self._has(at, known, name, member):
            record = self._journal.load(at)
            if record is None or self._journal.is_marked(at):
                raise chain_errors.rolled_back(self._place, name, head, at, journal=self._journal)
            behind.append(at)
            entry = next(e for e in record.payload["tables"] if e["name"] == name)
            self.check_name_before(member, entry)
            at = entry["previous"]
        if known is not None and known != at:
            if known > head["sequence"]:
                raise chain_errors.ahead(self._place, name, head, known, self._newest_of_all(history.state))
            raise chain_errors.rolled_back(self._place, name, head, head["sequence"], journal=self._journal)
        if known and self._record_id(at) not in ("", history.state.record_id):
            raise chain_errors.other_past(
                self._place, head, history.state, self._record_id(at), self._newest_of_all(history.state)
            )
        return at, behind

    def _has(self, sequence: int, known: int | None, name: str, member) -> bool:
        """Whether the table has the record. known: the last one it says; None when its history has expired."""
        if known is not None:
            return known >= sequence
        record = self._journal.load(sequence)
        if record is None or self._journal.is_marked(sequence):
            return not self.is_undone(sequence, name, member)
        [(_, mine)] = self._part_of(record, name)
        if member.committer.mentions(mine):
            return True
        if self._is_accepted_as_seen(member, mine):
            return True
        _, _, gone = member.committer.files_in_place(mine)
        word = _word(member.table.root, mine)
        if not gone and (
            not mine.files or word in words_of(self._options.accept_as_new) or member.committer.sees_all_since(mine)
        ):
            return False
        others = self._words_of(record)
        as_seen, as_new = (
            with_word(given, word, others) for given in (self._options.accept_as_seen, self._options.accept_as_new)
        )
        found = (
            f"{len(gone)} of its files are gone (first: {gone[0]})"
            if gone
            else "its files are there, which proves nothing"
        )
        raise Corrupt(
            f"{member.table.root}: record {sequence} is pending in the journal; {found}; and snapshots since it was recorded have expired, so "
            f"whether it was published there cannot be told. Nothing was written. Look whether the rows of checkpoint "
            f"{mine.state.checkpoint_id} are in this table{places_of_rows([mine], member.committer)}. If they are, set "
            f"accept_as_seen='{as_seen}', which leaves the table as it is. If they "
            + (
                "are not, restore the files, or go on without these rows by the same option"
                if gone
                else f"are not, set accept_as_new='{as_new}', which publishes them"
            ),
            kind="journal.undecidable",
        )

    def is_undone(self, sequence: int, name: str, member) -> bool:
        """Whether what the table got of a record is certainly not there any more, although every snapshot that could say so has expired."""
        mark, record = mark_of_table(self._journal, sequence, name), self._journal.load(sequence)
        mine = next((part for _, part in self._part_of(record, name)), None) if record is not None else None
        return is_undone(member.table, mine, mark)

    def _is_accepted_as_seen(self, member, mine: Committable) -> bool:
        return _word(member.table.root, mine) in words_of(self._options.accept_as_seen)

    def _check_identity(self, member, head: Mapping[str, Any]) -> None:
        self.check_there(member)
        if member.table.table_id != head["table_id"]:
            raise chain_errors.lost(self._place, member.table.root, "table.recreated", self._journal)

    def check_there(self, member) -> None:
        """Raises Misuse when the table was dropped, or dropped and created again, since this process has opened it.

        What is said of the one table of a query, to start a new checkpoint, would write all rows of the other tables again.
        """
        try:
            member.table.check_identity()
        except Misuse as lost:
            if lost.kind not in ("table.gone", "table.recreated"):
                raise
            raise chain_errors.lost(self._place, member.table.root, lost.kind, self._journal) from lost

    def _newest_of_all(self, found: AppState) -> LastOfOther:
        """The last record that the tables say of the application. found: what one of them says."""
        members = [self._member(name, path) for name, path in self._expected()]
        states = (member.committer.history(self._place.key).state for member in members)
        newest = max((found, *filter(None, states)), key=lambda state: state.sequence)
        return LastOfOther(newest, True, is_whole=False, forgotten_by=forgotten_by(members, self._place.key))


def _last_of(history: History) -> int | None:
    """The number of the last record that a table says; None when its history has expired."""
    return history.state.sequence if history.state else None if not history.complete else 0


def _word_without(newest: Committable, name: str) -> str:
    """The token that says that this record is to be published without its part for a table that is lost."""
    return token_of(newest, f"without {name}")


def _word(root: str, mine: Committable) -> str:
    """The token that answers whether this table has its part of a record."""
    return token_of(mine, f"published in {root}")


def _load(place, journal: FileJournal, sequence: int) -> Committable:
    record = journal.load(sequence)
    if record is None:
        raise Corrupt(
            f"{place.root}: record {sequence}, the last one that is published everywhere, is missing in the journal "
            "of the application. Nothing was written. Restore the journal's folder from a backup",
            kind="journal.missing-record",
        )
    return record


def _record_id(journal: FileJournal, sequence: int) -> str:
    """Of the journal's record of that number; '' where it is damaged, or not there any more: it is published."""
    record = readable(journal, sequence)
    return record.state.record_id if record is not None else ""
