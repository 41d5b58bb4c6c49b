"""The only code that deletes files of a table. It keeps what a retained snapshot, tag, changelog or branch names.

Name and place of a file tell whether it may be deleted at all. These may be:

- lists and manifests that a try of a commit made (``table/commit/table_commit.py``), if nothing retained names them;
- hidden temporary files, which nothing can name;
- files of a checkpoint that is still being written and has no record (where they have their final names: if
  what is retained names none of them);
- new files of a compaction that cannot be committed any more, if nothing retained names them;
- a snapshot of ours that came too late, if nothing is built on it;
- the hint LATEST where there is no snapshot.

A record names data files and manifests whose names contain ids of their own. Such names are none of the others, so
nothing here deletes these files. Staging folders of other checkpoints and the journal's own files are deleted by the
journal (``journal/file_journal.py``).
"""

import errno
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from streamsink.errors import Corrupt, StreamsinkError
from streamsink.events import log
from streamsink.format.snapshot import Snapshot
from streamsink.journal.announced import Left
from streamsink.storage.file_io import FileIO
from streamsink.table.history.retained import roots

if TYPE_CHECKING:  # executors import this module to delete what they staged, and do not need the table
    from streamsink.table.table import Table

# Names that only tries of commits give. The name of a checkpoint's own manifest ends in a bare number and never
# matches.
_OF_TRIES = re.compile(r"manifest-list-.+|manifest-.+-(?:d|m[0-9]+)|index-manifest-.+")
_LISTED = re.compile(r"manifest-(?!list-).+")  # these are named in a list, not in the snapshot itself
_HIDDEN = re.compile(r"\..+\.tmp")
_TRY = re.compile(r"-s([0-9]+)-[0-9]+")


class Look(Enum):
    """Where to look for names of a file before it is deleted.

    SINCE_TRY: in the snapshots from the try's own number on. This is enough for a try of this process, because nobody
    else can know more of it. ALL: in tags, long-lived changelogs and branches too. This is for tries of other
    processes, which may be long ago.
    """

    SINCE_TRY = "since-try"
    ALL = "all"


def try_name(commit_name: str, number: int, attempt: int) -> str:
    """Name of one try to publish snapshot ``number``. It is contained in the names of all files that the try writes.

    By the number in it, it is known that no snapshot before that one can name these files.
    """
    return f"{commit_name}-s{number}-{attempt}"


def is_of_a_try(name: str) -> bool:
    """Whether a file of this name may be one that ``delete`` deletes: a record's own manifest is none."""
    return bool(_HIDDEN.fullmatch(name) or _OF_TRIES.fullmatch(name))


def delete(table: "Table", paths: Sequence[str], look: Look, *, durable: bool = True) -> list[str]:
    """Delete those of the files that tries of commits made and that nothing names, and return their paths. Idempotent.

    durable: a power failure does not bring them back. If something that is retained cannot be read, no file is deleted
    that it might name.
    """
    hidden = {path for path in paths if _HIDDEN.fullmatch(os.path.basename(path))}
    made = [path for path in paths if path not in hidden and _OF_TRIES.fullmatch(os.path.basename(path))]
    gone = hidden | _unnamed(table, made, look)
    for path in gone:
        table.file_io.delete(path)
    for folder in sorted({os.path.dirname(path) for path in gone}) if durable else ():
        table.file_io.sync_dir(folder)
    return [path for path in paths if path in gone]


def delete_late_snapshot(table: "Table", snapshot: Snapshot) -> None:
    """Take back a snapshot of ours on which, as ``late.py`` has found, nothing is built.

    A copy of it in a tag is another file and stays.
    """
    if table.snapshots.load(snapshot.id) == snapshot:
        table.file_io.delete(table.layout.snapshot(snapshot.id))
        table.file_io.sync_dir(table.layout.snapshot_dir)


def delete_hint(table: "Table") -> None:
    """Delete LATEST of a table without snapshots, since Java's readers fail on it.

    If a snapshot is published meanwhile, readers find it without the hint.
    """
    table.file_io.delete(table.layout.latest_hint)


def delete_temporary(table: "Table", name: str) -> None:
    """Delete what a failed call has left in the snapshot folder. name: of the try, which such a file carries."""
    left = [file for file in table.file_io.names(table.layout.snapshot_dir) if f".{name}." in file]
    delete(table, [os.path.join(table.layout.snapshot_dir, file) for file in left], Look.SINCE_TRY)
    table.file_io.sync_dir(table.layout.snapshot_dir)


def delete_staged(file_io: FileIO, paths: Sequence[str]) -> None:
    """Delete files that this writer staged, of a checkpoint that has no record. Executor and driver.

    An error of the store is logged, so that it does not hide the one that has ended the writing. What stays is swept
    with the staging folder.
    """
    try:
        for path in paths:
            file_io.delete(path)
    except (OSError, StreamsinkError) as failed:
        log.warning("a staged file could not be deleted, and stays until its folder is swept: %s", failed)


def delete_staged_folder(file_io: FileIO, folder: str) -> None:
    """Delete a folder inside the staging folder of a checkpoint that is still being written."""
    file_io.delete_tree(folder)


def delete_unrecorded(
    file_io: FileIO, open_at: "Callable[[str], Table | None]", left: Sequence[Left]
) -> Sequence[str] | None:
    """Delete what an attempt without a record left under final names, unless something retained names one of them.

    The journal says which files these are. Where it was restored from an older copy it does not know every record, so
    the tables themselves are asked. A record names the files of all its tables: where one table has got its part, the
    others' parts stay too.

    open_at(root): the table at this path, None where there is none. left: all files of one attempt, by table. No
    snapshot up to ``since`` can name them. Idempotent. Returns the paths that were deleted; None when it cannot be told
    of one of the tables whether it names them, and then all of them stay.
    """
    left = [each for each in left if each.paths]
    for each in left:
        try:
            is_named = _is_named_at(file_io, open_at, each)
        except (StreamsinkError, OSError) as unreadable:
            log.warning(
                "%s: %d files of an attempt that got no record stay, because it cannot be told whether a snapshot "
                "names them: %s",
                each.root,
                len(each.paths),
                unreadable,
            )
            return None
        if is_named:
            log.warning(
                "%s: %d files stay of which the journal has no record, because the table has them: the journal is an "
                "older copy (first: %s)",
                each.root,
                len(each.paths),
                each.paths[0],
            )
            return ()
    paths = [path for each in left for path in each.paths]
    file_io.delete_all(paths)
    return paths


def _is_named_at(file_io: FileIO, open_at: "Callable[[str], Table | None]", left: Left) -> bool:
    """Whether something that is retained at this table's path names one of the files.

    Where there is no table, nothing can; but snapshots without a schema are a table that is damaged, or just being
    restored.
    """
    table = open_at(left.root)
    if table is not None:
        return _is_named(table, {os.path.basename(path) for path in left.paths}, left.since)
    if file_io.names(os.path.join(left.root, "snapshot")):
        raise OSError(errno.ENOENT, "there are snapshots and no schema", left.root)
    return False


def _unnamed(table: "Table", paths: Collection[str], look: Look) -> set[str]:
    """Paths of those of these files of the manifest folder that nothing names; none if that cannot be told."""
    if not paths:
        return set()
    wanted = {os.path.basename(path): path for path in paths}
    listed = any(_LISTED.fullmatch(name) for name in wanted)
    since = min(_number_of(name) for name in wanted)
    named = _named_since(table, since, listed) if look is Look.SINCE_TRY else _named_by_retained(table, since, listed)
    try:
        for name in named:
            wanted.pop(name, None)
    except Corrupt as unreadable:
        log.warning(
            "%s: %d files that dead tries of commits left stay, because what names them cannot be told: %s",
            table.root,
            len(wanted),
            unreadable,
        )
        return set()
    return set(wanted.values())


def _number_of(name: str) -> int:
    """Number of the snapshot that the try was to publish; 1 where the file's name has none, as in earlier versions."""
    found = _TRY.findall(name)
    return int(found[-1]) if found else 1


def _named_by(table: "Table", snapshot: Snapshot, listed: bool) -> Iterator[str]:
    """Names of files in the manifest folder that the snapshot names. listed: also those that its lists name."""
    lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
    yield from lists
    yield from (name for name in (snapshot.changelog_manifest_list, snapshot.index_manifest) if name)
    for name in lists if listed else ():
        try:
            yield from (meta.file_name for meta in table.manifests.list_of(name))
        except Corrupt as broken:
            if broken.kind != "manifest.missing":
                raise
            # The snapshot expired meanwhile, or a changelog keeps only one of its lists. What is gone names nothing.
            continue


def _named_since(table: "Table", first: int, listed: bool) -> Iterator[str]:
    """Names of files that snapshots from this number on name.

    A snapshot that is missing has expired, and the later ones themselves name the files that they need.
    """
    newest = table.snapshots.latest()
    if newest is None:
        return
    for snapshot_id in range(first, newest.id):
        snapshot = table.snapshots.load(snapshot_id)
        if snapshot is not None:
            yield from _named_by(table, snapshot, listed)
    yield from _named_by(table, newest, False)
    # ``all_of`` remembers what it reads, so that the next try, which builds on this snapshot, need not read it again.
    yield from (meta.file_name for meta in (table.manifests.all_of(newest) if listed else ()))


def _named_by_retained(table: "Table", first: int, listed: bool) -> Iterator[str]:
    return (name for root in roots(table, first) for name in _named_by(table, root.snapshot, listed))


def _is_named(table: "Table", names: Collection[str], since: tuple[int, str]) -> bool:
    """Whether a snapshot, changelog or tag of any branch behind this one names one of the files."""
    return any(
        manifest in names or any(entry.file.file_name in names for entry in table.manifests.read(manifest))
        for manifest in _manifests_since(table, since)
    )


def _manifests_since(table: "Table", since: tuple[int, str]) -> Iterator[str]:
    """Names of all manifests, each once, that a snapshot, changelog or tag of any branch behind this one names, and it
    does not.

    When the table went back, numbers come again, so all are searched unless this very snapshot is there still.
    """
    number, uuid = since
    before = table.snapshots.load(number) if number else None
    if before is None or not uuid or before.uuid != uuid:
        number, before = 0, None
    known = {meta.file_name for meta in table.manifests.all_of(before)}
    for root in roots(table, number + 1):
        for manifest in _manifests_of(table, root.snapshot):
            if manifest not in known:
                yield manifest
                known.add(manifest)


def _manifests_of(table: "Table", snapshot: Snapshot) -> Iterator[str]:
    """Names of the lists of a snapshot, which hold no files, and of the manifests in them."""
    for name in (snapshot.base_manifest_list, snapshot.delta_manifest_list):
        try:
            yield from (meta.file_name for meta in table.manifests.list_of(name))
        except Corrupt as broken:
            if broken.kind != "manifest.missing":
                raise
            continue  # the snapshot expired meanwhile, or a changelog keeps only one of its lists


def delete_of_compaction(table: "Table", paths: Sequence[str], since: tuple[int, str]) -> bool:
    """Delete those new files of a compaction that nothing retained names, when it cannot be committed any more.

    since: number and uuid of a snapshot; none up to it can name them. Idempotent. Returns False, and deletes nothing,
    where that cannot be told.
    """
    unnamed = {os.path.basename(path) for path in paths}
    try:
        for manifest in _manifests_since(table, since) if unnamed else ():
            unnamed -= {entry.file.file_name for entry in table.manifests.read(manifest)}
    except (Corrupt, OSError) as unreadable:
        log.warning(
            "%s: %d files of a compaction that has ended stay, because it cannot be told whether a snapshot names "
            "them: %s",
            table.root,
            len(paths),
            unreadable,
        )
        return False
    table.file_io.delete_all([path for path in paths if os.path.basename(path) in unnamed])
    return True
