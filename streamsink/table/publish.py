"""The one instant at which a snapshot exists: its file is linked to its name, unless the name is taken."""

import os
from enum import Enum

from streamsink.errors import Fenced, OutcomeUnknown, Retryable
from streamsink.faults import fault_point
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.layout import Layout
from streamsink.table.snapshots import Snapshots


class Outcome(Enum):
    """WON: the snapshot exists. LOST: another one has its number, ours never existed."""

    WON = "won"
    LOST = "lost"


def publish(file_io: FileIO, layout: Layout, snapshots: Snapshots, snapshot: Snapshot, name: str) -> Outcome:
    """Create ``snapshot-<id>`` with these bytes, or learn that the number is taken. ``name``: unique, for the temporary file.

    After a crash: the snapshot is there, whole, or it is not. Raises: Retryable when it was certainly not published,
    OutcomeUnknown when that could not be read back, Fenced when it landed in a part of history that has expired.
    """
    path = layout.snapshot(snapshot.id)
    data = snapshot.to_json()
    # Only a dot keeps readers from parsing the rest of the name as a number.
    temporary = os.path.join(layout.snapshot_dir, f".snapshot-{snapshot.id}.{name}.tmp")
    try:
        file_io.make_dir(layout.snapshot_dir)
        file_io.write(temporary, data)
        fault_point("commit.before_publish")
        won = file_io.publish(temporary, path)
    except OSError as failed:
        won = _read_back(file_io, path, data, failed)
        if won:
            # What the failed call left undone; when this fails too, the next start finds the snapshot and goes on.
            file_io.delete(temporary)
            file_io.sync_dir(layout.snapshot_dir)
    if not won:
        return Outcome.LOST
    _refuse_expired_hole(file_io, snapshots, snapshot, path)
    return Outcome.WON


def _read_back(file_io: FileIO, path: str, data: bytes, failed: OSError) -> bool:
    """Settle an unknown outcome by looking: whether the snapshot is there and ours."""
    try:
        found = file_io.read(path) if file_io.exists(path) else None
    except OSError as unreadable:
        raise OutcomeUnknown(
            f"{path}: publishing failed ({failed.strerror}) and the outcome could not be read back "
            f"({unreadable.strerror}). Nothing was deleted; the next start settles it",
            kind="publish.unknown",
        ) from failed
    if found is not None:
        return found == data
    raise Retryable(
        f"{path}: publishing failed ({failed.strerror}); the snapshot does not exist. What was pre-committed is safe in "
        "the journal and is published at the next start",
        kind="publish.failed",
    ) from failed


def _refuse_expired_hole(file_io: FileIO, snapshots: Snapshots, snapshot: Snapshot, path: str) -> None:
    """A writer that slept long enough finds its number free again because it has expired: take it back."""
    if snapshots.exists(snapshot.id - 1):
        return  # the base is still there, so nothing newer had expired this number
    newest = snapshots.ids()[-1]
    if newest > snapshot.id:
        file_io.delete(path)
        raise Fenced(
            f"{path}: snapshot {snapshot.id} was published long ago by another writer and has expired (the newest is "
            f"{newest}): this writer was paused and has been superseded. Its snapshot was taken back",
            kind="writer.fenced-expired",
        )
