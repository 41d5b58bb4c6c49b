"""Tags that keep what a rollback brings back from the expiry of programs that do not look at the newest snapshot.

Paimon's expiry deletes a data file when a snapshot that deletes it expires, unless the newest tag before that snapshot
has the file. That a later snapshot has added the file again it does not see. So its own rollback leaves a tag of the
target, and so do we, of the same name.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from streamsink.errors import Corrupt
from streamsink.format.manifest import FileKind
from streamsink.format.snapshot import ANALYZE, APPEND, Snapshot
from streamsink.table.branching.branches import TAG_PREFIX
from streamsink.table.branching.targets import Target, in_file, tags_of
from streamsink.table.care.tags import put_tag, take_back
from streamsink.table.history.lineage import PROCEDURE
from streamsink.table.table import Table

PREFIX = PROCEDURE


def pins_of(table: Table, target: Target | None, names: Collection[str]) -> list[Target]:
    """The snapshots that need a tag, so that no expiry deletes these data files, which come back into the table.

    target: a snapshot of this table that has them; it is one, except where a tag of an earlier rollback holds it.
    Others are needed where files of these names have left the table where no tag before has them. Empty where nothing
    comes back.
    """
    if not names:
        return []
    # Those that keep a branch go with it.
    found_tags = [(name, path) for name, path in tags_of(table) if not name.startswith(TAG_PREFIX)]
    tags = {kept.id: Target(kept, path) for _, path in found_tags if (kept := in_file(table, path)) is not None}
    pinned = {kept.id for name, path in found_tags if name.startswith(PREFIX) and (kept := in_file(table, path))}
    found = [target] if target is not None and target.snapshot.id not in pinned else []
    tags |= {each.snapshot.id: each for each in found}
    for snapshot, left in _deleting(table, names):
        before = max((number for number in tags if number < snapshot.id), default=None)
        if before is not None and left <= _live(table, tags[before]):
            continue
        below = table.snapshots.load(snapshot.id - 1)
        if below is not None:
            found.append(Target(below, table.snapshots.path(below.id)))
            tags[below.id] = found[-1]
    return found


def pin(table: Table, pins: Sequence[Target], name: str) -> list[str]:
    """Create tags of these snapshots, and return their paths. name: unique to this rollback.

    A snapshot that expires meanwhile gets none, since its files may be gone. If it is the target, the rollback is
    refused; any other one is needed no more.
    """
    pinned = []
    for which in pins:
        path = put_tag(table, f"{PREFIX}{which.snapshot.id}-{name}", which.snapshot)
        if in_file(table, which.path) == which.snapshot:
            pinned.append(path)
        else:
            take_back(table.file_io, [path])
    return pinned


def _deleting(table: Table, names: Collection[str]) -> Iterator[tuple[Snapshot, set[str]]]:
    """Yield each retained snapshot that deletes data files of these names, with the names of those, oldest first."""
    for number in table.snapshots.ids():
        snapshot = table.snapshots.load(number)
        if snapshot is None or snapshot.commit_kind in (APPEND, ANALYZE):
            continue
        at = Target(snapshot, table.snapshots.path(number))
        if left := _unless_gone(table, at, lambda found: _deleted_by(table, found, names)):
            yield snapshot, left


def _deleted_by(table: Table, snapshot: Snapshot, names: Collection[str]) -> set[str]:
    return {
        entry.file.file_name
        for meta in table.manifests.delta_of(snapshot)
        if meta.num_deleted_files
        for entry in table.manifests.read(meta.file_name)
        if entry.kind is FileKind.DELETE and entry.file.file_name in names
    }


def _live(table: Table, which: Target) -> set[str]:
    manifests = table.manifests
    return _unless_gone(
        table, which, lambda found: {each[3] for each in manifests.identities_of(manifests.all_of(found))}
    )


def _unless_gone(table: Table, which: Target, read: Callable[[Snapshot], set[str]]) -> set[str]:
    """What is read of the snapshot; nothing where it expires meanwhile, or its tag is deleted."""
    try:
        return read(which.snapshot)
    except Corrupt:
        if in_file(table, which.path) == which.snapshot:
            raise
        return set()
