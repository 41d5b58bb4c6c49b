"""Commands for the care of a table: expiry, tags, branches, rollback, compaction, orphan files.

Each calls the function of ``streamsink.maintenance`` that Python users call. A command is listed when that function is
there.
"""

import contextlib
import importlib
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import click

from streamsink.cli.frame import SETTINGS, At, command, confirmed, of_path, of_query
from streamsink.cli.output import Answer, Rows
from streamsink.clock import Clock

_MODULE = "streamsink.maintenance"
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+)\s*(min|h|d)")
_AGE = "a duration such as 7d, 12h or 30min, or a time such as 2026-11-27T12:00:00"


def _journals(function: Any) -> Any:
    return click.option(
        "--journals",
        multiple=True,
        metavar="PATH",
        help="Folder or table with journals of further queries that write this table. May be repeated.",
    )(function)


def _done(name: str, at: At, given: tuple[str, ...], *arguments: Any, yes: bool = True, **named: Any) -> Any:
    """What the function of this name returns; as a dry run unless ``yes``."""
    dry = {} if yes else {"dry_run": True}
    if yes and name == "remove_orphan_files":  # the only one whose default is a dry run
        dry = {"dry_run": False}
    said = {key: value for key, value in named.items() if value is not None}
    function = getattr(importlib.import_module(_MODULE), name)
    return function(at.root, *arguments, options=at.options(given), **said, **dry)


def _answer(at: At, result: Any, yes: bool, **said: Any) -> Answer:
    """The text of what was done, or would be. said: what the document has beside it."""
    last = [] if yes else ["Nothing was changed. Give --yes to do it."]
    return Answer({"table": at.root, "done": yes, "text": str(result), **said}, [str(result), *last])


def _moment(text: str) -> datetime:
    """The time that an age, or a time, stands for. Raises click's usage error."""
    found = _DURATION.fullmatch(text)
    if found:
        with contextlib.suppress(OverflowError):
            return datetime.fromtimestamp(Clock().now_ms() / 1000, timezone.utc) - _duration(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"'{text}' is no age, expected {_AGE}") from None


def _duration(text: str) -> timedelta:
    """The duration that a text says. Raises click's usage error."""
    found = _DURATION.fullmatch(text)
    try:
        if found is not None:
            return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        pass
    raise click.BadParameter(f"'{text}' is no duration, expected one such as 7d, 12h or 30min")


@command(
    "expire",
    """
    $ streamsink expire lake/shop.db/orders --retain-max 2 --retain-min 1
    $ streamsink expire lake/shop.db/orders --older-than 7d --yes --json
    """,
)
@of_path()
@click.option("--retain-max", type=click.IntRange(1), help="How many snapshots stay at most.")
@click.option("--retain-min", type=click.IntRange(1), help="How many stay at least.")
@click.option("--older-than", type=_moment, metavar="AGE", help=f"Only older ones expire: {_AGE}.")
@click.option("--max-deletes", type=click.IntRange(1), help="How many expire at most in this call.")
@_journals
@of_query
@confirmed
def expire(
    *,
    at: At,
    retain_max: int | None,
    retain_min: int | None,
    older_than: datetime | None,
    max_deletes: int | None,
    journals: tuple[str, ...],
    given: tuple[str, ...],
    yes: bool,
) -> Answer:
    """Let old snapshots of the table at PATH expire, with the files that only they need.

    What is not given is as the table's options snapshot.* say. What tags, branches, consumers and queries need stays.
    JSON: {table, done, text, snapshots, first_kept}.
    """
    plan = _done(
        "expire_snapshots",
        at,
        given,
        yes=yes,
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=older_than,
        max_deletes=max_deletes,
        journals=journals,
    )
    return _answer(at, plan, yes, snapshots=list(plan.snapshots), first_kept=plan.first_kept)


@command(
    "expire-partitions", "$ streamsink expire-partitions lake/shop.db/orders --older-than 365d --formatter yyyy-MM-dd"
)
@of_path()
@click.option(
    "--older-than",
    type=_duration,
    metavar="DURATION",
    help="How old a partition may be; else as the table's options say.",
)
@click.option("--formatter", metavar="FORMAT", help="How its values tell a time, such as yyyy-MM-dd.")
@click.option("--pattern", metavar="PATTERN", help="How that text is made of its columns, such as '$dt'.")
@click.option(
    "--strategy", type=click.Choice(["values-time", "update-time"]), help="By its values, or its newest file."
)
@of_query
@confirmed
def expire_partitions(
    *,
    at: At,
    older_than: timedelta | None,
    formatter: str | None,
    pattern: str | None,
    strategy: str | None,
    given: tuple[str, ...],
    yes: bool,
) -> Answer:
    """Drop the partitions of the table at PATH that are too old.

    JSON: {table, done, text, partitions, rows}.
    """
    plan = _done(
        "expire_partitions",
        at,
        given,
        yes=yes,
        expiration_time=older_than,
        timestamp_formatter=formatter,
        timestamp_pattern=pattern,
        expire_strategy=strategy,
    )
    return _answer(at, plan, yes, partitions=list(plan.partitions), rows=plan.rows)


@command("orphans", "$ streamsink orphans lake/shop.db/orders --older-than 2d")
@of_path()
@click.option("--older-than", type=_moment, metavar="AGE", help=f"Only older files, by default than a day: {_AGE}.")
@click.option("--without-journal", multiple=True, metavar="NAME", help="A query whose journal is gone for good.")
@_journals
@of_query
@confirmed
def orphans(
    *,
    at: At,
    older_than: datetime | None,
    without_journal: tuple[str, ...],
    journals: tuple[str, ...],
    given: tuple[str, ...],
    yes: bool,
) -> Answer:
    """Files of the table at PATH that no snapshot, tag, branch and no pending record names, and that are old enough.

    JSON: {table, done, text, paths, bytes, young}.
    """
    plan = _done(
        "remove_orphan_files",
        at,
        given,
        yes=yes,
        older_than=older_than,
        without_journals=without_journal,
        journals=journals,
    )
    return _answer(at, plan, yes, paths=list(plan.paths), bytes=plan.bytes, young=plan.young)


@command("rollback", "$ streamsink rollback lake/shop.db/orders --snapshot 2")
@of_path()
@click.option("--snapshot", type=click.IntRange(1), metavar="ID", help="To this snapshot.")
@click.option("--tag", metavar="NAME", help="To the snapshot of this tag.")
@click.option("--time", metavar="TIME", help="To the newest one that is not later: 2026-11-27T12:00:00Z, or in ms.")
@of_query
@confirmed
def rollback(
    *, at: At, snapshot: int | None, tag: str | None, time: str | None, given: tuple[str, ...], yes: bool
) -> Answer:
    """Give the table at PATH the rows that it had as of a snapshot, by a new snapshot. Nothing is deleted.

    Rows that streams have published since are taken out on purpose, and the streams go on behind them. JSON: {table,
    done, text, snapshot}.
    """
    if sum(each is not None for each in (snapshot, tag, time)) != 1:
        raise click.UsageError("give exactly one of --snapshot, --tag and --time")
    moment: Any = int(time) if time is not None and time.isdigit() else time
    result = _done("rollback_to", at, given, yes=yes, snapshot_id=snapshot, tag=tag, timestamp=moment)
    return _answer(at, result, yes, snapshot=result.snapshot_id)


@command(
    "compact",
    """
    $ streamsink compact lake/shop.db/orders
    $ streamsink compact lake/shop.db/orders --partition dt=2026-11-01 --full --yes --json
    """,
)
@of_path()
@click.option("--partition", multiple=True, metavar="NAME=VALUE[,...]", help="Only this partition. May be repeated.")
@click.option("--full", is_flag=True, help="Also where few small files are left.")
@of_query
@confirmed
def compact(*, at: At, partition: tuple[str, ...], full: bool, given: tuple[str, ...], yes: bool) -> Answer:
    """Let the small files of the table at PATH become few, beside whoever writes. Rows and positions stay as they are.

    JSON: {table, done, text, files_before, files_after, snapshots}.
    """
    wanted = [_values(text) for text in partition] or None
    result = _done("compact", at, given, yes=yes, partitions=wanted, full=full)
    return _answer(
        at,
        result,
        yes,
        files_before=result.files_before,
        files_after=result.files_after,
        snapshots=list(result.snapshots),
    )


def _values(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and found for name, found, _ in pairs):
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--partition")
    return {name: value for name, _, value in pairs}


@click.group("tag", context_settings=SETTINGS)
def tag() -> None:
    """Names for snapshots, under which they stay when they expire."""


@command("list", "$ streamsink tag list lake/shop.db/orders")
@of_path()
def list_tags(at: At) -> Answer:
    """The tags of the table at PATH. JSON: {table, tags: [{tag, snapshot, rows}]}."""
    from streamsink.table.history.retained import tags
    from streamsink.table.table import open_table

    tagged = sorted(tags(open_table(at.store.open(), at.root, for_writing=False)), key=lambda each: each.name)
    found = [
        {"tag": each.name, "snapshot": each.snapshot.id, "rows": each.snapshot.total_record_count} for each in tagged
    ]
    rows = [[each["tag"], each["snapshot"], each["rows"]] for each in found]
    head = f"{at.root}: {len(found)} tags"
    return Answer(
        {"table": at.root, "tags": found}, [head, *([Rows("", ("tag", "snapshot", "rows"), rows)] if rows else [])]
    )


@command("create", "$ streamsink tag create lake/shop.db/orders month-end --snapshot 2")
@of_path()
@click.argument("name")
@click.option("--snapshot", type=click.IntRange(1), metavar="ID", help="Of this snapshot; else of the newest one.")
@click.option(
    "--retained", type=_duration, metavar="DURATION", help="For how long; else as the table's options say, or for ever."
)
@of_query
def create_tag(
    *, at: At, name: str, snapshot: int | None, retained: timedelta | None, given: tuple[str, ...]
) -> Answer:
    """Give a snapshot the NAME, under which it stays when it expires. JSON: {table, tag, snapshot}."""
    made = _done("create_tag", at, given, name, snapshot=snapshot, time_retained=retained)
    return Answer({"table": at.root, "tag": name, "snapshot": made}, [f"{at.root}: tag '{name}' is snapshot {made}"])


@command("delete", "$ streamsink tag delete lake/shop.db/orders release-1")
@of_path()
@click.argument("names", nargs=-1, required=True)
@_journals
@of_query
@confirmed
def delete_tag(
    *, at: At, names: tuple[str, ...], journals: tuple[str, ...], given: tuple[str, ...], yes: bool
) -> Answer:
    """Delete tags, with the files that only they need. JSON: {table, done, text, tags}."""
    plan = _done("delete_tag", at, given, list(names), yes=yes, journals=journals)
    return _answer(at, plan, yes, tags=list(plan.names))


@command("expire", "$ streamsink tag expire lake/shop.db/orders --older-than 90d")
@of_path()
@click.option("--older-than", type=_moment, metavar="AGE", help=f"Those that were made before it too: {_AGE}.")
@_journals
@of_query
@confirmed
def expire_tags(
    *, at: At, older_than: datetime | None, journals: tuple[str, ...], given: tuple[str, ...], yes: bool
) -> Answer:
    """Delete the tags whose time is over, with the files that only they need. JSON: {table, done, text, tags}."""
    plan = _done("expire_tags", at, given, yes=yes, older_than=older_than, journals=journals)
    return _answer(at, plan, yes, tags=list(plan.names))


@click.group("branch", context_settings=SETTINGS)
def branch() -> None:
    """Branches of a table: written to by their path, taken over by main at one instant."""


@command("list", "$ streamsink branch list lake/shop.db/orders")
@of_path()
@of_query
def list_branches(at: At, given: tuple[str, ...]) -> Answer:
    """The branches of the table at PATH, beside main. JSON: {table, branches: [{branch, path, snapshot}]}."""
    found = _done("branches", at, given)
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
    made = _done("create_branch", at, given, name, tag=tag, snapshot_id=snapshot)
    return Answer({"table": at.root, "branch": made.name, "path": made.path}, [str(made)])


@command("fast-forward", "$ streamsink branch fast-forward lake/shop.db/orders work")
@of_path()
@click.argument("name")
@click.option("--discard", multiple=True, metavar="NAME", help="A query whose rows on main since then are given up.")
@of_query
@confirmed
def fast_forward(*, at: At, name: str, discard: tuple[str, ...], given: tuple[str, ...], yes: bool) -> Answer:
    """Let main take over all that the branch NAME has, by one snapshot. JSON: {table, done, text, snapshot}."""
    result = _done("fast_forward", at, given, name, yes=yes, discard=discard)
    return _answer(at, result, yes, snapshot=result.snapshot_id)


@command("delete", "$ streamsink branch delete lake/shop.db/orders work")
@of_path()
@click.argument("name")
@of_query
@confirmed
def delete_branch(*, at: At, name: str, given: tuple[str, ...], yes: bool) -> Answer:
    """Delete the branch NAME, with what is pending in it. JSON: {table, done, paths}."""
    paths: Sequence[str] = _done("delete_branch", at, given, name, yes=yes)
    lines = [f"{path} {'is deleted' if yes else 'would be deleted'}" for path in paths]
    last = [] if yes else ["Nothing was changed. Give --yes to do it."]
    return Answer({"table": at.root, "done": yes, "paths": list(paths)}, [*lines, *last])


for _each in (list_tags, create_tag, delete_tag, expire_tags):
    tag.add_command(_each)
for _each in (list_branches, create_branch, fast_forward, delete_branch):
    branch.add_command(_each)
