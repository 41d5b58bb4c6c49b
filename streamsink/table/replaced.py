"""Snapshots of ours that another writer's rename replaced: told apart from a rollback."""

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
