"""Tells from which of the snapshots before it the newest snapshot descends.

A snapshot is built on the one before it. But another writer's rename may have put another snapshot in that one's place,
from which the newest one does not descend.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from streamsink.errors import Conflict, Corrupt
from streamsink.format.manifest import Identity
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import OVERWRITE, Snapshot
from streamsink.table.application_states import is_foreign, states_in
from streamsink.table.table import Table

_T = TypeVar("_T")
_Named = tuple[Collection[Identity], Collection[Identity]]
#: So begins the commit user of Paimon's procedure that rolls back by a new snapshot, and so do the tags that it leaves.
PROCEDURE = "rollback-to-as-latest-"


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
    for snapshot, went_back in _line(table, newest, base):
        named = (_live_of(table, snapshot) if went_back else _changed_by(table, snapshot)).intersection(wanted)
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
    oldest, without, is_plain = min(table.snapshots.ids(), default=0), set[str](), True
    for snapshot, went_back in _line(table, newest, since):
        is_plain = is_plain and not went_back
        if went_back:
            is_named = not _live_in(table, snapshot).isdisjoint(names)
        else:
            metas = table.manifests.delta_of(snapshot)
            metas += table.manifests.base_of(snapshot) if snapshot.id == oldest else []
            is_named = _is_named_in(table, metas, names, without)
        if is_named and _is_of_line(table, newest, snapshot):
            return True
    # Where the table went back, the newest one's base names what was there in between, too.
    return is_plain and newest.id > since and _is_named_in(table, table.manifests.base_of(newest), names, without)


def _is_named_in(table: Table, metas: Sequence[ManifestFileMeta], names: Collection[str], without: set[str]) -> bool:
    """Whether one of the manifests names one of the data files. without: those that do not; more are put in."""
    for name in (meta.file_name for meta in metas if meta.file_name not in without):
        if any(entry.file.file_name in names for entry in table.manifests.read(name)):
            return True
        without.add(name)
    return False


def _changed_by(table: Table, snapshot: Snapshot) -> set[Identity]:
    metas = table.manifests.delta_of(snapshot)
    return {entry.identity for meta in metas for entry in table.manifests.read(meta.file_name)}


def _live_of(table: Table, snapshot: Snapshot) -> set[Identity]:
    return table.manifests.identities_of(table.manifests.base_of(snapshot) + table.manifests.delta_of(snapshot))


def _live_in(table: Table, snapshot: Snapshot) -> set[str]:
    return {identity[3] for identity in _live_of(table, snapshot)}


def _line(table: Table, newest: Snapshot, base: int) -> Iterator[tuple[Snapshot, bool]]:
    """The retained snapshots after number ``base``, from the newest one back, and whether the table went back with it.

    Paimon's rollback as latest makes a snapshot of what a target had, with the states that the target had. What came
    between the two is not of the line: a record that was published there is not in the table for that. Our own rollback
    carries the states of now (``branching/rollback.py``), so whoever asks asks for no such record.
    """
    held: list[Snapshot] = []  # from one that carries states on; the one before it tells whether these went back
    of_target: Mapping[str, int] | None = None
    for snapshot in _retained(table, newest, base):
        said = _sequences(table, snapshot)
        if of_target is not None and said != of_target:
            continue
        of_target = None
        of_held = _sequences(table, held[0]) if held else None
        if said is not None and of_held is not None and _went_back(held[0], of_held, said):
            yield held[0], True
            held, of_target = [], of_held
            continue
        if said is not None or not held:
            yield from ((each, _is_by_procedure(each)) for each in held)
            held = []
        held.append(snapshot)
    yield from ((each, _is_by_procedure(each)) for each in held)


def _sequences(table: Table, snapshot: Snapshot) -> Mapping[str, int] | None:
    """By application, the number of the last record that the snapshot says; None where it carries no states."""
    found = states_in(snapshot, table.snapshots.path(snapshot.id))
    if found is None:
        return None
    said = {name: state.get("sequence", 0) for name, state in found.items()}
    return {name: number if isinstance(number, int) else 0 for name, number in said.items()}


def _went_back(snapshot: Snapshot, said: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether the snapshot says less than the one before it. Of an application that was retired it says nothing."""
    return snapshot.commit_kind == OVERWRITE and any(said.get(name, 0) < number for name, number in before.items())


def _is_by_procedure(snapshot: Snapshot) -> bool:
    """Whether Paimon's procedure made it, of whose target and past nothing is retained."""
    return snapshot.commit_user.startswith(PROCEDURE) and not is_foreign(snapshot)


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
