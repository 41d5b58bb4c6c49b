"""What somebody sees who looks into the table of a walk, and what must be true of it at any time and at rest."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from streamsink.commands.verify import verify
from streamsink.errors import Corrupt
from tests.walks.foreign import Others
from tests.walks.machine import Machine
from tests.walks.model import GONE, Model, Version, Wrong, check_hint
from tests.walks.queries import Query


@dataclass
class Looking(Machine):
    """versions: what a rollback to a snapshot would mean, by the snapshot's number. hides: a rename has hidden a commit
    of another writer, which ``verify`` reports as long as both snapshots are there. raced_at: the table of which it
    replaced a snapshot last, and that snapshot's number."""

    model: Model = field(default_factory=Model)
    versions: dict[int, Version] = field(default_factory=dict)
    hides: bool = False
    raced_at: tuple[str, int] = ("", 0)

    def __post_init__(self):
        super().__post_init__()
        self.others = Others(self.store, self.root)

    def in_table(self) -> Counter:
        """What a reader sees in the table. It is a failure if one cannot read."""
        return self._read(self.others.visible)

    def visible(self) -> Counter:
        """What a reader sees in the table and in the tables for dead letters."""
        return self.in_table() + self._read(self.others.letters)

    def _read(self, read: Callable[[], list[int]]) -> Counter:
        try:
            return Counter(read())
        except (Corrupt, OSError) as unreadable:
            raise Wrong("unreadable", str(unreadable)) from unreadable

    def is_done(self, row: int, visible: Counter) -> bool:
        """Whether somebody who knows his table says of a row that it has been there:
        he sees it, or has replaced it himself."""
        return bool(visible[row]) or self.model.fate.get(row) == GONE

    def look(self) -> None:
        """Between two events:
        check that no row is there too often, and remember what a rollback to this moment would mean."""
        seen = self.in_table()
        self.model.check_never_twice(seen + self._read(self.others.letters))
        self._look_at_table(seen)

    def _look_at_table(self, seen: Counter) -> None:
        """seen: what a reader sees in the table now."""
        ids = self.others.snapshot_ids()
        if ids:
            self.versions[ids[-1]] = self.model.version(seen)
        check_hint(self.others.hint(), ids)

    def check_whole(self) -> None:
        """At rest: check that readers of every kind can read, nothing is damaged, and the account is exact."""
        self._check_table()
        for path in self.others.letter_tables():
            report = verify(self.others.io, path)
            if any(found.severity == "damage" for found in report.findings):
                raise Wrong("damage of dead letters", str(report))
        self.model.check_account(self.visible())

    def _check_table(self) -> None:
        if self.others.is_table():
            report = verify(self.others.io, self.others.root)
            damage = [
                f.kind
                for f in report.findings
                if f.severity == "damage" and not _is_of_nobody(f.message, self.queries.values())
            ]
            if set(damage) - ({"snapshot.not-derived"} if self.hides else set()):
                raise Wrong(f"damage {damage[0]}", str(report))
            if Counter(self.others.read()) != self.in_table():
                raise Wrong("readers differ")
            for tagged in self.others.tags():
                self._read(lambda: [row for entry in self.others.files(tagged) for row in self.others.rows_of(entry)])  # noqa: B023  read at once

    def backup(self) -> Version:
        """The version that a copy of the table has now."""
        return replace(self.model.version(self.in_table()), earlier=dict(self.versions))

    def version_at(self, snapshot_id: int) -> Version:
        """What a rollback to this snapshot leaves: what readers of it see, and the fates as they were then."""
        known = max((number for number in self.versions if number <= snapshot_id), default=None)
        fate = self.versions[known].fate if known is not None else {}
        visible = Counter(self.others.rows_at(snapshot_id))
        # One event may publish several snapshots: what an earlier one of them replaced is gone from this one as well.
        if known is not None:
            fate = fate | {row: GONE for row in self.versions[known].visible if not visible[row]}
        return Version(visible, dict(fate))


def _is_of_nobody(message: str, queries: Iterable[Query]) -> bool:
    """Whether the message is about a second sink, or about a name that a query had before:
    neither is started any more."""
    named = re.search("application '([^']+)'", message)
    return named is not None and all(named[1] != query.name for query in queries)
