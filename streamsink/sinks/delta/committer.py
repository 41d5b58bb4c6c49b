"""Commits records to a Delta table, each as one version of its log, and tells what is committed. Driver only."""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse, OutcomeUnknown, Retryable, StreamsinkError
from streamsink.faults import fault_point
from streamsink.protocol import ways
from streamsink.protocol.committable import Committable
from streamsink.protocol.journal import Mark
from streamsink.protocol.sink import Published
from streamsink.sinks.delta.columns import columns_of
from streamsink.sinks.delta.lineage import fingerprint, fingerprint_of, number_of
from streamsink.sinks.delta.log import Entry
from streamsink.sinks.delta.looking import Looking
from streamsink.sinks.delta.support import check_table

# What a record's description says beside its files: how the log is to name them, and the types of columns and the
# partitioning that they were written for, and which columns took no nulls.
ADDS, SCHEMA, PARTITION_BY, NOT_NULL = "adds", "schema", "partition_by", "not_null"
# So many of the newest entries are made durable: others may have written those before ours, and without them ours would
# be behind a hole.
_FLUSHED = 100


class DeltaCommitter(Looking):
    """Commits at exactly the version behind the one that it has looked at: nothing that it has not seen is before."""

    _own: Entry | None = None  # the one that was committed last

    def for_background(self) -> "DeltaCommitter":
        return DeltaCommitter(self._table, self._log.again())

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
                "taken them. Nothing was committed. Restore them. "
                f"{ways.give_up(table.to.path, record.application, is_table=False)}",
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
        without_nulls = said.get(NOT_NULL, now)
        lost += [column.name for column in columns if not column.nullable and column.name not in without_nulls]
        if not lost and partition == said.get(PARTITION_BY, partition):
            return
        found = (
            f"column '{lost[0]}' was dropped, has another type or takes no nulls"
            if lost
            else f"it is partitioned by {partition}"
        )
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
        if entry is not None and entry.record_id == state.record_id:
            self._check_behind(record, version)
            self._own = entry
            return version
        if entry is not None:
            return None
        raise OutcomeUnknown(
            f"{self._table.to.path}: committing record {state.sequence} of application '{application}' as version "
            f"{version} failed ({type(failed).__name__}), and there is no such version now. Nothing was deleted; the "
            "record is safe in the journal, and the next start looks whether it is committed, and commits it if not",
            kind="publish.unknown",
        ) from failed

    def _check_behind(self, record: Committable, version: int) -> None:
        """Raises Misuse when the version before the one that was committed is not what was looked at, and the table is
        not the same any more: it was replaced at that moment.

        Where another program's rename has replaced that version alone, the next look says what that means.
        """
        path, log = self._table.to.path, self._log
        if log.is_as_seen(version - 1):
            return
        log.forget()
        try:
            found = f"there is the table {log.newest().metadata().id}"
        except StreamsinkError as unreadable:
            found = f"its log cannot be read ({unreadable.kind})"
        if found.endswith(self._table.to.table_id):
            return
        raise Misuse(
            f"{path}: record {record.state.sequence} of application '{record.application}' was committed as version "
            f"{version}, and meanwhile the table was dropped and created again, or its log was put back: {found}, "
            f"expected {self._table.to.table_id}. Nothing else was written, and the record is safe in the journal. "
            f"Remove the file {log.name(version)}, which does not belong to what is there now, and start the query "
            "again, which says how to go on; or restore the first table",
            kind="delta.replaced",
        )

    def _done(self, record: Committable, version: int, attempts: int) -> Published:
        fault_point("commit.published")
        self._log.flush(version, since=max(0, version - _FLUSHED))
        self._log.tidy_up(version)
        self._table.states.keep_last(record.application)
        own = self._own is not None and self._own.version == version
        entry = self._own if own else self._log.entry(version)
        where = None if entry is None else Mark(version, entry.digest, Clock().now_ms())
        return Published(record.state.checkpoint_id, version, attempts, where)

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """As ``Committer.sweep``. A driver may have died before the entry that has the record was durable."""
        if not published:
            return []
        version = int(self._log.newest().version())
        self._log.flush(version, since=max(0, version - _FLUSHED))
        return self._table.states.prune(self._table.own, published[-1].state.sequence)
