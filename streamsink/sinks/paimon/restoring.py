"""How a record is published: one of this run, one of an earlier run, or one of many at a restart. Driver only."""

import itertools
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from streamsink.clock import Clock
from streamsink.errors import Fenced, Retryable, StreamsinkError
from streamsink.events import log
from streamsink.format.manifest import ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import APPEND, Snapshot
from streamsink.protocol.committable import DEAD_LETTERS, Committable
from streamsink.protocol.sink import Published
from streamsink.sinks.paimon.past import filter_of
from streamsink.sinks.paimon.past.history_of import mark_of
from streamsink.sinks.paimon.past.pending_files import PendingFiles
from streamsink.sinks.paimon.past.records import (
    commit_name,
    commit_user,
    files_in_place,
    is_older_than,
    manifest_meta,
    renames,
    staged_manifests,
)
from streamsink.sinks.paimon.trouble import files_gone
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions
from streamsink.table.commit.changes import Ahead
from streamsink.table.commit.late import Settling, check_unchecked
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.history import leftovers
from streamsink.table.history.deletion import Look, delete
from streamsink.table.history.presence import Presence
from streamsink.table.iceberg_metadata.following import Following
from streamsink.table.table import Table

# Records that are prepared at once. Few, because files that have their final names and no snapshot are orphans to a
# cleaner.
_AHEAD = 16


def check_last(table: Table, records: Sequence[Committable]) -> None:
    """As ``check_unchecked``, behind a look. records: those of which nobody is known to have checked the snapshot."""
    unmarked = {(commit_user(c), c.state.checkpoint_id) for c in records}
    check_unchecked(table, lambda found: (found.commit_user, found.commit_identifier) in unmarked)


class Live:
    """How a record of this run is published: nothing of it can be in the table yet, so nothing is looked up."""

    def __init__(self, table: Table, iceberg: Following | None = None):
        """iceberg: of the committer; needed where ``sweep`` is called."""
        self._table = table
        self._iceberg = iceberg or Following(table)

    def unpublished(self, committable: Committable) -> Committable:
        """What of the record is to be published."""
        return committable

    @property
    def presence(self) -> Presence | None:
        """Tells which of the record's files are in the table already; None where none can be."""
        return None

    def place_ahead(self, committable: Committable) -> bool:
        """Whether the record's files have their final names by now, durably."""
        return False

    def named_ms(self, committable: Committable) -> float:
        """A time in ms before the first of the record's files got its final name; infinite if none has one yet.

        It matters where nobody looks whether they are there still.
        """
        payloads = committable.payload.get("joined", [committable.payload])
        return min((payload["named_ms"] for payload in payloads if "named_ms" in payload), default=math.inf)

    def ahead_of(self, committable: Committable) -> Ahead | None:
        """What ``place_ahead`` wrote for the first try of the commit."""
        return None

    def gone_with_its_files(self, committable: Committable, way_on: str, fence: Questions) -> Published | None:
        """Of a record of which files are gone: how it was published. None when all files are there.

        way_on: what to do when it is not published; then Corrupt is raised. fence: what the fence asks.
        """
        return None

    def is_last(self, committable: Committable) -> bool:
        """Whether no record is published right after it."""
        return True

    @property
    def before(self) -> Settling | None:
        """What is left to do of the commit before the one that comes now; None where nothing is."""
        return None

    def settling(
        self, committable: Committable, snapshot_id: int, settle: Callable[[Snapshot | None], bool]
    ) -> Settling | None:
        """What may be done of this record's commit while the one behind it creates its snapshot; None if that is to be
        done now.
        """
        return None

    def left_behind(self, records: Collection[str]) -> leftovers.Found:
        """What dead tries to publish these records, by their ids, have left."""
        return leftovers.look(self._table, records)

    def is_first_sweep(self) -> bool:
        """Whether what is left of all records was not removed just before."""
        return True

    def sweep(self, published: Sequence[Committable]) -> list[str]:
        """As ``Committer.sweep``."""
        names = {committable.state.record_id: is_older_than(self._table, committable) for committable in published}
        removed = leftovers.sweep(self._table, names, self.left_behind(names))
        if self.is_first_sweep():
            removed += leftovers.sweep_creations(self._table)
            self._iceberg.start()  # whoever committed last may have died before
            if names:
                # Found published: whoever did it may have died before the snapshot's name was durable. Later ones are
                # our own.
                self._table.file_io.sync_dir(self._table.layout.snapshot_dir)
        return removed


class Restored(Live):
    """How a single record of an earlier run is published."""

    @property
    def presence(self) -> Presence | None:
        return Presence(self._table.manifests)

    def named_ms(self, committable: Committable) -> float:
        """Infinite: whether its files are there was looked up a moment ago."""
        return math.inf

    def gone_with_its_files(self, committable: Committable, way_on: str, fence: Questions) -> Published | None:
        _, _, gone = files_in_place(self._table, committable)
        if not gone:
            return None
        newest = filter_of.newest_with(self._table, committable)
        if newest is None:
            raise files_gone(self._table.root, committable, gone, way_on)
        return Published(committable.state.checkpoint_id, newest.id, 0, mark_of(newest, Clock().now_ms(), alone=True))


class Restart(Restored):
    """How the records of earlier runs are published at a restart: each look at the table is made once, on first use."""

    def __init__(
        self,
        table: Table,
        records: Sequence[Committable],
        entries: dict[str, list[ManifestEntry]],
        place: Callable[[Committable], frozenset[str]] | None,
        commit: TableCommit,
    ):
        """entries: by name, of manifests that are not published: what is read is put in, to be taken out by who
        publishes. place: gives a record's files their final names; the folders that are to be synced then. None:
        nothing is prepared, because what groups are published with depends on the groups. commit: its files
        have the lists of commits that follow each other.
        """
        super().__init__(table, commit.iceberg)
        self._records = records
        self._pending = PendingFiles(table, records, entries)
        self._entries = entries
        self._place = place
        self._files = commit.files
        self._sweeps = 0
        # By record, what is written for its commit.
        self._prepared: dict[str, Ahead | None] = {}
        # What the last two commits took of that.
        self._tried: Sequence[Ahead | None] = ()
        self._before: Settling | None = None
        # Records of which all files were there, as was looked up at ``_looked_ms``.
        self._whole: set[str] = set()
        self._looked_ms: float = math.inf

    def is_first_sweep(self) -> bool:
        """True once."""
        self._sweeps += 1
        return self._sweeps == 1

    def is_last(self, committable: Committable) -> bool:
        """Whether no record is published after it."""
        return committable.state.sequence == self._records[-1].state.sequence

    def place_ahead(self, committable: Committable) -> bool:
        """Give this record's files their final names, durably, and those of the records behind it: one wait for some of
        them.

        False when that is not done here, or its files are gone. After a crash: they are pending still, and placing is
        repeated.
        """
        record_id = committable.state.record_id
        if record_id not in self._prepared and self._place is not None:
            self._files.look()
            self._place_all(self._from(committable)[:_AHEAD], self._place, FlushGroup.flush)
        return record_id in self._prepared

    def ahead_of(self, committable: Committable) -> Ahead | None:
        record_id = committable.state.record_id
        found, self._prepared[record_id] = self._prepared.get(record_id), None
        self._tried = (*self._tried[-1:], found)
        return found

    @property
    def before(self) -> Settling | None:
        return self._before

    def settling(
        self, committable: Committable, snapshot_id: int, settle: Callable[[Snapshot | None], bool]
    ) -> Settling | None:
        """Of none in a store that is near; nor before dead letters, which are published before their record is."""
        if self._before is not None and not self._before.is_tried:
            self._before()  # a rival has published this record, so that nothing was created beside which to do it
        behind = self._from(committable)[1:2]
        is_beside = self._table.file_io.is_distant and behind and DEAD_LETTERS not in behind[0].payload
        asked = self._table.snapshots.questions_of_settling(snapshot_id, hint=False)
        self._before = Settling(self._table.file_io, snapshot_id, asked, settle) if is_beside else None
        return self._before

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Within it the records are published. An error ends it only when the last commit is settled.

        Raises Retryable when an earlier driver has ended before it looked whether its snapshot came in time, and it did
        not.
        """
        check_last(self._table, self._records)
        try:
            try:
                with self._table.manifests.keeping():
                    yield
            except (OSError, StreamsinkError):
                if self._before is not None and not self._before.is_tried:
                    self._before()
                raise
        except StreamsinkError as failed:
            self._clean(failed)
            raise

    def _clean(self, failed: StreamsinkError) -> None:
        """The restart ends with this error: delete what was written for commits that will not be made.

        Whoever has published their records has looked for such files by then. What a try has written stays when its
        snapshot may yet come.
        """
        tried = [*self._prepared.values(), *(self._tried if isinstance(failed, Fenced | Retryable) else ())]
        left = [a for a in tried if a is not None and a.files.base_list[0] not in self._files.unanswered]
        lists = [ahead.files.shared_delta_list for ahead in left]
        paths = [path for ahead in left for path in ahead.files.own]
        paths += [self._table.layout.manifest(written[0]) for written in lists if written is not None]
        try:
            delete(self._table, paths, Look.SINCE_TRY)
        except (OSError, StreamsinkError) as stays:  # the error of the restart is the one to be seen
            log.warning("%s: %d files of commits that were not made stay: %s", self._table.root, len(paths), stays)

    def named_ms(self, committable: Committable) -> float:
        return self._looked_ms if committable.state.record_id in self._whole else super().named_ms(committable)

    def gone_with_its_files(self, committable: Committable, way_on: str, fence: Questions) -> Published | None:
        """As of a single record. In a distant store the files of the records behind it are looked for with its own, and
        what they are to be built on. Meanwhile their lists are written, where the files have their final names.
        """
        record_id = committable.state.record_id
        if self._table.file_io.is_distant and self._place is not None and record_id not in self._whole:
            records = self._from(committable)[:_AHEAD]
            named = itertools.takewhile(lambda c: c.state.record_id not in self._prepared and not renames(c), records)
            self._place_all(list(named), self._place, lambda group: self._look_up(records, fence, group.flush))
        return None if record_id in self._whole else super().gone_with_its_files(committable, way_on, fence)

    def _look_up(self, records: Sequence[Committable], fence: Questions, write: Callable[[], None]) -> None:
        layout, file_io = self._table.layout, self._table.file_io
        # Their manifests have just been read.
        sizes = {layout.within(file.final): file.size for committable in records for file in committable.files}
        asked = Questions(size=tuple(sizes)) + self._files.questions()
        # What the first commit asks is asked here, and counts there; for the others it is known (``known_still``).
        asking = file_io.asking if self._whole else file_io.asking_to_keep
        commit = Questions() if self._whole else self._table.questions() + fence
        before = self._before if self._before is not None and not self._before.is_tried else None
        self._looked_ms = Clock().now_ms()
        file_io.soon(write)
        with asking(asked + commit + (before.questions if before is not None else Questions())):
            if before is not None:
                before()
            there = {path for path, size in sizes.items() if file_io.size(path) == size}
            self._files.look()
        for committable in records:
            finals = {self._table.layout.within(file.final) for file in committable.files}
            manifests = {os.path.basename(manifest["final"]) for manifest in staged_manifests(committable)}
            if finals <= there and manifests <= self._pending.added.keys():
                self._whole.add(committable.state.record_id)

    def _from(self, committable: Committable) -> Sequence[Committable]:
        """This record and those behind it."""
        number = [c.state.record_id for c in self._records].index(committable.state.record_id)
        return self._records[number:]

    @property
    def presence(self) -> Presence:
        """As of ``PendingFiles``."""
        return self._pending.presence

    def unpublished(self, committable: Committable) -> Committable:
        """As of ``PendingFiles``."""
        return self._pending.unpublished(committable)

    def left_behind(self, records: Collection[str]) -> leftovers.Found:
        """Looked for once, for all records of the restart: the writers of dead tries are dead or fenced, so there will
        be no more of them, and the tries that this process makes meanwhile remove what they leave.
        """
        return self._pending.left_behind if records else super().left_behind(records)

    def _place_all(
        self,
        records: Sequence[Committable],
        place: Callable[[Committable], frozenset[str]],
        flush: Callable[[FlushGroup], None],
    ) -> None:
        done: dict[str, Ahead | None] = {}
        names: dict[str, str] = {}
        chain: list[tuple[str, Sequence[ManifestFileMeta]]] = []
        with self._table.file_io.flush_group() as group:
            for committable in (c for c in records if self.unpublished(c) is c):
                try:
                    folders = place(committable)
                except FileNotFoundError:
                    break  # publishing this record says so; until then those before it are published
                for folder in sorted(folders):
                    group.sync_dir(folder)
                done[committable.state.record_id] = None
                manifests = self._added_by(committable)
                if manifests is not None and len(chain) == len(done) - 1:  # those before it are prepared, too
                    names[committable.state.record_id] = commit_name(committable)
                    chain.append((names[committable.state.record_id], manifests))
            written = self._files.write_chain(chain, group) if chain else {}
            self._prepared |= done | {record: written[name] for record, name in names.items() if name in written}
            flush(group)
            group.flush()  # nothing is left to do, unless nothing was asked beside which it could be done

    def _added_by(self, committable: Committable) -> Sequence[ManifestFileMeta] | None:
        """None when what the record adds may depend on what is in the table, or would have to be read again."""
        manifests = staged_manifests(committable)
        found = [self._entries.get(os.path.basename(manifest["final"])) for manifest in manifests]
        known = [entries for entries in found if entries is not None]
        if committable.payload["kind"] != APPEND or committable.payload.get("held") or len(known) < len(found):
            return None
        return [manifest_meta(self._table, *each) for each in zip(manifests, known)]
