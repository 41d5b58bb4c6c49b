"""Going back to a snapshot of the past: a new snapshot with the files that were live then. Nothing is deleted.

So others see it as any commit: a stream that commits at the same time goes on behind it, and who regrets it rolls back
to the snapshot before it. The states of applications stay as they are now, hence no stream takes it for lost snapshots:
what streams published behind the target is gone on purpose, and comes neither back nor a second time.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamsink import shell
from streamsink.clock import Clock, IdSource
from streamsink.errors import Conflict, Corrupt, Fenced, Misuse, Retryable
from streamsink.format.index_manifest import IndexManifestEntry
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.schema import TableSchema
from streamsink.format.snapshot import BATCH_COMMIT_IDENTIFIER, OVERWRITE
from streamsink.options import SinkOptions
from streamsink.table.application_states import States
from streamsink.table.branching.pins import pin, pins_of
from streamsink.table.branching.targets import Target, in_file, target_gone
from streamsink.table.care.tags import take_back
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.overwrite import Overwrite
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import Table

#: The property of a rollback's snapshot that says what was meant: a JSON object with ``to``, ``by``, ``at_ms`` and
#: ``applications``, the rule for streams; ``uuid`` of the target and ``tag`` where there is one.
PROPERTY = "streamsink.rollback"
#: The rule: streams go on behind what they have published, as if nothing had been taken out.
GO_ON = "go-on"
_SHOWN = 3


@dataclass(frozen=True)
class Moved:
    """Data files that leave the table, or come back: paths, in order, and the number of their rows."""

    paths: tuple[str, ...]
    rows: int

    @property
    def names(self) -> frozenset[str]:
        """Names of the files, without their folders."""
        return frozenset(path.rpartition("/")[2] for path in self.paths)


@dataclass(frozen=True)
class RollbackPlan:
    """What a rollback would change, and what it leaves alone. ``str()`` of it says so.

    newest: number of the snapshot as of which the plan is made. leaving, returning: data files. applications: by name,
    the last checkpoint of each that is published now; each goes on behind it. index: of the index, names of files that
    leave or return, such as those of deletion vectors.
    """

    table: str
    target: Target
    newest: int
    leaving: Moved
    returning: Moved
    applications: Mapping[str, int]
    index: frozenset[str] = frozenset()

    @property
    def is_done(self) -> bool:
        """Whether the table is already as the target was."""
        return not (self.leaving.paths or self.returning.paths or self.index)

    def __str__(self) -> str:
        if self.is_done:
            return f"{self.table}: snapshot {self.newest} has the files of {self.target} already: nothing to do"
        names = ", ".join(
            f"'{name}' ({'bounded runs' if number == BATCH_COMMIT_IDENTIFIER else f'checkpoint {number}'})"
            for name, number in sorted(self.applications.items())
        )
        streams = f" Streams go on behind what they have published: {names}." if names else ""
        return (
            f"{self.table}: back from snapshot {self.newest} to {self.target}. {len(self.leaving.paths)} data files of "
            f"{self.leaving.rows} rows leave the table, {len(self.returning.paths)} of {self.returning.rows} rows come "
            f"back.{streams}"
        )


@dataclass(frozen=True)
class Rollback:
    """What was done, or would be. ``str()`` of it says so. snapshot_id: of the new snapshot; None where there is none.

    pins: names of the tags that keep what came back; they may be deleted once that snapshot is the oldest one.
    """

    plan: RollbackPlan
    snapshot_id: int | None
    pins: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.snapshot_id is None:
            return str(self.plan)
        kept = f" Tags that keep the files that came back: {', '.join(self.pins)}." if self.pins else ""
        return f"{self.plan} This is snapshot {self.snapshot_id}.{kept}"


@dataclass(frozen=True)
class BackTo(Overwrite):
    """Replaces all live files by those of the past. entries, index: what was live then."""

    entries: tuple[ManifestEntry, ...] = field(default=())
    index: tuple[IndexManifestEntry, ...] = field(default=())

    def replaces(
        self, schema: TableSchema, new: Changes, live: Iterable[ManifestEntry], index: Iterable[IndexManifestEntry]
    ) -> Changes:
        """The entries that delete what is live now and was not then, and add what was then and is not now."""
        live, index = list(live), list(index)
        is_now, was = {entry.identity for entry in live}, {entry.identity for entry in self.entries}
        leaving = [entry.deleting for entry in live if entry.identity not in was]
        returning = [entry for entry in self.entries if entry.identity not in is_now]
        index_leaving = [entry.deleting for entry in index if entry not in self.index]
        index_returning = [entry for entry in self.index if entry not in index]
        return Changes((*leaving, *returning), (*index_leaving, *index_returning))


def plan_rollback(table: Table, target: Target) -> RollbackPlan:
    """What going back to this snapshot would change as of now. Changes nothing.

    Raises Corrupt where files that would come back are gone, naming them; Misuse where the target expires meanwhile.
    """
    with _retained(table, target):
        return _plan(table, target)


def _plan(table: Table, target: Target) -> RollbackPlan:
    newest = table.snapshots.latest()
    changes = _back_to(table, target).replaces(
        table.latest_schema(),
        Changes(),
        table.manifests.entries_of(newest) if newest else (),
        table.manifests.index_of(newest) if newest else (),
    )
    leaving = [entry for entry in changes.entries if entry.kind is FileKind.DELETE]
    returning = [entry for entry in changes.entries if entry.kind is FileKind.ADD]
    plan = RollbackPlan(
        table.root,
        target,
        newest.id if newest else 0,
        moved(table, leaving),
        moved(table, returning),
        checkpoints(table.states.read(newest)),
        frozenset(entry.file.file_name for entry in changes.index),
    )
    check_there(table, plan.returning.paths, f"{target} cannot be gone back to. Nothing was written. Restore them")
    return plan


def roll_back(table: Table, target: Target, options: SinkOptions, by: str) -> Rollback:
    """Publish the snapshot that has the live files of the target, whatever others commit meanwhile.

    by: who wants it, for the record. There is no snapshot when the table is as the target was. Idempotent. After a
    crash: done or not done, and a tag of the name ``rollback-to-as-latest-...`` may be left. Raises as
    ``plan_rollback``, what a commit raises, and Misuse when the target expires meanwhile.
    """
    plan = plan_rollback(table, target)
    if plan.is_done:
        return Rollback(plan, None)
    said = {"to": target.snapshot.id, "by": by, "at_ms": Clock().now_ms(), "applications": GO_ON}
    said |= {"uuid": target.snapshot.uuid} if target.snapshot.uuid else {}
    said |= {"tag": target.tag} if target.tag else {}
    name = IdSource().new_id()
    with _retained(table, target):
        overwrite = _back_to(table, target)
    request = CommitRequest(
        f"streamsink-rollback-{name}",
        BATCH_COMMIT_IDENTIFIER,
        Changes(),
        name,
        OVERWRITE,
        overwrite=overwrite,
        properties={PROPERTY: json.dumps(said)},
        adds_again=True,
    )
    # Before anything is built on these files: from now on expiry, that of other programs too, keeps them.
    with _retained(table, target):
        pinned = pin(table, pins_of(table, target, plan.returning.names | plan.index), name)
    try:
        done = TableCommit(table, options).commit(request, _IsRetained(table, target))
    except (Conflict, Fenced, Misuse, Retryable):
        take_back(table.file_io, pinned)
        raise
    check_there(
        table,
        plan.returning.paths,
        f"Snapshot {done.snapshot.id} brought them back at the moment at which another program's expiry deleted them. "
        f"Take them out with streamsink.drop_missing({table.root!r}) "
        f"{shell.in_a_shell('drop-missing', table.root, '--yes')}, or restore them",
    )
    return Rollback(plan, done.snapshot.id, tuple(path.rpartition("/tag-")[2] for path in pinned))


class _IsRetained(Guard):
    """Refuses to go back to a snapshot that is not there any more, or in a table that is another one."""

    def __init__(self, table: Table, target: Target):
        self._table = table
        self._target = target

    def fence(self) -> None:
        self._table.check_identity()
        if in_file(self._table, self._target.path) != self._target.snapshot:
            raise target_gone(self._table, self._target, "the table was being rolled back to it")

    def is_published(self, states: States) -> bool:
        return False


@contextlib.contextmanager
def _retained(table: Table, target: Target) -> Iterator[None]:
    """Raises Misuse where what is missing is so because the target has expired: it is no damage then."""
    try:
        yield
    except Corrupt as broken:
        if in_file(table, target.path) == target.snapshot:
            raise
        raise target_gone(table, target, "the table was being rolled back to it") from broken


def _back_to(table: Table, target: Target) -> BackTo:
    manifests = table.manifests
    return BackTo(
        entries=tuple(manifests.entries_of(target.snapshot)), index=tuple(manifests.index_of(target.snapshot))
    )


def moved(table: Table, entries: Sequence[ManifestEntry]) -> Moved:
    """The data files of these entries."""
    schema = table.known_schema
    return Moved(
        tuple(data_file_path(table, schema, entry) for entry in entries), sum(entry.file.row_count for entry in entries)
    )


def check_there(table: Table, paths: Sequence[str], what: str) -> None:
    """Raises Corrupt, with ``what`` and how they come back at its end, where one of these data files is gone."""
    gone = [path for path in paths if table.file_io.size(path) is None]
    if gone:
        raise Corrupt(
            f"{table.root}: {len(gone)} data files that are to be in the table again are gone "
            f"({', '.join(gone[:_SHOWN])}{', ...' if len(gone) > _SHOWN else ''}): {what} "
            f"{shell.restore(gone[0])}",
            kind="rollback.files-gone",
        )


def checkpoints(states: States) -> dict[str, int]:
    """The last published checkpoint of each application, as far as its state says one."""
    return {
        name: state["checkpoint_id"]
        for name, state in states.by_application.items()
        if isinstance(state.get("checkpoint_id"), int)
    }
