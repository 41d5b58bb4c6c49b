"""How the data files of one commit become a snapshot: by pyiceberg, without what a single append does not need. Driver
only.

pyiceberg reads the list of all manifests anew for each snapshot, and hands each part of its work to a thread. The list
that the last commit has written is known, and a snapshot's list never changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_TARGET = "commit.manifest.target-size-bytes"
# Up to this size a manifest is merged with new ones, which is to read and write it again. Iceberg's own limit of 8 MiB
# is for writers that need microseconds for a file: here each takes a tenth of a millisecond, and there may be 3,000.
_MERGED_BYTES = 1 << 20


class Left(NamedTuple):
    """What a commit has left: a snapshot, and the manifests of its list."""

    snapshot_id: int
    manifests: Sequence[Any]


def appending(table: Any, summary: Mapping[str, str], *, merges: bool, before: Left | None) -> Any:
    """A producer of a snapshot on top of the table, which is not changed. It has ``left`` when it is committed.

    summary: what the snapshot says beside its numbers. merges: whether small manifests are merged. before: of an
    earlier commit; it counts where the table still is at its snapshot.
    """
    from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _FastAppendFiles, _MergeAppendFiles

    class Append(_MergeAppendFiles if merges else _FastAppendFiles):  # type: ignore[misc]
        _made: Sequence[Any] = ()

        def _manifests(self) -> list[Any]:
            added = [self._added()] if self._added_data_files else []
            if before is not None and before.snapshot_id == self._parent_snapshot_id:
                existing = list(before.manifests)
            else:
                existing = self._existing_manifests()
            self._made = self._process_manifests(added + existing)
            return list(self._made)

        def _added(self) -> Any:
            with self.new_manifest_writer(self._transaction.table_metadata.spec()) as writer:
                for file in self._added_data_files:
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
                    )
                    writer.add(entry)
            return writer.to_manifest_file()

        def left(self) -> Left:
            # The writer of the list has given the new ones their sequence number.
            return Left(self._snapshot_id, self._made)

    producer = Append(Operation.APPEND, _unchanged(table), table.io, snapshot_properties=dict(summary))
    if merges:
        producer._merge_enabled = True  # where the table says nothing, pyiceberg merges nothing
        if _TARGET not in table.metadata.properties:
            producer._target_size_bytes = _MERGED_BYTES
    return producer


def _unchanged(table: Any) -> Any:
    """A transaction in which nothing is changed: one of pyiceberg copies all metadata for each time it is asked."""
    from pyiceberg.table import Transaction

    class Unchanged(Transaction):  # type: ignore[misc]
        @property
        def table_metadata(self) -> Any:
            return self._table.metadata

    return Unchanged(table)
