"""How files go that nothing names any more: a list that is durable before the first of them goes.

1. The list is written: the *heads* that go (snapshots, or a tag), and the files that then nothing is to name.
2. The heads go, the oldest first, durably. From here on no reader, tag or rollback can begin with one of them.
3. All that is retained is read once more, and what it names is taken off the list: a tag may have been made meanwhile.
4. Data files go, then folders in which nothing is left, where the table asks for it, then manifests, lists and index
   files.
5. EARLIEST moves, and the list itself is deleted.

A death at any place leaves every snapshot and tag that is there whole, and a list; who comes next finishes it. Paimon
deletes the data files first and has no list: a death there leaves snapshots that cannot be read, and since their
changes name what is to go, the next run can finish. Here the list names it.
"""

import base64
import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.events import log
from streamsink.format.snapshot import Snapshot
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.table.care.empty_folders import delete_empty_folders
from streamsink.table.care.named import DataFile, Named, added_between, metadata_of
from streamsink.table.history.retained import Root, roots
from streamsink.table.table import Table

# A list has such a name, in the folder of the journals, which Paimon never lists.
_BEGINS = "removal-"
# What a list may name, relative to the table. Anything else is not deleted, whoever has written the list.
_DATA = re.compile(r"(?:[^/]+=[^/]*/)*bucket-[^/]+/[^/]+")
_METADATA = re.compile(r"(?:manifest|index|statistics)/[^/]+")
_SNAPSHOT, _TAG = re.compile(r"snapshot/snapshot-([0-9]+)"), re.compile(r"tag/tag-[^/]+")


@dataclass(frozen=True)
class Needed:
    """What others than the table's own files need.

    since: no snapshot with this number or a higher one may go; None where all may. why: who needs it, for people.
    files: names of data files and manifests that stay, because a pending record names them. folders: of those data
    files, relative to some place above them; each is to take them. attempts: ids of records that are being made; files
    whose names contain one stay.
    """

    since: int | None = None
    why: str = ""
    files: frozenset[str] = frozenset()
    attempts: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()

    def with_other(self, other: "Needed") -> "Needed":
        """Both: the smaller number counts."""
        is_first = other.since is None or self.since is not None and self.since <= other.since
        return replace(
            self if is_first else other,
            files=self.files | other.files,
            attempts=self.attempts | other.attempts,
            folders=self.folders | other.folders,
        )


# (): what is needed now. It is asked as late as can be, and more than once.
Needing = Callable[[], Needed]


@dataclass(frozen=True)
class Head:
    """A snapshot or a tag that goes. path: relative to the table. base_list: no other snapshot has a list of this name.

    number: of a snapshot; None for a tag, which no number protects. content: of a snapshot's file, packed, to put
    it back.
    """

    path: str
    base_list: str
    number: int | None
    content: str = ""


@dataclass(frozen=True)
class Removal:
    """What is to go. end: the first snapshot that stays, as (number, name of its base list); None where that is no
    matter. data: files that nothing names when the heads are gone. metadata: the same, paths relative to the table.
    """

    heads: tuple[Head, ...]
    end: tuple[int, str] | None
    data: tuple[DataFile, ...]
    metadata: tuple[str, ...]

    def to_json(self) -> bytes:
        """The list's bytes, with a checksum: what a crash has torn deletes nothing."""
        body = {
            "heads": [[head.path, head.base_list, head.number, head.content] for head in self.heads],
            "end": self.end,
            "data": [[f.name, base64.b64encode(f.partition).decode(), list(f.paths)] for f in self.data],
            "metadata": list(self.metadata),
        }
        text = json.dumps(body)
        return json.dumps({"version": 1, "crc32": zlib.crc32(text.encode()), "body": text}).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "Removal":
        """The inverse of ``to_json``. Raises Corrupt."""
        try:
            whole = json.loads(data)
            if whole["version"] != 1 or zlib.crc32(whole["body"].encode()) != whole["crc32"]:
                raise ValueError("another version, or the checksum differs")
            body: dict[str, Any] = json.loads(whole["body"])
            found = cls(
                tuple(Head(*head) for head in body["heads"]),
                tuple(body["end"]) if body["end"] is not None else None,
                tuple(DataFile(name, base64.b64decode(part), tuple(paths)) for name, part, paths in body["data"]),
                tuple(body["metadata"]),
            )
            found._check()
            return found
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise Corrupt(
                f"{path}: the list of what an expiry was deleting cannot be read. Nothing was deleted. Remove this "
                f"file {shell.discard(path)}: what it named stays, and orphan cleaning finds it",
                kind="removal.corrupt",
            ) from broken

    def _check(self) -> None:
        """Raises ValueError for a path that no list of this table has, and for a snapshot that no number protects."""
        odd = [path for file in self.data for path in file.paths if not _DATA.fullmatch(path)]
        odd += [file.name for file in self.data if [os.path.basename(path) for path in file.paths[:1]] != [file.name]]
        odd += [path for path in self.metadata if not _METADATA.fullmatch(path)]
        for head in self.heads:
            number = _SNAPSHOT.fullmatch(head.path)
            is_before = self.end is not None and head.number is not None and head.number < self.end[0]
            is_one = is_before and number is not None and int(number[1]) == head.number
            odd += [] if is_one or head.number is None and _TAG.fullmatch(head.path) else [head.path]
        if odd:
            raise ValueError(f"no list names such a file: {odd[0]}")


@dataclass(frozen=True)
class Removed:
    """What went: the numbers of snapshots, and how many data files and others."""

    snapshots: tuple[int, ...] = ()
    data_files: int = 0
    other_files: int = 0

    def and_other(self, other: "Removed") -> "Removed":
        """Both together."""
        data_files, other_files = self.data_files + other.data_files, self.other_files + other.other_files
        return Removed(self.snapshots + other.snapshots, data_files, other_files)


def remove(table: Table, removal: Removal, needing: Needing) -> Removed:
    """Carry the removal out, from the list on.

    A tag with which nothing else goes needs no list, and one would outlive it: the same tag may be made again.
    """
    if not (removal.data or removal.metadata) and all(head.number is None for head in removal.heads):
        _Heads(table, removal, needing()).delete()
        return Removed()
    path = os.path.join(_folder(table), f"{_BEGINS}{IdSource().new_id()}.json")
    table.file_io.create_if_absent(path, removal.to_json())
    return _carry_out(table, removal, path, needing)


def finish(table: Table, needing: Needing) -> Removed:
    """Carry out what dead processes have left, or others are about to do at this moment. Idempotent. Raises Corrupt."""
    done = Removed()
    for path in unfinished(table):
        try:
            removal = Removal.from_json(table.file_io.read(path), path)
        except FileNotFoundError:
            continue
        done = done.and_other(_carry_out(table, removal, path, needing))
    return done


def unfinished(table: Table) -> list[str]:
    """Paths of the lists that are there. An application may have such a name too, and its journal is a folder."""
    folder = _folder(table)
    there = [entry.name for entry in table.file_io.entries(folder) if not entry.is_dir]
    return [os.path.join(folder, name) for name in there if name.startswith(_BEGINS)]


def _folder(table: Table) -> str:
    return table.layout.within(JOURNAL_DIR)


def _carry_out(table: Table, removal: Removal, path: str, needing: Needing) -> Removed:
    gone = _Heads(table, removal, needing()).delete()
    if not _has_snapshots(table, removal):
        return Removed(gone)
    needed = needing()
    data, metadata = unnamed(table, removal, protecting(table, removal.end), needed.files)
    paths = [table.layout.within(each) for file in data for each in file.paths]
    table.file_io.delete_all(paths)
    delete_empty_folders(table, map(os.path.dirname, paths), needed.folders)
    table.file_io.delete_all([table.layout.within(name) for name in metadata])
    if any(head.number is not None for head in removal.heads):
        _move_earliest(table)
    table.file_io.delete(path)
    return Removed(gone, len(data), len(metadata))


def _has_snapshots(table: Table, removal: Removal) -> bool:
    """Whether the table has snapshots, or is none any more.

    Where it has none although lists of heads are there, it went back to a head at the moment at which that was deleted,
    and whoever did so has died: the head is put back, by the hint.
    """
    io, layout = table.file_io, table.layout
    heads = {head.number: head for head in removal.heads if head.number is not None}
    if not heads or table.snapshots.ids():
        return True
    left = {number: head for number, head in heads.items() if io.exists(layout.manifest(head.base_list))}
    if not left:
        return True
    try:
        hint = io.read(layout.latest_hint).decode().strip()
    except FileNotFoundError:
        hint = ""
    head = left.get(int(hint)) if hint.isdecimal() else None
    if head is None or not head.content:
        log.warning(
            "%s: there is no snapshot, so nothing that is to go is deleted. A rollback may have gone back to one that "
            "was just expiring: restore it from a backup",
            table.root,
        )
        return False
    io.create_if_absent(layout.within(head.path), zlib.decompress(base64.b64decode(head.content)), IdSource().new_id())
    log.warning("%s: snapshot %d is put back, since the table went back to it when it expired", table.root, head.number)
    return True


class _Heads:
    """Deletes the heads of a removal, as long as nobody has come to need them and the table has not gone back."""

    def __init__(self, table: Table, removal: Removal, needed: Needed):
        self._table = table
        self._removal = removal
        self._needed = needed
        newest = table.snapshots.latest()
        # A rollback deletes the newest snapshot first, so it is noticed by that one.
        self._newest = None if newest is None else (newest.id, newest.base_manifest_list)

    def delete(self) -> tuple[int, ...]:
        """Returns the numbers of those that are gone.

        A rollback may begin between a look and the deletion that follows. All that it may have gone back to is put back
        then, before a file of it is deleted.
        """
        io, gone = self._table.file_io, list[tuple[Head, bytes]]()
        for head in self._removal.heads:
            if not self._may_go(head):
                break
            data = self._bytes(head)
            if data is not None:
                io.delete(self._table.layout.within(head.path))
                gone.append((head, data))
        if any(head.number is not None for head, _ in gone) and self._went_back():
            self._put_back(gone)
            gone = []
        for folder in sorted({os.path.dirname(self._table.layout.within(head.path)) for head in self._removal.heads}):
            io.sync_dir(folder)  # a power failure brings none of them back without its files
        return tuple(head.number for head, _ in gone if head.number is not None)

    def _may_go(self, head: Head) -> bool:
        if head.number is None:
            return True
        is_needed = self._needed.since is not None and head.number >= self._needed.since
        return not is_needed and is_there(self._table, self._removal.end) and not self._went_back()

    def _went_back(self) -> bool:
        """Whether the snapshot that was the newest one is not there, although it cannot have expired."""
        if self._newest is None or self._removal.end is None or is_there(self._table, self._newest):
            return False
        ids = self._table.snapshots.ids()
        return self._newest[0] in ids or not ids or ids[-1] < self._newest[0]

    def _put_back(self, gone: Sequence[tuple[Head, bytes]]) -> None:
        """Except those whose lists somebody else has deleted."""
        io, layout = self._table.file_io, self._table.layout
        for head, data in gone:
            snapshot = Snapshot.from_json(data, head.path)
            lists = map(layout.manifest, (snapshot.base_manifest_list, snapshot.delta_manifest_list))
            if all(io.exists(path) for path in lists):
                io.create_if_absent(layout.within(head.path), data, IdSource().new_id())

    def _bytes(self, head: Head) -> bytes | None:
        """The head's bytes; None where it is gone, or another one has got its name meanwhile."""
        path = self._table.layout.within(head.path)
        try:
            data = self._table.file_io.read(path)
        except FileNotFoundError:
            return None
        return data if Snapshot.from_json(data, path).base_manifest_list == head.base_list else None


def is_there(table: Table, end: tuple[int, str] | None) -> bool:
    """Whether the first snapshot that stays is there, the very one. It is not when the table went back, or history has
    expired beyond it.
    """
    if end is None:
        return True
    found = table.snapshots.load(end[0])
    return found is not None and found.base_manifest_list == end[1]


@dataclass(frozen=True)
class Staying:
    """What stays: roots that are asked what they name, and names of data files and metadata that others name."""

    roots: tuple[Root, ...]
    names: frozenset[str] = frozenset()


def unnamed(
    table: Table, removal: Removal, staying: Staying, needed: frozenset[str]
) -> tuple[list[DataFile], list[str]]:
    """What of the list nothing of ``staying`` names. Raises Corrupt where that cannot be told.

    needed: names of further files that stay.
    """
    search, named = Named(table, removal.data), set(needed | staying.names)
    for root in staying.roots:
        try:
            named |= search.live_in(root)
            named |= metadata_of(table, root) if removal.metadata else set()
        except Corrupt:
            if table.file_io.exists(root.path):
                raise
            continue  # somebody else has let it expire meanwhile
    return (
        [file for file in removal.data if file.name not in named],
        [name for name in removal.metadata if name not in named and os.path.basename(name) not in named],
    )


def protecting(table: Table, end: tuple[int, str] | None, without: Collection[str] = ()) -> Staying:
    """What stays, as of now, and may name something of a list. without: paths of heads that are about to go.

    Snapshots behind the first one that stays descend from it: of those before the newest one only what they have added
    is asked. Where it is not there any more, all that is retained is asked in full. Raises Corrupt.
    """
    newest, between = table.snapshots.latest(), None
    if end is not None and newest is not None and is_there(table, end):
        between = added_between(table, end[0], newest)
    if end is None or newest is None or between is None:
        found, between = list(roots(table)), set()
    else:
        found = list(roots(table, but=lambda number: end[0] < number < newest.id))
    return Staying(tuple(root for root in found if root.path not in without), frozenset(between))


def _move_earliest(table: Table) -> None:
    ids = table.snapshots.ids()
    if ids and table.snapshots.earliest() != ids[0]:
        table.file_io.replace(table.layout.earliest_hint, str(ids[0]).encode(), IdSource().new_id())


def head_of(table: Table, snapshot: Snapshot) -> Head:
    """The snapshot as something that goes."""
    path = table.layout.relative(table.layout.snapshot(snapshot.id))
    return Head(path, snapshot.base_manifest_list, snapshot.id, _packed(snapshot.to_json()))


def _packed(data: bytes) -> str:
    """States of applications may be large, and a list has many snapshots."""
    return base64.b64encode(zlib.compress(data, 1)).decode()
