"""The changes of one try of a commit, computed and checked for conflicts against the snapshot it builds on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamsink.errors import Conflict
from streamsink.format.index_manifest import IndexManifestEntry, combine
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.manifest_list import ManifestFileMeta
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import APPEND, Snapshot
from streamsink.table.commit import conflicts
from streamsink.table.commit.changes import Ahead, Changes, Written
from streamsink.table.commit.conflicts import key_order
from streamsink.table.commit.late import Settling
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.commit.strict import StrictMode
from streamsink.table.history.presence import Presence
from streamsink.table.table import Table

DISCARD_DUPLICATES = "commit.discard-duplicate-files"


@dataclass(frozen=True)
class CommitRequest:
    """What one snapshot is to change.

    commit_user, identifier: as Paimon's snapshots have them.
    changes: its entries, without those that an overwrite deletes.
    name: unique to this commit and writer. The names of the files that a try writes contain it, so that the leftovers
    of a crash can be recognised.
    kind: APPEND, OVERWRITE or COMPACT.
    manifests: those that hold the ADD entries already, under their final names; empty when the commit is to write one.
    delta_list: a list of these manifests, written durably in advance. It is deleted when no snapshot can use it.
    overwrite: what is replaced; the files are computed again in each try.
    check: given for an append whose files may be in the table already; it finds out whether they are. Such a request
    only adds files, of no bucket and no key.
    folders: those in which files got their final names and which are not synced yet.
    begun_ms: a time before these files got their names; None where no file got one.
    watermark_ms: the event-time watermark, or None.
    application, state: what the snapshot says about the writing application. Maintenance has no application (None). A
    ``state`` of None takes the application's state out.
    hint: whether LATEST is moved. It is not when another commit of this process follows at once.
    ahead: what the first try needs, if it was written durably in advance. It is deleted when no try can use it.
    properties: what the snapshot says besides the states of applications. adds_again: as of ``Delta``.
    before: the commit on which this one is built, if that is this process's own, and is settled while the first try
    creates its snapshot.
    """

    commit_user: str
    identifier: int
    changes: Changes
    name: str
    kind: str = APPEND
    manifests: tuple[ManifestFileMeta, ...] = ()
    delta_list: Written | None = None
    overwrite: Overwrite | None = None
    check: Presence | None = None
    folders: frozenset[str] = frozenset()
    begun_ms: int | None = None
    watermark_ms: int | None = None
    application: str | None = None
    state: Mapping[str, Any] | None = None
    hint: bool = True
    ahead: Ahead | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    adds_again: bool = False
    before: Settling | None = None


@dataclass(frozen=True)
class Delta:
    """The changes of one try, ready to be written.

    changes: all entries of the snapshot. index: its whole index state; None when that stays as it was.
    unwritten: the entries that no manifest holds yet. manifests: those that hold the other entries.
    adds_again: files may come back that the table had before. Readers hide every file that any manifest deletes, so no
    DELETE may stay below.
    """

    changes: Changes
    index: Sequence[IndexManifestEntry] | None
    unwritten: tuple[ManifestEntry, ...]
    manifests: tuple[ManifestFileMeta, ...]
    adds_again: bool = False


class Deltas:
    """Computes the deltas of one process that commits to one table."""

    def __init__(self, table: Table):
        self._table = table
        self._strict = StrictMode(table)

    def of(self, request: CommitRequest, newest: Snapshot | None) -> Delta:
        """The delta of the request on top of ``newest``. Raises Conflict, which is not retried."""
        try:
            delta, live = self._resolve(request, newest)
            self._strict.check(request.commit_user, request.kind, delta.changes, newest)
            after = None
            if live is not None:
                after = conflicts.check(live, delta.changes.entries, request.kind, key_order(self._table.known_schema))
            index = self._index(delta.changes, newest, after)
            return replace(delta, index=index, adds_again=request.adds_again)
        except Conflict as found:
            raise Conflict(
                f"{self._table.root}: the {request.kind} commit {request.identifier} of user '{request.commit_user}' "
                f"contradicts snapshot {newest.id if newest else 'none'}: {found}. Nothing was published: do it again "
                "from what the table is now",
                kind=found.kind,
            ) from found

    def published(self, snapshot: Snapshot) -> None:
        """Note that our snapshot exists: strict mode need not check again what came before it."""
        self._strict.move_to(snapshot.id)

    def _resolve(self, request: CommitRequest, newest: Snapshot | None) -> tuple[Delta, list[ManifestEntry] | None]:
        """The delta, and the live files against which it is to be checked; None for these when it needs no check."""
        schema, changes, manifests = self._table.latest_schema(), request.changes, request.manifests
        discard = request.kind == APPEND and discards_duplicates(schema)
        if request.kind == APPEND and not discard:
            if request.check is not None:
                conflicts.check_added(changes.entries, request.check.of(changes.entries, newest))
            return _delta(changes, manifests), None
        scope = changes.partitions if request.overwrite is None else request.overwrite.scope(schema, changes)
        live = list(self._table.manifests.entries_of(newest, scope)) if newest is not None else []
        if discard:
            known = {entry.identity for entry in live}
            fresh = tuple(e for e in changes.entries if e.kind is FileKind.DELETE or e.identity not in known)
            manifests = manifests if len(fresh) == len(changes.entries) else ()
            changes = replace(changes, entries=fresh)
        if request.overwrite is not None:
            replaced = request.overwrite.replaces(schema, changes, live, self._index_of(newest))
            changes = Changes(replaced.entries + changes.entries, replaced.index + changes.index)
        return _delta(changes, manifests), live

    def _index(self, changes: Changes, newest: Snapshot | None, after: Sequence[ManifestEntry] | None) -> Any:
        """The index state after these changes; None when it stays as it was.

        after: the live files after these changes, if these were checked against the live files.
        """
        if not changes.index and after is None:
            return None
        before = self._index_of(newest)
        schema = self._table.known_schema
        unaware = not schema.primary_keys and schema.options.get("bucket", "-1").strip() == "-1"
        state = combine(before, changes.index, unaware_buckets=unaware)
        if after is not None and unaware:
            partitions = changes.partitions
            conflicts.check_deletion_vectors(
                {entry.file.file_name for entry in after}, [e for e in state if e.partition in partitions]
            )
        return state if changes.index else None

    def _index_of(self, newest: Snapshot | None) -> list[IndexManifestEntry]:
        return self._table.manifests.index_of(newest) if newest is not None else []


def discards_duplicates(schema: TableSchema) -> bool:
    """Whether an append leaves out files that the table has already."""
    return schema.options.get(DISCARD_DUPLICATES, "false").strip().lower() == "true"


def _delta(changes: Changes, manifests: tuple[ManifestFileMeta, ...]) -> Delta:
    unwritten = tuple(e for e in changes.entries if not manifests or e.kind is FileKind.DELETE)
    return Delta(changes, None, unwritten, manifests)
