"""The world of a walk whose queries write into a destination that is no table; see ``places.py``."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from streamsink.protocol.committable import Batch
from streamsink.table.creation import fields_of
from streamsink.testing.driver import Driven
from tests.walks.elsewhere.database import Database
from tests.walks.elsewhere.delta import Delta
from tests.walks.elsewhere.iceberg import Iceberg
from tests.walks.elsewhere.places import Files, Kept, Notes, Place
from tests.walks.model import Version, Wrong
from tests.walks.queries import SCHEMA, Query, Run
from tests.walks.store import Process
from tests.walks.world import World

ROOT = "/lake/shop"
PLACES = {"files": Files, "database": Database, "notes": Notes, "kept": Kept, "delta": Delta, "iceberg": Iceberg}


class _Run(Run):
    """One start of a query."""

    place = None
    number = 0

    def open(self, batch_id):
        if self.sink is None:
            batch = Batch(batch_id, self._query_id, "")
            sink, options, io = self.place.sink(self.process), self.driver.options, self.process.io
            self.opened = sink.open(io, options, batch, lambda: fields_of(SCHEMA), lambda event: None)
            self.sink = Driven(self.driver, io, self.opened, self._query_id)


@dataclass
class Elsewhere(World):
    """kind: of the destination. has_lost_journals, has_older_notes: at some time. points: versions to which it can go
    back by its own means, each with what was there."""

    kind: str = "files"
    has_lost_journals: bool = False
    has_older_notes: bool = False
    points: list[tuple[int, Version]] = field(default_factory=list)
    # By query, the last start before something befell the destination while one of its drivers slept: that one may go
    # on, and the next start finds out.
    slept_in: dict[str, int] = field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        self.others = self.place = self.destination()

    def destination(self) -> Place:
        return PLACES[self.kind](self.store, self.root)

    def journal_of(self, query: Query) -> str:
        return f"{self.place.journals}/streamsink/{query.name}"

    def start(self, query: Query) -> Run:
        self.serial += 1
        process, settings = Process(self.store, self.root), query.settings(self.root)
        run = _Run(process, self.root, settings, query.checkpoint.query, self.parts, query.options.get("delay", 0))
        run.place, run.number, query.live = self.place, self.serial, run
        return run

    def visible(self) -> Counter:
        return self.in_table()

    def look(self) -> None:
        self.model.check_never_twice(self.visible())

    def batch(self, query, most, fault=None):
        done = super().batch(query, most, fault)
        if done and (version := self.place.version()) is not None:
            self.points.append((version, self.backup()))
        return done

    def check_whole(self) -> None:
        """Readers of every kind see the same, nothing is left open, and the account is exact."""
        listed, visible = self._read(self.place.listed), self.visible()
        besides, missing = listed - visible - self._told_of_by_nobody(), visible - listed
        if besides or missing:
            raise Wrong(
                "readers differ",
                f"{sorted(besides.items())} are listed besides, {sorted(missing.items())} are not listed",
            )
        # The names of transactions go with a journal.
        if (left := self.place.open_transactions()) and not self.has_lost_journals:
            raise Wrong("left open", str(left))
        self.model.check_account(self.visible())

    def _told_of_by_nobody(self) -> Counter:
        """Rows of sinks that never start again, of which the destination knows nothing any more.

        A start looks after what its own application has written. These sinks have no further one, so what they wrote
        stays, and is named by nobody.
        """
        known = self.place.applications()
        return Counter(row for second in self.seconds if second.name not in known for row in second.rows_of_job)

    def accident(self, *what, query=None):
        super().accident(*what, query=query)
        self.has_lost_journals |= "journal-ever" in what
        if "table" in what:
            self.slept_in |= {each.name: self.serial for each in self.queries.values() if each.causes.asleep}
        if not self.place.has_rows:  # Nobody asks such a destination what it has.
            visible, known = self.visible(), self.place.applications()
            for each in self.queries.values():
                if each.name not in known and not self.is_known(each):
                    self.model.unsure([row for row in each.source.all_rows() if visible[row]], most=2)
                if "journal" in what and each.causes.asleep:
                    # A successor does not know what the sleeping driver has recorded and is about to commit.
                    self.model.unsure(each.source.all_rows(), most=2)
                if "journal" in what and len(each.checkpoint.planned) > each.checkpoint.committed:
                    # A driver has died in that batch, perhaps between its commit and the note of it.
                    rows = each.rows(each.checkpoint.committed)
                    self.model.unsure([row for row in rows if visible[row]], most=2)

    def _kept(self, query):
        is_before = query.live is not None and query.live.number <= self.slept_in.get(query.name, 0)
        return [*super()._kept(query), *(["table"] if is_before else [])]

    def notes_went_back(self) -> None:
        """What is noted of a destination is an older copy, and so may be the journal: then nobody knows any more of
        what was committed behind both.
        """
        self.has_older_notes = True
        for query in self.queries.values():
            if query.causes.knows("older-journal"):
                self._nobody_knows(query)

    def older_journal(self, query):
        super().older_journal(query)
        if self.has_older_notes:
            self._nobody_knows(query)

    def _nobody_knows(self, query: Query) -> None:
        visible = self.visible()
        self.model.unsure([row for row in query.source.all_rows() if visible[row]], most=2)

    def roll_back(self, version: int, what: Version) -> None:
        """It goes back to a version by its own means."""
        if self.place.roll_back(version):
            self.went_back(what)
            self.accident("table")

    def fuller_version(self, query: Query) -> tuple[int, Version] | None:
        """The version that has most of what the query has written, and what was there then; None where that is now."""
        rows = query.source.rows_before(query.checkpoint)

        def count(visible: Counter) -> int:
            return sum(1 for row in rows if visible[row])

        found = max(self.points, key=lambda point: (count(point[1].visible), point[0]), default=None)
        return found if found is not None and count(found[1].visible) > count(self.visible()) else None

    def replace_place(self, change) -> None:
        """Somebody loses the destination, or puts an earlier one in its place, by calling ``change``."""
        self.points.clear()
        change()

    def deleted(self, rows: Iterable[int]) -> None:
        """Somebody deletes rows on purpose."""
        visible = self.visible()
        gone = self.place.delete(rows)
        self.model.overwritten([row for row in gone if visible[row]], [row for row in gone if not visible[row]])
