"""Paimon tables as the destination of the protocol: a ``Committer`` over ``table/``. Driver only."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamsink.clock import Clock, IdSource
from streamsink.faults import fault_point
from streamsink.format.manifest import FileKind, ManifestEntry, write_manifest
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import APPEND, OVERWRITE
from streamsink.options import MODE_OVERWRITE, ON_ROLLBACK_REPUBLISH, ONE_SNAPSHOT, SinkOptions
from streamsink.protocol import ways
from streamsink.protocol.committable import Committable, StagedFile
from streamsink.protocol.sink import Published
from streamsink.sinks.paimon import promise
from streamsink.sinks.paimon.history import PaimonHistory
from streamsink.sinks.paimon.past import history_of
from streamsink.sinks.paimon.past.filter_of import RecordGuard, asked_by
from streamsink.sinks.paimon.past.history_of import mark_of
from streamsink.sinks.paimon.past.records import (
    commit_name,
    commit_user,
    joined,
    manifest_meta,
    manifest_name,
    place,
    read_staged,
    renames,
    said_of_manifest,
    staged_manifests,
)
from streamsink.sinks.paimon.restoring import Live, Restart, Restored
from streamsink.sinks.paimon.trouble import explained, explaining, files_gone
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions
from streamsink.table.commit.changes import Ahead, Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.table import Table
from streamsink.table.write.folders import UNAWARE_BUCKET
from streamsink.table.write.spec import WrittenFile

UNAWARE_TOTAL_BUCKETS = -1


class PaimonCommitter(PaimonHistory):
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
        """entries: by name, of manifests that are staged and not published; shared with the committer for the
        background. journal_of: the path below which the journal lies, when that is not the table's. is_undone: as
        ``PaimonHistory``.
        """
        super().__init__(table, options, is_undone=is_undone, is_running=entries is not None)
        self._way_on = ways.give_up(journal_of or table.root, options.application)
        self._entries = entries if entries is not None else {}
        # The staging folder and the name of the manifest that was staged last.
        self._staged = ("", "")
        # By the id of its record, what the next commit's first try needs, where files have their final names at once.
        self._ahead: dict[str, Ahead] = {}
        self._live = Live(table, self._commit.iceberg)
        self._restart: Restart | None = None

    def for_background(self) -> "PaimonCommitter":
        """Over the same table, opened again: no cache is shared.

        Only the entries of staged manifests are: one side puts them in before the record exists, the other side takes
        them out once, after the record was handed to it. And this side hears what the other one publishes, which it
        reads again before it relies on it.
        """
        other = Table(self._table.file_io, self._table.root)
        self._table.check_identity()  # it was not recreated between the two openings
        other.tell(self._table)
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
        at_once: tuple[str, int] | None = None,
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """Write the manifest that holds the whole metadata of these files into staging; durable when ``group`` is
        flushed.

        seen: the batch's rows are in the table already, so that it replaces nothing either. leads_on: as of
        ``Decision``. at_once: where files have their final names at once, the record's id, and a time in ms before the
        first of them got its name. Returns the files and the payload of the pending record. The record itself names
        paths and counts only: the statistics, which are row values, stay in the manifest, where the table keeps them
        anyway. Raises Misuse when the record could not be published.
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
        payload |= {"named_ms": at_once[1]} if at_once else {}
        if written:
            name = manifest_name(at_once[0] if at_once else IdSource().new_id())
            data = write_manifest(entries)
            staged = self._table.layout.manifest(name) if at_once else os.path.join(staging, name)
            group.write(staged, data)
            payload["manifest"] = said_of_manifest(self._table, staged, name, data, entries)
            if self._staged[0] == staging:
                # The checkpoint that had this folder before was aborted: no record names its manifest.
                self._entries.pop(self._staged[1], None)
            self._staged, self._entries[name] = (staging, name), entries
            if at_once and payload["kind"] == APPEND and not self._options.publishes_later:
                meta = manifest_meta(self._table, payload["manifest"], entries)
                ahead = self._commit.files.write_ahead(f"{at_once[0]}-{IdSource().new_id()[:8]}", meta, group)
                self._ahead = {at_once[0]: ahead} if ahead else {}
            fault_point("precommit.manifest_staged")
        return files, payload

    # -- publishing ------------------------------------------------------------------------------------------------

    def recording(self, create: Callable[[], None], questions: Any) -> None:
        # What did not exist when the batch was admitted is asked about again: that is how others are noticed.
        owner = questions if isinstance(questions, Questions) else Questions()
        self._table.file_io.ask_beside(create, Questions(size=(*self.next_snapshots(), *owner.size)), shared=owner)

    def publish(self, committable: Committable, *, expect: int, restored: bool, fence: Callable[[], None]) -> Published:
        committable = self.publish_first(committable, restored=restored, fence=fence)
        state, way = committable.state, self._way(restored)
        with explained(self._table.root, state.sequence, self._way_on):
            committable = way.unpublished(committable)
            done = way.gone_with_its_files(committable, self._way_on, asked_by(fence))
            if done is None:
                committable = self._if_still_meant(committable) if restored else committable
                request = self._placed_request(committable, way, fence)
                guard = RecordGuard(self._table, committable, expect, fence, is_undone=self._is_undone)
                committed = self._commit.commit_unsettled(request, guard)
                settle = explaining(committed.settle, self._table.root, state.sequence, self._way_on)
                beside = way.settling(committable, committed.snapshot_id, settle) if restored else None
                later = settle if self.settles_later and not restored else beside
                replaced = False if later else committed.settle()
                is_alone = committed.may_be_alone or committable.payload.get("alone", False)
                where = mark_of(committed.snapshot, committed.at_ms, alone=is_alone)
                name, tries = committed.snapshot_id, committed.attempts
                done = Published(state.checkpoint_id, name, tries, where, replaced, later)
        self.see_published(committable)
        return done

    def publish_first(self, committable: Committable, *, restored: bool, fence: Callable[[], None]) -> Committable:
        """Publish what must be visible before the record is: nothing, unless the record has dead letters.

        Returns the record with what is known then. restored, fence: as of ``publish``.
        """
        return committable

    def see_published(self, committable: Committable) -> None:
        """Called before ``publish`` returns, with what was just published. One table remembers nothing."""

    def _way(self, restored: bool) -> Live:
        """How a record of this run is published, or one of an earlier run."""
        if not restored:
            return self._live
        return self._restart or Restored(self._table)

    def _placed_request(self, committable: Committable, way: Live, fence: Callable[[], None]) -> CommitRequest:
        """Place the record's files, and say what the commit is to change."""
        # First: at a restart it reads the manifests of all records, which then need not be read again.
        check = way.presence
        begun_ms = int(min(Clock().now_ms(), way.named_ms(committable)))
        is_placed = way.place_ahead(committable)
        folders = frozenset() if is_placed else self._place_now(committable, fence)
        manifests, entries = self._read_manifests(committable)
        state = committable.state
        ahead = self._ahead.pop(state.record_id, None) or (way.ahead_of(committable) if is_placed else None)
        return CommitRequest(
            commit_user=commit_user(committable),
            identifier=state.checkpoint_id,
            changes=Changes(tuple(entries)),
            manifests=manifests,
            check=check,
            folders=folders,
            begun_ms=begun_ms,
            watermark_ms=committable.watermark_ms,
            application=committable.application,
            state=state.to_json(),
            hint=way.is_last(committable),
            kind=committable.payload["kind"],
            overwrite=Overwrite.in_payload(committable.payload),
            name=ahead.commit_name if ahead else commit_name(committable),
            ahead=ahead,
            before=way.before,
        )

    def _if_still_meant(self, committable: Committable) -> Committable:
        """What is to be published of a record of an earlier run: others' commits since may have made an overwrite
        wrong.
        """
        overwrite = Overwrite.in_payload(committable.payload)
        if overwrite is None:
            return committable
        _, entries = self._read_manifests(committable, keep=True)
        schema = self._table.latest_schema()
        covers = overwrite.covers(schema, {entry.partition for entry in entries})
        return history_of.still_meant(self._table, committable, covers, self._options)

    def join(self, records: Sequence[Committable]) -> list[Committable]:
        """One committable for each run of appends of one commit user."""
        return joined(records)

    @contextmanager
    def restoring(self, records: Sequence[Committable]) -> Iterator[None]:
        ahead = self._place if self._options.publish_as != ONE_SNAPSHOT else None
        self._restart = Restart(self._table, records, self._entries, ahead, self._commit)
        try:
            with self._restart.cleared():
                yield
        finally:
            self._restart = None

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        return (self._restart or self._live).sweep(published)

    def _place_now(self, committable: Committable, fence: Callable[[], None]) -> frozenset[str]:
        if renames(committable):
            fence()  # before anything is changed
        try:
            return self._place(committable)
        except FileNotFoundError as gone:
            fence()  # a successor has published the record and swept what was staged
            raise files_gone(self._table.root, committable, [str(gone.filename or gone)], self._way_on) from gone

    def _place(self, committable: Committable) -> frozenset[str]:
        """As ``place``; the staged names stay when a rollback shall be mended from them."""
        fault_point("commit.placing")
        folders = place(self._table, committable, self._options.on_rollback == ON_ROLLBACK_REPUBLISH)
        fault_point("commit.placed")
        return folders

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
