"""The one instant at which a snapshot exists: its file is created under its number, unless the number is taken."""

from enum import Enum

from streamsink.errors import Fenced, OutcomeUnknown
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
    """Create ``snapshot-<id>`` with these bytes, or learn that the number is taken. ``name``: unique to this try.

    After a crash: the snapshot is there, whole, or it is not. Raises: OutcomeUnknown when no answer came, so that it must be
    looked for; Fenced when it landed in a part of history that has expired.
    """
    path = layout.snapshot(snapshot.id)
    fault_point("commit.before_publish")
    try:
        won = file_io.create_if_absent(path, snapshot.to_json(), name)
        if won:
            _refuse_expired_hole(file_io, snapshots, snapshot, path)
    except OSError as failed:
        raise OutcomeUnknown(
            f"{path}: publishing failed ({failed.strerror}). Nothing was deleted. What was pre-committed is safe in the "
            "journal; the next start looks whether it was published, and publishes it if not",
            kind="publish.unknown",
        ) from failed
    return Outcome.WON if won else Outcome.LOST


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
