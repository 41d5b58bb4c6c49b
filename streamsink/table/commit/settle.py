"""What follows the creation of a snapshot: did it come in time, and where does the hint point? Driver only."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.errors import OutcomeUnknown
from streamsink.events import log
from streamsink.format.snapshot import Snapshot
from streamsink.table.application_states import States
from streamsink.table.commit.delta import CommitRequest, Delta
from streamsink.table.commit.late import Base, has_slept
from streamsink.table.history.deletion import delete_hint, delete_temporary
from streamsink.table.table import Table

# With these a store refuses, and no reply was lost: it says what to mend, and trying again at once is in vain. The
# snapshot is not there, unless the store refused only what comes behind its creation (removing its temporary name).
# The next start finds it then.
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def nothing_left(following: Snapshot | None = None, *, is_replaced: bool = False) -> bool:
    """``Committed.settle`` where it is done. Returns as that does."""
    return is_replaced


@dataclass(frozen=True)
class Committed:
    """snapshot: one that holds the commit, in its place at ``at_ms``. attempts: tries it took; 0 when it was there
    before.

    base_replaced: as ``settle`` has returned. may_be_alone: what the request adds may be in an earlier snapshot.
    settle: see ``TableCommit.commit_unsettled``.
    """

    snapshot: Snapshot
    attempts: int
    at_ms: int
    base_replaced: bool = False
    may_be_alone: bool = False
    settle: Callable[..., bool] = nothing_left

    @property
    def snapshot_id(self) -> int:
        return self.snapshot.id


@dataclass(frozen=True)
class Found:
    """What one try builds on, and changes.

    request: what it publishes, without files where these are in the table already (``is_alone``). newest, states: what
    it builds on, looked up at ``seen_ms``. delta: the changes on top of that.
    """

    request: CommitRequest
    newest: Snapshot | None
    seen_ms: int
    states: States
    delta: Delta
    is_alone: bool

    @property
    def base(self) -> Base:
        """What the new snapshot is built on."""
        return Base(self.newest, self.seen_ms, self.request.begun_ms)


@contextmanager
def unanswered(path: str) -> Iterator[None]:
    """An error of the store within it leaves open what became of the snapshot.

    It is an OutcomeUnknown then; an OSError when the store has no room, or is read-only.
    """
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


def move_hint(table: Table, snapshot: Snapshot, name: str) -> None:
    """Let ``LATEST`` name this snapshot. The snapshot exists whether or not this works, and an old hint is harmless."""
    try:
        table.snapshots.move_hint(snapshot.id, name)
    except OSError as failed:
        log.warning("%s: LATEST could not be moved to %s: %s", table.root, snapshot.id, failed.strerror)
        delete_temporary(table, name)


def hint(table: Table, snapshot: Snapshot, name: str, seen_ms: int) -> None:
    """Move ``LATEST`` to this snapshot, and back if its writer was slow. seen_ms: when its base was looked up."""
    move_hint(table, snapshot, name)
    if has_slept(seen_ms):
        take_back_hint(table, snapshot)


def take_back_hint(table: Table, snapshot: Snapshot) -> None:
    """This writer was slow. When the table has gone back meanwhile, Java's readers would fail on its hint."""
    ids = table.snapshots.ids()
    if not ids:
        delete_hint(table)
    elif ids[-1] < snapshot.id:
        table.file_io.replace(table.layout.latest_hint, str(ids[-1]).encode(), IdSource().new_id())
