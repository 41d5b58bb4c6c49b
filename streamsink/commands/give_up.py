"""``streamsink.give_up``: forget pending records that can never be published, so that their rows are read again. Driver only.

It refuses what might be published, claims the application (so that every earlier driver is fenced) and changes nothing but the
journal: files of theirs that have final names stay, for orphan cleaning.
"""

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.commands.own_sinks import check_of_tables
from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.journal.identity import behind_of
from streamsink.locks.locked_creation import lock_creations
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions, words_of
from streamsink.protocol.admission.renamed import first_that_is_there, starting_at
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.ids import END_OF_INPUT, check_application
from streamsink.protocol.journal import Mark, readable
from streamsink.protocol.positions import all_numeric
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
from streamsink.sinks.paimon.many_tables import ManyTables, open_place
from streamsink.sinks.paimon.past.chains import LOST
from streamsink.sinks.paimon.past.name_before import SUFFIX
from streamsink.storage.calls import NameLimits
from streamsink.storage.file_io import FileIO
from streamsink.table.table import is_table, open_table

# In the record of who owns the application, beside ids of checkpoints.
_CLAIMED_BY = "give-up"

# No snapshot is left then to which the table could go back.
_WHERE_ALL_NAME_THEM = "; or, where no snapshot before that is left, start the query with on_rollback='republish', which writes no row again that the table has"


@dataclass(frozen=True)
class GivenUp:
    """What was given up: numbers of records; of those that could be read, the checkpoints, or the ids of bounded runs.

    Its text says how to go on.
    """

    records: tuple[int, ...]
    checkpoints: tuple[int, ...]
    text: str
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def give_up(file_io: FileIO, path: str, options: SinkOptions) -> GivenUp:
    """Forget the first pending record that the next start cannot publish, and all behind it; those before it stay pending.

    options: the query's. Idempotent. After a crash: some are forgotten, the last ones first or none; calling it again forgets the
    rest, but for what the next start can publish by then. Raises: Fenced while the query runs; Misuse when a record might be published;
    what a restore raises of a damaged table.
    """
    check_application(path, options.application)
    check_of_tables(file_io, path, options.application, "give_up")
    lock_creations(file_io, path, options)
    committer, journal = _open(file_io, path, options)
    look = _Look(path, committer, journal, options, limits=file_io.name_limits(path))
    state = look.history().state
    writer = journal.claim(_CLAIMED_BY, state.epoch if state else 0)
    try:
        state, records = look.doomed()
        known = [record for record in (readable(journal, sequence) for sequence in records) if record is not None]
        for record in known:
            _check_unpublished(path, committer, record)
        journal.check_owner(writer)
        base, is_whole = state.sequence if state else 0, len(known) == len(records) or not journal.runs()
        runs = _unknown_runs(committer, journal, options, known=known, base=base if is_whole else None)
        behind = _behind(known, state) or (
            behind_of(file_io, journal_dir(path, options.application)) if state is None else ()
        )
        journal.give_up(records, runs, base, knows_runs=is_whole, behind=behind if state is None else ())
    finally:
        journal.release()
    checkpoints = tuple(record.state.checkpoint_id for record in known if record.state.checkpoint_id != END_OF_INPUT)
    runs = tuple(record.state.query for record in known if record.state.checkpoint_id == END_OF_INPUT)
    begins = _where_it_begins(path, committer, options, records, known=known, behind=behind)
    return GivenUp(
        tuple(records), checkpoints, _text(path, options, state, records, known=known, runs=runs, begins=begins), runs
    )


def _open(file_io: FileIO, path: str, options: SinkOptions) -> tuple[TableCommitter | ManyTables, FileJournal]:
    def journal() -> FileJournal:
        return FileJournal(file_io, path, options.application, options.journal_retain)

    if is_table(file_io, path):
        return TableCommitter(open_table(file_io, path, for_writing=True), options), journal()
    if not file_io.names(journal_dir(path, options.application)):
        raise Misuse(
            f"{path}: there is neither a table nor a journal of application '{options.application}' here, so nothing was given up. Give the path "
            "of the table, or of the folder of the tables that streamsink.to_tables writes, and the query's own application",
            kind="table.missing",
        )
    place = open_place(file_io, path, options.application, IdSource().new_id)
    return ManyTables(place, journal(), options, lambda event: None), journal()


class _Look:
    """Which records can never be published, by the rules of a restore. Changes nothing."""

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
        """What is published. Where one of several tables is lost or went back, nothing that is pending can be: then by the marks."""
        try:
            return self._committer.history(self._options.application)
        except Misuse as lost:
            if not isinstance(self._committer, ManyTables) or lost.kind not in LOST:
                raise
            self._is_lost = True
            last = max(filter(self._journal.is_marked, self._journal.retained()), default=0)
            return History(self._journal.load(last).state if last else None, complete=True)

    def doomed(self) -> tuple[AppState | None, list[int]]:
        """The last published state, None when none is known; numbers of the records to be given up. Raises Corrupt: it cannot be told."""
        history, retained = self.history(), self._journal.retained()
        if history.state is not None or history.complete:
            base = history.state.sequence if history.state else 0
            found = self._from(base, retained)
            unsure = self._alone(found)
            seen = self._decided(unsure, base, is_rolled_back=True) if unsure else base
            return (
                (history.state, found) if seen == base else (self._journal.load(seen).state, self._from(seen, retained))
            )
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
        """All records from the first on that cannot be published after record ``base``."""
        ahead = [sequence for sequence in retained if sequence > base]
        if self._is_lost:
            return ahead
        good = 0
        while good < len(ahead) and ahead[good] == base + 1 + good and self._can_be_published(ahead[good]):
            good += 1
        return ahead[good:]

    def _alone(self, sequences: Sequence[int]) -> list[int]:
        """Of these records those whose state was published alone, or may have been, and went: of which it cannot be told whether their rows are there."""
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
            if mark is None or not self._committer.was_replaced(mark):
                return False  # it was rolled back
        if any(self._limits.exceeded_by(os.path.join(self._path, file.final)) for file in record.files):
            return False  # recorded by code that did not look
        is_there = not self._committer.files_in_place(record)[2] and self._committer.is_readable(record)
        return is_there and not is_cut_off(record, self._committer)

    def _does_a_mark_tell(self, sequence: int) -> bool:
        """Whether a mark says that the record was published; not one that was about to come again, and those behind it were then too."""
        return sequence in self._telling

    @functools.cached_property
    def _telling(self) -> frozenset[int]:
        marked = [sequence for sequence in self._journal.retained() if self._journal.is_marked(sequence)]
        return frozenset(of_which_marks_tell(marked, marks_of(marked, self._journal)))

    def _is_undone(self, sequence: int) -> bool:
        """Whether the snapshot that published it went with a rollback, or was replaced."""
        if not self._does_a_mark_tell(sequence):
            return False
        mark = self._journal.mark_of(sequence)
        if mark is not None:
            return self._committer.was_replaced(mark) or self._committer.was_rolled_back(mark)
        record = readable(self._journal, sequence)
        return record is not None and is_gone(record, self._committer)

    def _was_published(self, sequence: int, *, by_mark: bool) -> bool:
        if by_mark and self._does_a_mark_tell(sequence):
            return True
        record = readable(self._journal, sequence)
        return record is not None and self._committer.mentions(record)

    def _decided(self, sequences: Sequence[int], base: int, *, is_rolled_back: bool) -> int:
        """The last of these records, or ``base``, that is published. Raises Corrupt when no history tells, and neither does the user by a token."""
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
        if self._options.accept_as_new != word:
            name, rows = (
                self._options.application,
                f"the rows of {from_to(records[0].state, records[-1].state)}" if records else "their rows",
            )
            if records and self._alone(sequences[-1:]):
                published = (
                    f"if they are, start the query with on_rollback='republish' and accept_as_seen='{words[-1]}', which writes none of them again"
                    f"{of_the_first_ones(records, words)}"
                )
            elif is_rolled_back and records:  # a start would say first that the table was rolled back
                published = f"if they are, call streamsink.give_up again with accept_as_seen='{words[-1]}'{of_the_first_ones(records, words)}"
            else:
                published = (
                    "if they are, or those of the first records are, start the query, or its job, again: its error (journal.undecidable) has a "
                    "word that says so"
                )
            raise Corrupt(
                f"{self._path}: whether records {sequences[0]} to {sequences[-1]} of application '{name}' were published cannot be told: snapshots "
                "since they were recorded have expired. Nothing was given up. Look whether "
                f"{rows} are in the table{places_of_rows(records, self._committer)}; if they are not, call streamsink.give_up again with "
                f"accept_as_new='{word}'; {published}",
                kind="give-up.undecidable",
            )
        return base


def _unknown_runs(
    committer: TableCommitter | ManyTables,
    journal: FileJournal,
    options: SinkOptions,
    *,
    known: Sequence[Committable],
    base: int | None,
) -> list[str]:
    """Bounded runs that the journal takes for published and that are not, or may not be, since the table was rolled back.

    known: the records that are given up. base: the last published one; None when others that are given up are damaged.
    """
    given_up = {record.state.query for record in known if record.state.checkpoint_id == END_OF_INPUT}
    if base is not None and min((record.state.sequence for record in known), default=base + 1) == base + 1:
        return sorted(given_up)
    # Records between were pruned, or are damaged, and nobody knows any more whose they were.
    return [
        run
        for run in journal.runs()
        if run in given_up or not committer.known_run(options.application, run).is_published
    ]


def _check_unpublished(path: str, committer: TableCommitter | ManyTables, record: Committable) -> None:
    """Raises Misuse when the record is somewhere: reading its rows again would double them."""
    places = committer.places_of(record)
    if places:
        beside = " and ".join(place for place in places if place != path)
        drop = (
            f", or drop {beside} where there is none before it, or it has expired (then first copy to another table what else is in it)"
            if beside
            else ""
        )
        raise Misuse(
            f"{path}: record {record.state.sequence} ({record.state.checkpoint_name}) is in {', '.join(places)}: reading its rows "
            "again would double them there. Nothing was given up. Restore the files that are gone; or roll back "
            f"{' and '.join(places)} to the snapshot before the one that names them{drop}, and call this again"
            + (
                _without_the_lost(committer)
                if isinstance(committer, ManyTables)
                else _WHERE_ALL_NAME_THEM
                if places == [path]
                else ""
            ),
            kind="give-up.published",
        )


def _without_the_lost(committer: ManyTables) -> str:
    """The way on that takes nothing from tables that have their part."""
    lost, option = committer.without_the_lost()
    return (
        (
            f"; or, where others have written to them since, start the query with accept_as_seen='{option}', which publishes the record in the "
            f"other tables, and follow its next error: its rows for {' and '.join(lost)} are lost then"
        )
        if lost
        else ""
    )


def _behind(known: Sequence[Committable], state: AppState | None) -> tuple[str, int] | tuple[()]:
    """The name that the query had before the records that are given up, and its last record, if that has all that is published before them.

    state: what is published under this name.
    """
    first = known[0].state if known else None
    return first.leads_on or (first.behind if state is None else ()) if first else ()


def _where_it_begins(
    path: str,
    committer: TableCommitter | ManyTables,
    options: SinkOptions,
    records: Sequence[int],
    *,
    known: Sequence[Committable],
    behind: tuple[str, int] | tuple[()],
) -> str:
    """Where a new checkpoint of a source with positions reads it again. behind: as ``_behind``, or as an earlier call of the command left it."""
    others = committer.others(options.application) if behind else {}
    before = first_that_is_there(behind, others) or behind[0] if behind else ""
    is_of_other_form = before.endswith(SUFFIX) != isinstance(committer, ManyTables)
    if before and is_of_other_form and known:
        # What is written under that name is in another folder, or in several tables. The record goes on where that ends.
        return f"with {starting_at(known[0].state.sources)}{_without_its_loss(known[0], before, committer)}"
    if before and not is_of_other_form and committer.has_reached(before, 1):
        is_settled = before.endswith(SUFFIX) or before not in others or others[before].is_published
        first = (
            ""
            if is_settled
            else (
                f"; before that start the query once under application='{before}' with on_rollback='republish', whose journal has what the table has not"
            )
        )
        return f"at streamsink.starting_offsets({path!r}, application={before.partition('@')[0]!r}){first}"
    return (
        f"at streamsink.starting_offsets({path!r}, application={options.application!r})"
        if records and records[0] > 1
        else "at the beginning of the source"
    )


def _without_its_loss(first: Committable, before: str, committer: TableCommitter | ManyTables) -> str:
    return (
        f"; what the table does not have any more of '{before.removesuffix(SUFFIX)}' is left out then"
        if is_cut_off(first, committer)
        else ""
    )


def _text(
    path: str,
    options: SinkOptions,
    state: AppState | None,
    records: Sequence[int],
    *,
    known: Sequence[Committable],
    runs: Sequence[str],
    begins: str,
) -> str:
    """begins: as ``_where_it_begins``."""
    if not records:
        return f"{path}: every record of application '{options.application}' is published, or will be at the next start: nothing was given up"
    name, numbers = (
        options.application,
        f"record {records[0]}" if len(records) == 1 else f"records {records[0]} to {records[-1]}",
    )
    at = f"record {state.sequence}, {state.checkpoint_name}" if state else "no record"
    head = f"{path}: {numbers} of application '{name}' given up; the table ends, or will at the next start, before them (now at {at}). "
    if runs:
        each = "this run" if len(runs) == 1 else f"each of these {len(runs)} runs"
        head += f"Run the job again for {each}, under its id: {', '.join(f'streamsink.write(..., {run!r})' for run in runs)}: it writes its rows. "
    of_queries = [record.state for record in known if record.state.checkpoint_id != END_OF_INPUT]
    first = of_queries[0] if of_queries else None
    like = first or state
    if first is None and (runs or like is not None and like.checkpoint_id == END_OF_INPUT):
        damaged = len(records) - len(known)
        return head + (
            f"{damaged} of these records cannot be read. Run the job again under the id of each run of which you do not know that it is in the "
            "table: its rows are written if it is not"
            if damaged
            else ""
        )
    batch = first.checkpoint_id if first else state.checkpoint_id + 1 if state else 0
    is_empty = state is None and not (
        first is not None and first.leads_on
    )  # else the name before tells what is to be adopted
    without, gap = (" and without adopt_from_batch", "gap.first-batch") if is_empty else ("", "positions.gap")
    again = f"Restart the query with its checkpoint{without}: if Spark gives batch {batch} again, its rows are written, each once. "
    if like is not None and like.recorded and all_numeric(like.sources):
        return (
            head
            + again
            + (
                f"If it has gone past it, the query stops with an error ({gap}) before it writes anything: then start a new checkpoint {begins}"
            )
        )
    return (
        head
        + again
        + (
            "If it has gone past it, the query stops with an error (batch.gap, or gap.first-batch) before it writes anything: then delete, in the "
            f"folders 'offsets' and 'commits' of the checkpoint, the files numbered {batch} and higher, and restart: Spark plans their rows again"
        )
    )
