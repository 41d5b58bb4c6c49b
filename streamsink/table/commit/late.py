"""A snapshot was created: is it live, or did its writer sleep until the number was free for another reason?

Either its number had expired, or the table had gone back: a rollback, a table that was dropped and created again, or a backup.
"""

from dataclasses import dataclass

from streamsink.clock import Clock
from streamsink.errors import Corrupt, Fenced, Misuse, Retryable
from streamsink.format.snapshot import Snapshot
from streamsink.table.history.deletion import delete_late_snapshot
from streamsink.table.history.lineage import is_built_on
from streamsink.table.history.whole import Whole
from streamsink.table.table import Table

# Nobody stops a query and restores its table within less; and a commit that takes so long can afford another look.
_SLEPT_MS = 5_000


@dataclass(frozen=True)
class Base:
    """What a snapshot is built on: the newest one when it was looked for, at ``seen_ms``.

    begun_ms: when the files that it adds began to get their names, None when none did.
    """

    snapshot: Snapshot | None
    seen_ms: int
    begun_ms: int | None = None

    def is_long_ago(self) -> bool:
        """Also when the clock has gone back since."""
        return has_slept(self.seen_ms if self.begun_ms is None else self.begun_ms)


def has_slept(since_ms: int) -> bool:
    """Whether so much time has passed that others may have changed the table's history; also when the clock has gone back."""
    return not 0 <= Clock().now_ms() - since_ms < _SLEPT_MS


def is_base_kept(table: Table, snapshot: Snapshot, base: Base) -> bool:
    """Look again at the snapshot that ours is built on: False when another writer's rename has replaced it.

    A snapshot of ours that certainly came too late, or into another history, is taken back. Raises: Fenced for the one; Retryable for
    the other, or when that cannot be told, because ours has expired meanwhile or was replaced: the restart finds out what is published.
    """
    found = table.snapshots.load(snapshot.id - 1)
    if found is None:
        _check_in_time(table, snapshot, base)
        return True
    # One that a rename put there was prepared before the base was seen: its writer saw the number free. Any other came after.
    is_another = found != base.snapshot and (found.time_millis > base.seen_ms or _is_another(table))
    # A backup in the table's place may end with the very snapshot that this one is built on.
    if is_another or base.is_long_ago() and not Whole(table).has_all_of(snapshot):
        following = table.snapshots.load(snapshot.id + 1)
        if following is None or is_built_on(table, following, snapshot) is False:
            raise _went_back(table, snapshot)
    return found == base.snapshot


def _check_in_time(table: Table, snapshot: Snapshot, base: Base) -> None:
    """Return when others may build on this snapshot of ours, or have, although the one before it is not there.

    Snapshots expire from the oldest on. So when the one behind ours is gone and ours is not, ours came later; when the one behind it
    is there, its base says whether it was built on ours; and when older ones are there, the one before ours did not expire.
    """
    ids = table.snapshots.ids()
    if snapshot.id not in ids or table.snapshots.load(snapshot.id) != snapshot:
        raise _unsure(table, snapshot)
    following = table.snapshots.load(snapshot.id + 1)  # after the listing, so that one which that names is found
    if following is None and ids[-1] == snapshot.id:
        if (
            ids[0] != snapshot.id
            or not _is_of_this_table(table, snapshot)
            or base.is_long_ago()
            and not Whole(table).has_all_of(snapshot)
        ):
            raise _went_back(table, snapshot)
        return
    built_on = following is not None and is_built_on(table, following, snapshot)
    if built_on is None:
        # Nobody can read it: what it names was swept or has expired, or is about to.
        delete_late_snapshot(table, snapshot)
        raise _unsure(table, snapshot)
    if not built_on:
        delete_late_snapshot(table, snapshot)
        raise Fenced(
            f"{table.layout.snapshot(snapshot.id)}: snapshot {snapshot.id} was published long ago by another writer and has expired (the "
            f"newest is {ids[-1]}): this writer was paused and has been superseded. Its snapshot was taken back",
            kind="writer.fenced-expired",
        )


def _is_another(table: Table) -> bool:
    """Whether the table was dropped since it was opened; another one may be in its place."""
    try:
        return table.schemas.identity() != table.table_id
    except Misuse as gone:
        if gone.kind != "table.gone":
            raise
        return True


def _is_of_this_table(table: Table, snapshot: Snapshot) -> bool:
    """Whether the one behind ours has expired, and was not dropped with the table, in whose place another one may be."""
    if _is_another(table):
        return False
    try:
        named = table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot)
    except Corrupt as broken:
        if broken.kind != "manifest.missing":
            raise
        return False
    return all(table.file_io.exists(table.layout.manifest(meta.file_name)) for meta in named)


def _went_back(table: Table, snapshot: Snapshot) -> Retryable:
    """Of a snapshot on which nothing is built: it is taken back."""
    delete_late_snapshot(table, snapshot)
    return Retryable(
        f"{table.layout.snapshot(snapshot.id)}: the snapshot that this one is built on, or files of its own, are not there any more: while it "
        "was being published, the table was rolled back, restored from a backup, or dropped and created again. It was taken back. What was pre-committed is safe in the journal; the next "
        "start looks what the table has, and says what to do",
        kind="table.history-changed",
    )


def _unsure(table: Table, snapshot: Snapshot) -> Retryable:
    return Retryable(
        f"{table.layout.snapshot(snapshot.id)}: snapshot {snapshot.id} was created, and before it could be looked at whether it came in "
        "time, it expired or was replaced by another writer's. What was pre-committed is safe in the journal; the "
        "next start looks whether it was published, and publishes it if not",
        kind="publish.expired-meanwhile",
    )
