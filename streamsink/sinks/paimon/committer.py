"""Paimon tables as the destination of the protocol: a ``Committer`` over ``table/``. Driver only."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt
from streamsink.faults import fault_point
from streamsink.format.manifest import FileKind, ManifestEntry, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import APPEND, OVERWRITE
from streamsink.format.supported import check_writable
from streamsink.options import MODE_OVERWRITE, ON_ROLLBACK_REPUBLISH, ONE_SNAPSHOT, SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.committable import Committable, KnownRun, LastOfOther, StagedFile
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Mark
from streamsink.protocol.sink import Committer, History, Published
from streamsink.sinks.paimon import promise
from streamsink.sinks.paimon.past import filter_of, history_of
from streamsink.sinks.paimon.past.above import as_journals_say
from streamsink.sinks.paimon.past.history_of import mark_of, names_of
from streamsink.sinks.paimon.past.records import (
    commit_name,
    files_in_place,
    is_older_than,
    is_readable,
    joined,
    manifest_meta,
    path_of_rows,
    place_files,
    read_staged,
    staged_manifests,
    state_alone,
)
from streamsink.sinks.paimon.restoring import Restoring
from streamsink.sinks.paimon.trouble import explained
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.application_states import States
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.history import leftovers, lineage
from streamsink.table.history.lineage import were_named
from streamsink.table.history.presence import Presence
from streamsink.table.history.whole import Whole
from streamsink.table.table import Table
from streamsink.table.write.folders import UNAWARE_BUCKET
from streamsink.table.write.writer import WrittenFile

UNAWARE_TOTAL_BUCKETS = -1


class PaimonCommitter(Committer):
    """Publishes checkpoints of bucket-unaware append tables as snapshots."""

    def __init__(
        self,
        table: Table,
        options: SinkOptions,
        entries: dict[str, list[ManifestEntry]] | None = None,
        *,
        journal_of: str | None = None,
        is_undone: Callable[[int], bool] | None = None,
    ):
        """entries: by name, of manifests that are staged and not published; shared with a committer beside this one.
        journal_of: the path below which the journal lies, when that is not the table's.
        is_undone: as ``filter_of.is_published``; as the table's own journal says when it is not given.
        """
        self._table = table
        self._way_on = ways.give_up(journal_of or table.root, options.application)
        self._options = options
        self._is_undone = is_undone or (
            lambda sequence: history_of.is_last_undone(table, options.application, sequence)
        )
        self._whole = Whole(table, started=entries is not None)
        self._commit = TableCommit(table, options, self._whole)
        self._entries = entries if entries is not None else {}
        self._checked_schema = -1
        self._restoring: Restoring | None = None

    def for_background(self) -> "PaimonCommitter":
        """Over the same table, opened again: no cache is shared.

        Only the entries of staged manifests are: put in by one side before the record exists, taken out once by the other side
        after it was handed the record.
        """
        other = Table(self._table.file_io, self._table.root)
        self._table.check_identity()  # it was not recreated between the two openings
        return type(self)(other, self._options, self._entries)

    # -- pre-commit ------------------------------------------------------------------------------------------------

    def stage(
        self,
        staging: str,
        written: Sequence[WrittenFile],
        group: FlushGroup,
        *,
        seen: bool = False,
        leads_on: tuple[str, int] | None = None,
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """Write the manifest that holds the whole metadata of these files into staging; durable when ``group`` is flushed.

        seen: the batch's rows are in the table already, so that it replaces nothing either. leads_on: as of ``Decision``. Returns the files and the payload of
        the pending record. The record itself names paths and counts only: the statistics, which are row values, stay in the
        manifest, where the table keeps them anyway. Raises Misuse when the record could not be published.
        """
        promise.check(self._table, staging, written, group)
        relative = self._table.layout.relative
        files = tuple(StagedFile(relative(w.staged), w.final, w.meta.file_size, w.meta.row_count) for w in written)
        payload: dict[str, Any] = {"kind": APPEND, "manifest": None, "base": self._table.snapshots.known_id()}
        payload |= history_of.last_of(self._table, *leads_on) if leads_on else {}
        entries = [
            ManifestEntry(FileKind.ADD, w.partition, UNAWARE_BUCKET, UNAWARE_TOTAL_BUCKETS, w.meta) for w in written
        ]
        if self._options.mode == MODE_OVERWRITE and not seen:
            schema = self._table.latest_schema()
            overwrite = Overwrite.of(self._table.root, schema, self._options.overwrite_partition)
            overwrite.check_inside(self._table.root, schema, entries)
            payload |= {"kind": OVERWRITE, "overwrite": overwrite.to_json()}
        group.sync_dir(staging)
        if written:
            name = f"manifest-{IdSource().new_id()}-0"
            data = write_manifest(entries)
            staged = os.path.join(staging, name)
            group.write(staged, data)
            payload["manifest"] = {
                "staged": relative(staged),
                "final": f"manifest/{name}",
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            self._entries[name] = entries
            fault_point("precommit.manifest_staged")
        return files, payload

    # -- Committer -------------------------------------------------------------------------------------------------

    def history(self, application: str) -> History:
        self._table.check_identity()
        self._check_schema()
        newest = self._whole.look(self._table.snapshots.latest())
        states = self._table.states.read(newest)
        return History(filter_of.state_of(states, application), states.complete)

    def state_alone(self, committable: Committable, *, held: bool = False) -> Committable:
        return state_alone(committable, held=held)

    def mentions(self, committable: Committable) -> bool:
        return were_named(self._table, names_of(committable))

    def others(self, application: str) -> Mapping[str, LastOfOther]:
        return as_journals_say(self._table, history_of.last_of_others(self._table, application))

    def has_reached(self, application: str, sequence: int, where: Mark | None = None) -> bool:
        states = self._table.states.read(self._table.snapshots.latest())
        state = filter_of.state_of(states, application)
        if state is not None or states.complete:
            return state is not None and state.sequence >= sequence
        return where is None or history_of.has_record(self._table, application, sequence, where)

    def has_what_was_before(self, committable: Committable) -> bool:
        where = history_of.led_at(committable)
        return self.has_reached(*committable.state.leads_on, where) and history_of.is_of_the_past_that_it_leads_on(
            self._table, committable
        )

    def known_run(self, application: str, run: str) -> KnownRun:
        return history_of.known_run(self._table, application, run)

    def places_of(self, committable: Committable) -> list[str]:
        """Paths of the tables of which a retained snapshot names a file of the record."""
        return [self._table.root] if self.mentions(committable) else []

    def sees_all_since(self, committable: Committable) -> bool:
        return history_of.is_retained_since(self._table, committable.payload.get("base"))

    def where_is(self, committable: Committable) -> Mark | None:
        return history_of.where_is(self._table, committable)

    def where_now(self) -> Mark | None:
        return history_of.newest_now(self._table, alone=True)

    def was_replaced(self, mark: Mark) -> bool:
        return lineage.was_replaced(self._table, mark.snapshot_id, mark.uuid, mark.at_ms)

    def was_rolled_back(self, mark: Mark) -> bool:
        return lineage.was_rolled_back(self._table, mark.snapshot_id, mark.uuid, mark.at_ms)

    def holds(self, committable: Committable, since: int) -> bool:
        return were_named(self._table, names_of(committable), since)

    def files_in_place(self, committable: Committable) -> tuple[int, int, tuple[str, ...]]:
        return files_in_place(self._table, committable)

    def path_of_rows(self, committable: Committable) -> str:
        return path_of_rows(self._table, committable)

    def is_readable(self, committable: Committable) -> bool:
        """Whether the record's manifests are as they were recorded."""
        return is_readable(self._table, committable)

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        with explained(self._table.root, committable.state.sequence, self._way_on):
            return self._publish(committable, expect=expect, restored=restored, fence=fence)

    def _publish(
        self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]
    ) -> Published:
        state = committable.state
        if restored and self._restoring is not None:
            committable = self._restoring.unpublished(committable)
        if restored:
            _, _, gone = self.files_in_place(committable)
            if gone:
                newest = filter_of.newest_with(self._table, committable)
                if newest is None:
                    raise _files_gone(self._table.root, committable, gone, self._way_on)
                return Published(state.checkpoint_id, newest.id, 0, mark_of(newest, Clock().now_ms(), alone=True))
        if restored and committable.payload["kind"] == OVERWRITE:
            committable = self._if_still_meant(committable)
        check = None
        if restored:  # before the manifests are read, which it does too
            check = self._restoring.presence if self._restoring else Presence(self._table.manifests)
        begun_ms = Clock().now_ms()
        is_prepared = self._restoring is not None and self._restoring.place_ahead(committable)
        folders = frozenset() if is_prepared else self._place_now(committable, fence)
        manifests, entries = self._read_manifests(committable)
        request = CommitRequest(
            commit_user=Writer(committable.application, state.query, state.epoch).commit_user(state.generation),
            identifier=state.checkpoint_id,
            changes=Changes(tuple(entries)),
            manifests=manifests,
            delta_list=self._restoring.delta_list(committable) if is_prepared else None,
            check=check,
            folders=folders,
            begun_ms=begun_ms,
            watermark_ms=committable.watermark_ms,
            application=committable.application,
            state=state.to_json(),
            hint=self._restoring is None or self._restoring.is_last(committable),
            kind=committable.payload["kind"],
            overwrite=_overwrite_of(committable),
            name=commit_name(committable),
        )

        def is_published(states: States) -> bool:
            fence()
            return filter_of.is_published(self._table, committable, expect, states, self._is_undone)

        done = self._commit.commit(request, is_published)
        mark = mark_of(done.snapshot, done.at_ms, alone=done.may_be_alone or committable.payload.get("alone", False))
        return Published(state.checkpoint_id, done.snapshot_id, done.attempts, mark, done.base_replaced)

    def join(self, records: Sequence[Committable]) -> list[Committable]:
        """One committable for each run of appends of one commit user."""
        return joined(records)

    @contextmanager
    def restoring(self, records: Sequence[Committable]) -> Iterator[None]:
        ahead = self._place if self._options.publish_as != ONE_SNAPSHOT else None
        self._restoring = Restoring(self._table, records, self._entries, ahead)
        try:
            yield
        finally:
            self._restoring = None

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        names = {committable.state.record_id: is_older_than(self._table, committable) for committable in published}
        found = self._restoring.left if self._restoring and names else leftovers.look(self._table, names)
        removed = leftovers.sweep(self._table, names, found)
        if self._restoring is None or self._restoring.is_first_sweep():
            removed += leftovers.sweep_creations(self._table)
            if names:
                # Found published: whoever did it may have died before the snapshot's name was durable. Later ones are our own.
                self._table.file_io.sync_dir(self._table.layout.snapshot_dir)
        return removed

    # -- parts -----------------------------------------------------------------------------------------------------

    def _if_still_meant(self, committable: Committable) -> Committable:
        """An overwrite of an earlier run, which others' commits since its record may have made wrong."""
        _, entries = self._read_manifests(committable, keep=True)
        covers = _overwrite_of(committable).covers(self._table.latest_schema(), {entry.partition for entry in entries})
        return history_of.still_meant(self._table, committable, covers, self._options)

    def _check_schema(self) -> None:
        """A foreign writer may have set an option that is not honoured here, or that a commit cannot read."""
        schema = self._table.latest_schema()
        if schema.id != self._checked_schema:
            check_writable(schema)
            self._commit.check_options()
            self._checked_schema = schema.id

    def _place_now(self, committable: Committable, fence: Callable[[], None]) -> frozenset[str]:
        try:
            return self._place(committable)
        except FileNotFoundError as gone:
            fence()  # a successor has published the record and swept what was staged
            raise _files_gone(self._table.root, committable, [str(gone.filename or gone)], self._way_on) from gone

    def _place(self, committable: Committable) -> frozenset[str]:
        return place_files(self._table, committable, keep=self._options.on_rollback == ON_ROLLBACK_REPUBLISH)

    def _read_manifests(
        self, committable: Committable, keep: bool = False
    ) -> tuple[tuple[ManifestFileMeta, ...], list[ManifestEntry]]:
        """The staged manifests, and their entries. keep: they will be asked for once more."""
        metas, added = [], []
        for manifest in staged_manifests(committable):
            name = os.path.basename(manifest["final"])
            entries = self._entries.pop(name, None) or read_staged(self._table, manifest, self._way_on)
            if keep:
                self._entries[name] = entries
            metas.append(manifest_meta(self._table, manifest, entries))
            added += entries
        return tuple(metas), added


def _files_gone(root: str, committable: Committable, gone: Sequence[str], way_on: str) -> Corrupt:
    return Corrupt(
        f"{root}: record {committable.state.sequence}, {committable.state.checkpoint_name}, is pending, but {len(gone)} of its files "
        f"are gone (first: {gone[0]}): something deleted them, such as orphan cleaning or a rollback. Nothing of it was published. Restore "
        f"them. {way_on}",
        kind="pending.files-gone",
    )


def _overwrite_of(committable: Committable) -> Overwrite | None:
    """What the checkpoint replaces. It is published after every record before it, so never rows of a later one."""
    given = committable.payload.get("overwrite")
    return Overwrite.from_json(given) if given is not None else None
