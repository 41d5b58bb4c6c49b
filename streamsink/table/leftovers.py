"""What tries of a commit left behind when their process died: manifest lists, merged manifests, a temporary snapshot."""

import os
from collections.abc import Callable

from streamsink.format.snapshot import Snapshot
from streamsink.table.table import Table


def sweep(table: Table, commit_name: str, is_before: Callable[[Snapshot], bool]) -> list[str]:
    """Delete the files of tries of a *published* commit that did not publish it; their paths. Idempotent.

    commit_name: what the names of all its tries begin with, whoever made them. Only after it is published: until then a
    paused writer might still publish its try. is_before: whether a snapshot is certainly older than the commit: when there is
    one and none of this name after it, the commit was published together with others, under another name.
    """
    certain, published = _published(table, commit_name, is_before)
    removed = []
    for folder in (table.layout.manifest_dir, table.layout.snapshot_dir):
        names = [e.name for e in table.file_io.entries(folder) if _is_leftover(e.name, commit_name, certain, published)]
        removed += _delete(table, folder, names)
    # Whoever published may have died before the snapshot's name was durable.
    table.file_io.sync_dir(table.layout.snapshot_dir)
    return removed


def sweep_creations(table: Table) -> list[str]:
    """Delete temporary schema files of creations and evolutions that died; their paths. Idempotent.

    A creation that is under way at this moment finds its file gone, and tries again.
    """
    folder = table.layout.schema_dir
    names = [e.name for e in table.file_io.entries(folder) if e.name.startswith(".") and e.name.endswith(".tmp")]
    return _delete(table, folder, names)


def _delete(table: Table, folder: str, names: list[str]) -> list[str]:
    """Durably: nobody looks for these names again once the record is marked, so a power failure must not bring them back."""
    paths = [os.path.join(folder, name) for name in names]
    for path in paths:
        table.file_io.delete(path)
    if paths:
        table.file_io.sync_dir(folder)
    return paths


def _is_leftover(name: str, commit_name: str, certain: bool, published: Snapshot | None) -> bool:
    if commit_name not in name:
        return False
    if name.endswith(".tmp"):
        return True  # it is published, so no temporary snapshot is needed any more
    if published is None:
        return certain
    publishing = _try_of(published, commit_name)
    # The delta's list may be an earlier try's: it is the same in every one.
    return name != published.delta_manifest_list and not name.startswith(
        (f"manifest-list-{publishing}-", f"manifest-{publishing}-", f"index-manifest-{publishing}")
    )


def _try_of(snapshot: Snapshot, commit_name: str) -> str:
    """Name of the try that published: each writes a base list of its own."""
    _, found, rest = snapshot.base_manifest_list.partition(commit_name)
    return (found + rest).rsplit("-", 1)[0]


def _published(table: Table, commit_name: str, is_before: Callable[[Snapshot], bool]) -> tuple[bool, Snapshot | None]:
    """Whether it is certain, and the snapshot of this name that published the commit; None when there is no such one, or it has expired."""
    snapshot = table.snapshots.latest()
    for before in range(snapshot.id - 1 if snapshot else -1, -1, -1):
        if commit_name in snapshot.base_manifest_list:
            return True, snapshot
        if before == 0 or is_before(snapshot):
            return True, None
        snapshot = table.snapshots.load(before)
        if snapshot is None:
            return False, None
    return False, None
