"""What tries of a commit left behind when their process died: manifest lists, merged manifests, a temporary snapshot."""

import bisect
import functools
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from streamsink.format.snapshot import Snapshot
from streamsink.table.history.deletion import Look, delete
from streamsink.table.table import Table

# The form of a commit's name: the id of its record.
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# How the files of a try begin, before the commit's name.
_BEGINNINGS = ("manifest-list-", "manifest-", "index-manifest-")
#: By commit name, the paths of files that its tries made.
Found = Mapping[str, Sequence[str]]


def look(table: Table, commit_names: Iterable[str]) -> Found:
    """The files of all tries of these commits, by one listing of each folder.

    commit_names: UUIDs, each of which the names of all tries of one commit carry, whoever made them.
    """
    wanted, found = set(commit_names), defaultdict(list)
    for folder in (table.layout.manifest_dir, table.layout.snapshot_dir) if wanted else ():
        names = table.file_io.names(folder)
        for commit_name, name in itertools.chain(_final(names, wanted), _temporary(names, wanted)):
            found[commit_name].append(os.path.join(folder, name))
    return found


def _final(names: Sequence[str], wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(commit's name, file) of the files that begin as those of a try do."""
    for commit_name, beginning in itertools.product(wanted, _BEGINNINGS):
        for name in _beginning_with(f"{beginning}{commit_name}-", names):
            yield commit_name, name


def _temporary(names: Sequence[str], wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """(commit's name, file) of temporary files, wherever in their names it stands."""
    for name in _beginning_with(".", names):
        for commit_name in set(_ID.findall(name)).intersection(wanted):
            yield commit_name, name


def _beginning_with(text: str, names: Sequence[str]) -> Sequence[str]:
    """Found by halving: ``names`` are in order, and a folder may have very many."""
    behind = text[:-1] + chr(ord(text[-1]) + 1)
    return names[bisect.bisect_left(names, text) : bisect.bisect_left(names, behind)]


def sweep(table: Table, commits: Mapping[str, Callable[[Snapshot], bool]], found: Found) -> list[str]:
    """Delete the files of tries of *published* commits that did not publish them, and that nothing names; their paths. Idempotent.

    commits: their names; and of each, whether a snapshot is certainly older than it: when there is one and none of this name
    after it, the commit was published together with others, under another name. Only after they are published: until then a
    paused writer might still publish its try. found: what ``look`` saw, for these commits at least.
    """
    load = functools.cache(table.snapshots.load)
    removed = []
    for commit_name, is_before in commits.items():
        if found.get(commit_name):
            certain, published = _published(table.snapshots.latest(), load, commit_name, is_before)
            removed += [
                path
                for path in found[commit_name]
                if _is_leftover(os.path.basename(path), commit_name, certain, published)
            ]
    return delete(table, removed, Look.ALL)  # durably: nobody looks for them again once the record is marked


def sweep_creations(table: Table) -> list[str]:
    """Delete temporary schema files of creations and evolutions that died; their paths. Idempotent.

    A creation that is under way at this moment finds its file gone, and tries again.
    """
    folder = table.layout.schema_dir
    paths = [os.path.join(folder, n) for n in table.file_io.names(folder) if n.startswith(".") and n.endswith(".tmp")]
    return delete(table, paths, Look.ALL)


def _is_leftover(name: str, commit_name: str, certain: bool, published: Snapshot | None) -> bool:
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


def _published(
    newest: Snapshot | None,
    load: Callable[[int], Snapshot | None],
    commit_name: str,
    is_before: Callable[[Snapshot], bool],
) -> tuple[bool, Snapshot | None]:
    """Whether it is certain, and the snapshot of this name that published the commit; None when there is no such one, or it has expired."""
    if newest is None:
        return False, None
    snapshot = newest
    for before in range(newest.id - 1, -1, -1):
        if commit_name in snapshot.base_manifest_list:
            return True, snapshot
        if before == 0 or is_before(snapshot):
            return True, None
        older = load(before)
        if older is None:
            return False, None
        snapshot = older
    return False, None
