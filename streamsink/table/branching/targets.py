"""Snapshots of the past that a user names: by number, by the name of a tag, or by a moment."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Misuse
from streamsink.format.snapshot import Snapshot
from streamsink.table.table import Table

# Milliseconds since 1970, an ISO text with a zone, or a time with a zone.
Moment = int | str | datetime.datetime


@dataclass(frozen=True)
class Target:
    """A snapshot that was found. path: of the file that holds it. tag: the tag that it was found in, if it was."""

    snapshot: Snapshot
    path: str
    tag: str | None = None

    def __str__(self) -> str:
        return f"snapshot {self.snapshot.id}" + (f" (tag '{self.tag}')" if self.tag else "")


def find(
    table: Table, snapshot_id: int | None = None, tag: str | None = None, timestamp: Moment | None = None
) -> Target:
    """The snapshot of this number, of this tag, or the newest one that is not later than this moment.

    A number may be that of a snapshot that has expired and that a tag still keeps. Raises Misuse when not exactly one
    of the three is given, when a moment cannot be read, and when there is no such snapshot any more.
    """
    if sum(given is not None for given in (snapshot_id, tag, timestamp)) != 1:
        raise Misuse(
            f"{table.root}: give exactly one of snapshot_id, tag and timestamp. Nothing was written",
            kind="rollback.target",
        )
    _check_kinds(table.root, snapshot_id, tag)
    found = (
        _of_number(table, snapshot_id)
        if snapshot_id is not None
        else _of_tag(table, tag)
        if tag is not None
        else _of_moment(table, millis_of(table.root, timestamp or 0))
    )
    if found is None:
        ids, names = table.snapshots.ids(), sorted(name for name, _ in tags_of(table))
        wanted = (
            f"snapshot {snapshot_id}"
            if snapshot_id is not None
            else f"tag '{tag}'"
            if tag is not None
            else f"snapshot at or before {timestamp}"
        )
        raise Misuse(
            f"{table.root}: there is no {wanted}: it has expired, or never was of this branch. There are snapshots "
            f"{f'{ids[0]} to {ids[-1]}' if ids else '(none)'} and tags {', '.join(names) or '(none)'}. Nothing was "
            "written. Give one of these",
            kind="rollback.target-gone",
        )
    return found


def _check_kinds(root: str, snapshot_id: object, tag: object) -> None:
    """Raises Misuse for a number or a name that is none."""
    if snapshot_id is not None and (isinstance(snapshot_id, bool) or not isinstance(snapshot_id, int)):
        raise Misuse(
            f"{root}: snapshot_id is {snapshot_id!r}, expected a whole number, such as 7. Nothing was written",
            kind="rollback.target",
        )
    if tag is not None and not isinstance(tag, str):
        raise Misuse(f"{root}: tag is {tag!r}, expected its name as text. Nothing was written", kind="rollback.target")


def millis_of(root: str, moment: Moment) -> int:
    """Milliseconds since 1970 of a moment: themselves, or a text or time with its zone. Raises Misuse."""
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    try:
        when = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")) if isinstance(moment, str) else moment
    except ValueError as unreadable:
        raise _no_moment(root, moment) from unreadable
    if not isinstance(when, datetime.datetime) or when.tzinfo is None:
        raise _no_moment(root, moment)
    return int(when.timestamp() * 1000)


def _no_moment(root: str, moment: Moment) -> Misuse:
    return Misuse(
        f"{root}: timestamp is '{moment}', expected milliseconds since 1970, or a time with its zone, such as "
        "'2026-11-27T10:15:00+00:00'. Nothing was written",
        kind="rollback.target",
    )


def tags_of(table: Table) -> Iterator[tuple[str, str]]:
    """(name, path) of all tags of the table."""
    folder = table.layout.within("tag")
    for name in table.file_io.names(folder):
        if name.startswith("tag-"):
            yield name.removeprefix("tag-"), f"{folder}/{name}"


def in_file(table: Table, path: str) -> Snapshot | None:
    """The snapshot in this file; None where the file is gone. Raises Corrupt."""
    try:
        return Snapshot.from_json(table.file_io.read(path), path)
    except FileNotFoundError:
        return None


def target_gone(table: Table, target: Target, meanwhile: str) -> Misuse:
    """The error for a target that was there. meanwhile: what was being done with it."""
    return Misuse(
        f"{table.root}: {target} is not there any more: it expired, or its tag was deleted, while {meanwhile}. Nothing "
        "was written. Choose a later snapshot, and create a tag of it first "
        f"{shell.command('tag', 'create', table.root, 'TAG', '--snapshot', 'ID')}",
        kind="rollback.target-gone",
    )


def _of_number(table: Table, snapshot_id: int) -> Target | None:
    found = table.snapshots.load(snapshot_id)
    if found is not None:
        return Target(found, table.snapshots.path(snapshot_id))
    for name, path in tags_of(table):
        kept = in_file(table, path)
        if kept is not None and kept.id == snapshot_id:
            return Target(kept, path, name)
    return None


def _of_tag(table: Table, tag: str) -> Target | None:
    path = dict(tags_of(table)).get(tag)
    found = in_file(table, path) if path is not None else None
    return Target(found, path, tag) if found is not None and path is not None else None


def _of_moment(table: Table, millis: int) -> Target | None:
    for number in reversed(table.snapshots.ids()):
        found = table.snapshots.load(number)
        if found is not None and found.time_millis <= millis:
            return Target(found, table.snapshots.path(number))
    return None
