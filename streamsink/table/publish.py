"""The one instant at which a snapshot exists: its file is created under its number, unless the number is taken.

Where the store itself cannot create a name only when it is absent, a lock stands in for that; where other writers of the
table hold a lock, ours holds it too. As in Paimon it covers this step alone.
"""

import logging
from enum import Enum

from streamsink.errors import Fenced, OutcomeUnknown, Retryable
from streamsink.faults import fault_point
from streamsink.format.snapshot import Snapshot
from streamsink.locks.lock import Lease, Lock
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table

log = logging.getLogger("streamsink")


class Outcome(Enum):
    """WON: the snapshot exists. LOST: another one has its number, ours never existed.

    WON_OVER_REPLACED: it exists, but meanwhile another writer's snapshot took the place of the one that it is built on (Paimon's
    own writers publish by a rename that replaces). All that is ours stays visible; the other's rows are not seen.
    """

    WON = "won"
    WON_OVER_REPLACED = "won-over-replaced"
    LOST = "lost"


def publish(table: Table, snapshot: Snapshot, base: Snapshot | None, name: str, *, lock: Lock) -> Outcome:
    """Create ``snapshot-<id>`` with these bytes, or learn that the number is taken. ``name``: unique to this try.
    ``base``: the one that it is built on.

    After a crash: the snapshot is there, whole, or it is not. Raises: OutcomeUnknown when no answer came, so that it must be
    looked for; Fenced when it landed in a part of history that has expired.
    """
    file_io, path = table.file_io, table.layout.snapshot(snapshot.id)
    try:
        if lock.is_empty:
            fault_point("commit.before_publish")
            won = file_io.create_if_absent(path, snapshot.to_json(), name)
        else:
            won = _create_locked(file_io, path, snapshot.to_json(), name, lock)
        kept = won and _base_is_kept(table, snapshot, base)
    except OSError as failed:
        raise OutcomeUnknown(
            f"{path}: publishing failed ({failed.strerror}). Nothing was deleted. What was pre-committed is safe in the "
            "journal; the next start looks whether it was published, and publishes it if not",
            kind="publish.unknown",
        ) from failed
    if not won:
        return Outcome.LOST
    return Outcome.WON if kept else Outcome.WON_OVER_REPLACED


def _create_locked(file_io: FileIO, path: str, data: bytes, name: str, lock: Lock) -> bool:
    """Create the name as the lock's holder: look, make sure that the lock is still ours, create, and look again.

    Between the check and the creation there is a window that no lock can close. The check renews the lease, so a second
    holder can be inside only if this process stops, or its request is under way, for all of ``lock_lease_ms``: the lease
    must be longer than the store's own time-outs. A store that creates atomically refuses the late one. In one that does
    not, the late one replaces a snapshot; it sees that its lease is gone, and reports an unknown outcome. Whose commit is in
    the table is then decided by the newest snapshot alone, which every writer reads before its next commit: a streamsink
    writer whose record is missing there publishes it again or stops with an error, it never goes on.
    """
    with lock.acquire() as lease:
        if file_io.exists(path):
            return False
        try:
            lease.check()
        except Fenced as fenced:
            log.warning("%s: not created, tried again under a new lease: %s", path, fenced)
            return False
        fault_point("commit.before_publish")
        won = file_io.create_if_absent(path, data, name)
        return won if file_io.atomic_create else won and _is_still_ours(file_io, path, data, lease)


def _is_still_ours(file_io: FileIO, path: str, data: bytes, lease: Lease) -> bool:
    """Whether the name holds our bytes, at a moment when nobody else could have the lock."""
    try:
        ours = file_io.read(path) == data
        lease.check()
    except (Fenced, Retryable, OSError) as lost:
        raise OutcomeUnknown(
            f"{path}: the lock was lost while the snapshot was being created, in a store that replaces. It may have replaced "
            "another writer's snapshot, or have been replaced. Nothing was deleted; the next start settles it",
            kind="publish.lock-lost",
        ) from lost
    return ours


def _base_is_kept(table: Table, snapshot: Snapshot, base: Snapshot | None) -> bool:
    """Look at the base again: False when another snapshot is in its place.

    A writer that slept long enough finds its number free again because it has expired: it takes its snapshot back.
    """
    found = table.snapshots.load(snapshot.id - 1)
    if found is not None:
        return found == base  # and while it is there, nothing newer had expired our number
    newest = table.snapshots.ids()[-1]
    if newest > snapshot.id:
        path = table.layout.snapshot(snapshot.id)
        table.file_io.delete(path)
        raise Fenced(
            f"{path}: snapshot {snapshot.id} was published long ago by another writer and has expired (the newest is "
            f"{newest}): this writer was paused and has been superseded. Its snapshot was taken back",
            kind="writer.fenced-expired",
        )
    return True
