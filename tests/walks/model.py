"""What is right, in terms of events alone: how often each row may be in the table, and which errors have a cause.

This file knows nothing of the library. A row is a number. Its *fate* is the set of counts that are right in the end:
{1} unless something happened to it. What an accident changes is said here once, for all walks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

ONCE, GONE, EITHER = frozenset({1}), frozenset({0}), frozenset({0, 1})


class Wrong(AssertionError):
    """The library broke its promise. ``what`` is stable: shrinking keeps to walks that end with the same ``what``."""

    def __init__(self, what: str, more: str = ""):
        super().__init__(f"{what}: {more}" if more else what)
        self.what = what


@dataclass
class Version:
    """A table at one time: what a reader saw, and the fates other than ONCE.
    earlier: of a backup, the versions of its snapshots, by number."""

    visible: Counter = field(default_factory=Counter)
    fate: dict[int, frozenset] = field(default_factory=dict)
    earlier: dict[int, "Version"] | None = None


@dataclass
class Model:
    """known: every row that anybody may ever put into the table. lost: rows that their source cannot give again.

    tried: rows of bounded runs that have not returned yet. lasting: fates that stay when the table goes back. left:
    rows that somebody went on without.
    """

    known: set[int] = field(default_factory=set)
    fate: dict[int, frozenset] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    foreign: set[int] = field(default_factory=set)
    tried: set[int] = field(default_factory=set)
    lasting: dict[int, frozenset] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)

    # -- rows come ---------------------------------------------------------------------------------------------------

    def produced(self, rows: Iterable[int]) -> None:
        """A source has these rows: the query owes each of them once."""
        self.known.update(rows)

    def job_tried(self, rows: Iterable[int]) -> None:
        """A bounded run was tried: all of its rows are there or none, until it is repeated and returns."""
        fresh = set(rows) - self.known
        self.known |= fresh
        self.tried |= fresh
        self.fate.update(dict.fromkeys(fresh, EITHER))

    def job_done(self, rows: Iterable[int]) -> None:
        """The bounded run has returned."""
        for row in self.tried.intersection(rows):
            self.fate.pop(row, None)
            if row in self.lasting:
                self.fate[row] = self.lasting[row]
        self.tried.difference_update(rows)

    def foreign_came(self, rows: Iterable[int], raced: bool = False) -> None:
        """Another writer has added rows. raced: by a rename that replaces, so that others may hide them."""
        self.known.update(rows)
        self.foreign.update(rows)
        if raced:
            self.fate.update(dict.fromkeys(rows, EITHER))

    # -- rows go -----------------------------------------------------------------------------------------------------

    def overwritten(self, rows: Iterable[int], perhaps: Iterable[int] = ()) -> None:
        """Somebody replaced these rows on purpose. perhaps: rows that came or went while he did."""
        rows = set(rows)
        self.fate.update({row: GONE | self.lasting.get(row, GONE) for row in rows})
        self.fate.update(dict.fromkeys(perhaps, EITHER))
        self.tried.difference_update(rows, perhaps)

    def expired(self, rows: Iterable[int], visible: Counter) -> None:
        """Retention deleted these rows from the source: those that nobody has read may be missing."""
        self.lost.update(rows)
        self.fate.update({row: EITHER for row in rows if not visible[row]})

    def version(self, visible: Counter) -> Version:
        return Version(visible, dict(self.fate))

    def went_back(self, to: Version) -> None:
        """The table is an earlier one again, or empty. Sources owe again what it lacks, as far as they have it."""
        self.fate = dict(to.fate)
        for row in self.known:
            if to.visible[row]:
                continue
            if row in self.foreign:
                self.fate[row] = GONE
            elif row in self.lost and self.fate.get(row) != GONE:
                self.fate[row] = EITHER
        for row, counts in self.lasting.items():
            self.fate[row] = counts | self.fate.get(row, ONCE)

    # -- the user decides --------------------------------------------------------------------------------------------

    def accepted_as_new(self, rows: Iterable[int], visible: Counter) -> None:
        """The message said that all rows of the batch are written."""
        self.fate.update({row: frozenset({visible[row] + 1}) for row in rows})
        self._tidy(rows)

    def accepted_as_seen(self, rows: Iterable[int], visible: Counter) -> None:
        """The message said that the batch is recorded and none of its rows is written."""
        self.fate.update({row: frozenset({visible[row]}) for row in rows})
        self._tidy(rows)

    def given_up(self, rows: Iterable[int]) -> None:
        """The user goes on after a gap whose message said that these rows would be missing."""
        rows = set(rows)
        self.fate.update(dict.fromkeys(rows, GONE))
        self.left |= rows

    def may_be_read(self, rows: Iterable[int]) -> None:
        """A new checkpoint may read these rows:
        what somebody went on without is in no record, and so comes after all."""
        self.fate.update(
            dict.fromkeys((row for row in self.left.intersection(rows) if self.fate.get(row) == GONE), EITHER)
        )

    def unsure(self, rows: Iterable[int], most: int = 1) -> None:
        """There were two accidents, of which the second makes the advice for the first one impossible.
        most: how often each row may be there."""
        self._stays(rows, frozenset(range(most + 1)))

    def dropped(self, rows: Iterable[int]) -> None:
        """Somebody dropped, on purpose, the table for dead letters that had these rows.
        They come again where their table has forgotten them."""
        self._stays(rows, EITHER)

    def _stays(self, rows: Iterable[int], counts: frozenset) -> None:
        found = {row: counts | self.fate.get(row, ONCE) for row in rows}
        self.lasting.update(found)
        self.fate.update(found)

    def may_come_again(self, rows: Iterable[int]) -> None:
        """Dead letters whose table is right while the table beside it has gone back:
        that table does not know them, so they are read again."""
        self.fate.update({row: frozenset({*self.fate.get(row, ONCE), 1, 2}) for row in rows})

    def _tidy(self, rows: Iterable[int]) -> None:
        for row in rows:
            if self.fate.get(row) == ONCE:
                del self.fate[row]

    # -- the account -------------------------------------------------------------------------------------------------

    def check_never_twice(self, visible: Counter) -> None:
        """Check, at any time, that no row is there too often."""
        for row, count in visible.items():
            if row not in self.known:
                raise Wrong("unknown row", str(row))
            if count > max(self.fate.get(row, ONCE)):
                raise Wrong("doubled", f"row {row} is there {count} times, right is {sorted(self.fate.get(row, ONCE))}")

    def check_account(self, visible: Counter) -> None:
        """Check, when everything has come to rest, that each row is there as often as it should be."""
        self.check_never_twice(visible)
        missing = sorted(row for row in self.known if visible[row] < min(self.fate.get(row, ONCE)))
        if missing:
            raise Wrong("lost", f"rows {missing} are missing")


def check_hint(hint: int, snapshots: list[int]) -> None:
    """Check that LATEST does not name a snapshot that is not there."""
    if hint > max(snapshots, default=0):
        raise Wrong(
            "unreadable",
            f"LATEST names snapshot {hint}, and of {snapshots} it is none: Paimon's own readers take it at its word",
        )


# Accidents that justify an error of this kind. An error whose cause did not happen is a false alarm. An accident that
# ends in "-ever" (LASTING) is a cause for good, every other one until a batch of the application has been written. What
# befell one of several tables is a cause until the table gets rows again.
CAUSES: dict[str, set[str]] = {
    "application.in-use": {"asleep"},
    "application.renamed": {"renamed", "given-up-ever", "journal-ever"},
    "batch.concurrent": {"twice-ever"},
    "batch.backwards": {"checkpoint-ever"},
    "batch.gap": {"table", "journal", "checkpoint", "given-up"},
    "batch.in-replay": {"checkpoint-ever"},
    "batch.twice": {"twice-ever"},
    "checkpoint.begins-anew": {"checkpoint-ever", "journal-ever"},
    "checkpoint.copied": {"moved-ever"},
    "checkpoint.other-past": {"checkpoint-ever"},
    "checkpoint.replaced": {"copied-ever", "checkpoint", "journal", "given-up"},
    "database.refused": {"table"},
    "database.rows-refused": {"table"},
    "dead-letters.changed": {"letters-ever"},
    "dead-letters.gone": {"letters-ever"},
    "dead-letters.undecidable": {"letters-ever", "expiry-ever"},
    "dead-letters.unknown-record": {"table", "journal-ever"},
    "destination.no-id": {"journal-ever", "table"},
    "files.combined": {"checkpoint-ever"},
    "files.foreign": {"journal"},
    "files.left-over": {"journal-ever", "table"},
    "files.manifest-missing": {"table"},
    "files.may-combine": {"checkpoint-ever"},
    "files.overlap": {"checkpoint-ever"},
    "gap.first-batch": {"table", "journal", "renamed", "checkpoint", "given-up"},
    "history.incomplete": {"journal-ever", "renamed", "expiry-ever"},
    "journal.gone": {"journal", "table"},
    "journal.missing-record": {"journal-ever", "asleep"},
    "journal.other": {"journal", "table"},
    "journal.record-taken": {"asleep", "journal"},
    "journal.undecidable": {"expiry-ever", "table"},
    "manifest.missing": {"table"},
    "overwrite.changed-since": {"others", "table"},
    "pending.files-gone": {"table", "journal-ever", "raced"},
    "positions.combined": {"checkpoint-ever"},
    "positions.end-below-start": {"topic-ever"},
    "positions.gap": {"table", "journal", "retention", "checkpoint", "given-up"},
    "positions.may-combine": {"checkpoint-ever"},
    "positions.newest-below-end": {"topic-ever"},
    "positions.newest-below-recorded": {"topic-ever"},
    "positions.other-cluster": {"topic-ever"},
    "positions.overlap": {"checkpoint-ever"},
    "positions.recreated-meanwhile": {"topic"},
    "positions.topic-recreated": {"topic-ever"},
    "publish.unknown": {"asleep", "table"},
    "query.not-comparable": {"copied-ever", "checkpoint-ever"},
    "query.other": {"copied-ever", "checkpoint-ever"},
    "query.state-lost": {"copied-ever", "checkpoint-ever", "table", "journal", "given-up", "topic"},
    "run.other": {"same-run-ever"},
    "run.undecidable": {"journal-ever", "given-up-ever", "table"},
    "snapshot.replaced-undecidable": {"raced"},
    "table.gone": {"table"},
    "table.missing": {"table"},
    "table.not-empty": {"table", "letters-ever"},
    "table.recreated": {"table", "journal"},
    "table.rolled-back": {"table", "raced"},
    "table.rolled-back-too-far": {"table", "raced"},
    "tables.journal-behind": {"journal-ever", "given-up-ever"},
    "tables.unknown-record": {"journal-ever", "table"},
    "writer.fenced": {"asleep", "journal"},
    "writer.fenced-expired": {"asleep", "table"},
}
LASTING = ("-ever",)


class Causes:
    """What has happened to one application since it last wrote a batch. asleep: how many of its drivers are paused now.

    rollbacks: for each, the table, the snapshot that it went back to, and the application's rows that went with it.
    """

    def __init__(self):
        self.asleep = 0
        self.rollbacks: list[tuple[str, int, list[int]]] = []
        self._happened: set[str] = set()

    def add(self, *accidents: str) -> None:
        self._happened.update(accidents)

    def knows(self, accident: str) -> bool:
        """Whether it has happened and was not settled since."""
        return accident in self._happened

    def settled(self, keep: Sequence[str] = ()) -> None:
        self.rollbacks.clear()
        self._happened = {accident for accident in self._happened if accident.endswith(LASTING) or accident in keep}

    def check(self, kind: str, message: str) -> None:
        """Raise Wrong if nothing that happened is a reason for this error."""
        happened = (
            self._happened
            | ({"asleep"} if self.asleep else set())
            | ({"table"} if "one-of-several-ever" in self._happened else set())
        )
        if not CAUSES.get(kind, set()) & happened:
            raise Wrong(f"false alarm {kind}", f"though only {sorted(happened) or 'nothing'} happened: {message}")
