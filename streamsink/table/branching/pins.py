"""Tags that keep what a rollback brings back from the expiry of programs that do not look at the newest snapshot.

Paimon's expiry deletes a data file when a snapshot that deletes it expires, unless the newest tag before that snapshot
has the file. That a later snapshot has added the file again it does not see. So its own rollback leaves a tag of the
target, and so do we, of the same name.
"""

from collections.abc import Collection, Iterator, Sequence

from streamsink.format.manifest import FileKind
from streamsink.format.snapshot import ANALYZE, APPEND, Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.branching.branches import TAG_PREFIX
from streamsink.table.branching.targets import Target, in_file, tags_of
from streamsink.table.table import Table

PREFIX = "rollback-to-as-latest-"


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
    tags = {kept.id: kept for _, path in found_tags if (kept := in_file(table, path)) is not None}
    pinned = {kept.id for name, path in found_tags if name.startswith(PREFIX) and (kept := in_file(table, path))}
    found = [target] if target is not None and target.snapshot.id not in pinned else []
    tags |= {each.snapshot.id: each.snapshot for each in found}
    for snapshot, left in _deleting(table, names):
        before = max((number for number in tags if number < snapshot.id), default=None)
        if before is not None and left <= _live(table, tags[before]):
            continue
        below = table.snapshots.load(snapshot.id - 1)
        if below is not None:
            found.append(Target(below, table.snapshots.path(below.id)))
            tags[below.id] = below
    return found


def pin(table: Table, which: Target, name: str) -> str:
    """Create a tag of this snapshot, and return its path. name: unique to this rollback."""
    path = table.layout.within(f"tag/tag-{PREFIX}{which.snapshot.id}-{name}")
    table.file_io.create_if_absent(path, which.snapshot.to_json())
    return path


def unpin(file_io: FileIO, paths: Sequence[str]) -> None:
    """Take back tags that this very rollback has created, because it was not done.

    Durably: what they kept may go from now on, and no power failure is to bring them back without it.
    """
    for path in paths:
        file_io.delete(path)
    for folder in {path.rpartition("/")[0] for path in paths}:
        file_io.sync_dir(folder)


def _deleting(table: Table, names: Collection[str]) -> Iterator[tuple[Snapshot, set[str]]]:
    """Yield each retained snapshot that deletes data files of these names, with the names of those, oldest first."""
    for number in table.snapshots.ids():
        snapshot = table.snapshots.load(number)
        if snapshot is None or snapshot.commit_kind in (APPEND, ANALYZE):
            continue
        left = {
            entry.file.file_name
            for meta in table.manifests.delta_of(snapshot)
            if meta.num_deleted_files
            for entry in table.manifests.read(meta.file_name)
            if entry.kind is FileKind.DELETE and entry.file.file_name in names
        }
        if left:
            yield snapshot, left


def _live(table: Table, snapshot: Snapshot) -> set[str]:
    return {identity[3] for identity in table.manifests.identities_of(table.manifests.all_of(snapshot))}
