"""Which of the snapshots that stand before the newest one it descends from: another writer's rename may have put one into its line.

A snapshot is built on the one before it. What stands there may not be that one any more, but it is no other one's base in its place.
"""

from collections.abc import Collection, Iterator

from streamsink.errors import Conflict, Corrupt
from streamsink.format.manifest import Identity
from streamsink.format.snapshot import Snapshot
from streamsink.table.table import Table


def is_built_on(table: Table, following: Snapshot, snapshot: Snapshot) -> bool | None:
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


def named_since(table: Table, base: int, wanted: Collection[Identity]) -> set[Identity]:
    """Of these files those that a snapshot after number ``base`` adds or deletes from which the newest one descends.

    Raises Corrupt; Conflict where that cannot be told.
    """
    newest = table.snapshots.latest()
    if newest is None:
        return set()
    found: set[Identity] = set()
    for snapshot in _retained(table, newest, base):
        metas = table.manifests.delta_of(snapshot)
        named = {entry.identity for meta in metas for entry in table.manifests.read(meta.file_name)}.intersection(
            wanted
        )
        if named and _is_of_line(table, newest, snapshot):
            found |= named
    return found


def were_named(table: Table, names: Collection[str], since: int = 0) -> bool:
    """Whether the newest snapshot, or one after number ``since`` from which it descends, names one of these data files, added or deleted.

    What comes and goes stands in the deltas, and what was there before them below the first. Raises as ``named_since``.
    """
    newest = table.snapshots.latest()
    if newest is None:
        return False
    oldest, without = min(table.snapshots.ids(), default=0), set()
    for snapshot in _retained(table, newest, since):
        metas = table.manifests.delta_of(snapshot) + (
            table.manifests.base_of(snapshot) if snapshot.id in (oldest, newest.id) else []
        )
        for name in (meta.file_name for meta in metas if meta.file_name not in without):
            if not any(entry.file.file_name in names for entry in table.manifests.read(name)):
                without.add(name)
            elif _is_of_line(table, newest, snapshot):
                return True
            else:
                break
    return False


def _retained(table: Table, newest: Snapshot, base: int) -> Iterator[Snapshot]:
    """Those after number ``base``, the newest one first. One that stands above it is none of the table's."""
    for number in reversed(table.snapshots.ids()):
        snapshot = table.snapshots.load(number) if base < number <= newest.id else None
        if snapshot is not None:
            yield snapshot


def _is_of_line(table: Table, newest: Snapshot, snapshot: Snapshot) -> bool:
    """Whether the newest one descends from this one. Raises Conflict where that cannot be told: two in a row were replaced since, or lists are gone."""
    following = newest
    for number in range(newest.id - 1, snapshot.id - 1, -1):
        found = table.snapshots.load(number)
        is_on = is_built_on(table, following, found) if found is not None else None
        if is_on is False and number == snapshot.id:
            return False
        if found is None or not is_on:
            raise _undecidable(table, snapshot, newest, number)
        following = found
    return True


def _undecidable(table: Table, snapshot: Snapshot, newest: Snapshot, replaced: int) -> Conflict:
    """replaced: number of one between them that another writer's rename has put there."""
    return Conflict(
        f"{table.root}: snapshot {snapshot.id} changes files of this application, the newest snapshot is {newest.id}, and between them another "
        f"writer's rename has replaced snapshot {replaced}, or it has expired. Whether their rows are in the table cannot be told. Nothing was written. Stop the "
        "other writers, see streamsink.verify, and roll the table back to the snapshot that is right",
        kind="snapshot.replaced-undecidable",
    )


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
