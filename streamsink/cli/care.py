"""Commands for the care of a table: expiry, tags, compaction, orphan files.

Each calls the function of ``streamsink.maintenance`` that Python users call. A command is listed when that function is
there.
"""

import contextlib
import importlib
import re
from datetime import datetime, timedelta, timezone
from typing import Any

import click

from streamsink.cli.frame import SETTINGS, At, command, confirmed, of_path, of_query, proposed, watched
from streamsink.cli.output import Answer, Rows
from streamsink.clock import Clock

_MODULE = "streamsink.maintenance"
_UNITS = {"min": "minutes", "h": "hours", "d": "days"}
_DURATION = re.compile(r"(\d+)\s*(min|h|d)")
_AGE = "a duration such as 7d, 12h or 30min, or a time with its zone such as 2026-11-27T12:00:00Z"


def _journals(function: Any) -> Any:
    return click.option(
        "--journals",
        multiple=True,
        metavar="PATH",
        help="Folder or table with journals of further queries that write this table. May be repeated.",
    )(function)


def done_by(name: str, at: At, given: tuple[str, ...], *arguments: Any, yes: bool = True, **named: Any) -> Any:
    """What the function of this name returns; as a dry run unless ``yes``."""
    dry = {} if yes else {"dry_run": True}
    if yes and name == "remove_orphan_files":  # the only one whose default is a dry run
        dry = {"dry_run": False}
    said = {key: value for key, value in named.items() if value is not None}
    function = getattr(importlib.import_module(_MODULE), name)
    return function(at.root, *arguments, options=at.options(given), **said, **dry)


def answer_of(at: At, result: Any, yes: bool, would: object, **said: Any) -> Answer:
    """The text of what was done, or would be. would: whether there is something to do. said: what the document has
    beside it.
    """
    answer = Answer({"table": at.root, "done": yes, "text": str(result), **said}, [str(result)])
    return proposed(answer, yes, would=bool(would))


def _moment(text: str) -> datetime:
    """The time that an age, or a time, stands for. Raises click's usage error."""
    found = _DURATION.fullmatch(text)
    if found:
        with contextlib.suppress(OverflowError):
            return datetime.fromtimestamp(Clock().now_ms() / 1000, timezone.utc) - _duration(text)
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if moment.tzinfo is not None:  # what commands print is UTC, and the machine's zone may be another one
            return moment
    raise click.BadParameter(f"'{text}' is no age, expected {_AGE}")


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
    plan = done_by(
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
    return answer_of(at, plan, yes, plan.snapshots, snapshots=list(plan.snapshots), first_kept=plan.first_kept)


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
    plan = done_by(
        "expire_partitions",
        at,
        given,
        yes=yes,
        expiration_time=older_than,
        timestamp_formatter=formatter,
        timestamp_pattern=pattern,
        expire_strategy=strategy,
    )
    return answer_of(at, plan, yes, plan.partitions, partitions=list(plan.partitions), rows=plan.rows)


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
    plan = done_by(
        "remove_orphan_files",
        at,
        given,
        yes=yes,
        older_than=older_than,
        without_journals=without_journal,
        journals=journals,
    )
    return answer_of(at, plan, yes, plan.paths, paths=list(plan.paths), bytes=plan.bytes, young=plan.young)


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
    wanted = _partitions(at, partition) if partition else None
    result = done_by("compact", at, given, yes=yes, partitions=wanted, full=full)
    return answer_of(
        at,
        result,
        yes,
        result.files_before,
        files_before=result.files_before,
        files_after=result.files_after,
        snapshots=list(result.snapshots),
    )


def _partitions(at: At, given: tuple[str, ...]) -> list[dict[str, Any]]:
    """Values of partition columns, each of its column's type. Raises click's usage error."""
    from streamsink.format.paths import DEFAULT_PARTITION_NAME
    from streamsink.table.table import open_table

    schema = open_table(at.store.open(), at.root, for_writing=False).latest_schema()
    null = schema.options.get("partition.default-name", DEFAULT_PARTITION_NAME)
    kinds = {field.name: field.type for field in schema.partition_fields}
    return [
        {name: None if text == null else _value(text, kinds.get(name), name) for name, text in _pairs(each)}
        for each in given
    ]


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and found for name, found, _ in pairs):
        raise click.BadParameter(f"'{text}' is not NAME=VALUE", param_hint="--partition")
    return [(name, value) for name, _, value in pairs]


def _value(text: str, kind: Any, column: str) -> Any:
    """kind: None for what is no partition column, which the function says in its own words."""
    import pyarrow as pa

    from streamsink.format.arrow_types import to_arrow_type

    if kind is None:
        return text
    try:
        return pa.scalar(text).cast(to_arrow_type(kind, column)).as_py()
    except pa.ArrowException:
        raise click.BadParameter(
            f"column '{column}' is {kind}, and '{text}' is no value of that type (a date is such as 2026-11-01, a time "
            "such as 2026-11-01T12:00:00, with its zone for TIMESTAMP_LTZ)",
            param_hint="--partition",
        ) from None


@click.group("tag", context_settings=SETTINGS)
def tag() -> None:
    """Names for snapshots, under which they stay when they expire."""


@command("list", "$ streamsink tag list lake/shop.db/orders")
@of_path()
@watched
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
    made = done_by("create_tag", at, given, name, snapshot=snapshot, time_retained=retained)
    return Answer({"table": at.root, "tag": name, "snapshot": made}, [f"{at.root}: tag '{name}' is snapshot {made}"])


@command("create-due", "$ streamsink tag create-due lake/shop.db/orders")
@of_path()
@_journals
@of_query
@confirmed
def create_due_tags(at: At, journals: tuple[str, ...], given: tuple[str, ...], yes: bool) -> Answer:
    """Make the tags that are due by the table's options tag.automatic-creation, tag.creation-period and others.

    Those that are more than tag.num-retained-max then are deleted. JSON: {table, done, text, tags}.
    """
    made = done_by("trigger_tag_automatic_creation", at, given, yes=yes, journals=journals)
    text = f"{at.root}: " + (f"tags {', '.join(made)} {'were made' if yes else 'are due'}" if made else "no tag is due")
    return answer_of(at, text, yes, made, tags=list(made))


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
    plan = done_by("delete_tag", at, given, list(names), yes=yes, journals=journals)
    return answer_of(at, plan, yes, plan.names, tags=list(plan.names))


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
    plan = done_by("expire_tags", at, given, yes=yes, older_than=older_than, journals=journals)
    return answer_of(at, plan, yes, plan.names, tags=list(plan.names))


for _each in (list_tags, create_tag, create_due_tags, delete_tag, expire_tags):
    tag.add_command(_each)
