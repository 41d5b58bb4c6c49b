"""What is retained of a table, and so keeps files: snapshots, long-lived changelogs and tags, of the main branch and of
all others. Consumers keep snapshots.

This is the one place that knows where these lie. Whoever deletes files of a table asks here what must stay.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from streamsink import shell
from streamsink.errors import Corrupt, Misuse
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.layout import Layout

if TYPE_CHECKING:  # executors import what imports this, and do not need the table
    from streamsink.table.table import Table

_BRANCH, _TAG, _CONSUMER = "branch-", "tag-", "consumer-"


class Kind(Enum):
    """What kind of thing is retained: a snapshot, a changelog that outlives its snapshot, or a tag."""

    SNAPSHOT = "snapshot"
    CHANGELOG = "changelog"
    TAG = "tag"


@dataclass(frozen=True)
class Root:
    """One thing that is retained, with all that its snapshot names.

    branch: the branch that it is in, '' for the main one. path: of its file. name: of the tag, else of the file.
    """

    kind: Kind
    branch: str
    path: str
    name: str
    snapshot: Snapshot

    def __str__(self) -> str:
        what = f"{self.kind.value} {self.name if self.kind is Kind.TAG else self.snapshot.id}"
        return f"{what} of branch {self.branch}" if self.branch else what


@dataclass(frozen=True)
class Consumer:
    """A reader that says up to where it has read. next_snapshot: the first one that it needs."""

    name: str
    path: str
    next_snapshot: int


def roots(table: "Table", first: int = 0, *, but: Callable[[int], bool] = lambda number: False) -> Iterator[Root]:
    """All that is retained whose snapshot has this number or a higher one, and all that other branches retain. What is
    deleted meanwhile may be left out.

    but: says of a number that the snapshot of this table, or branch, is not wanted; it is not read then. Raises
    Corrupt, naming the file, where one cannot be read.
    """
    for branch, root in branches(table):
        # Another branch counts for itself: what it takes over gets a number of its own, which may be a lower one.
        least = first if branch == table.layout.branch else 0
        for kind in (Kind.SNAPSHOT, Kind.CHANGELOG):
            folder = os.path.join(root, kind.value)
            for name in table.file_io.names(folder):
                begins, _, number = name.partition("-")
                is_one = begins == kind.value and number.isdigit() and int(number) >= least
                if is_one and (branch != table.layout.branch or kind is not Kind.SNAPSHOT or not but(int(number))):
                    path = os.path.join(folder, name)
                    yield from (Root(kind, branch, path, name, found) for found in _read(table.file_io, path))
        yield from (tag for tag in _tags_below(table.file_io, branch, root) if tag.snapshot.id >= least)


def tags(table: "Table") -> list[Root]:
    """The tags of the main branch, by the number of their snapshots. Raises as ``roots``."""
    return sorted(_tags_below(table.file_io, "", table.root), key=lambda tag: (tag.snapshot.id, tag.name))


def branches(table: "Table") -> list[tuple[str, str]]:
    """(name, path) of each branch, the main one first, which has the name '' and the path of the table itself."""
    folder = table.layout.within("branch")
    names = [name for name in table.file_io.names(folder) if name.startswith(_BRANCH)]
    return [
        ("", table.layout.main),
        *((name.removeprefix(_BRANCH), os.path.join(folder, name)) for name in sorted(names)),
    ]


def consumers(table: "Table") -> list[Consumer]:
    """The consumers of the main branch. Raises Corrupt, naming the file, where one cannot be read."""
    folder, found = table.layout.within("consumer"), []
    for name in table.file_io.names(folder):
        if name.startswith(_CONSUMER):
            path = os.path.join(folder, name)
            try:
                data = table.file_io.read(path)
            except FileNotFoundError:
                continue
            found.append(Consumer(name.removeprefix(_CONSUMER), path, _next_snapshot(data, path)))
    return found


def tag_path(root: str, name: str) -> str:
    """Path of the tag of this name. root: of the table, or of a branch."""
    return os.path.join(root, "tag", f"{_TAG}{name}")


def _tags_below(file_io: FileIO, branch: str, root: str) -> Iterator[Root]:
    folder = os.path.join(root, "tag")
    names = [entry.name for entry in file_io.entries(folder) if not entry.is_dir and entry.name.startswith(_TAG)]
    for name in names:
        path = os.path.join(folder, name)
        yield from (Root(Kind.TAG, branch, path, name.removeprefix(_TAG), found) for found in _read(file_io, path))


def _read(file_io: FileIO, path: str) -> list[Snapshot]:
    """The snapshot in this file, as a list; an empty list when the file is gone."""
    try:
        return [Snapshot.from_json(file_io.read(path), path)]
    except FileNotFoundError:
        return []


def _next_snapshot(data: bytes, path: str) -> int:
    try:
        return int(json.loads(data)["nextSnapshot"])
    except (ValueError, KeyError, TypeError) as broken:
        raise Corrupt(
            f"{path}: the file of a consumer cannot be read, so which snapshots it needs is not known. Nothing was "
            "deleted. Let its reader write it again, or delete the file when that reader is no more "
            f"{shell.discard(path)}",
            kind="consumer.corrupt",
        ) from broken


def check_main(root: str, name: str) -> None:
    """Raises Misuse for a branch: all branches have their files in common, so care is taken of them from the main one.

    root: the path that was given. name: of what was called, or of the option.
    """
    at = Layout(root)
    if at.branch:
        raise Misuse(
            f"{root}: {name} was given branch '{at.branch}', expected the table itself. Nothing was changed. Call it "
            f"for {at.main}: what its branches need stays",
            kind="branch.given",
        )
