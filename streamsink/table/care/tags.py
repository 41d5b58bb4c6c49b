"""Tags: snapshots that have a name, and stay with all their files when the snapshot expires.

A tag is a copy of the snapshot's file; with ``tagCreateTime`` and ``tagTimeRetained`` where it is kept for a time only.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from streamsink import shell
from streamsink.clock import Clock
from streamsink.errors import Conflict, Corrupt, Misuse
from streamsink.format.snapshot import Snapshot
from streamsink.storage.file_io import FileIO
from streamsink.table.care.expire_snapshots import everybody_needing
from streamsink.table.care.named import live_files, metadata_of
from streamsink.table.care.removal import Head, Needed, Needing, Removal, finish, protecting, remove, unnamed
from streamsink.table.durations import parse_duration
from streamsink.table.history.retained import Root, tag_path, tags
from streamsink.table.iceberg_metadata.following import Following
from streamsink.table.table import Table

_CREATED, _RETAINED = "tagCreateTime", "tagTimeRetained"
DEFAULT_TIME = "tag.default-time-retained"


@dataclass(frozen=True)
class TagPlan:
    """Tags that are to be deleted; ``str()`` of it says it for people.

    removals: what goes with each of them, in order.
    """

    table: str
    names: tuple[str, ...]
    removals: tuple[Removal, ...]

    def __str__(self) -> str:
        if not self.names:
            return f"{self.table}: no tag is deleted"
        data, others = sum(len(r.data) for r in self.removals), sum(len(r.metadata) for r in self.removals)
        return (
            f"{self.table}: tags {', '.join(self.names)} are deleted, with {data} data files and {others} files of "
            "metadata that only they need"
        )


def create_tag(
    table: Table, name: str, snapshot_id: int | None = None, time_ms: float | None = None, *, may_exist: bool = False
) -> Snapshot | None:
    """Give a snapshot, by default the newest one, a name. Durable; created only if there is no tag of this name.

    time_ms: for how long the tag is kept; None for always. may_exist: do nothing, and return None, where there is one.
    Returns the snapshot. Raises Misuse for a name that cannot be, that is taken, or where there is no such snapshot;
    Conflict where the snapshot has expired meanwhile: then there is no tag.
    """
    _check_name(table.root, name)
    snapshot = table.snapshots.latest() if snapshot_id is None else table.snapshots.load(snapshot_id)
    if snapshot is None:
        ids = table.snapshots.ids()
        way_on = f"Give snapshot={ids[-1]}, or another one from {ids[0]} on" if ids else "Write rows first"
        raise Misuse(
            f"{table.root}: there is no snapshot {snapshot_id or 'at all'} that the tag '{name}' could name. Nothing "
            f"was written. {way_on}",
            kind="tag.no-snapshot",
        )
    path = tag_path(table.root, name)
    if table.file_io.exists(path) or not put_tag(table, name, snapshot, time_ms):
        if may_exist:
            return None
        raise Misuse(
            f"{table.root}: there is a tag '{name}' already. Nothing was written. Take another name, or delete that "
            f"one before: streamsink.maintenance.delete_tag('{table.root}', '{name}') "
            f"{shell.in_a_shell('tag', 'delete', table.root, name, '--yes')}",
            kind="tag.exists",
        )
    # Whoever lets it expire deletes the snapshot first, and then looks for tags.
    if table.snapshots.load(snapshot.id) != snapshot:
        take_back(table.file_io, [path])
        raise Conflict(
            f"{table.root}: snapshot {snapshot.id} expired while the tag '{name}' was made, so its files may be gone. "
            "There is no tag. Do it again, for a snapshot that is there",
            kind="tag.expired-meanwhile",
        )
    Following(table).refresh()
    return snapshot


def put_tag(table: Table, name: str, snapshot: Snapshot, time_ms: float | None = None) -> str:
    """Create this tag, durably, and return its path; '' where there is one of the name.

    From then on no expiry takes the snapshot's files; one that was at it before may have. So whoever calls it looks
    then whether what the snapshot was found in is there still.
    """
    path = tag_path(table.root, name)
    table.file_io.make_dir(os.path.dirname(path))
    return path if table.file_io.create_if_absent(path, _content(snapshot, time_ms)) else ""


def take_back(file_io: FileIO, paths: Sequence[str]) -> None:
    """Take back tags that this very call has created, because what it wanted was not done.

    Durably: what they kept may go from now on, and no power failure is to bring them back without it.
    """
    for path in paths:
        file_io.delete(path)
    for folder in {os.path.dirname(path) for path in paths}:
        file_io.sync_dir(folder)


def deletion_of(table: Table, names: Sequence[str], needed: frozenset[str] = frozenset()) -> TagPlan:
    """What goes with these tags. Changes nothing. Raises Misuse for a name without a tag; Corrupt."""
    there = {tag.name: tag for tag in tags(table)}
    for name in names:
        if name not in there:
            said = f"Give one of {', '.join(map(repr, sorted(there)))}" if there else "The table has no tags"
            raise Misuse(f"{table.root}: there is no tag '{name}'. Nothing was deleted. {said}", kind="tag.missing")
    gone = [there[name] for name in names]
    going = {tag.path for tag in gone}
    return TagPlan(table.root, tuple(names), tuple(_removal(table, tag, going, needed) for tag in gone))


def delete_tags(table: Table, names: Sequence[str], needing: Needing) -> TagPlan:
    """Delete these tags, with the files that only they need. Idempotent for each: a death leaves a tag, or none.

    What readers of Iceberg metadata read that could not follow the table stays, and is an orphan later. Raises as
    ``deletion_of``.
    """
    there = {name for name in names if table.file_io.exists(tag_path(table.root, name))}
    finish(table, everybody_needing(table, needing))
    # One that goes with that was being deleted by a process that has died: whoever asks again gets what he wants.
    done = {name for name in there if not table.file_io.exists(tag_path(table.root, name))}
    left = [name for name in names if name not in done]
    planned = deletion_of(table, left, needing().files)
    # Others may have taken snapshots away, to which readers of Iceberg are led still.
    read_still = Following(table).read_still() if planned.removals else frozenset[str]()
    if read_still:
        needing = _needing_too(needing, read_still)
        planned = deletion_of(table, left, needing().files)
    for removal in planned.removals:
        remove(table, removal, needing)
    Following(table).refresh()
    return replace(planned, names=tuple(names))


def past_their_time(table: Table, now_ms: int | None = None, older_than_ms: float | None = None) -> list[str]:
    """Names of the tags whose time is over. older_than_ms: those that were made before it as well, where they say when.

    As in Paimon the time at which a tag was made is a local one.
    """
    now = _local(Clock().now_ms() if now_ms is None else now_ms)
    before = _local(older_than_ms) if older_than_ms is not None else None
    found = []
    for tag in tags(table):
        created, kept = _time_of(table, tag)
        is_over = created is not None and kept is not None and now - created > kept  # the sum may be beyond all dates
        if is_over or before is not None and created is not None and created < before:
            found.append(tag.name)
    return found


def default_time_ms(table: Table) -> float | None:
    """For how long a tag is kept that says nothing of it; None for always. Raises Misuse ``option.value``."""
    given = table.known_schema.options.get(DEFAULT_TIME)
    return parse_duration(table.root, DEFAULT_TIME, given) if given is not None else None


def _removal(table: Table, tag: Root, going: set[str], needed: frozenset[str]) -> Removal:
    """going: paths of all tags that are to be deleted, of which none protects another one."""
    head = Head(table.layout.relative(tag.path), tag.snapshot.base_manifest_list, None)
    ids = table.snapshots.ids()
    first = table.snapshots.load(ids[0]) if ids else None
    own = table.snapshots.load(tag.snapshot.id)
    if own is not None and own.base_manifest_list == tag.snapshot.base_manifest_list:
        return Removal((head,), None, (), ())  # the snapshot keeps its files
    end = (first.id, first.base_manifest_list) if first is not None and first.id > tag.snapshot.id else None
    whole = Removal((head,), end, tuple(live_files(table, tag.snapshot)), tuple(sorted(metadata_of(table, tag))))
    data, metadata = unnamed(table, whole, protecting(table, end, without=going), needed)
    return Removal((head,), end, tuple(data), tuple(metadata))


def _needing_too(needing: Needing, files: frozenset[str]) -> Needing:
    """needing, and these data files."""
    return lambda: needing().with_other(Needed(files=files))


def _content(snapshot: Snapshot, time_ms: float | None) -> bytes:
    data = snapshot.to_json()
    if time_ms is None:
        return data
    now = _local(Clock().now_ms())
    parts = [now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond * 1000]
    said = f',\n  "{_CREATED}" : {json.dumps(parts)},\n  "{_RETAINED}" : {time_ms / 1000:.9f}\n}}'
    return data.rstrip().removesuffix(b"}").rstrip() + said.encode()


def _time_of(table: Table, tag: Root) -> tuple[datetime | None, timedelta | None]:
    """(when it was made, for how long it is kept), each None where the tag does not say it."""
    try:
        said = json.loads(table.file_io.read(tag.path))
        created, kept = said.get(_CREATED), said.get(_RETAINED)
        when = datetime(*created[:6]) if created else None  # what is left out at the end is 0
        return when, _seconds(float(kept)) if kept is not None else None
    except FileNotFoundError:
        return None, None
    except (ValueError, TypeError, AttributeError) as broken:
        raise Corrupt(
            f"{tag.path}: what the tag says of its time cannot be read. Nothing was deleted. Delete the tag when it is "
            f"not needed: streamsink.maintenance.delete_tag('{table.root}', '{tag.name}') "
            f"{shell.in_a_shell('tag', 'delete', table.root, tag.name, '--yes')}",
            kind="tag.time",
        ) from broken


def _seconds(number: float) -> timedelta:
    try:
        return timedelta(seconds=number)
    except OverflowError:
        return timedelta.max


def _local(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000)


def _check_name(table: str, name: str) -> None:
    if not isinstance(name, str) or not name.strip() or "/" in name or name.startswith("."):
        raise Misuse(
            f"{table}: {name!r} cannot be the name of a tag, expected a text that is not blank, without '/', that does "
            "not begin with a dot. Nothing was written",
            kind="tag.name",
        )
