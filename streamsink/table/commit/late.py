"""Checks after a snapshot was created whether it is live, or whether its writer slept until the number became free.

A number becomes free when its snapshot expires, and when the table goes back: because of a rollback, because it was
dropped and created again, or because a backup was restored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Fenced, Misuse, Retryable, StreamsinkError
from streamsink.events import log
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import Questions
from streamsink.table.application_states import is_foreign
from streamsink.table.history.deletion import delete_late_snapshot
from streamsink.table.history.lineage import is_built_on
from streamsink.table.history.whole import Whole
from streamsink.table.table import Table

# Nobody stops a query and restores its table within less time, and a commit that takes so long can afford another look.
_SLEPT_MS = 5_000
# A restart creates a snapshot on one that is not checked yet, never on two.
_MOST_UNCHECKED = 2
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Base:
    """What a new snapshot is built on.

    snapshot: the one that was the newest when it was looked up, at ``seen_ms``; None when there was none.
    begun_ms: when the files that the new snapshot adds began to get their names; None when none got one.
    """

    snapshot: Snapshot | None
    seen_ms: int
    begun_ms: int | None = None

    def is_long_ago(self) -> bool:
        """``has_slept`` since the first file got its name or, if none got one, since the base was looked up."""
        return has_slept(self.seen_ms if self.begun_ms is None else self.begun_ms)


def has_slept(since_ms: int) -> bool:
    """Whether so much time has passed that others may have changed the table's history.

    This is also True when the clock has gone back since.
    """
    return not 0 <= Clock().now_ms() - since_ms < _SLEPT_MS


class Settling:
    """What is left to do of a commit while the one behind it creates its snapshot. It is tried once."""

    def __init__(self, file_io: FileIO, snapshot_id: int, questions: Questions, do: Callable[[Snapshot | None], bool]):
        """snapshot_id: of the commit. do: ``settle`` of ``TableCommit.commit_unsettled``. questions: what it asks
        first.
        """
        self._io = file_io
        self._snapshot_id = snapshot_id
        self.questions = questions
        self._do = do
        # What has been, or may have been, created on the commit's snapshot before that was checked.
        self._following: Snapshot | None = None
        self._is_replaced: bool | None = None
        self._failed: StreamsinkError | OSError | None = None

    def __call__(self) -> bool:
        """Whether another writer's snapshot took the place of the one on which the commit's is built."""
        if self._failed is not None:
            raise self._failed
        if self._is_replaced is None:
            try:
                self._is_replaced = self._do(self._following)
            except (OSError, StreamsinkError) as failed:
                self._failed = failed
                raise
        return self._is_replaced

    @property
    def is_tried(self) -> bool:
        """Whether it is done, or has failed."""
        return self._is_replaced is not None or self._failed is not None

    def beside(self, create: Callable[[], _Made], following: Snapshot) -> Callable[[], _Made]:
        """Create the following snapshot, and settle this commit by what the store says at the same time.

        One that is built on another writer's snapshot is created behind the check. Returns what tells the outcome of
        ``create``. Raises what settling raises: ``following`` is taken back then with the commit's own snapshot, as far
        as it is there.
        """
        if self.is_tried or following.id != self._snapshot_id + 1:
            self()
            return create
        creation, self._following = _Creation(create), following
        with self._io.asking_beside(creation, self.questions):
            self()
        return creation.outcome


@dataclass
class _Creation(Generic[_Made]):
    """Keeps for later what it returns or raises."""

    create: Callable[[], _Made]
    made: list[_Made] = field(default_factory=list)
    failed: OSError | StreamsinkError | None = None

    def __call__(self) -> None:
        try:
            self.made.append(self.create())
        except (OSError, StreamsinkError) as failed:
            self.failed = failed

    def outcome(self) -> _Made:
        if self.failed is not None:
            raise self.failed
        return self.made[0]


def is_base_kept(table: Table, snapshot: Snapshot, base: Base, following: Snapshot | None = None) -> bool:
    """Look again at the snapshot on which ours is built: False when another writer's rename has replaced it.

    Our snapshot is taken back when it certainly came too late, which raises Fenced, or when it came into another
    history, which raises Retryable. Retryable is also raised when this cannot be told because ours has expired or was
    replaced meanwhile; the restart then finds out what is published. following: what this process has built on ours
    before this look, or may have: it proves nothing of ours, and goes with it.
    """
    found = table.snapshots.load(snapshot.id - 1) if snapshot.id > 1 else None
    if found is None:
        _check_in_time(table, snapshot, base, following)
        return True
    # A snapshot that a rename put there was prepared before our base was seen, since its writer saw the number free.
    # Any other one came later.
    is_another = found != base.snapshot and (found.time_millis > base.seen_ms or _is_another(table))
    # A backup that was restored in the table's place may end with the very snapshot on which ours is built.
    if is_another or base.is_long_ago() and not Whole(table).has_all_of(snapshot):
        ours, others = _above(table, snapshot, following)
        if others is None or is_built_on(table, others, ours[-1]) is False:
            raise _went_back(table, ours)
    return found == base.snapshot


def check_unchecked(table: Table, is_unchecked: Callable[[Snapshot], bool]) -> None:
    """At a start, behind its look: take back what a driver that ended before its check has left in another history.

    is_unchecked: whether nobody is known to have checked one of our snapshots. Of these at most two can be there that
    no check has passed, the upper one on the lower one (``Settling``), and one on which others have built stays. So
    does one that alone has rows of others. Raises Retryable when something was taken back.
    """
    newest, ours = table.snapshots.known(), list[Snapshot]()
    while newest is not None and len(ours) < _MOST_UNCHECKED and is_unchecked(newest):
        ours.insert(0, newest)
        below = table.snapshots.load(newest.id - 1) if newest.id > 1 else None
        if below is None:
            is_kept: bool | None = _has_all_below_expired(table, newest, table.snapshots.ids())
        else:
            is_kept = is_built_on(table, newest, below)
        if is_kept is False and below is not None and _was_replaced_below(table, newest, below):
            log.warning(
                "%s: this snapshot of '%s' was put, late, in the place of the one on which snapshot %d is built. That "
                "one stays, since it has rows of other writers, and readers do not see what '%s' has added here",
                *(table.snapshots.path(below.id), below.commit_user, newest.id, below.commit_user),
            )
            return
        if is_kept is False:
            above = table.snapshots.load(ours[-1].id + 1)
            if above is None or is_built_on(table, above, ours[-1]) is False:
                raise _went_back(table, ours)
            return
        newest = below


def _has_all_below_expired(table: Table, snapshot: Snapshot, ids: Sequence[int]) -> bool:
    """Whether the snapshot below ours, which is not there, has expired. ids: of all that are there.

    If the table went back, the oldest one of its history is there, and EARLIEST names it. A writer that slept may leave
    an older snapshot when all have expired; expiry has moved EARLIEST by then, or has died before and left it naming
    one that is gone.
    """
    if ids[:1] == [snapshot.id]:
        return True
    earliest = table.snapshots.earliest()
    return earliest is not None and (earliest >= snapshot.id or earliest not in ids)


def _was_replaced_below(table: Table, ours: Snapshot, below: Snapshot) -> bool:
    """Whether ``below`` came under ours without a rollback, and ours alone has files of the one that was there.

    A program that renames took the time before it saw the number free, so before ours was made. And a number that has
    expired is free for a writer that slept. Nobody may write these files again: their writer may have ended, or be no
    streamsink.
    """
    has_expired = (table.snapshots.earliest() or 0) >= ours.id
    if not has_expired and (not is_foreign(below) or below.time_millis > ours.time_millis):
        return False
    manifests = table.manifests
    has = manifests.identities_of(manifests.base_of(below) + manifests.delta_of(below))
    return not manifests.identities_of(manifests.base_of(ours)) <= has


def _above(table: Table, snapshot: Snapshot, following: Snapshot | None) -> tuple[list[Snapshot], Snapshot | None]:
    """(our snapshot and the following one if that is ours, too, what others have put above them)."""
    above = table.snapshots.load(snapshot.id + 1)
    if above is None or above != following:
        return [snapshot], above
    return [snapshot, above], table.snapshots.load(above.id + 1)


def _check_in_time(table: Table, snapshot: Snapshot, base: Base, own: Snapshot | None) -> None:
    """Return when others may build on our snapshot, or have built on it, although the one before ours does not exist.

    Snapshots expire from the oldest on. This has three consequences. When the following snapshot is gone and ours is
    not, ours came later. When the following one exists, its base says whether it was built on ours. When older ones
    exist, the one before ours did not expire. own: as ``following`` of ``is_base_kept``; all this is then asked of the
    two of ours as of one.
    """
    ids = table.snapshots.ids()
    if snapshot.id not in ids or table.snapshots.load(snapshot.id) != snapshot:
        if own is not None:
            is_base_kept(table, own, replace(base, snapshot=snapshot))
        raise _unsure(table, snapshot)
    # This comes after the listing, so that a following snapshot which the listing names is found.
    ours, following = _above(table, snapshot, own)
    if following is None and ids[-1] <= (own or snapshot).id:
        if (
            not _has_all_below_expired(table, snapshot, ids)
            or not _is_of_this_table(table, snapshot)
            or base.is_long_ago()
            and not Whole(table).has_all_of(snapshot)
        ):
            raise _went_back(table, ours)
        return
    built_on = following is not None and is_built_on(table, following, ours[-1])
    if built_on is None:
        # Nobody can read our snapshot: the files that it names were swept, or have expired or are about to expire.
        _take_back(table, ours)
        raise _unsure(table, snapshot)
    if not built_on:
        _take_back(table, ours)
        raise Fenced(
            f"{table.layout.snapshot(snapshot.id)}: snapshot {snapshot.id} was published long ago by another writer "
            f"and has expired (the newest is {ids[-1]}): this writer was paused and has been superseded. Its snapshot "
            "was taken back",
            kind="writer.fenced-expired",
        )


def _is_another(table: Table) -> bool:
    """Whether the table was dropped since it was opened; another table may be in its place."""
    try:
        return table.schemas.identity() != table.table_id
    except Misuse as gone:
        if gone.kind != "table.gone":
            raise
        return True


def _is_of_this_table(table: Table, snapshot: Snapshot) -> bool:
    """Whether our snapshot belongs to the table that is there: this one, with all manifests that the snapshot names.

    If so, the snapshot before ours has expired. If not, the table was dropped, and another may be in its place.
    """
    if _is_another(table):
        return False
    try:
        named = table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot)
    except Corrupt as broken:
        if broken.kind != "manifest.missing":
            raise
        return False
    return all(table.file_io.exists(table.layout.manifest(meta.file_name)) for meta in named)


def _take_back(table: Table, ours: Sequence[Snapshot]) -> None:
    """Take our snapshots back, the newest first: on that one, as was found, nothing is built."""
    for snapshot in reversed(ours):
        others = table.snapshots.load(snapshot.id + 1) if snapshot is not ours[-1] else None
        if others is not None and is_built_on(table, others, snapshot) is not False:
            return  # they did so when the one above was gone
        delete_late_snapshot(table, snapshot)


def _went_back(table: Table, ours: Sequence[Snapshot]) -> Retryable:
    """The error for a snapshot that came into another history.

    ours: it, and what of ours is built on it. Nothing of others is, so they are taken back.
    """
    _take_back(table, ours)
    return Retryable(
        f"{table.layout.snapshot(ours[0].id)}: the snapshot that this one is built on, or files of its own, are not "
        "there any more: while it was being published, the table was rolled back, restored from a backup, or dropped "
        "and created again. It was taken back. What was pre-committed is safe in the journal; the next start checks "
        "what the table has, and says what to do",
        kind="table.history-changed",
    )


def _unsure(table: Table, snapshot: Snapshot) -> Retryable:
    return Retryable(
        f"{table.layout.snapshot(snapshot.id)}: snapshot {snapshot.id} was created, and before it could be checked "
        "whether it came in time, it expired or was replaced by another writer's. What was pre-committed is safe in "
        "the journal; the next start looks whether it was published, and publishes it if not",
        kind="publish.expired-meanwhile",
    )
