"""How far one of several tables is along its chain of records, and whether that can be. Reads only. Driver only."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import SinkOptions, with_word, words_of
from streamsink.protocol import ways
from streamsink.protocol.admission.renamed import same_program
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.journal import Mark, readable
from streamsink.protocol.run.restore import places_of_rows, token_of
from streamsink.protocol.sink import History
from streamsink.sinks.paimon.past import chain_errors
from streamsink.sinks.paimon.past.filter_of import state_of
from streamsink.sinks.paimon.past.history_of import is_undone
from streamsink.sinks.paimon.past.marks import mark_of_table
from streamsink.sinks.paimon.past.name_before import forgotten_by
from streamsink.sinks.paimon.past.place import SUFFIX, Existing, OpenMember, OpensMember, Place
from streamsink.sinks.paimon.past.record_of_tables import heads_in, own_parts, part_of
from streamsink.table.table import is_table


class TableProgress:
    """Compares the coordinating journal with one table at a time. The records that touched a table are its chain."""

    def __init__(self, place: Place, journal: FileJournal, member: OpensMember, options: SinkOptions):
        self.place = place
        self.journal = journal
        self.member = member
        self.options = options
        self._existing: Existing = list
        # Cached, because one record is the last one of many tables.
        self._record_id = functools.cache(lambda sequence: _record_id(journal, sequence))

    def expect(self, existing: Existing) -> None:
        """existing(): the tables whose states an error about all tables compares; none before the first call."""
        self._existing = existing

    # -- what a table must not know --------------------------------------------------------------------------------

    def check_unknown(self, member: OpenMember) -> None:
        """Raises Misuse when a table that no record names knows the application all the same."""
        root = member.table.root
        history = self.history(member)
        if history.state is not None:
            raise chain_errors.unknown_record(self.place, root, history.state, self._newest_of_all(history.state))
        states = member.table.states.read(member.table.snapshots.last_seen())  # it has just been looked at
        if state_of(states, self.place.application) is not None:
            raise Misuse(
                f"{root}: application '{self.place.application}' has written it through streamsink.to_table, whose "
                f"records this query cannot continue. Nothing was written. {same_program('streamsink.to_table')}. If "
                "it is another program, set another application",
                kind="tables.other-protocol",
            )

    def check_there(self, member: OpenMember) -> None:
        """Raises Misuse when the table was dropped, or dropped and created again, since this process has opened it.

        The error is not the one of a query of one table: its advice, to start a new checkpoint, would write all rows of
        the other tables again.
        """
        with self._if_lost(member):
            member.table.check_identity()

    def history(self, member: OpenMember, head: Mapping[str, Any] | None = None) -> History:
        """What the table says of the application. Raises as ``check_there`` and, with ``head``, ``check_identity``."""
        with self._if_lost(member):
            history = member.committer.history(self.place.key)
        if head is not None:
            self._check_same(member, head)
        return history

    @contextmanager
    def _if_lost(self, member: OpenMember) -> Iterator[None]:
        try:
            yield
        except Misuse as lost:
            if lost.kind not in ("table.gone", "table.recreated"):
                raise
            raise chain_errors.lost(self.place, member.table.root, lost.kind, self.journal) from lost

    def check_identity(self, member: OpenMember, head: Mapping[str, Any]) -> None:
        """As ``check_there``, and raises Misuse when the table is not the one that ``head`` of the journal names."""
        self.check_there(member)
        self._check_same(member, head)

    def _check_same(self, member: OpenMember, head: Mapping[str, Any]) -> None:
        if member.table.table_id != head["table_id"]:
            raise chain_errors.lost(self.place, member.table.root, "table.recreated", self.journal)

    def check_name_before(self, member: OpenMember, entry: Mapping[str, Any]) -> None:
        """Raises Misuse when the table does not have what it had under the query's name before.

        entry: of the first record under this name, which the table does not have yet.
        """
        key, sequence = entry.get("had") or ("", 0)
        where = Mark.from_json(entry["had_at"]) if "had_at" in entry else None
        if key and not member.committer.has_reached(key, sequence, where):
            before = key.removesuffix(SUFFIX)
            raise chain_errors.rolled_back(
                self.place, entry["name"], entry, sequence, journal=self.journal, before=before
            )

    # -- its chain -------------------------------------------------------------------------------------------------

    def behind(self, name: str, head: Mapping[str, Any]) -> tuple[int, list[int]]:
        """(the last record that the table has, the later records of its chain that it does not have yet, newest first).

        Raises Misuse when the table is gone or another one, does not have a record that is published, or is ahead of
        the journal.
        """
        if not is_table(self.place.file_io, self.place.absolute(head["path"])):
            raise chain_errors.gone(self.place, name, head, self.journal)
        member = self.member(name, head["path"])
        self._check_same(member, head)
        history = self.history(member)
        state = history.state
        if state is not None and state.table_id != self.place.journal_id:
            self.check_unknown(member)
        known = _last_of(history)
        behind, at = [], head["sequence"]
        while at > 0 and not self.has(at, known, name, member):
            record = self.journal.load(at)
            if record is None or self.journal.is_marked(at):
                raise chain_errors.rolled_back(self.place, name, head, at, journal=self.journal)
            behind.append(at)
            entry = next(e for e in record.payload["tables"] if e["name"] == name)
            self.check_name_before(member, entry)
            at = entry["previous"]
        if known is not None and known != at:
            if state is not None and known > head["sequence"]:
                raise chain_errors.ahead(self.place, name, head, known, self._newest_of_all(state))
            raise chain_errors.rolled_back(self.place, name, head, head["sequence"], journal=self.journal)
        if state is not None and known and self._record_id(at) not in ("", state.record_id):
            raise chain_errors.other_past(self.place, head, state, self._record_id(at), self._newest_of_all(state))
        return at, behind

    def has(self, sequence: int, known: int | None, name: str, member: OpenMember) -> bool:
        """Whether the table has its part of the record.

        known: number of the last record that the table names; None when its history has expired. Raises Corrupt when
        nothing that is retained can tell, and the user has not answered by a token.
        """
        if known is not None:
            return known >= sequence
        record = self.journal.load(sequence)
        if record is None or self.journal.is_marked(sequence):
            return not self.is_undone(sequence, name, member)
        [(_, mine)] = part_of(self.place, record, name)
        if member.committer.mentions(mine):
            return True
        if self.is_accepted_as_seen(member, mine):
            return True
        _, _, gone = member.committer.files_in_place(mine)
        word = _word(member.table.root, mine)
        if not gone and (
            not mine.files or word in words_of(self.options.accept_as_new) or member.committer.sees_all_since(mine)
        ):
            return False
        others = self.words_of(record)
        as_seen, as_new = (
            with_word(given, word, others) for given in (self.options.accept_as_seen, self.options.accept_as_new)
        )
        found = (
            f"{len(gone)} of its files are gone (first: {gone[0]})"
            if gone
            else "its files are there, which proves nothing"
        )
        raise Corrupt(
            f"{member.table.root}: record {sequence} is pending in the journal; {found}; and snapshots since it was "
            "recorded have expired, so whether it was published there cannot be told. Nothing was written. Look "
            f"whether the rows of checkpoint {mine.state.checkpoint_id} are in this "
            f"table{places_of_rows([mine], member.committer)}. If they are, set accept_as_seen='{as_seen}', which "
            "leaves the table as it is. If they "
            + (
                "are not, restore the files, or go on without these rows by the same option"
                if gone
                else f"are not, set accept_as_new='{as_new}', which publishes them"
            )
            + f". {ways.answer_in_a_shell(self.place.root, self.place.application, 'accept_as_seen')}",
            kind="journal.undecidable",
        )

    def has_now(self, sequence: int, name: str, path: str) -> bool:
        """As ``has``, of the table at this path, which exists; its history is read first."""
        member = self.member(name, path)
        return self.has(sequence, _last_of(member.committer.history(self.place.key)), name, member)

    def has_without_saying(self, member: OpenMember, mine: Committable) -> bool:
        """Whether the table has its part of a record although every snapshot that could say so has expired."""
        history = member.committer.history(self.place.key)
        if history.state is not None or history.complete:
            return False
        return self.is_accepted_as_seen(member, mine) or member.committer.mentions(mine)

    def is_undone(self, sequence: int, name: str, member: OpenMember) -> bool:
        """Whether the table has certainly lost its part of a record; all snapshots that could tell may have expired."""
        mark, record = mark_of_table(self.journal, sequence, name), self.journal.load(sequence)
        mine = next((part for _, part in part_of(self.place, record, name)), None) if record is not None else None
        return is_undone(member.table, mine, mark)

    # -- what the user has answered --------------------------------------------------------------------------------

    def is_accepted_as_seen(self, member: OpenMember, mine: Committable) -> bool:
        """Whether the user has said by ``accept_as_seen`` that the table has its part of the record."""
        return _word(member.table.root, mine) in words_of(self.options.accept_as_seen)

    def words_of(self, record: Committable) -> set[str]:
        """All tokens that answer a question about a table of this record."""
        of_parts = {_word(self.place.absolute(each["path"]), part) for each, part in own_parts(self.place, record)}
        return of_parts | {word_without(record, name) for name in heads_in(record)}

    def _newest_of_all(self, found: AppState) -> LastOfOther:
        """The last record of the application that any of the tables names. found: what one of them says."""
        members = [self.member(name, path) for name, path in self._existing()]
        states = (member.committer.history(self.place.key).state for member in members)
        newest = max((found, *filter(None, states)), key=lambda state: state.sequence)
        return LastOfOther(newest, True, is_whole=False, forgotten_by=forgotten_by(members, self.place.key))


def word_without(newest: Committable, name: str) -> str:
    """The token that says that this record is to be published without its part for a table that is lost."""
    return token_of(newest, f"without {name}")


def _word(root: str, mine: Committable) -> str:
    """The token that answers whether this table has its part of a record."""
    return token_of(mine, f"published in {root}")


def _last_of(history: History) -> int | None:
    """The number of the last record that a table names: 0 for none, None when its history has expired."""
    return history.state.sequence if history.state else None if not history.complete else 0


def _record_id(journal: FileJournal, sequence: int) -> str:
    """The id of the journal's record of that number; '' where that is damaged or pruned, as a published one may be."""
    record = readable(journal, sequence)
    return record.state.record_id if record is not None else ""
