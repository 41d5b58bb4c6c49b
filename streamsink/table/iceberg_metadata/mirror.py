"""Brings a table's Iceberg metadata up to its newest snapshot: from what is there, or from the snapshot alone.

Everything here follows from the table, so a death leaves nothing to be undone: the next call makes what is missing.
Driver only.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, StreamsinkError
from streamsink.faults import fault_point
from streamsink.format.iceberg_manifest import IcebergManifest, write_list
from streamsink.format.iceberg_metadata import IDENTITY, NAME_MAPPING, IcebergMetadata, IcebergSnapshot
from streamsink.format.iceberg_options import IcebergOptions
from streamsink.format.iceberg_types import is_described, partition_spec
from streamsink.format.snapshot import Snapshot
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.history.retained import tags
from streamsink.table.iceberg_metadata.changes import APPEND, Counts, Delta, Manifests
from streamsink.table.iceberg_metadata.columns import columns_of
from streamsink.table.iceberg_metadata.expiry import named_by, only_needed_by, retained
from streamsink.table.iceberg_metadata.folder import Folder
from streamsink.table.iceberg_metadata.origin import check_ours, identity, is_here, is_made_of, is_of, of_this_table
from streamsink.table.table import Table

# So many snapshots are gone through one by one; with more between, the metadata is made from the newest one alone.
MOST_BEHIND = 50
# How often it is looked again whether the table has gone on meanwhile.
_ROUNDS = 5
# What of a snapshot's properties is streamsink's own, which no reader of Iceberg needs, and which would make the
# metadata large: it has all snapshots in one file.
_OWN = "streamsink."
_SIZE = "total-files-size"


class Mirror:
    """The Iceberg metadata of one table. Its table must have the options for it."""

    def __init__(self, table: Table):
        self._table = table
        self._options = IcebergOptions.of(table.root, table.known_schema.options)
        self._folder = Folder(table.file_io, self._options.folder)
        self._clock = Clock()

    def follow(self) -> None:
        """Make the metadata of the newest snapshot, if it is not there, and let readers find it. Idempotent.

        After a crash readers have the metadata of an earlier snapshot, whole. Raises OSError, and what reading the
        table raises.
        """
        for number in range(1, _ROUNDS + 1):
            newest = self._table.snapshots.latest()
            if newest is None:
                return
            try:
                self._follow(newest)
            except FileNotFoundError:  # a start took this writer for dead, or the table was cleared meanwhile
                if number == _ROUNDS:
                    raise
                continue
            if not self._table.snapshots.exists(newest.id + 1):
                return

    def start(self) -> None:
        """As ``follow``, behind a writer that may have died. Raises as that."""
        self._folder.sweep_temporaries()
        self.follow()

    def unnamed(self) -> list[tuple[str, int]]:
        """(path, size in bytes) of files of dead writers in the folder of the metadata, and of those at work.

        None where what the metadata names cannot be read. Raises OSError.
        """
        there = self._folder.files()  # before what is named: what comes meanwhile is not among them
        named, versions = set[str](), self._folder.versions()
        if self._folder.others:
            return []
        for number in versions:
            metadata = self._folder.metadata(number)
            if metadata is None:
                return []
            for snapshot in metadata.snapshots:
                named |= {
                    os.path.basename(path) for path in (snapshot.manifest_list, *named_by(self._folder, snapshot))
                }
        return [(path, size) for path, size in there if os.path.basename(path) not in named]

    def forget(self, numbers: Iterable[int]) -> None:
        """Take snapshots out of the metadata, before their files are deleted. The last one always stays.

        Raises as ``follow``, unless no metadata names one of them.
        """
        going = frozenset(numbers)
        for _ in range(_ROUNDS):
            try:
                self.follow()  # where what readers have is older, it names some of these
            except (StreamsinkError, OSError, ValueError):
                if self._folder.may_name(going):
                    raise
                return
            newest = self._table.snapshots.latest()
            head = self._folder.metadata(newest.id) if newest else None
            if newest is None or head is None:
                return
            kept = tuple(each for each in head.snapshots[:-1] if each.number not in going) + head.snapshots[-1:]
            if len(kept) != len(head.snapshots):
                changed = self._with_tags(replace(head, snapshots=kept, updated_ms=self._clock.now_ms()))
                self._folder.replace(newest.id, changed.to_json())
                self._folder.drop(only_needed_by(self._folder, head.snapshots, kept))
            if not self._table.snapshots.exists(newest.id + 1):
                return

    def refresh(self) -> None:
        """Let the metadata have the tags that there are now. Raises as ``follow``."""
        newest = self._table.snapshots.latest()
        head = self._folder.metadata(newest.id) if newest else None
        if newest is None or head is None:
            return
        changed = self._with_tags(head)
        if changed != head:
            self._folder.replace(newest.id, changed.to_json())

    def _follow(self, newest: Snapshot) -> None:
        number, versions = newest.id, self._folder.versions()
        known = self._folder.metadata(number) if number in versions else None
        if known is not None and is_here(known, self._table.root) and is_made_of(known, newest, self._folder):
            self._show(number, versions)  # whoever made it may have died before
            return
        before = self._earlier(number, known, versions)
        made, is_on = self._written(before, newest)
        fault_point("iceberg.files_written")
        if known is not None or number in versions:
            self._folder.replace(number, made.to_json())  # of a history that was rolled back, or not readable
        elif not self._folder.create(number, made.to_json()):
            self._folder.drop_round()  # another writer has made it meanwhile
            return
        fault_point("iceberg.metadata_made")
        self._show(number, versions)
        if before is not None and is_on:
            dropped = [each for each in before.snapshots if each.number < made.snapshots[0].number]
            self._folder.drop(only_needed_by(self._folder, [*dropped, *made.snapshots], made.snapshots))

    def _earlier(self, number: int, known: IcebergMetadata | None, versions: list[int]) -> IcebergMetadata | None:
        """The metadata that there was, of this table; None where there is none that can be read.

        known: that of this number, which is of another snapshot. What a dropped table has left is removed, and what
        came with a copy of the table's folder. Raises Misuse for what is another table's.
        """
        below = next((found for found in reversed(versions) if found < number), None)
        before = self._folder.metadata(below) if below is not None else None
        found = before or known or (self._folder.metadata(versions[-1]) if versions else None)
        check_ours(found, versions, self._table, self._folder, is_in_table=self._options.is_in_table)
        if found is not None and not (is_here(found, self._table.root) and of_this_table(found, self._table)):
            self._folder.clear()
            versions[:] = []
            return None
        return found

    def _show(self, number: int, versions: Sequence[int]) -> None:
        """Let readers begin here, unless the table has gone on; then drop what is not read any more."""
        if self._table.snapshots.exists(number + 1):
            return
        if self._folder.hint() != number:
            self._folder.move_hint(number)
        fault_point("iceberg.hinted")
        # Above are those of a history that was rolled back: readers would go on to them.
        above = [found for found in versions if found > number and not self._table.snapshots.exists(found)]
        self._folder.drop(self._folder.version(found) for found in above)
        kept = self._options.versions_kept
        if kept is not None:
            self._folder.drop(self._folder.version(found) for found in versions if found < number - kept)

    # -- making ----------------------------------------------------------------------------------------------------

    def _written(self, before: IcebergMetadata | None, newest: Snapshot) -> tuple[IcebergMetadata, bool]:
        """The metadata of the newest snapshot, whose manifests are durable, and whether it is on top of ``before``."""
        self._folder.begin_round()
        try:
            with self._folder.group() as group:
                manifests = Manifests(self._table, self._folder, self._options, group)
                made = self._made_on(before, newest, manifests, group=group) if before else None
                is_on = made is not None
                made = made or self._made_anew(newest, before, manifests, group=group)
                group.sync_dir(self._folder.path)
                group.flush()
        except (StreamsinkError, OSError, ValueError):  # what fails with each batch would fill the folder
            with suppress(OSError):
                self._folder.drop_round()
            raise
        return made, is_on

    def _made_on(
        self, before: IcebergMetadata, newest: Snapshot, manifests: Manifests, *, group: FlushGroup
    ) -> IcebergMetadata | None:
        """The metadata of the newest snapshot on top of an earlier one; None where it must be made anew."""
        chain = self._chain(before, newest)
        if chain is None:
            return None
        try:
            current, named = self._folder.manifests(before.current.manifest_list), [before.current]
            for snapshot in chain:
                delta = Delta.of(self._table, snapshot)
                current, operation = manifests.changed(current, delta, snapshot)
                if snapshot is newest:
                    current = manifests.merged(current, snapshot.id)
                if sum(each.live_rows for each in current) != snapshot.total_record_count:
                    return None
                files = Counts.of(delta.added.values()), Counts.of(delta.removed.values())
                size = named[-1].summary.get(_SIZE, "")
                changed = files[0].size - files[1].size
                total = int(size) + changed if size.isdigit() else manifests.total_size(current)
                summary = _summary(snapshot, operation, *files, current=current, size=total)
                named.append(self._snapshot(snapshot, summary, current, manifests, group=group))
        except (Corrupt, FileNotFoundError):
            return None
        snapshots = retained(self._table, (*before.snapshots, *named[1:]), self._clock.now_ms())
        if not all(is_described(self._table.schemas.load(number)) for number in {each.schema_id for each in snapshots}):
            return None
        return self._metadata(newest, snapshots, before)

    def _chain(self, before: IcebergMetadata, newest: Snapshot) -> list[Snapshot] | None:
        """The snapshots behind the one of this metadata, if it is of the table's history and they are all there."""
        first = before.current.number
        base = self._table.snapshots.load(first)
        if base is None or newest.id - first > MOST_BEHIND or not is_of(before.current, base):
            return None
        if [dict(each) for each in before.spec] != partition_spec(self._table.latest_schema()):
            return None
        between = [self._table.snapshots.load(number) for number in range(first + 1, newest.id)]
        there = [snapshot for snapshot in between if snapshot is not None]
        return [*there, newest] if len(there) == len(between) else None

    def _made_anew(
        self, newest: Snapshot, before: IcebergMetadata | None, manifests: Manifests, *, group: FlushGroup
    ) -> IcebergMetadata:
        current, counts = manifests.of_all(newest)
        summary = _summary(newest, APPEND, counts, Counts(), current=current, size=counts.size)
        snapshot = self._snapshot(newest, summary, current, manifests, group=group)
        return self._metadata(newest, (snapshot,), before)

    def _snapshot(
        self,
        snapshot: Snapshot,
        summary: Mapping[str, str],
        current: Sequence[IcebergManifest],
        manifests: Manifests,
        *,
        group: FlushGroup,
    ) -> IcebergSnapshot:
        """Write the manifest list, and the manifests that are not written yet."""
        manifests.write(current)
        path, parent = self._folder.new_list(), snapshot.id - 1 or None
        data = write_list(
            current, self._options.codec, legacy=self._options.legacy, snapshot_id=snapshot.id, parent=parent
        )
        group.write(path, data)
        return IcebergSnapshot(snapshot.id, parent, snapshot.time_millis, summary, path, snapshot.schema_id)

    def _metadata(
        self, newest: Snapshot, snapshots: Sequence[IcebergSnapshot], before: IcebergMetadata | None
    ) -> IcebergMetadata:
        columns = columns_of(self._table, newest)
        snapshots = snapshots if columns.is_of_all else snapshots[-1:]
        made = IcebergMetadata(
            before.uuid if before else IdSource().new_id(),
            before.location if before else self._table.root,
            max(self._clock.now_ms(), *(each.time_ms for each in snapshots)),
            max(columns.highest_id, before.last_column_id if before else 0),
            columns.schemas,
            tuple(partition_spec(columns.latest)),
            tuple(snapshots),
            {},
            {NAME_MAPPING: json.dumps(columns.mapping)},
            columns.latest.id,
        )
        return self._with_tags(made)

    def _with_tags(self, metadata: IcebergMetadata) -> IcebergMetadata:
        there = {each.number: each.summary.get(IDENTITY) for each in metadata.snapshots}
        found = [tag for tag in tags(self._table) if there.get(tag.snapshot.id, "") in (None, identity(tag.snapshot))]
        return replace(metadata, tags={tag.name: tag.snapshot.id for tag in found})


def _summary(
    snapshot: Snapshot, operation: str, new: Counts, gone: Counts, *, current: Sequence[IcebergManifest], size: int
) -> dict[str, str]:
    """What a snapshot has changed, and what there is then. current: its manifests. size: bytes of its files."""
    made = {
        "operation": operation,
        "added-data-files": new.files,
        "added-records": new.rows,
        "added-files-size": new.size,
        "deleted-data-files": gone.files,
        "deleted-records": gone.rows,
        "removed-files-size": gone.size,
        "changed-partition-count": len(new.partitions | gone.partitions),
        "total-data-files": sum(each.live_files for each in current),
        "total-records": sum(each.live_rows for each in current),
        _SIZE: size,
        "total-delete-files": 0,
        "total-position-deletes": 0,
        "total-equality-deletes": 0,
    }
    said = {key: text for key, text in (snapshot.properties or {}).items() if not key.startswith(_OWN)}
    return {key: str(value) for key, value in made.items()} | said | {IDENTITY: identity(snapshot)}
