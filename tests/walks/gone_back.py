"""What a table that has gone back, a replaced snapshot or a lost journal means for the account,
and when nobody can know of it any more."""

from collections import Counter
from dataclasses import dataclass, field

from tests.walks.looking import Looking
from tests.walks.model import GONE, Version
from tests.walks.queries import RENAMED, Job, Query, is_bad


@dataclass
class GoneBack(Looking):
    """seconds: sinks that have written the second part of one batch and will not come again."""

    jobs: list[Job] = field(default_factory=list)
    seconds: list[Query] = field(default_factory=list)

    def lost_journal(self, query: Query) -> None:
        """The query's journal is lost, or is an older one:
        dead letters of a record that it does not know come again, beside their rows."""
        checkpoint, letters = query.checkpoint, self.others.letters()
        if query.source is not None and len(checkpoint.planned) > checkpoint.committed:
            self.model.may_come_again(row for row in query.rows(checkpoint.committed) if row in letters)
        # A snapshot of its own was replaced, and another one is built on the replacement.
        if query.causes.knows("raced"):
            self._may_come_again(query)
        # Only its user's word says what is before its first batch under this name.
        if query.source is not None and not self.is_known(query):
            query.adopts_blindly, visible = True, self.visible()
            self.model.unsure(row for row in query.rows_adopted() if not visible[row])
        self.accident("journal", "journal-ever", query=query)

    def journals_stayed(self, copy: object) -> None:
        """A backup of the table was put back without its journals:
        a journal may be older than the table, or may have gone on in another way since."""
        now = self.store.copy_of(self.root)
        for query in self.queries.values():
            had, has = self.store.records_in(copy, query.name), self.store.records_in(now, query.name)
            if query.causes.knows("raced") or any(
                has.get(number, record) != record or number > max(has, default=0) for number, record in had.items()
            ):
                self.older_journal(query)

    def is_known(self, query: Query) -> bool:
        """Whether there is a record of this query, under its name or under the one that it had first."""
        now = self.store.copy_of(self.root)
        return any(self.store.records_in(now, name) for name in (query.name, query.name.removesuffix(RENAMED)))

    def older_journal(self, query: Query) -> None:
        """The journal may be older than the table is now."""
        self.lost_journal(query)
        query.causes.add("older-journal")
        if query.causes.asleep:  # Its driver goes on with a journal that lacks its successor's records.
            self._may_come_again(query)
        self.forget_journals()

    def forget_journals(self) -> None:
        """Nobody knows of records that an older journal does not know and that no snapshot names any more."""
        if self.others.is_table():
            known = self._known_by_name()
            for query in self.queries.values():
                if query.causes.knows("older-journal") and query.name not in known:
                    self._may_come_again(query)

    def _known_by_name(self) -> set[str]:
        return {name.partition("@")[0] for name in self.others.applications()} if self.others.is_table() else set()

    def _may_come_again(self, query: Query) -> None:
        visible = self.visible()
        self.model.may_come_again(row for row in self._rows_of(query) if visible[row])

    def _rows_of(self, query: Query) -> list[int]:
        return query.source.all_rows() if query.source is not None else [row for job in self.jobs for row in job.rows]

    def rolled_back(self, snapshot_id: int, before: Counter) -> None:
        """The table has gone back to this snapshot, perhaps by a copy that ends with it, and its journals have not.
        When an application starts it finds out by what stands after that snapshot."""
        lost = before - self.in_table()
        for query in self.queries.values():
            query.causes.rollbacks.append(
                (self.others.root, snapshot_id, [row for row in self._rows_of(query) if lost[row]])
            )
        if self.has_lost_power:
            self.forget_rollbacks()

    def replaced(self, snapshot_id: int, before: Counter) -> None:
        """Another writer's rename has replaced this snapshot. An application finds out by what stands in its place."""
        self.versions.pop(snapshot_id, None)
        self.rolled_back(snapshot_id - 1, before)
        self.raced_at = (self.others.root, snapshot_id)
        # A third writer may have built on what such a query's journal does not know.
        for query in self.queries.values():
            if query.causes.knows("older-journal"):
                self._may_come_again(query)

    def go_back_to(self, snapshot_id: int, clean: bool = True) -> None:
        """Roll the table back."""
        version, before = self.version_at(snapshot_id), self.in_table()
        gone = [row for row, fate in self.model.fate.items() if fate == GONE]
        self.others.roll_back(snapshot_id, clean=clean)
        self.went_back(version)
        # What was taken out since then is owed again, as if it had been there until now.
        before.update(row for row in gone if self.model.fate.get(row) != GONE)
        self.rolled_back(snapshot_id, before)
        self.accident("table")

    def forget_rollbacks(self) -> None:
        """Snapshots have expired. If they leave nothing of a rollback, an application that has not written since finds
        nothing. A mark that a power failure tore does not say where its snapshot was: then any snapshot that has
        expired may be the one that would have told."""
        first = min(self.others.snapshot_ids(), default=1)
        known = self._known_by_name()  # What others wrote since says how far these applications are.
        rollbacks = [
            each for query in self.queries.values() if query.name not in known for each in query.causes.rollbacks
        ]
        is_torn, is_hidden = (
            self.has_lost_power and first > 1,
            self.raced_at[0] == self.others.root and first > self.raced_at[1],
        )
        unseen = [
            each
            for each in rollbacks
            if each[0] == self.others.root
            and (is_torn or is_hidden and each[1] == self.raced_at[1] or first > each[1] + 1)
        ]
        self.model.unsure(row for _, _, lost in unseen for row in lost)
        if is_hidden:  # Rows that a third writer had built on before.
            for query in self.queries.values():
                if query.causes.knows("raced"):
                    self._may_come_again(query)
        self.forget_journals()

    def went_back(self, to: Version) -> None:
        """The table is another one than a moment ago."""
        self.model.went_back(to := self.whole(to))
        for query in self.queries.values():
            # Its user has said where it begins, and no journal knows any more what is before that.
            query.adopts_blindly |= query.source is not None and not self.is_known(query)
        self.seconds_end(to.visible)
        self.model.may_come_again(self.others.letters())
        for query in self.queries.values():
            if query.letters and query.causes.asleep and len(query.checkpoint.planned) > query.checkpoint.committed:
                # What a paused driver is about to put there.
                self.model.may_come_again(filter(is_bad, query.rows(query.checkpoint.committed)))
        for query in self.queries.values():
            if (
                query.source is not None
                and query.source.numeric
                and query.checkpoint.given
                and not query.checkpoint.committed
            ):
                # It begins behind what the table had when its user asked, and its first batch is a replay of nothing.
                self.model.unsure(row for row in query.source.before(query.checkpoint.given) if not to.visible[row])
            if query.source is not None and not query.source.numeric:
                self.model.unsure(row for row in query.source.moved if not to.visible[row])
        visible = self.visible()
        self.model.unsure(row for query in self.queries.values() for row in query.rows_adopted() if not visible[row])
        self.others.changes += 1
        newest = max(self.others.snapshot_ids(), default=0)
        versions = self.versions if to.earlier is None else to.earlier
        self.versions = {number: version for number, version in versions.items() if number <= newest}

    def whole(self, to: Version) -> Version:
        """The version of all tables that there are, when this one is at the given version."""
        return to

    def seconds_end(self, visible: Counter) -> None:
        """Nobody starts those sinks again, so that they would be told that what they wrote is gone."""
        for second in self.seconds:
            self.model.unsure(row for row in second.rows_of_job if not visible[row])
