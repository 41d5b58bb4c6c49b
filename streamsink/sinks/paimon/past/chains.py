"""How far several tables are along the coordinating journal, and which of them are lost. Reads only. Driver only."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import with_word, words_of
from streamsink.protocol.committable import Committable
from streamsink.protocol.run.restore import word_of_new_application
from streamsink.sinks.paimon.past import chain_errors
from streamsink.sinks.paimon.past.place import Existing, OpenMember, Place
from streamsink.sinks.paimon.past.progress import TableProgress, word_without
from streamsink.sinks.paimon.past.record_of_tables import heads_in, own_parts, part_of

# Kinds of errors about a table in which nothing can be published any more, whatever its part of a record says.
LOST = ("table.gone", "table.recreated", "table.rolled-back")


class Chains:
    """Compares the coordinating journal with all tables that its records name."""

    def __init__(self, progress: TableProgress):
        """progress: compares one table at a time; its place, journal, tables and options are used here, too."""
        self._progress = progress
        self._place = progress.place
        self._journal = progress.journal
        self._member = progress.member
        self._options = progress.options

    def is_at(self, settled: Committable) -> bool:
        """Whether each table of that record has it as its last one: nothing has happened since it was published."""
        without = self.left_out()
        for entry, mine in own_parts(self._place, settled):
            if entry["name"] in without:
                continue
            member = self._member(entry["name"], entry["path"])
            state = self._progress.history(member, entry).state
            if state is None or state.record_id != mine.state.record_id:
                return False
        return True

    def last_settled(
        self, expected: Existing, looking: Callable[[Mapping[str, str]], AbstractContextManager[None]]
    ) -> Committable | None:
        """The newest record that all of its tables have, as they have all records before it; None when there is none.

        The journal's listing was just read. expected: the tables that may not know the application unless a record
        names them. looking(paths): entered while tables are looked at, by name and path. Raises Misuse when a table was
        rolled back, dropped or recreated, or is ahead of the journal, and when the journal was removed.
        """
        self._progress.expect(expected)
        sequence = self._journal.last_sequence()
        newest = self._journal.load(sequence) if sequence else None
        heads, existing = heads_in(newest), dict(expected())
        with looking(existing | {name: head["path"] for name, head in heads.items()}):
            return self._settled(newest, heads, [pair for pair in existing.items() if pair[0] not in heads])

    def _settled(
        self, newest: Committable | None, heads: Mapping[str, Any], others: Sequence[tuple[str, str]]
    ) -> Committable | None:
        """As ``last_settled``. others: (name, path) of the tables that no record names."""
        # Also those that get no rows from the batch that comes: its record would follow records that they have and the
        # journal lacks.
        unknown = [self._member(name, path) for name, path in others]
        for member in unknown:
            self._progress.check_unknown(member)
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
            at[name], behind = self._progress.behind(name, head)
            for sequence in behind:
                missing.setdefault(sequence, name)
        first = min(missing, default=newest.state.sequence + 1)
        for sequence in at.values():
            if sequence > first:  # later records are published only after earlier ones
                raise chain_errors.rolled_back(
                    self._place, missing[first], heads[missing[first]], first, journal=self._journal
                )
        return _load(self._place, self._journal, first - 1) if first > 1 else None

    def check_head(self, name: str, member: OpenMember, head: Mapping[str, Any] | None) -> None:
        """Raises Misuse unless the last record of the table is the one that the journal says.

        head: what the journal says of the table; None when its first record is still pending, so that nothing can be
        compared.
        """
        if head is None:
            return
        history = self._progress.history(member, head)
        found = history.state.sequence if history.state else 0
        is_expired = history.state is None and not history.complete  # then the journal tells
        if self._progress.is_undone(head["sequence"], name, member) if is_expired else found != head["sequence"]:
            self._progress.behind(name, head)  # raises, as at a start: the table may as well be ahead
            raise chain_errors.rolled_back(self._place, name, head, head["sequence"], journal=self._journal)

    def _check_first_start(self, member: OpenMember) -> None:
        """Where the journal is empty: raises Misuse when the table lacks history and no option says to go on."""
        word = word_of_new_application(self._place.root, self._place.journal_id, self._options)
        if not member.committer.history(self._place.key).complete and word not in words_of(
            self._options.new_application
        ):
            raise chain_errors.first_start(self._place, member.table.root, word, self._options.adopt_from_batch)

    # -- tables that are lost --------------------------------------------------------------------------------------

    def lost(self) -> tuple[str, ...]:
        """Names of the tables in which the pending records cannot be published.

        These were dropped, recreated or rolled back, or files of their part of a pending record are gone.
        """
        heads = heads_in(self._journal.newest())
        return tuple(name for name in sorted(heads) if self._is_lost(name, heads[name]))

    def left_out(self) -> Collection[str]:
        """Names of the lost tables that the user has excepted from the newest record, which is pending."""
        said = words_of(self._options.accept_as_seen)
        newest = self._journal.newest() if said else None
        if newest is None:
            return []
        return [
            name
            for name, head in heads_in(newest).items()
            if word_without(newest, name) in said and self._is_lost(name, head)
        ]

    def option_without(self, lost: Sequence[str]) -> str | None:
        """The ``accept_as_seen`` that leaves these tables out of the newest record; None when there is no record.

        It keeps the words of the given option that answer other questions about that record.
        """
        newest = self._journal.newest()
        if newest is None:  # its heads have told which tables are lost, and since then it was deleted
            return None
        option, others = self._options.accept_as_seen, self._progress.words_of(newest)
        for name in lost:
            option = with_word(option, word_without(newest, name), others)
        return option

    def _is_lost(self, name: str, head: Mapping[str, Any]) -> bool:
        try:
            _, behind = self._progress.behind(name, head)
        except Misuse as lost:
            if lost.kind not in LOST:
                raise
            return True
        return any(self._has_lost_files(sequence, name) for sequence in behind)

    def _has_lost_files(self, sequence: int, name: str) -> bool:
        """Whether files of a part that the table does not have yet are gone, staged and under their final names, or
        cannot be read as they were recorded.

        So they are when the record itself is gone, which somebody may delete after ``behind`` has read it.
        """
        record = self._journal.load(sequence)
        if record is None:
            return True
        [(entry, mine)] = part_of(self._place, record, name)
        committer = self._member(name, entry["path"]).committer
        return bool(committer.files_in_place(mine)[2]) or not committer.is_readable(mine)


def _load(place: Place, journal: FileJournal, sequence: int) -> Committable:
    record = journal.load(sequence)
    if record is None:
        raise Corrupt(
            f"{place.root}: record {sequence}, the last one that is published everywhere, is missing in the journal "
            f"of the application. Nothing was written. Restore the journal's folder {shell.restore(journal.place)}",
            kind="journal.missing-record",
        )
    return record
