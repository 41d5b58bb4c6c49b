"""What a Delta table has of what was recorded, as restarts ask for it. Driver only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal
from streamsink.journal.others import last_of_others, of_no_matter
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.journal import Mark
from streamsink.protocol.sink import Committer, Destination, History
from streamsink.protocol.upkeep import Visible
from streamsink.sinks.delta.known import applications_in
from streamsink.sinks.delta.lineage import RESTORE, Last, Lineage, number_of, replaces
from streamsink.sinks.delta.log import DeltaLog
from streamsink.sinks.delta.states import States
from streamsink.sinks.lake_tables.attempts import Places
from streamsink.table.commit.retry import RetryPolicy

# In the payload of a record, the version of the table when it was made.
SINCE = "since"
# The path of the table: journals of several tables may lie in one folder.
DESTINATION = "destination"


@dataclass(frozen=True)
class DeltaTable:
    """One table, as the parts of the sink share it. to: path and identity. policy: how often a commit is tried.

    own: name of the application. below: the folder for states, and for journals unless another one was given.
    """

    to: Destination
    places: Places
    states: States
    policy: RetryPolicy
    own: str
    below: str

    def relative(self, path: str) -> str:
        """A path as the log has it. What this library writes has no letter that the log would encode."""
        return path.removeprefix(f"{self.to.path}/")

    def names(self, record: Committable) -> frozenset[str]:
        """The files of a record, as the log has them."""
        return frozenset(self.relative(self.places.path(record, file.final)) for file in record.files)


class Looking(Committer):
    """The part of the committer that changes nothing."""

    def __init__(self, table: DeltaTable, log: DeltaLog):
        self._table, self._log = table, log
        self._lineage = Lineage(log, table.to.path)
        self._nameless: bool | None = None

    def history(self, application: str) -> History:
        last = self._last(application)
        if not last.number:
            # A state without a commit: the commit was never made, or the table was put back to before it.
            known = application in self._table.states.applications()
            return History(None, complete=not known and not self._forgotten(application))
        return History(self._state(application, last), complete=True)

    def _forgotten(self, application: str) -> bool:
        """Whether the log has commits of other names of which nothing else is left: no state, and no journal.

        A query that has no commit yet may be one of these, under another name. It is looked for once.
        """
        if self._nameless is None:
            below = self._table.places.journal_io.entries(f"{self._table.places.journal}/{JOURNAL_DIR}")
            known = {*self._table.states.applications(), *(entry.name for entry in below if entry.is_dir), application}
            self._nameless = bool(applications_in(self._log, self._table.to.path) - known)
        return self._nameless

    def _last(self, application: str) -> Last:
        """What is in the newest version now. Raises Misuse when that is of another table than was opened."""
        newest = self._log.newest()
        found = newest.metadata().id
        if found != self._table.to.table_id:
            raise Misuse(
                f"{self._table.to.path}: the table has the id {found}, expected {self._table.to.table_id}: it was "
                "dropped and created again, or replaced, while the query ran. Nothing was written. Restore the first "
                "table, or start the query again, which says how to go on with this one",
                kind="table.recreated",
            )
        return self._lineage.last(application, int(newest.version()))

    def _state(self, application: str, last: Last) -> AppState:
        state, names = self._table.states.read(application, last)
        if last.unseen >= 0 and application == self._table.own:
            self._check_unseen(state, names, last)
        return state

    def _check_unseen(self, state: AppState, names: Sequence[str], last: Last) -> None:
        """Entries behind the last commit are gone. Raises Corrupt unless it is known that no RESTORE was among them."""
        active = self._active()
        for each, files in ((state, names), *self._states_before(state, names)):
            folder = self._table.relative(self._table.places.folder(each.record_id))
            if any(f"{folder}/{name}" in active for name in files):
                return  # a RESTORE to a version before that record would have taken them out
        word = f"{self._table.below}/not-restored-{state.sequence}-{last.unseen}"
        if self._table.places.io.exists(word):
            return
        raise Corrupt(
            f"{self._table.to.path}: the log up to version {last.unseen} was cleaned up, record {state.sequence} of "
            f"application '{self._table.own}' was committed before that, and none of its files is in the table any "
            "more: they were compacted or deleted, or the table was restored to an earlier state. Nothing was written. "
            f"If nobody has restored the table since, create an empty file {word} and start the query again; if "
            "somebody has, restore it by the number of a version that still has its log, or from a backup",
            kind="delta.log-gone",
        )

    def _states_before(self, state: AppState, names: Sequence[str]) -> Iterator[tuple[AppState, Sequence[str]]]:
        """States before that of a record without rows, up to the first number of which one has files.

        A RESTORE to between such a record and the next one without rows has taken nothing out. Where there are several
        of one number, the table may have been put back between them, so they say nothing.
        """
        number, found = state.sequence, bool(names)
        while not found and (number := number - 1) > 0:
            states = self._table.states.of(self._table.own, number)
            found = len(states) != 1 or bool(states[0][1])
            yield from states if len(states) == 1 else ()

    def _active(self) -> frozenset[str]:
        """Paths of all files of the newest version, relative to the table."""
        found = self._log.newest().get_add_actions(flatten=True)
        return frozenset(str(path) for path in found.column("path").to_pylist())

    def visible(self) -> Visible:
        """The files of the newest version. Those of another table, which a clone names, are left out."""
        found = self._log.newest().get_add_actions(flatten=True)
        rows = found.column("num_records").to_pylist() if "num_records" in found.schema.names else []
        sizes = dict(zip(found.column("path").to_pylist(), found.column("size_bytes").to_pylist()))
        root, io = self._table.to.path, self._table.places.io
        own = {f"{root}/{unquote(path)}": size for path, size in sizes.items() if path[0] != "/" and "://" not in path}
        gone = tuple(path for path, size in own.items() if io.size(path) != size)
        return Visible(len(own), sum(each or 0 for each in rows), gone)

    def where_is(self, committable: Committable) -> Mark | None:
        for entry in self._lineage.entries(int(self._log.newest().version())):
            if isinstance(entry, int):
                return None
            if entry.record_id == committable.state.record_id:
                return Mark(entry.version, entry.digest, Clock().now_ms())
        return None

    def where_now(self) -> Mark | None:
        version = int(self._log.newest().version())
        entry = self._log.entry(version)
        return None if entry is None else Mark(version, entry.digest, Clock().now_ms())

    def was_replaced(self, mark: Mark) -> bool:
        """On a local disk Spark's Delta publishes by a rename, which replaces what came to be since it looked."""
        entry = self._log.entry(mark.snapshot_id)
        return entry is not None and entry.digest != mark.uuid and 0 < entry.timestamp_ms <= mark.at_ms

    def was_rolled_back(self, mark: Mark) -> bool:
        version = int(self._log.newest().version())
        if version < mark.snapshot_id:
            return True
        for entry in self._lineage.entries(version):
            if isinstance(entry, int):
                return False
            if entry.version <= mark.snapshot_id:
                return entry.version < mark.snapshot_id or entry.digest != mark.uuid
        return True

    def holds(self, committable: Committable, since: int) -> bool:
        return bool(self._table.names(committable) & self._active())

    def mentions(self, committable: Committable) -> bool:
        names = self._table.names(committable)
        for entry in self._lineage.entries(int(self._log.newest().version())):
            if isinstance(entry, int):
                return bool(names & self._active())
            if entry.record_id == committable.state.record_id or names & entry.adds:
                return True
        return False

    def sees_all_since(self, committable: Committable) -> bool:
        since = int(committable.payload[SINCE])
        for entry in self._lineage.entries(int(self._log.newest().version())):
            if isinstance(entry, int):
                return entry < since
        return True

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        states = self._table.states

        def newest(name: str) -> AppState | None:
            last = self._last(name)
            return states.read(name, last)[0] if last.number else None

        places = self._table.places
        found = last_of_others(places.journal_io, places.journal, application, states.applications(), newest)
        if places.journal == self._table.below:
            return found
        return {name: last for name, last in found.items() if self._is_of_here(name, last.state)}

    def _is_of_here(self, application: str, last: AppState) -> bool:
        """Whether what another application has recorded last is of this table, or of one that was in its place."""
        if last.table_id == self._table.to.table_id:
            return True
        places, newest = self._table.places, None
        with of_no_matter(places.journal, f"the newest record of '{application}'"):
            newest = FileJournal(places.journal_io, places.journal, application, 2).newest()
        return newest is not None and newest.payload.get(DESTINATION) == self._table.to.path

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        return self._table.places.in_place(committable)

    def is_readable(self, committable: Committable) -> bool:
        return self._table.places.is_described(committable)

    def path_of_rows(self, committable: Committable) -> str:
        return self._table.places.path(committable, committable.files[0].final) if committable.files else ""

    def may_name(self, number: int, attempt: str) -> bool:
        """Whether the table, or an earlier version of it, may name files of an attempt of the own application.

        number: of the record that the attempt was to get. Commits are in the order of numbers, so the log is read back
        to the one before it. What a RESTORE has taken out may be restored again.
        """
        own, folder = number_of(self._table.own), self._table.relative(self._table.places.folder(attempt))
        for entry in self._lineage.entries(int(self._log.newest().version())):
            if isinstance(entry, int) or entry.operation == RESTORE or replaces(entry):
                return True
            if any(path.startswith(f"{folder}/") for path in entry.adds):
                return True
            if entry.txns.get(own, number) < number:
                return False
        return False
