"""The one instant at which a snapshot exists: its file is created under its number, unless the number is taken.

Where the store itself cannot create a name only when it is absent, a lock stands in for that; where other writers of
the table hold a lock, ours holds it too. As in Paimon it covers this step alone.
"""

from dataclasses import dataclass
from enum import Enum

from streamsink.events import log
from streamsink.faults import fault_point
from streamsink.format.snapshot import Snapshot
from streamsink.locks.lock import Lock
from streamsink.locks.locked_creation import LeaseEnded, create_under
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.commit.settle import unanswered
from streamsink.table.table import Table


class Outcome(Enum):
    """WON: the snapshot exists. LOST: another one has its number, ours never existed."""

    WON = "won"
    LOST = "lost"


@dataclass(frozen=True)
class Prepared:
    """A snapshot that is about to be published. data: its bytes. name: unique to this try."""

    snapshot: Snapshot
    data: bytes
    name: str


def prepare_snapshot(table: Table, snapshot: Snapshot, name: str, group: FlushGroup) -> Prepared:
    """Write the snapshot's bytes ahead of its name, where the store lets it; ``group`` makes them durable."""
    prepared = Prepared(snapshot, snapshot.to_json(), name)
    table.file_io.prepare(group, table.layout.snapshot(snapshot.id), prepared.data, name)
    return prepared


def publish(table: Table, prepared: Prepared, *, lock: Lock) -> Outcome:
    """Create ``snapshot-<id>``, or learn that the number is taken. When it is WON, ``Tries.is_base_kept`` must follow.

    After a crash: the snapshot is there, whole, or it is not. Raises: OutcomeUnknown when no answer came, so that it
    must be looked for; OSError when the store has no room, or is read-only, and then the snapshot may be there as well.
    """
    path = table.layout.snapshot(prepared.snapshot.id)
    with unanswered(path):
        won = _create(table.file_io, path, prepared, lock)
    if not won:
        return Outcome.LOST
    table.snapshots.published(prepared.snapshot, prepared.data)
    return Outcome.WON


def _create(file_io: FileIO, path: str, prepared: Prepared, lock: Lock) -> bool:
    """Create the snapshot's file, under the lock if there is one; a lease that ended before that counts as lost."""
    data, name = prepared.data, prepared.name
    if lock.is_empty:
        fault_point("commit.before_publish")
        return file_io.create_if_absent(path, data, name, prepared=True, replaceable=True)

    def create() -> bool:
        fault_point("commit.before_publish")
        return file_io.create_new(path, data, name, prepared=True, replaceable=file_io.atomic_create)

    try:
        won = create_under(lock, file_io, path, data, create)
    except LeaseEnded as ended:
        log.warning("%s: not created, tried again under a new lease: %s", path, ended)
        won = False
    if not won:
        file_io.give_up(path, name)  # the number was taken, or the lease over, before the creation began
    return won
