"""Tells from which of the snapshots before it the newest snapshot descends.

A snapshot is built on the one before it. But another writer's rename may have put another snapshot in that one's place,
from which the newest one does not descend.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from streamsink.errors import Conflict, Corrupt
from streamsink.format.manifest import Identity
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import Snapshot
from streamsink.table.table import Table

_T = TypeVar("_T")
_Named = tuple[Collection[Identity], Collection[Identity]]


def is_built_on(table: Table, following: Snapshot, snapshot: Snapshot) -> bool | None:
    """Whether what is live below the changes of ``following`` is what ``snapshot`` has.

    None when manifests of one of them are gone. Manifests that both have are not read where the others are enough: of
    a large table only small ones were merged.
    """
    manifests = table.manifests
    below = manifests.base_of(following)
    mine = _unless_gone(lambda: manifests.base_of(snapshot) + manifests.delta_of(snapshot))
    if mine is None:
        return None
    if [meta.file_name for meta in below] == [meta.file_name for meta in mine]:
        return True
    own = _unless_gone(lambda: manifests.named_by(_without(mine, below)))
    if own is None:
        return None
    if is_same_whatever_both_have(own, manifests.named_by(_without(below, mine))):
        return True
    has = _unless_gone(lambda: manifests.identities_of(mine))
    return None if has is None else manifests.identities_of(below) == has


def _unless_gone(read: Callable[[], _T]) -> _T | None:
    """What is read; None where a manifest is gone."""
    try:
        return read()
    except Corrupt as broken:
        if broken.kind != "manifest.missing":
            raise
        return None


def _without(metas: Sequence[ManifestFileMeta], others: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
    """Those of the manifests that the others are not."""
    names = {meta.file_name for meta in others}
    return [meta for meta in metas if meta.file_name not in names]


def is_same_whatever_both_have(one: _Named, other: _Named) -> bool:
    """Whether two sets of manifests certainly lead to the same live files together with any third one that both have.

    one, other: what each set of manifests adds and deletes. A file that one of them adds and deletes may be left out
    by a merge; then the third one must be read.
    """
    (added, deleted), (added_too, deleted_too) = ((set(each[0]), set(each[1])) for each in (one, other))
    return deleted == deleted_too and added - deleted == added_too - deleted_too


def named_since(table: Table, base: int, wanted: Collection[Identity]) -> set[Identity]:
    """Those of the wanted files that a snapshot after number ``base`` adds or deletes.

    Only snapshots from which the newest one descends count. Raises Corrupt, and Conflict when descent cannot be told.
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
    """Whether a snapshot after number ``since`` names one of these data files, as added or as deleted.

    Only the newest snapshot and those from which it descends count. The deltas name what was added and deleted, and
    what existed before is named by the bases of the oldest retained snapshot and of the newest one. Raises as
    ``named_since`` does.
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
    """The snapshots after number ``base``, from the newest one back. Files with higher numbers are not the table's."""
    for number in reversed(table.snapshots.ids()):
        snapshot = table.snapshots.load(number) if base < number <= newest.id else None
        if snapshot is not None:
            yield snapshot


def _is_of_line(table: Table, newest: Snapshot, snapshot: Snapshot) -> bool:
    """Whether the newest snapshot descends from this one.

    Raises Conflict when that cannot be told: a snapshot between the two was replaced or is gone, or manifests are gone.
    """
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
    """replaced: number of a snapshot between the two which another writer's rename has replaced, or which is gone."""
    return Conflict(
        f"{table.root}: snapshot {snapshot.id} changes files of this application, the newest snapshot is {newest.id}, "
        f"and between them another writer's rename has replaced snapshot {replaced}, or it has expired. Whether their "
        "rows are in the table cannot be told. Nothing was written. Stop the other writers, see streamsink.verify, and "
        "roll the table back to the snapshot that is right",
        kind="snapshot.replaced-undecidable",
    )


def was_replaced(table: Table, snapshot_id: int, uuid: str, at_ms: int) -> bool:
    """Whether a snapshot that is not newer has replaced the one with this uuid, which existed at ``at_ms``.

    Paimon's writers take the time, check that the number is free, and then rename; on a bare local disk a rename
    replaces. The writer that replaced our snapshot saw the number free before we published, so the time of its snapshot
    is not after ours. A snapshot that was written after a rollback has a later time.
    """
    found = table.snapshots.load(snapshot_id)
    return found is not None and found.uuid != uuid and found.time_millis <= at_ms


def was_rolled_back(table: Table, snapshot_id: int, uuid: str, at_ms: int) -> bool:
    """Whether the retained snapshots show that a rollback removed the one with this uuid, which existed at ``at_ms``.

    They do if the table ends before its number, or if a later snapshot has its number. Expired snapshots show nothing.
    """
    newest, found = table.snapshots.latest(), table.snapshots.load(snapshot_id)
    if found is not None:
        return found.uuid != uuid and found.time_millis > at_ms
    return newest is None or newest.id < snapshot_id
