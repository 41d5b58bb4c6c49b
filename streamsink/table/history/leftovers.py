"""Finds and deletes what tries of a commit left when their process died.

These are manifest lists, merged manifests, and a temporary snapshot.
"""

import bisect
import functools
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from streamsink.format.snapshot import Snapshot
from streamsink.storage.reading import Questions
from streamsink.table.history.deletion import Look, delete, is_of_a_try
from streamsink.table.table import Table

# The form of a commit's name, which is the id of its record.
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# How the names of a try's files begin; the commit's name follows.
_BEGINNINGS = ("manifest-list-", "manifest-", "index-manifest-")
#: Maps the name of a commit to the paths of the files that its tries made.
Found = Mapping[str, Sequence[str]]


def look(table: Table, commit_names: Iterable[str]) -> Found:
    """The files of all tries of these commits, found by one listing of each folder.

    commit_names: UUIDs. The names of all tries of a commit contain its UUID, whoever made them.
    """
    wanted, found = set(commit_names), defaultdict(list)
    folders = (table.layout.manifest_dir, table.layout.snapshot_dir) if wanted else ()
    with table.file_io.asking(Questions(names=folders)):
        listed = [(folder, table.file_io.names(folder)) for folder in folders]
    for folder, names in listed:
        for commit_name, name in itertools.chain(_final(names, wanted), _temporary(names, wanted)):
            if is_of_a_try(name):
                found[commit_name].append(os.path.join(folder, name))
    return found


def _final(names: Sequence[str], wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name of the commit, name of the file) of the files whose names begin as those of a try do."""
    for commit_name, beginning in itertools.product(wanted, _BEGINNINGS):
        for name in _beginning_with(f"{beginning}{commit_name}-", names):
            yield commit_name, name


def _temporary(names: Sequence[str], wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """(name of the commit, name of the file) of temporary files that contain a commit's name at any place."""
    for name in _beginning_with(".", names):
        for commit_name in set(_ID.findall(name)).intersection(wanted):
            yield commit_name, name


def _beginning_with(text: str, names: Sequence[str]) -> Sequence[str]:
    """The names that begin with ``text``. ``names`` are sorted and may be many, so they are searched by halving."""
    behind = text[:-1] + chr(ord(text[-1]) + 1)
    return names[bisect.bisect_left(names, text) : bisect.bisect_left(names, behind)]


def sweep(table: Table, commits: Mapping[str, Callable[[Snapshot], bool]], found: Found) -> list[str]:
    """Delete files of tries that did not become the snapshot of their *published* commit, if nothing names them.

    Returns the paths of the deleted files. Idempotent. This must only be called for commits that are published: until
    then a paused writer might still publish its try.

    commits: maps the name of each commit to a function that says whether a snapshot is certainly older than the commit.
    If there is such a snapshot and none of the commit's name after it, the commit was published together with others,
    under another name. found: what ``look`` returned, for these commits at least.
    """
    load = functools.cache(table.snapshots.load)
    removed, newest = [], None
    if any(found.get(commit_name) for commit_name in commits):
        with table.file_io.asking(table.snapshots.questions()):
            newest = table.snapshots.latest()
    for commit_name, is_before in commits.items():
        if found.get(commit_name):
            certain, published = _published(newest, load, commit_name, is_before)
            removed += [
                path
                for path in found[commit_name]
                if _is_leftover(os.path.basename(path), commit_name, certain, published)
            ]
    # The deletion is durable, because nobody looks for these files again once the record is marked.
    return delete(table, removed, Look.ALL)


def sweep_creations(table: Table) -> list[str]:
    """Delete temporary schema files of processes that died while they created or evolved the table. Idempotent.

    Returns the paths of the deleted files. A creation that is running at this moment finds its file gone and tries
    again.
    """
    folder, io = table.layout.schema_dir, table.file_io
    # A distant store has listed it when the table was opened: what came since is not of the dead.
    paths = [
        os.path.join(folder, n) for n in (table.schemas.hidden if io.is_distant else io.names(folder)) if _is_hidden(n)
    ]
    return delete(table, [path for path in paths if not io.is_own(path)], Look.ALL)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _is_leftover(name: str, commit_name: str, certain: bool, published: Snapshot | None) -> bool:
    if name.endswith(".tmp"):
        return True  # the commit is published, so no temporary snapshot is needed any more
    if published is None:
        return certain
    publishing = _try_of(published, commit_name)
    # The list of the delta may be from an earlier try, because all tries have the same one.
    return name not in (published.delta_manifest_list, f"index-manifest-{publishing}") and not name.startswith(
        (f"manifest-list-{publishing}-", f"manifest-{publishing}-")
    )


def _try_of(snapshot: Snapshot, commit_name: str) -> str:
    """Name of the try that published the snapshot. Its base list tells, because each try writes one of its own."""
    _, found, rest = snapshot.base_manifest_list.partition(commit_name)
    return (found + rest).rsplit("-", 1)[0]


def _published(
    newest: Snapshot | None,
    load: Callable[[int], Snapshot | None],
    commit_name: str,
    is_before: Callable[[Snapshot], bool],
) -> tuple[bool, Snapshot | None]:
    """(whether the answer is certain, the snapshot of this name that published the commit).

    The snapshot is None when there is none of this name, or when it has expired.
    """
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
