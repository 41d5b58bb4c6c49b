"""A snapshot was created, and the one before it is not there: is it live, or did it come so late that its number had expired?"""

from streamsink.errors import Corrupt, Fenced, Retryable
from streamsink.format.snapshot import Snapshot
from streamsink.table.deletion import delete_late_snapshot
from streamsink.table.table import Table


def check_in_time(table: Table, snapshot: Snapshot) -> None:
    """Return when others may build on this snapshot of ours, or have. One that certainly came too late is taken back.

    Snapshots expire from the oldest on. So when the one behind ours is gone and ours is not, ours came later; when the one behind it
    is there, its base says whether it was built on ours. Raises: Fenced when ours came too late; Retryable when that cannot be
    told, because ours has expired meanwhile or was replaced: the restart finds out whether it was published.
    """
    following = table.snapshots.load(snapshot.id + 1)
    ids = table.snapshots.ids()
    if snapshot.id not in ids or table.snapshots.load(snapshot.id) != snapshot:
        raise _unsure(table, snapshot)
    if ids[-1] == snapshot.id:
        return
    built_on = following is not None and _is_built_on(table, following, snapshot)
    if built_on is None:
        raise _unsure(table, snapshot)
    if not built_on:
        delete_late_snapshot(table, snapshot)
        raise Fenced(
            f"{table.layout.snapshot(snapshot.id)}: snapshot {snapshot.id} was published long ago by another writer and has expired (the "
            f"newest is {ids[-1]}): this writer was paused and has been superseded. Its snapshot was taken back",
            kind="writer.fenced-expired",
        )


def _is_built_on(table: Table, following: Snapshot, snapshot: Snapshot) -> bool | None:
    """Whether what is live below the changes of ``following`` is what ``snapshot`` has; None when its manifests are gone."""
    manifests = table.manifests
    below = manifests.base_of(following)
    try:
        mine = manifests.base_of(snapshot) + manifests.delta_of(snapshot)
        if [meta.file_name for meta in below] == [meta.file_name for meta in mine]:
            return True
        has = manifests.identities_of(mine)
    except Corrupt as broken:
        if broken.kind != "manifest.missing":
            raise
        return None
    return manifests.identities_of(below) == has


def _unsure(table: Table, snapshot: Snapshot) -> Retryable:
    return Retryable(
        f"{table.layout.snapshot(snapshot.id)}: snapshot {snapshot.id} was created, and before it could be looked at whether it came in "
        "time, it expired or was replaced by another writer's. Nothing was deleted. What was pre-committed is safe in the journal; the "
        "next start looks whether it was published, and publishes it if not",
        kind="publish.expired-meanwhile",
    )
