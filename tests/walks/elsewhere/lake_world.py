"""The world of a walk into an Iceberg table: what its own means of going back mean for the account."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.walks.elsewhere.world import Elsewhere
from tests.walks.model import GONE, Version
from tests.walks.queries import Query


@dataclass
class LakeWorld(Elsewhere):
    """known_at: metadata files from which it can be registered, each with what was there. away: what was there when
    the table got another name. unseen: rows that went with rollbacks, each with the snapshot that was current then."""

    known_at: list[tuple[str, Version]] = field(default_factory=list)
    away: Version = field(default_factory=Version)
    unseen: list[tuple[int, list[int]]] = field(default_factory=list)

    def look(self) -> None:
        super().look()
        at = self.place.metadata()
        if at is not None and (not self.known_at or self.known_at[-1][0] != at):
            self.known_at.append((at, self.backup()))
            self.points.append((self.place.version(), self.backup()))

    def roll_back(self, version: int, what: Version) -> None:
        """The table goes back, or forward, to a snapshot."""
        before, newest = self.visible(), self.place.version()
        if self.place.roll_back(version):
            self._gone(before, newest)
            self.went_back(what)
            self.accident("table")

    def _gone(self, before: Counter, newest: int) -> None:
        lost = before - self.visible()
        if lost:
            self.unseen.append((newest, list(lost)))

    def lost_version(self, query: Query) -> tuple[int, Version] | None:
        """The snapshot of the query's last record, and what was there then, if it can be made current again."""
        version = self.place.last_snapshot(query.name)
        found = [what for number, what in self.points if number == version]
        return (version, found[-1]) if found and self.place.has(version) and version != self.place.version() else None

    def expire(self, kept: int) -> None:
        """Nobody can tell of a rollback when nothing is retained any more that came before it."""
        self.place.expire(kept)
        if self.place.metadata() is not None and not self.place.is_whole():
            self.model.unsure(row for newest, lost in self.unseen if not self.place.has(newest) for row in lost)

    def picked(self, rows: Iterable[int]) -> None:
        """Rows have come back."""
        rows = list(rows)
        if not rows:
            return
        for row in rows:
            if self.model.fate.get(row) == GONE:
                del self.model.fate[row]
        for query in self.queries.values():
            mine = set(query.source.all_rows()).intersection(rows)
            if any(map(query.causes.knows, ("checkpoint-ever", "renamed-ever", "journal-ever", "given-up-ever"))):
                self.model.unsure(mine, most=2)  # it reads them again, for all that it knows
        self.accident("table")

    def rename_table(self) -> None:
        was = self.backup()
        to = self.place.rename_table()
        if to is None:
            return
        if self.place.metadata() is None:
            self.away = was
            self.went_back(Version())
        else:
            self.went_back(self.away)
        self.accident("table")

    def register(self, number: int) -> None:
        if not self.known_at:
            return
        at, what = self.known_at[number % len(self.known_at)]
        before, newest = self.visible(), self.place.version()
        if self.place.register(at):
            self._gone(before, newest)
            self.went_back(what)
            self.accident("table")
