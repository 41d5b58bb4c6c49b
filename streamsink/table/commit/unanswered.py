"""Tries of a commit whose publishing gave no answer, and whether the newest snapshot is built on one of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamsink.errors import OutcomeUnknown
from streamsink.events import log
from streamsink.format.manifest import FileKind, Identity
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.snapshot import APPEND, Snapshot
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.late import Base
from streamsink.table.table import Table


@dataclass(frozen=True)
class Made:
    """What a try has made.

    snapshot: the one that it publishes. name: contained in the names of all files that it wrote. files: paths of the
    files that only its snapshot would refer to.
    """

    snapshot: Snapshot
    name: str
    files: list[str]


@dataclass(frozen=True)
class Unanswered:
    """A try whose publishing gave no answer. base: what it is built on. error: what publishing raised."""

    made: Made
    base: Base
    error: OutcomeUnknown

    @property
    def snapshot(self) -> Snapshot:
        """The one that it wanted to publish."""
        return self.made.snapshot


def is_built_on(table: Table, request: CommitRequest, tries: Sequence[Unanswered], newest: Snapshot | None) -> bool:
    """Whether the newest snapshot has (or had and deleted) what the request adds, although no try's snapshot exists.

    This happens when another writer's rename replaced the try's snapshot after a third writer had built on it.
    Raises OutcomeUnknown when it cannot be told. This is so when only some of the files are there, and when the newest
    snapshot does not name them but one since the first of the tries does, or is gone.
    """
    wanted = {entry.identity for entry in request.changes.entries if entry.kind is FileKind.ADD}
    first = min(lost.snapshot.id for lost in tries)
    if not wanted or newest is None or newest.id < first:
        return False
    seen = _named(table, wanted, table.manifests.all_of(newest))
    if seen == wanted:
        log.warning(
            "%s: snapshot %d of user '%s', whose publishing gave no answer, was replaced by another writer's, and "
            "snapshot %d is built on it: its files are not published again",
            table.root,
            first,
            request.commit_user,
            newest.id,
        )
        return True
    if seen or not _is_unknown_since(table, wanted, first, newest.id):
        raise tries[-1].error
    return False


def without_files(request: CommitRequest) -> CommitRequest:
    """The request without its changes, which are in the table already: it publishes the application's state alone."""
    return replace(request, kind=APPEND, changes=Changes(()), manifests=(), delta_list=None, overwrite=None, check=None)


def _is_unknown_since(table: Table, wanted: set[Identity], first: int, newest: int) -> bool:
    """Whether all snapshots from ``first`` to the one before the newest exist and name none of these files."""
    for snapshot_id in range(first, newest):
        snapshot = table.snapshots.load(snapshot_id)
        if snapshot is None or _named(table, wanted, table.manifests.delta_of(snapshot)):
            return False
    return True


def _named(table: Table, wanted: set[Identity], metas: Sequence[ManifestFileMeta]) -> set[Identity]:
    """Those of the wanted files that the manifests name, as added or as deleted. Raises Corrupt."""
    return {identity for _, _, identity in table.manifests.said_of(wanted, metas)} & wanted
