"""Snapshots of ours that another writer's rename replaced: told apart from a rollback, and what had been built on them."""

from streamsink.errors import Conflict
from streamsink.table.table import Table


def was_replaced(table: Table, snapshot_id: int, uuid: str, at_ms: int) -> bool:
    """Whether another snapshot stands in the place of the one with this uuid, which was there at ``at_ms``, and is not newer.

    Paimon's writers take the time, look whether the number is free, and then rename; a rename replaces on a bare local disk.
    The one that replaced ours saw the number free before we published, so its time is not after ours. What was written after
    a rollback is later.
    """
    found = table.snapshots.load(snapshot_id)
    return found is not None and found.uuid != uuid and found.time_millis <= at_ms


def was_rolled_back(table: Table, snapshot_id: int, uuid: str, at_ms: int) -> bool:
    """Whether the retained snapshots show that the one with this uuid, which was there at ``at_ms``, went with a rollback.

    The table ends before it, or a later one has its number. What has expired shows nothing.
    """
    newest, found = table.snapshots.latest(), table.snapshots.load(snapshot_id)
    if found is not None:
        return found.uuid != uuid and found.time_millis > at_ms
    return newest is None or newest.id < snapshot_id


def has_files(table: Table, names: set[str], since: int) -> bool:
    """Whether the newest snapshot has, or had and deleted, these data files, although snapshot ``since`` that added them was
    replaced: a third writer had read it before and built on it.

    Raises Conflict when only a snapshot between deletes them: whether the newest descends from that one cannot be told.
    """
    newest, manifests = table.snapshots.latest(), table.manifests
    if not names or newest is None:
        return False

    def named(metas) -> bool:
        return any(e.file.file_name in names for meta in metas for e in manifests.read(meta.file_name))

    if named(manifests.all_of(newest)):
        return True
    for snapshot_id in range(since + 1, newest.id):
        snapshot = table.snapshots.load(snapshot_id)
        if snapshot is not None and named(manifests.delta_of(snapshot)):
            raise Conflict(
                f"{table.root}: snapshot {since}, which published files of this application, was replaced by another writer's, "
                f"and snapshot {snapshot_id} rewrote those files, but the newest snapshot {newest.id} does not know them. "
                "Whether their rows are in the table cannot be told. Nothing was written. Stop the other writers, see "
                "streamsink.verify, and roll the table back to the snapshot that is right",
                kind="snapshot.replaced-undecidable",
            )
    return False
