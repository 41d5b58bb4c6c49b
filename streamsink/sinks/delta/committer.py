"""Commits records to a Delta table, each as one version of its log, and tells what is committed. Driver only."""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse, OutcomeUnknown, Retryable
from streamsink.faults import fault_point
from streamsink.journal.others import last_of_others
from streamsink.protocol.committable import AppState, Committable, LastOfOther
from streamsink.protocol.journal import Mark
from streamsink.protocol.sink import Committer, Destination, History, Published
from streamsink.sinks.delta.columns import columns_of
from streamsink.sinks.delta.lineage import RESTORE, Last, Lineage, fingerprint, fingerprint_of, number_of
from streamsink.sinks.delta.log import DeltaLog
from streamsink.sinks.delta.states import States
from streamsink.sinks.delta.support import check_table
from streamsink.sinks.lake_tables.attempts import Places
from streamsink.table.commit.retry import RetryPolicy

# What a record's description says beside its files: how the log is to name them, and the types of columns and the
# partitioning that they were written for.
ADDS, SCHEMA, PARTITION_BY = "adds", "schema", "partition_by"
# In the payload of a record, the version of the table when it was made.
SINCE = "since"
# So many of the newest entries are made durable: others may have written those before ours, and without them ours would
# be behind a hole.
_FLUSHED = 100


@dataclass(frozen=True)
class DeltaTable:
    """One table, as the parts of the sink share it. to: path and identity. policy: how often a commit is tried.

    own: name of the application. below: the folder for journals and states.
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


class DeltaCommitter(Committer):
    """Commits at exactly the version behind the one that it has looked at: nothing that it has not seen is before."""

    def __init__(self, table: DeltaTable, log: DeltaLog):
        self._table, self._log = table, log
        self._lineage = Lineage(log, table.to.path)

    def for_background(self) -> "DeltaCommitter":
        return DeltaCommitter(self._table, self._log.again())

    # -- looking ---------------------------------------------------------------------------------------------------

    def history(self, application: str) -> History:
        last = self._last(application)
        if not last.number:
            # A state without a commit: the commit was never made, or the table was put back to before it.
            known = application in self._table.states.applications()
            return History(None, complete=not known)
        return History(self._state(application, last), complete=True)

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
        folder = self._table.relative(self._table.places.folder(state.record_id))
        if any(f"{folder}/{name}" in self._active() for name in names):
            return  # a RESTORE to a version before the record would have taken them out
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

    def _active(self) -> frozenset[str]:
        """Paths of all files of the newest version, relative to the table."""
        found = self._log.newest().get_add_actions(flatten=True)
        return frozenset(str(path) for path in found.column("path").to_pylist())

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

        return last_of_others(self._table.places.io, self._table.below, application, states.applications(), newest)

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        return self._table.places.in_place(committable)

    def path_of_rows(self, committable: Committable) -> str:
        return self._table.places.path(committable, committable.files[0].final) if committable.files else ""

    def may_name(self, number: int, attempt: str) -> bool:
        """Whether the table, or an earlier version of it, may name files of an attempt of the own application.

        number: of the record that the attempt was to get. Commits are in the order of numbers, so the log is read back
        to the one before it. What a RESTORE has taken out may be restored again.
        """
        own, folder = number_of(self._table.own), self._table.relative(self._table.places.folder(attempt))
        for entry in self._lineage.entries(int(self._log.newest().version())):
            if isinstance(entry, int) or entry.operation == RESTORE:
                return True
            if any(path.startswith(f"{folder}/") for path in entry.adds):
                return True
            if entry.txns.get(own, number) < number:
                return False
        return False

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        """See ``Committer.publish``. One version of the log has the files, the number and the id of the record."""
        fence()
        prepared: tuple[list[Mapping[str, Any]], Mapping[str, Any]] | None = None
        for attempt in self._table.policy.attempts(Clock()):
            version = self._found(committable, expect)
            if version is None:
                prepared = prepared or self._prepared(committable)
                self._check_table(committable, prepared[1])
                fence()
                version = self._committed(committable, prepared[0])
            if version is not None:
                return self._done(committable, version, attempt)
        raise Retryable(
            f"{self._table.to.path}: record {committable.state.sequence} of application '{committable.application}' "
            "could not be committed: other writers were faster each time. Nothing was committed; the record is safe in "
            "the journal, and the restart of the query commits it. If that happens often, raise commit_max_retries",
            kind="commit.retries",
        )

    def _found(self, record: Committable, expect: int) -> int | None:
        """The version that has published the record; None when it is to be committed next."""
        last = self._last(record.application)
        if last.number == record.state.sequence and last.fingerprint == fingerprint(record.state.record_id):
            return int(self._log.seen.version()) if last.version is None else last.version
        if last.number != expect:
            raise Retryable(
                f"{self._table.to.path}: record {last.number} of application '{record.application}' is the last one "
                f"that is committed, expected {expect}: another driver has committed, or the table was put back, while "
                f"{record.state.checkpoint_name} was being committed. Nothing was committed; the record is safe in the "
                "journal. The restart of the query finds out what has happened",
                kind="destination.history-changed",
            )
        return None

    def _prepared(self, record: Committable) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
        """Keep the record's state, durably. Returns its files as the log is to name them, and what they were written
        for. Raises Corrupt."""
        table = self._table
        _, _, gone = table.places.in_place(record)
        if gone:
            raise Corrupt(
                f"{table.to.path}: {len(gone)} of {len(record.files)} files of record {record.state.sequence} are gone "
                f"(first: {gone[0]}): a VACUUM with too short a retention, or something else that deletes files, has "
                "taken them. Nothing was committed. Restore them",
                kind="pending.files-gone",
            )
        said: Mapping[str, Any] = table.places.described(record)[1] if record.files else {}
        table.states.write(record)
        now = Clock().now_ms()
        return [{**each, "modification_time": now} for each in said.get(ADDS, ())], said

    def _check_table(self, record: Committable, said: Mapping[str, Any]) -> None:
        """Raises Misuse unless the table takes files, and has the columns that those of the record were written for."""
        seen, path = self._log.seen, self._table.to.path
        columns = columns_of(seen.schema().to_json())
        check_table(seen, columns, path)
        now, partition = {column.name: column.type for column in columns}, list(seen.metadata().partition_columns)
        lost = [name for name, of in said.get(SCHEMA, {}).items() if now.get(name) != of]
        if not lost and partition == said.get(PARTITION_BY, partition):
            return
        found = f"column '{lost[0]}' was dropped or has another type" if lost else f"it is partitioned by {partition}"
        raise Misuse(
            f"{path}: the table was changed since record {record.state.sequence} was made: {found}, and its files were "
            f"written for {json.dumps(said[SCHEMA])}, partitioned by {said[PARTITION_BY]}. Nothing was committed. "
            "Change the table back, and start the query again; each start commits the record until that succeeds",
            kind="delta.changed",
        )

    def _committed(self, record: Committable, adds: Sequence[Mapping[str, Any]]) -> int | None:
        """Try once to commit. Returns the version, or None when another writer has that one.

        Whatever the outcome looks like, the log is asked. A request that is still on its way can only create the same
        version, for which each later try is made as well until it is taken. Raises OutcomeUnknown.
        """
        application, state, version = record.application, record.state, int(self._log.seen.version()) + 1
        txns = {number_of(application): state.sequence, fingerprint_of(application): fingerprint(state.record_id)}
        said = {"application": application, "number": state.sequence, "record": state.record_id}
        errors = importlib.import_module("deltalake.exceptions")
        failed: Exception | None = None
        fault_point("commit.before_publish")
        try:
            self._log.commit(adds, txns, said)
        except (OSError, errors.DeltaError) as error:
            failed = error
        try:
            entry = self._log.entry(version)
        except OSError as error:
            failed, entry = failed or error, None
        if entry is not None:
            return version if entry.record_id == state.record_id else None
        raise OutcomeUnknown(
            f"{self._table.to.path}: committing record {state.sequence} of application '{application}' as version "
            f"{version} failed ({type(failed).__name__}), and there is no such version now. Nothing was deleted; the "
            "record is safe in the journal, and the next start looks whether it is committed, and commits it if not",
            kind="publish.unknown",
        ) from failed

    def _done(self, record: Committable, version: int, attempts: int) -> Published:
        fault_point("commit.published")
        self._log.flush(version, since=max(0, version - _FLUSHED))
        self._log.tidy_up(version)
        self._table.states.keep_last(record.application)
        entry = self._log.entry(version)
        where = None if entry is None else Mark(version, entry.digest, Clock().now_ms())
        return Published(record.state.checkpoint_id, version, attempts, where)

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """As ``Committer.sweep``. A driver may have died before the entry that has the record was durable."""
        if not published:
            return []
        version = int(self._log.newest().version())
        self._log.flush(version, since=max(0, version - _FLUSHED))
        return self._table.states.prune(self._table.own, published[-1].state.sequence)
