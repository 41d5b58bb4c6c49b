"""Commands for going back on purpose, and for branches, which call the functions of ``streamsink.maintenance``."""

from collections.abc import Sequence
from typing import Any

import click

from streamsink.cli.care import answer_of, done_by
from streamsink.cli.frame import SETTINGS, At, command, confirmed, of_path, of_query, proposed, watched
from streamsink.cli.output import Answer


def _by(function: Any) -> Any:
    return click.option(
        "--by", metavar="NAME", help="Who wants it, for the record; else the user of this process and its machine."
    )(function)


@command("rollback", "$ streamsink rollback lake/shop.db/orders --snapshot 2")
@of_path()
@click.option("--snapshot", type=click.IntRange(1), metavar="ID", help="To this snapshot.")
@click.option("--tag", metavar="NAME", help="To the snapshot of this tag.")
@click.option("--time", metavar="TIME", help="To the newest one that is not later: 2026-11-27T12:00:00Z, or in ms.")
@_by
@of_query
@confirmed
def rollback(
    *,
    at: At,
    snapshot: int | None,
    tag: str | None,
    time: str | None,
    by: str | None,
    given: tuple[str, ...],
    yes: bool,
) -> Answer:
    """Give the table at PATH the rows that it had as of a snapshot, by a new snapshot. Nothing is deleted.

    Rows that streams have published since are taken out on purpose, and the streams go on behind them. JSON: {table,
    done, text, snapshot}.
    """
    if sum(each is not None for each in (snapshot, tag, time)) != 1:
        raise click.UsageError("give exactly one of --snapshot, --tag and --time")
    moment: Any = int(time) if time is not None and time.isdigit() else time
    result = done_by("rollback_to", at, given, yes=yes, snapshot_id=snapshot, tag=tag, timestamp=moment, by=by)
    return answer_of(at, result, yes, not result.plan.is_done, snapshot=result.snapshot_id)


@click.group("branch", context_settings=SETTINGS)
def branch() -> None:
    """Branches of a table: written to by their path, taken over by main at one instant."""


@command("list", "$ streamsink branch list lake/shop.db/orders")
@of_path()
@of_query
@watched
def list_branches(at: At, given: tuple[str, ...]) -> Answer:
    """The branches of the table at PATH, beside main. JSON: {table, branches: [{branch, path, snapshot}]}."""
    found = done_by("branches", at, given)
    said = [
        {"branch": each.name, "path": each.path, "snapshot": each.newest.id if each.newest else None} for each in found
    ]
    return Answer({"table": at.root, "branches": said}, [f"{at.root}: {len(found)} branches", *map(str, found)])


@command("create", "$ streamsink branch create lake/shop.db/orders audit --snapshot 2")
@of_path()
@click.argument("name")
@click.option("--tag", metavar="TAG", help="Of this tag.")
@click.option("--snapshot", type=click.IntRange(1), metavar="ID", help="Of this snapshot.")
@of_query
def create_branch(*, at: At, name: str, tag: str | None, snapshot: int | None, given: tuple[str, ...]) -> Answer:
    """Create the branch NAME, of a tag or a snapshot; without either it has the columns and no rows.

    JSON: {table, branch, path}; every command takes that path as a table's.
    """
    made = done_by("create_branch", at, given, name, tag=tag, snapshot_id=snapshot)
    return Answer({"table": at.root, "branch": made.name, "path": made.path}, [str(made)])


@command("fast-forward", "$ streamsink branch fast-forward lake/shop.db/orders work")
@of_path()
@click.argument("name")
@click.option("--discard", multiple=True, metavar="NAME", help="A query whose rows on main since then are given up.")
@_by
@of_query
@confirmed
def fast_forward(
    *, at: At, name: str, discard: tuple[str, ...], by: str | None, given: tuple[str, ...], yes: bool
) -> Answer:
    """Let main take over all that the branch NAME has, by one snapshot. JSON: {table, done, text, snapshot}."""
    result = done_by("fast_forward", at, given, name, yes=yes, discard=discard, by=by)
    return answer_of(at, result, yes, not result.plan.is_done, snapshot=result.snapshot_id)


@command("delete", "$ streamsink branch delete lake/shop.db/orders work")
@of_path()
@click.argument("name")
@of_query
@confirmed
def delete_branch(*, at: At, name: str, given: tuple[str, ...], yes: bool) -> Answer:
    """Delete the branch NAME, with what is pending in it. JSON: {table, done, paths}."""
    paths: Sequence[str] = done_by("delete_branch", at, given, name, yes=yes)
    lines = [f"{path} {'is deleted' if yes else 'would be deleted'}" for path in paths]
    answer = Answer({"table": at.root, "done": yes, "paths": list(paths)}, lines)
    return proposed(answer, yes, would=bool(paths))


for _each in (list_branches, create_branch, fast_forward, delete_branch):
    branch.add_command(_each)
