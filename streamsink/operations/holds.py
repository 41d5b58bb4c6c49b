"""Who holds an application, and the table's lock: whether it lives, and how what a dead one left is released.

A hold keeps a second driver out while the first one lives; exactly-once does not depend on it. On a local disk it is a
lock of the operating system, which ends with its process. Elsewhere it is a file that its driver keeps changing, and
that counts for one lease.
"""

import os
from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.errors import Fenced, Misuse
from streamsink.journal.file_journal import journal_dir
from streamsink.journal.repair import RepairJournal
from streamsink.locks.configured import lock_of
from streamsink.operations.journals import Owner, applications_of, journals_at, no_journal, owner_of
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.storage.hold import BeatingHold

ALIVE, DEAD, FREE, UNKNOWN = "alive", "dead", "free", "unknown"
_LOCKS = "/proc/locks"


@dataclass(frozen=True)
class HoldLook:
    """Who holds an application.

    state: ALIVE: a driver has it. DEAD: a driver has left it, and did not release it. FREE: nobody has it. UNKNOWN: it
    was not looked at, or this system does not tell. pid: of the process that has the lock, where the system says it.
    """

    application: str
    owner: Owner | None
    state: str
    pid: int | None = None


def look_at_hold(file_io: FileIO, root: str, application: str, *, wait: bool = False) -> HoldLook:
    """Look who holds the application. Changes nothing.

    wait: find out whether its driver lives. Of a distant store its file is watched for up to one lease (15 s). On a
    disk the lock is taken for an instant where the system's list has none. Raises Misuse when there is no journal of
    that name.
    """
    if application not in applications_of(file_io, root):
        raise no_journal(root, application, applications_of(file_io, root), file_io)
    folder = journal_dir(journals_at(file_io, root), application)
    owner = owner_of(file_io, folder)
    if owner is None:
        return HoldLook(application, None, FREE)
    hold = file_io.hold(folder)
    if isinstance(hold, BeatingHold):
        said = hold.said_of(owner.epoch)
        if said is None or not wait:
            return HoldLook(application, owner, FREE if said is None else UNKNOWN)
        return HoldLook(application, owner, DEAD if hold.allows(owner.epoch) else ALIVE)
    path = os.path.join(folder, "hold")
    holder = _process_of(path)
    if holder:
        return HoldLook(application, owner, ALIVE, holder)
    is_locked = _is_locked(path) if wait else None if holder is None else False
    return HoldLook(application, owner, UNKNOWN if is_locked is None else ALIVE if is_locked else FREE)


def release_hold(file_io: FileIO, root: str, application: str) -> HoldLook:
    """Release what a dead driver has left, so that the next start does not wait for it.

    Returns what was found. Idempotent. Raises Fenced when the driver lives; Misuse where the system does not tell.
    """
    found = _not_alive(file_io, root, application)
    if found.state == DEAD and found.owner is not None:
        hold = file_io.hold(journal_dir(journals_at(file_io, root), application))
        if isinstance(hold, BeatingHold):
            hold.release_of(found.owner.epoch)
    return found


def damaged_files(file_io: FileIO, root: str, application: str, *, remove: bool) -> list[str]:
    """Paths of files of the journal that are damaged and hold no data.

    remove: delete them, so that the next start makes them anew. Idempotent. Raises as ``release_hold``.
    """
    journal = RepairJournal(file_io, journals_at(file_io, root), application, 2)
    if not remove:
        return journal.damaged()
    _not_alive(file_io, root, application)
    return journal.remove_damaged()


def _not_alive(file_io: FileIO, root: str, application: str) -> HoldLook:
    """Who holds the application, as ``look_at_hold``. Raises Fenced when that driver lives, Misuse if nobody knows."""
    found = look_at_hold(file_io, root, application, wait=True)
    if found.state == ALIVE:
        owner = found.owner
        process = f"process {found.pid or (owner.pid if owner else '?')} on {owner.host if owner else '?'}"
        raise Fenced(
            f"{root}: application '{application}' is held by a driver that lives ({process}, checkpoint "
            f"{owner.query if owner else '?'}, start {owner.epoch if owner else '?'}). Nothing was released. End that "
            "process first; its hold ends with it",
            kind="unlock.alive",
        )
    if found.state == UNKNOWN:
        raise Misuse(
            f"{root}: this system does not tell whether the hold of application '{application}' is taken. Nothing was "
            "released. A hold on a local disk ends with its process: start the query",
            kind="unlock.unknown",
        )
    return found


def take_lock_away(root: str, options: SinkOptions) -> bool:
    """End the lease of the table's lock, whose holder is certainly dead. Whether there was one.

    Raises Misuse without a lock, and for one that ends by itself; Retryable when its server cannot be reached.
    """
    lock = lock_of(root, options)
    if lock.is_empty:
        raise Misuse(
            f"{root}: no lock is named, so none was taken away. Give the query's own options of the lock: -o lock=..., "
            "and lock_user, lock_password_env, lock_id where it has them",
            kind="unlock.no-lock",
        )
    return lock.take_away()


@dataclass(frozen=True)
class LockLook:
    """The lock that all writers of the table take. holder: who has it, in words; '' when nobody has."""

    lock_id: str
    holder: str


def look_at_lock(root: str, options: SinkOptions) -> LockLook | None:
    """Look who holds the table's lock; None where the options name no lock.

    It is taken and given back at once when it is free: a lease that has run out is over then. Raises Retryable when the
    lock's server cannot be reached, Misuse when it refuses us.
    """
    lock = lock_of(root, options)
    if lock.is_empty:
        return None
    owner = f"streamsink-unlock:{os.getpid()}:{IdSource().new_id()}"
    token = lock.try_acquire(owner)
    try:
        return LockLook(lock.lock_id, "" if token is not None else lock.holder())
    finally:
        lock.give_up(owner)


def _is_locked(path: str) -> bool | None:
    """Whether somebody has locked this file; None when the system does not tell.

    It is the lock itself that is asked, for an instant, after which a start tries once more: a list of locks does not
    have those of other containers and machines.
    """
    try:
        import fcntl  # which not each platform has

        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _process_of(path: str) -> int | None:
    """The process that has locked this file, if the system lists it; 0 when it lists none, None without a list."""
    try:
        node = os.stat(path).st_ino
    except FileNotFoundError:
        return 0
    try:
        with open(_LOCKS, encoding="ascii") as stream:
            lines = [line.split() for line in stream]
    except OSError:
        return None
    found = [line for line in lines if len(line) > 5 and line[1] == "FLOCK" and line[5].rpartition(":")[2] == str(node)]
    return int(found[0][4]) if found else 0
