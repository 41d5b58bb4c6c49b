"""How a name is created under a lock.

This is for a store that cannot create a name only when it is absent, and for tables whose other writers create names
under a lock.
"""

from collections.abc import Callable

from streamsink.errors import Fenced, OutcomeUnknown, Retryable
from streamsink.locks.lock import Lease, Lock
from streamsink.storage.file_io import FileIO


class LeaseEnded(Retryable):
    """The lease had ended before anything was written, and nothing was written."""


def create_under(lock: Lock, file_io: FileIO, path: str, data: bytes, create: Callable[[], bool]) -> bool:
    """Create the name as the lock's holder: look, check that the lock is still ours, create, and look again.

    Between the check and the creation there is a window that no lock can close. The check renews the lease, so a second
    holder can be inside only if this process stops, or its request is under way, for the whole of ``lock_lease_ms``:
    the lease must be longer than the store's own time-outs. A store that creates atomically refuses the late creation.
    In one that does not, the late creation replaces what is there; its writer sees that its lease is gone, and reports
    an unknown outcome. Which of the two commits is in the table is then decided by the newest snapshot alone, which
    every writer reads before its next commit. A streamsink writer whose record is missing there publishes it again or
    stops with an error; it never goes on.

    Returns whether the name was created; False if it is taken. Raises: LeaseEnded; OutcomeUnknown; Retryable if the
    lock could not be acquired.
    """
    with lock.acquire() as lease:
        if file_io.exists(path):
            return False
        try:
            lease.check()
        except Fenced as fenced:
            raise LeaseEnded(f"{path}: {fenced}", kind="lock.lease-ended") from fenced
        created = create()
        return created if file_io.atomic_create else created and _is_still_ours(file_io, path, data, lease)


def _is_still_ours(file_io: FileIO, path: str, data: bytes, lease: Lease) -> bool:
    """Whether the name holds our bytes, read at a moment when nobody else could have the lock."""
    try:
        ours = file_io.read(path) == data
        lease.check()
    except (Fenced, Retryable, OSError) as lost:
        raise OutcomeUnknown(
            f"{path}: the lock was lost while the file was being created, in a store that replaces. It may have "
            "replaced another writer's, or have been replaced. Nothing was deleted; the next start settles it",
            kind="publish.lock-lost",
        ) from lost
    return ours
