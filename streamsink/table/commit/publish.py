"""The one instant at which a snapshot exists: its file is created under its number, unless the number is taken.

Where the store itself cannot create a name only when it is absent, a lock stands in for that; where other writers of
the table hold a lock, ours holds it too. As in Paimon it covers this step alone.
"""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from streamsink.clock import IdSource
from streamsink.errors import OutcomeUnknown
from streamsink.faults import fault_point
from streamsink.format.snapshot import Snapshot
from streamsink.locks.lock import Lock
from streamsink.locks.locked_creation import LeaseEnded, create_under
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.commit import late
from streamsink.table.commit.late import Base
from streamsink.table.history.deletion import delete_hint, delete_temporary
from streamsink.table.table import Table

log = logging.getLogger("streamsink")
# With these a store refuses, and no reply was lost: it says what to mend, and trying again at once is in vain. The
# snapshot is not there, unless the store refused only what comes behind its creation (removing its temporary name).
# The next start finds it then.
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


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
    """Create ``snapshot-<id>``, or learn that the number is taken. When it is WON, ``is_base_kept`` must follow.

    After a crash: the snapshot is there, whole, or it is not. Raises: OutcomeUnknown when no answer came, so that it
    must be looked for; OSError when the store has no room, or is read-only, and then the snapshot may be there as well.
    """
    path = table.layout.snapshot(prepared.snapshot.id)
    with _unanswered(path):
        won = _create(table.file_io, path, prepared, lock)
    if not won:
        return Outcome.LOST
    table.snapshots.published(prepared.snapshot, prepared.data)
    return Outcome.WON


def is_base_kept(table: Table, snapshot: Snapshot, base: Base) -> bool:
    """As ``late.is_base_kept``, of a snapshot that ``publish`` has created. Raises OutcomeUnknown as that does."""
    with _unanswered(table.layout.snapshot(snapshot.id)):
        return late.is_base_kept(table, snapshot, base)


@contextmanager
def _unanswered(path: str) -> Iterator[None]:
    """An error of the store within it leaves open what became of the snapshot."""
    try:
        yield
    except OSError as failed:
        if failed.errno in _REFUSED:
            raise  # whoever explains it says what to mend; the next start looks for the snapshot all the same
        raise OutcomeUnknown(
            f"{path}: publishing failed ({failed.strerror}). Nothing was deleted. What was pre-committed is safe in "
            "the journal; the next start looks whether it was published, and publishes it if not",
            kind="publish.unknown",
        ) from failed


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


def move_hint(table: Table, snapshot: Snapshot, name: str) -> None:
    """Let ``LATEST`` name this snapshot. The snapshot exists whether or not this works, and an old hint is harmless."""
    try:
        table.snapshots.move_hint(snapshot.id, name)
    except OSError as failed:
        log.warning("%s: LATEST could not be moved to %s: %s", table.root, snapshot.id, failed.strerror)
        delete_temporary(table, name)


def take_back_hint(table: Table, snapshot: Snapshot) -> None:
    """This writer was slow. When the table has gone back meanwhile, Java's readers would fail on its hint."""
    ids = table.snapshots.ids()
    if not ids:
        delete_hint(table)
    elif ids[-1] < snapshot.id:
        table.file_io.replace(table.layout.latest_hint, str(ids[-1]).encode(), IdSource().new_id())
