"""Which pending records can never be published, by the rules of a restore. Changes nothing. Driver only."""

import functools
import os
from collections.abc import Sequence
from typing import cast

from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions, words_of
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.journal import Mark, readable
from streamsink.protocol.run.first_name import is_cut_off
from streamsink.protocol.run.restore import (
    IS_PUBLISHED,
    from_to,
    is_gone,
    marks_of,
    of_the_first_ones,
    of_which_marks_tell,
    places_of_rows,
    token_of,
)
from streamsink.protocol.sink import History
from streamsink.sinks.paimon.letters import TableCommitter
from streamsink.sinks.paimon.many_tables import ManyTables
from streamsink.sinks.paimon.past.chains import LOST
from streamsink.storage.calls import NameLimits


class Unpublishable:
    """Finds the records that can never be published, by the rules of a restore. Changes nothing."""

    def __init__(
        self,
        path: str,
        committer: TableCommitter | ManyTables,
        journal: FileJournal,
        options: SinkOptions,
        *,
        limits: NameLimits,
    ):
        self._path = path
        self._committer = committer
        self._journal = journal
        self._options = options
        self._limits = limits
        self._is_lost = False

    def history(self) -> History:
        """What is published.

        Where one of several tables is lost or was rolled back, nothing that is pending can be published. Then the last
        record that has a mark is the answer.
        """
        try:
            return self._committer.history(self._options.application)
        except Misuse as lost:
            if not isinstance(self._committer, ManyTables) or lost.kind not in LOST:
                raise
            self._is_lost = True
            last = max(filter(self._journal.is_marked, self._journal.retained()), default=0)
            # A record that is retained is there, or is damaged: then ``load`` raises Corrupt.
            return History(cast(Committable, self._journal.load(last)).state if last else None, complete=True)

    def doomed(self) -> tuple[AppState | None, list[int]]:
        """(the last published state, None when none is known; numbers of the records to be given up).

        Raises Corrupt when it cannot be told which records are published.
        """
        history, retained = self.history(), self._journal.retained()
        if history.state is not None or history.complete:
            base = history.state.sequence if history.state else 0
            found = self._from(base, retained)
            unsure = self._alone(found)
            seen = self._decided(unsure, base, is_rolled_back=True) if unsure else base
            if seen == base:
                return history.state, found
            # ``_decided`` has read it.
            return cast(Committable, self._journal.load(seen)).state, self._from(seen, retained)
        lost = next((s for s in retained if self._is_undone(s)), None)
        kept = [s for s in retained if lost is None or s < lost]
        # A rollback may have gone further back than the first record that shows it: then a mark proves nothing.
        base = next(
            (s for s in reversed(kept) if self._was_published(s, by_mark=lost is None)),
            retained[0] - 1 if retained else 0,
        )
        found = self._from(base, retained)
        undecided = [sequence for sequence in kept if sequence > base] + self._alone(found)
        if found and undecided:
            base = self._decided(undecided, base, is_rolled_back=lost is not None)
            found = self._from(base, retained)
        last = self._journal.load(base)
        return last.state if last else None, found

    def _from(self, base: int, retained: Sequence[int]) -> list[int]:
        """The records from the first one on that cannot be published after record ``base``."""
        ahead = [sequence for sequence in retained if sequence > base]
        if self._is_lost:
            return ahead
        good = 0
        while good < len(ahead) and ahead[good] == base + 1 + good and self._can_be_published(ahead[good]):
            good += 1
        return ahead[good:]

    def _alone(self, sequences: Sequence[int]) -> list[int]:
        """Of these records those whose rows may be in the table although the snapshot that had their state is gone.

        Their state was published alone, or may have been, and what is retained does not tell whether their rows are
        there.
        """
        marks = (
            (sequence, self._journal.mark_of(sequence)) for sequence in sequences if self._journal.is_marked(sequence)
        )
        records = (
            readable(self._journal, sequence)
            for sequence, mark in marks
            if mark is None or isinstance(mark, Mark) and mark.alone
        )
        return [
            record.state.sequence
            for record in records
            if record is not None
            and record.files
            and not self._committer.mentions(record)
            and not self._committer.sees_all_since(record)
        ]

    def _can_be_published(self, sequence: int) -> bool:
        record = readable(self._journal, sequence)
        if record is None:
            return False
        if self._does_a_mark_tell(sequence) and self._options.on_rollback != ON_ROLLBACK_REPUBLISH:
            mark = self._journal.mark_of(sequence)
            if not (isinstance(mark, Mark) and self._committer.was_replaced(mark)):
                return False  # it was rolled back
        if any(self._limits.exceeded_by(os.path.join(self._path, file.final)) for file in record.files):
            return False  # earlier code, which did not look at names, has recorded it
        is_there = not self._committer.files_in_place(record)[2] and self._committer.is_readable(record)
        return is_there and not is_cut_off(record, self._committer)

    def _does_a_mark_tell(self, sequence: int) -> bool:
        """Whether a mark proves that the record was published.

        The mark of a record that was about to be published once more does not, and the marks behind it do not either.
        """
        return sequence in self._telling

    @functools.cached_property
    def _telling(self) -> frozenset[int]:
        marked = [sequence for sequence in self._journal.retained() if self._journal.is_marked(sequence)]
        return frozenset(of_which_marks_tell(marked, marks_of(marked, self._journal)))

    def _is_undone(self, sequence: int) -> bool:
        """Whether the snapshot that published the record is gone by a rollback, or was replaced."""
        if not self._does_a_mark_tell(sequence):
            return False
        mark = self._journal.mark_of(sequence)
        if mark is not None:
            return isinstance(mark, Mark) and (
                self._committer.was_replaced(mark) or self._committer.was_rolled_back(mark)
            )
        record = readable(self._journal, sequence)
        return record is not None and is_gone(record, self._committer)

    def _was_published(self, sequence: int, *, by_mark: bool) -> bool:
        if by_mark and self._does_a_mark_tell(sequence):
            return True
        record = readable(self._journal, sequence)
        return record is not None and self._committer.mentions(record)

    def _decided(self, sequences: Sequence[int], base: int, *, is_rolled_back: bool) -> int:
        """The last of these records that is published, or ``base``.

        is_rolled_back: whether a start of the query would find that the table was rolled back. Raises Corrupt when
        nothing that is retained can tell, and the user has not told it by a token.
        """
        records = [
            record for record in (readable(self._journal, sequence) for sequence in sequences) if record is not None
        ]
        first = next((record for record in records if record.files), None)
        if first is not None and self._committer.sees_all_since(first):
            return base
        words = [token_of(record, IS_PUBLISHED) for record in records]
        as_seen = words_of(self._options.accept_as_seen)
        seen = [record.state.sequence for record, word in zip(records, words) if word in as_seen]
        if seen and is_rolled_back:
            return seen[-1]
        word = token_of(first, IS_PUBLISHED) if first is not None else f"record-{sequences[0]}"
        if word not in words_of(self._options.accept_as_new):
            name = self._options.application
            rows = f"the rows of {from_to(records[0].state, records[-1].state)}" if records else "their rows"
            if records and self._alone(sequences[-1:]):
                published = (
                    f"if they are, start the query with on_rollback='republish' and accept_as_seen='{words[-1]}', "
                    f"which writes none of them again{of_the_first_ones(records, words)}"
                )
            elif is_rolled_back and records:
                # A start of the query would stop first because the table was rolled back.
                published = (
                    f"if they are, call streamsink.give_up again with accept_as_seen='{words[-1]}'"
                    f"{of_the_first_ones(records, words)}"
                )
            else:
                published = (
                    "if they are, or those of the first records are, start the query, or its job, again: its error "
                    "(journal.undecidable) has a word that says so"
                )
            raise Corrupt(
                f"{self._path}: whether records {sequences[0]} to {sequences[-1]} of application '{name}' were "
                "published cannot be told: snapshots since they were recorded have expired. Nothing was given up. Look "
                f"whether {rows} are in the table{places_of_rows(records, self._committer)}; if they are not, call "
                f"streamsink.give_up again with accept_as_new='{word}'; {published}",
                kind="give-up.undecidable",
            )
        return base
