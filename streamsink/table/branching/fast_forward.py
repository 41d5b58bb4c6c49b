"""The main branch takes over what a branch has: the rows that were written and looked at there appear at one instant.

Paimon deletes main's snapshots behind the fork and copies those of the branch, one file after another; a reader or a
death in between meets a table without them, and streams on main meet another past. Here main gets one snapshot with
the branch's files, made as any commit, and nothing is deleted. The states of applications that wrote to the branch come
with it, since they say which rows of their sources are in the table now.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamsink import shell
from streamsink.clock import Clock, IdSource
from streamsink.errors import Conflict, Fenced, Misuse, Retryable
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.snapshot import ANALYZE, APPEND, BATCH_COMMIT_IDENTIFIER, COMPACT, OVERWRITE, Snapshot
from streamsink.options import SinkOptions
from streamsink.table.application_states import States
from streamsink.table.branching.branches import TAG_PREFIX, Branch, get
from streamsink.table.branching.pins import pin, pins_of
from streamsink.table.branching.rollback import PROPERTY as ROLLED_BACK
from streamsink.table.branching.rollback import Moved, check_there, moved
from streamsink.table.branching.targets import in_file, tags_of
from streamsink.table.care.tags import put_tag, take_back
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.history.retained import check_main
from streamsink.table.table import Table

#: The property of such a snapshot: a JSON object with ``branch``, ``to`` and ``uuid`` (the branch's newest snapshot),
#: ``by``, ``at_ms``, ``runs``: the commit users of bounded runs that wrote to the branch, and ``all_runs``: false where
#: snapshots of the branch had expired that may have been of others.
PROPERTY = "streamsink.fast-forward"
# Main may change in so many tries.
_LOOKS = 20


@dataclass(frozen=True)
class FastForwardPlan:
    """What main would take over. ``str()`` of it says so.

    newest: main's, as of which the plan is made. base: number of main's snapshot up to which the branch has all of it.
    writers: by name, in how many snapshots of main since then each application, or other writer, has changed rows,
    which leave the table. leaving, arriving: data files. states: by name, those that come with the branch. runs,
    all_runs: as in ``PROPERTY``. is_complete: whether the branch knows of all applications that have written to it.
    """

    table: str
    branch: Branch
    newest: Snapshot | None
    base: int
    writers: Mapping[str, int]
    leaving: Moved
    arriving: Moved
    changes: Changes
    states: Mapping[str, Mapping[str, Any]]
    runs: tuple[str, ...]
    all_runs: bool
    is_complete: bool

    @property
    def is_done(self) -> bool:
        """Whether main has all that the branch has, and no more."""
        return not self.changes and not self.states

    def __str__(self) -> str:
        if self.is_done:
            return f"{self.table}: main has what {self.branch} has: nothing to do"
        lost = ", ".join(f"'{name}' ({count} snapshots)" for name, count in sorted(self.writers.items()))
        come = ", ".join(f"'{name}'" for name in sorted(self.states))
        return (
            f"{self.table}: main takes over {self.branch}: {len(self.arriving.paths)} data files of "
            f"{self.arriving.rows} rows come, {len(self.leaving.paths)} of {self.leaving.rows} rows leave."
            f"{f' What {lost} wrote to main since the branch was made is given up.' if lost else ''}"
            f"{f' Applications that wrote to the branch: {come}.' if come else ''}"
        )


@dataclass(frozen=True)
class FastForward:
    """What was done, or would be. ``str()`` of it says so. snapshot_id: of main's new snapshot; None without one."""

    plan: FastForwardPlan
    snapshot_id: int | None

    def __str__(self) -> str:
        return str(self.plan) + (f" This is snapshot {self.snapshot_id}." if self.snapshot_id is not None else "")


def plan_fast_forward(table: Table, name: str, discard: Collection[str] = ()) -> FastForwardPlan:
    """What main would take over from this branch as of now. Changes nothing.

    discard: names of writers, as the error says them, whose rows on main since the branch was made are given up. Raises
    Misuse where there is no such branch, or nothing in it; Conflict where others have written to main since, where an
    application has written to both, and where the schemas contradict each other.
    """
    check_main(table.root, "fast_forward")
    branch = get(table, name)
    other = Table(table.file_io, branch.path)
    head = other.snapshots.latest()
    if head is None:
        raise Misuse(
            f"{table.root}: branch '{name}' has no snapshot, so there is nothing to take over. Nothing was written. "
            f"Write to it first: its path is {branch.path!r}",
            kind="branch.empty",
        )
    branch = replace(branch, newest=head)
    _check_schemas(table, other, name)
    newest = table.snapshots.latest()
    both = _base(table, other, newest, name)
    base = both[0].id if both else 0
    writers = _writers_since(table, base, newest)
    refused = sorted(set(writers) - set(discard))
    if refused:
        raise Conflict(
            f"{table.root}: since branch '{name}' was made, {', '.join(refused)} wrote to main, which the branch does "
            "not have. Nothing was written. Make the branch anew, of main as it is now; or give these rows up: set "
            f"discard={tuple(sorted(writers))!r} "
            f"{shell.in_a_shell('branch', 'fast-forward', table.root, name, *_discarding(writers), '--yes')}",
            kind="branch.main-changed",
        )
    states = _states_to_take(table, other, both, newest, name)
    is_now = {entry.identity: entry for entry in table.manifests.entries_of(newest)} if newest else {}
    will_be = {entry.identity: entry for entry in other.manifests.entries_of(head)}
    leaving = [entry.deleting for identity, entry in is_now.items() if identity not in will_be]
    arriving = [entry for identity, entry in will_be.items() if identity not in is_now]
    return FastForwardPlan(
        table.root,
        branch,
        newest,
        base,
        writers,
        moved(table, leaving),
        moved(other, arriving),
        _changes(table, other, newest, head, [*leaving, *arriving]),
        states,
        *_runs(other, both[1] if both else None),
        other.states.read(head).complete,
    )


def fast_forward(
    table: Table, name: str, options: SinkOptions, by: str, *, discard: Collection[str] = ()
) -> FastForward:
    """Publish one snapshot of main that has the files of the branch. The branch stays as it is.

    by: who wants it, for the record. discard: as of ``plan_fast_forward``. A stream that commits to main at the same
    time wins, and then this looks again, and refuses. Idempotent. After a crash: done or not done; schemas of the
    branch may have come before it. Raises as ``plan_fast_forward``, Corrupt where a file is gone, and what a commit
    raises.
    """
    for _ in range(_LOOKS):
        plan = plan_fast_forward(table, name, discard)
        if plan.is_done:
            _keep(table, name, plan.base)  # who took it over may have died before
            return FastForward(plan, None)
        check_there(table, plan.arriving.paths, "Nothing was written. Restore them")
        _bring_schemas(table, Table(table.file_io, plan.branch.path))
        done = _publish(table, plan, options, by)
        if done is not None:
            _keep(table, name, done)
            return FastForward(plan, done)
    raise Retryable(
        f"{table.root}: others changed the table in each of {_LOOKS} tries to let it take over branch '{name}'. "
        "Nothing was written. Stop what compacts the table, and call it again",
        kind="branch.contended",
    )


def runs_brought_by(snapshot: Snapshot) -> Collection[str]:
    """The commit users of bounded runs whose rows came with this snapshot of main from a branch."""
    said = _said(snapshot, PROPERTY)
    runs = said.get("runs", [])
    return [str(user) for user in runs] if isinstance(runs, list) else []


def brought_all_runs(snapshot: Snapshot) -> bool:
    """False where rows of further bounded runs may have come with this snapshot of main, which it cannot name."""
    return _said(snapshot, PROPERTY).get("all_runs", True) is True


def _publish(table: Table, plan: FastForwardPlan, options: SinkOptions, by: str) -> int | None:
    """The number of the new snapshot; None when main is another one than the plan has."""
    head, name = plan.branch.newest, IdSource().new_id()
    said = {"branch": plan.branch.name, "to": head.id if head else 0, "uuid": head.uuid if head else None}
    said |= {"by": by, "at_ms": Clock().now_ms(), "runs": list(plan.runs), "all_runs": plan.all_runs}
    request = CommitRequest(
        f"streamsink-fast-forward-{name}",
        BATCH_COMMIT_IDENTIFIER,
        plan.changes,
        name,
        OVERWRITE if plan.leaving.paths else APPEND,
        properties={PROPERTY: json.dumps(said)},
        watermark_ms=head.watermark if head else None,
        adds_again=True,
    )
    pinned = pin(table, pins_of(table, None, plan.arriving.names), name)
    try:
        done = TableCommit(table, options).commit(request, _AsPlanned(table, plan))
    except _Changed:
        take_back(table.file_io, pinned)
        return None
    except (Conflict, Fenced, Misuse, Retryable):
        take_back(table.file_io, pinned)
        raise
    return done.snapshot.id


def _keep(table: Table, name: str, snapshot_id: int) -> None:
    """Keep the files that main has in common with the branch by a tag, as long as the branch is there.

    Paimon's expiry does not look into branches: it would delete them once main has replaced them.
    """
    snapshot = table.snapshots.load(snapshot_id) if snapshot_id else None
    if snapshot is not None and _said(snapshot, PROPERTY).get("branch") == name:
        put_tag(table, f"{TAG_PREFIX}{name}-{snapshot_id}", snapshot)


class _Changed(Conflict):
    """Main is another one than the plan has."""


class _AsPlanned(Guard):
    """Lets the plan be published on the very snapshot of main for which it was made."""

    def __init__(self, table: Table, plan: FastForwardPlan):
        self._table = table
        self._plan = plan

    def fence(self) -> None:
        self._table.check_identity()
        if self._table.snapshots.known() != self._plan.newest:
            raise _Changed(f"{self._table.root}: the table has changed meanwhile", kind="branch.contended")

    def carried(self, states: States) -> States:
        for application, state in self._plan.states.items():
            states = states.with_state(application, state)
        return states if self._plan.is_complete else replace(states, complete=False)


def _base(table: Table, other: Table, newest: Snapshot | None, name: str) -> tuple[Snapshot, Snapshot] | None:
    """(main's newest snapshot of which the branch has all rows, the branch's snapshot that has them).

    It is the one of which the branch was made, or a later one that says so: one that took the branch over, or went back
    to a snapshot that the branch has. None where the branch began without rows. Raises Conflict where main's history
    does not say it.
    """
    tags = [kept for _, path in tags_of(other) if (kept := in_file(other, path)) is not None]

    def own(snapshot_id: int, uuid: str | None, whole: Snapshot | None = None) -> Snapshot | None:
        known = [each for each in (other.snapshots.load(snapshot_id), *tags) if each and each.id == snapshot_id]
        return next((each for each in known if each == whole or bool(uuid) and each.uuid == uuid), None)

    for number in reversed(table.snapshots.ids()):
        snapshot = table.snapshots.load(number) if newest and number <= newest.id else None
        if snapshot is None:
            continue
        taken, back = _said(snapshot, PROPERTY), _said(snapshot, ROLLED_BACK)
        at = own(number, snapshot.uuid, snapshot)
        if at is None and taken.get("branch") == name:
            at = own(taken.get("to", 0), taken.get("uuid"))
        if at is None and back:
            at = own(back.get("to", 0), back.get("uuid"))
        if at is not None:
            return snapshot, at
    if newest is None or not tags and table.snapshots.exists(1):
        return None
    way_on = (
        "To give all of that up, go back to where the branch began: streamsink.maintenance.rollback_to("
        f"{table.root!r}, {tags[0].id}) "
        f"{shell.in_a_shell('rollback', table.root, '--snapshot', str(tags[0].id), '--yes')}; then call this again"
        if tags
        else "Make the branch anew, of main as it is now"
    )
    raise Conflict(
        f"{table.root}: what was written to main since branch '{name}' was made cannot be told: main's snapshots since "
        f"then have expired. Nothing was written. {way_on}",
        kind="branch.no-base",
    )


def _discarding(writers: Iterable[str]) -> list[str]:
    return [word for writer in sorted(writers) for word in ("--discard", writer)]


def _writers_since(table: Table, base: int, newest: Snapshot | None) -> dict[str, int]:
    """Who has changed main's rows behind this snapshot, and in how many snapshots: applications, or commit users."""
    found: dict[str, int] = {}
    before = table.snapshots.load(base) if base else None
    for number in range(base + 1, newest.id + 1 if newest else 0):
        snapshot = table.snapshots.load(number)
        if snapshot is not None and snapshot.commit_kind not in (COMPACT, ANALYZE):
            changed = _changed_states(table, before, snapshot)
            has_files = bool(table.manifests.delta_of(snapshot))
            for name in changed or ([snapshot.commit_user] if has_files else []):
                found[name] = found.get(name, 0) + 1
        before = snapshot
    return found


def _changed_states(table: Table, before: Snapshot | None, snapshot: Snapshot) -> list[str]:
    """Names of the applications of which the snapshot has another state than the one before."""
    was, now = (table.states.read(each).by_application for each in (before, snapshot))
    return [name for name, state in now.items() if state != was.get(name)]


def _states_to_take(
    table: Table, other: Table, base: tuple[Snapshot, Snapshot] | None, newest: Snapshot | None, name: str
) -> dict[str, Mapping[str, Any]]:
    """The states of applications that have written to the branch since the base, which both had.

    Raises Conflict where one of them has written to main as well: neither of its states tells what is in both.
    """
    # Others' snapshots have no states of their own: those of the snapshots before them count.
    of_main = table.states.read(base[0] if base else None).by_application
    of_branch = other.states.read(base[1] if base else None).by_application
    now = table.states.read(newest).by_application
    there = other.states.read(other.snapshots.latest()).by_application
    taken = {application: state for application, state in there.items() if state != of_branch.get(application)}
    both = sorted(each for each in taken if now.get(each) not in (of_main.get(each), taken[each]))
    if both:
        raise Conflict(
            f"{table.root}: application {both[0]!r} has written to main and to branch '{name}' since the branch was "
            "made, so what of its source is in both cannot be told. Nothing was written. Make the branch anew, of main "
            f"as it is now, and write to it under a name of its own: set application='{both[0]}-{name}'",
            kind="branch.both-wrote",
        )
    return {application: state for application, state in taken.items() if now.get(application) != state}


def _runs(other: Table, base: Snapshot | None) -> tuple[tuple[str, ...], bool]:
    """The commit users of bounded runs, and of batch jobs, that the branch retains and main did not have; and whether
    these are all: whether no snapshot of the branch behind the base has expired.
    """
    since, ids = base.id if base is not None else 0, other.snapshots.ids()
    own = [found for number in ids if number > since and (found := other.snapshots.load(number)) is not None]
    brought = [user for each in own for user in runs_brought_by(each)]
    jobs = [each.commit_user for each in own if each.commit_identifier == BATCH_COMMIT_IDENTIFIER]
    are_all = len(own) == max(ids[-1] - since, 0) if ids else True
    return tuple(dict.fromkeys([*brought, *jobs])), are_all and all(map(brought_all_runs, own))


def _changes(
    table: Table, other: Table, newest: Snapshot | None, head: Snapshot, entries: list[ManifestEntry]
) -> Changes:
    was, will = table.manifests.index_of(newest) if newest else [], other.manifests.index_of(head)
    index = [*(each.deleting for each in was if each not in will), *(each for each in will if each not in was)]
    return Changes(tuple(sorted(entries, key=lambda entry: entry.kind is FileKind.ADD)), tuple(index))


def _check_schemas(table: Table, other: Table, name: str) -> None:
    """Raises Conflict where a schema of the branch is another one than main's of that number."""
    for schema_id, path in _schemas(table, other):
        if table.file_io.exists(path) and table.file_io.read(path) != other.file_io.read(
            other.layout.schema(schema_id)
        ):
            raise Conflict(
                f"{table.root}: schema {schema_id} of branch '{name}' is another one than main's: the columns were "
                "changed in both. Nothing was written. Make the branch anew, of main as it is now, which has the "
                "columns of main",
                kind="branch.schema-differs",
            )


def _bring_schemas(table: Table, other: Table) -> None:
    """Give main the schemas that were made in the branch, in the order of their numbers. Idempotent."""
    for schema_id, path in _schemas(table, other):
        if not table.file_io.exists(path):
            table.file_io.create_if_absent(path, other.file_io.read(other.layout.schema(schema_id)))
    table.latest_schema()


def _schemas(table: Table, other: Table) -> Iterator[tuple[int, str]]:
    """(number, main's path) of the schemas that the branch has."""
    for schema_id in range(other.latest_schema().id + 1):
        if other.file_io.exists(other.layout.schema(schema_id)):
            yield schema_id, table.layout.schema(schema_id)


def _said(snapshot: Snapshot, name: str) -> Mapping[str, Any]:
    """The JSON object of this property of a snapshot; an empty one where it has none that can be read."""
    try:
        found = json.loads((snapshot.properties or {}).get(name, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
