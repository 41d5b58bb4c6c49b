"""Going back on purpose, and branches. See docs/BRANCHES.md."""

import os
import sys
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from streamsink.errors import Misuse
from streamsink.maintenance.opened import Path, on_store, on_table, who
from streamsink.options import SinkOptions

if TYPE_CHECKING:
    from streamsink.storage.file_io import FileIO
    from streamsink.table.branching.branches import Branch
    from streamsink.table.branching.fast_forward import FastForward
    from streamsink.table.branching.rollback import Rollback
    from streamsink.table.table import Table


def rollback_to(
    path: Path,
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp: int | str | datetime | None = None,
    *,
    by: str | None = None,
    dry_run: bool = False,
    options: SinkOptions | None = None,
    **settings: Any,
) -> "Rollback":
    """Give the table the rows that it had as of a snapshot, by a new snapshot. Nothing is deleted, streams go on.

    Exactly one of: snapshot_id; tag; timestamp, which means the newest snapshot not later than that (milliseconds since
    1970, or a time with its zone). by: who wants it, for the record; the user of this process by default. options,
    settings: as the query's, its lock above all. Rows that streams have published since are taken out on purpose, and
    do not come again; what is pending is published behind it. Raises Misuse where there is no such snapshot, Corrupt
    where files of it are gone, and what a commit raises.
    """
    from streamsink.table.branching.rollback import Rollback, plan_rollback, roll_back
    from streamsink.table.branching.targets import find

    given = SinkOptions.of(os.fspath(path), settings, options)

    def do(table: "Table") -> "Rollback":
        target = find(table, snapshot_id, tag, timestamp)
        return Rollback(plan_rollback(table, target), None) if dry_run else roll_back(table, target, given, who(by))

    return on_table(path, "rollback_to", given, do)


def create_branch(
    path: Path,
    branch: str,
    tag: str | None = None,
    *,
    snapshot_id: int | Literal["latest"] | None = None,
    ignore_if_exists: bool = False,
    dry_run: bool = False,
    options: SinkOptions | None = None,
    **settings: Any,
) -> "Branch":
    """Create a branch of the table, of a tag or a snapshot; without either it has the table's columns and no rows.

    What is returned says its path, which every function takes as that of a table; so is ``<table>$branch_<name>``. A
    tag of the table keeps the snapshot's files. ignore_if_exists: return the branch that has the name already. Raises
    Misuse for a name that no branch can have and where there is no such snapshot; Conflict where the name is taken.
    """
    from streamsink.table.branching import branches as of_table
    from streamsink.table.branching.targets import Target, find

    def do(table: "Table") -> "Branch":
        there = of_table.branch_of(table, branch) if ignore_if_exists else None
        if there is not None:
            return there
        newest, target = table.snapshots.latest() if snapshot_id == "latest" else None, None
        if tag is not None and snapshot_id is not None:
            raise Misuse(
                f"{table.root}: give one of tag and snapshot_id, or neither. Nothing was written",
                kind="rollback.target",
            )
        if newest is not None:
            target = Target(newest, table.snapshots.path(newest.id))
        elif tag is not None:
            target = find(table, tag=tag)
        elif snapshot_id not in (None, "latest"):
            target = find(table, cast("int", snapshot_id))
        if dry_run:
            of_table.check_name(table.root, branch)
            return of_table.Branch(branch, table.layout.branch_root(branch), target.snapshot if target else None)
        return of_table.create(table, branch, target)

    return on_table(path, "create_branch", SinkOptions.of(os.fspath(path), settings, options), do)


def branches(path: Path, *, options: SinkOptions | None = None, **settings: Any) -> "list[Branch]":
    """The branches of the table beside the main one, by name, each with its path and newest snapshot."""
    from streamsink.table.branching import branches as of_table

    given = SinkOptions.of(os.fspath(path), settings, options)
    return on_table(path, "branches", given, of_table.branches)


def fast_forward(
    path: Path,
    branch: str,
    *,
    discard: Collection[str] = (),
    by: str | None = None,
    dry_run: bool = False,
    options: SinkOptions | None = None,
    **settings: Any,
) -> "FastForward":
    """Let the table take over all that the branch has, by one snapshot. The branch stays.

    discard: names of applications whose rows on main since the branch was made are given up; without them they are a
    reason to refuse. Positions of applications that wrote to the branch come with it. by, options, settings: as
    ``rollback_to``. Raises Misuse where there is no such branch, or nothing in it; Conflict where others have written
    to main since, or columns were changed in both; Corrupt where files are gone; and what a commit raises.
    """
    from streamsink.table.branching.fast_forward import FastForward, plan_fast_forward
    from streamsink.table.branching.fast_forward import fast_forward as forward

    given = SinkOptions.of(os.fspath(path), settings, options)

    def do(table: "Table") -> "FastForward":
        if dry_run:
            return FastForward(plan_fast_forward(table, branch, discard), None)
        return forward(table, branch, given, who(by), discard=discard)

    return on_table(path, "fast_forward", given, do)


def delete_branch(
    path: Path, branch: str, *, dry_run: bool = False, options: SinkOptions | None = None, **settings: Any
) -> tuple[str, ...]:
    """Delete a branch, with what is pending in it. Returns what goes: the branch's folder, and the tag that kept it.

    Data files that only the branch had stay until orphans are cleaned. Idempotent until it is done; after a crash: call
    it again. Raises Misuse where there is no such branch, Fenced while a query writes to it.
    """
    from streamsink.commands.branches import applications_of
    from streamsink.commands.branches import delete_branch as delete

    def do(file_io: "FileIO", root: str) -> tuple[str, ...]:
        runs = sys.modules.get("streamsink.spark.runs")
        if runs is not None and not dry_run:  # a query of this process that has ended holds it until somebody asks
            for at, application in applications_of(file_io, root, branch):
                runs.let_go(at, application)
        return delete(file_io, root, branch, dry_run=dry_run)

    return on_store(path, "delete_branch", SinkOptions.of(os.fspath(path), settings, options), do)
