"""What expires, tags, and files that nothing names. See docs/MAINTENANCE.md."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from streamsink.maintenance.opened import Path, millis_before, on_table
from streamsink.options import SinkOptions

if TYPE_CHECKING:
    from streamsink.table.care.expire_consumers import ConsumerPlan
    from streamsink.table.care.expire_partitions import PartitionPlan
    from streamsink.table.care.expire_snapshots import ExpiryPlan
    from streamsink.table.care.orphan_files import OrphanPlan
    from streamsink.table.care.removal import Needing
    from streamsink.table.care.tags import TagPlan
    from streamsink.table.table import Table

T = TypeVar("T")


def expire_snapshots(
    path: Path,
    retain_max: int | None = None,
    retain_min: int | None = None,
    older_than: datetime | None = None,
    max_deletes: int | None = None,
    *,
    dry_run: bool = False,
    journals: Sequence[str] = (),
    options: SinkOptions | None = None,
    **settings: Any,
) -> "ExpiryPlan":
    """Let old snapshots of the table expire, with the files that only they need.

    retain_max, retain_min: how many snapshots stay at most, and at least. older_than: only older ones expire; a time
    with its zone. max_deletes: how many at most in this call. Defaults: the table's options ``snapshot.*``. What tags,
    branches, consumers, and queries need stays. Returns what has expired. Idempotent; after a crash each snapshot that
    is there is whole, and the next call finishes. Raises Misuse for a wrong option, Corrupt where what must stay cannot
    be read: then nothing is deleted.
    """
    from streamsink.clock import Clock
    from streamsink.table.care.expire_snapshots import Retention, expire, plan

    before_ms = millis_before(path, older_than)

    def do(table: "Table", needing: "Needing") -> "ExpiryPlan":
        time_ms = Clock().now_ms() - before_ms if before_ms is not None else None
        given = {"num_min": retain_min, "num_max": retain_max, "time_ms": time_ms, "limit": max_deletes}
        retention = Retention.of(table.root, table.known_schema.options, **given)  # type: ignore[arg-type]
        return plan(table, retention, needing) if dry_run else expire(table, retention, needing)

    return _with_table(path, "expire_snapshots", do, journals, SinkOptions.of(os.fspath(path), settings, options))


def create_tag(
    path: Path,
    tag: str,
    snapshot: int | None = None,
    time_retained: timedelta | None = None,
    *,
    options: SinkOptions | None = None,
    **settings: Any,
) -> int:
    """Give a snapshot, by default the newest one, a name under which it stays when it expires. Returns its number.

    time_retained: for how long; by default what the table's option ``tag.default-time-retained`` says, else for ever.
    Raises Misuse where there is such a tag or no such snapshot, Conflict where that has expired meanwhile.
    """
    from streamsink.table.care.tags import create_tag as create
    from streamsink.table.care.tags import default_time_ms

    def do(table: "Table", needing: "Needing") -> int:
        time_ms = default_time_ms(table) if time_retained is None else time_retained / timedelta(milliseconds=1)
        made = create(table, tag, snapshot, time_ms)
        return made.id if made is not None else 0

    return _with_table(path, "create_tag", do, (), SinkOptions.of(os.fspath(path), settings, options))


def delete_tag(
    path: Path,
    tag: "str | Sequence[str]",
    *,
    dry_run: bool = False,
    journals: Sequence[str] = (),
    options: SinkOptions | None = None,
    **settings: Any,
) -> "TagPlan":
    """Delete a tag, or several, with the files that only they need. Returns what was deleted.

    Raises Misuse, and deletes nothing, for a name without a tag.
    """
    from streamsink.table.care.tags import delete_tags, deletion_of

    names = [tag] if isinstance(tag, str) else list(tag)

    def do(table: "Table", needing: "Needing") -> "TagPlan":
        return deletion_of(table, names, needing().files) if dry_run else delete_tags(table, names, needing)

    return _with_table(path, "delete_tag", do, journals, SinkOptions.of(os.fspath(path), settings, options))


def expire_partitions(
    path: Path,
    expiration_time: timedelta | None = None,
    timestamp_formatter: str | None = None,
    timestamp_pattern: str | None = None,
    expire_strategy: str | None = None,
    *,
    max_expires: int | None = None,
    dry_run: bool = False,
    options: SinkOptions | None = None,
    **settings: Any,
) -> "PartitionPlan":
    """Drop the partitions that are older than this: by their values, or with ``expire_strategy="update-time"`` by their
    newest files. Returns what was dropped; nothing where neither the argument nor the table says how old they may be.

    Defaults: the table's options ``partition.*``. One OVERWRITE commit; rows that come into such a partition meanwhile
    stay. Raises Misuse for a wrong option, and what a commit raises.
    """
    from streamsink.table.care.expire_partitions import PartitionRule, plan
    from streamsink.table.care.expire_partitions import expire_partitions as expire

    given = {
        "partition.timestamp-formatter": timestamp_formatter,
        "partition.timestamp-pattern": timestamp_pattern,
        "partition.expiration-strategy": expire_strategy,
        "partition.expiration-max-num": None if max_expires is None else str(max_expires),
    }
    sink = SinkOptions.of(os.fspath(path), settings, options)

    def do(table: "Table", needing: "Needing") -> "PartitionPlan":
        of_table = {**table.known_schema.options, **{key: value for key, value in given.items() if value is not None}}
        rule = PartitionRule.of(table.root, of_table, time=expiration_time)
        return plan(table, rule) if dry_run else expire(table, sink, rule)

    return _with_table(path, "expire_partitions", do, (), sink)


def expire_tags(
    path: Path,
    older_than: datetime | None = None,
    *,
    dry_run: bool = False,
    journals: Sequence[str] = (),
    options: SinkOptions | None = None,
    **settings: Any,
) -> "TagPlan":
    """Delete the tags whose time is over. older_than: a time with its zone; those that were made before it
    too, where they say when.

    Returns what was deleted. Raises as ``delete_tag``.
    """
    from streamsink.table.care.tags import delete_tags, deletion_of, past_their_time

    before_ms = millis_before(path, older_than)

    def do(table: "Table", needing: "Needing") -> "TagPlan":
        names = past_their_time(table, None, before_ms)
        return deletion_of(table, names, needing().files) if dry_run else delete_tags(table, names, needing)

    return _with_table(path, "expire_tags", do, journals, SinkOptions.of(os.fspath(path), settings, options))


def trigger_tag_automatic_creation(
    path: Path,
    *,
    dry_run: bool = False,
    journals: Sequence[str] = (),
    options: SinkOptions | None = None,
    **settings: Any,
) -> list[str]:
    """Make the tags that are due by the table's options ``tag.automatic-creation`` and others. Returns their names."""
    from streamsink.table.care.auto_tags import TagCreation

    def do(table: "Table", needing: "Needing") -> list[str]:
        creation = TagCreation(table, needing)
        return list(creation.plan().due) if dry_run else creation.run()

    name = "trigger_tag_automatic_creation"
    return _with_table(path, name, do, journals, SinkOptions.of(os.fspath(path), settings, options))


def expire_consumers(
    path: Path, *, dry_run: bool = False, options: SinkOptions | None = None, **settings: Any
) -> "ConsumerPlan":
    """Delete the consumers that have been silent for longer than the table's option ``consumer.expiration-time``.

    Returns those that were deleted; none without that option. A reader that goes on under such a name begins anew.
    """
    from streamsink.table.care.expire_consumers import delete_consumers, silent

    def do(table: "Table", needing: "Needing") -> "ConsumerPlan":
        planned = silent(table)
        return planned if dry_run else delete_consumers(table, planned)

    return _with_table(path, "expire_consumers", do, (), SinkOptions.of(os.fspath(path), settings, options))


def clear_consumers(
    path: Path,
    including_consumers: str = ".*",
    excluding_consumers: str | None = None,
    *,
    dry_run: bool = False,
    options: SinkOptions | None = None,
    **settings: Any,
) -> "ConsumerPlan":
    """Delete the consumers whose names match a regular expression, and not the other one: they keep no snapshots then.

    Returns those that were deleted. A reader that goes on under such a name begins anew.
    """
    from streamsink.table.care.expire_consumers import delete_consumers, matching

    def do(table: "Table", needing: "Needing") -> "ConsumerPlan":
        planned = matching(table, including_consumers, excluding_consumers)
        return planned if dry_run else delete_consumers(table, planned)

    return _with_table(path, "clear_consumers", do, (), SinkOptions.of(os.fspath(path), settings, options))


def remove_orphan_files(
    path: Path,
    older_than: datetime | None = None,
    *,
    dry_run: bool = True,
    journals: Sequence[str] = (),
    without_journals: Sequence[str] = (),
    options: SinkOptions | None = None,
    **settings: Any,
) -> "OrphanPlan":
    """Find files that nothing names, and with ``dry_run=False`` delete them. Returns what was found, or deleted.

    older_than: a time with its zone; only older ones, by default those older than a day. It must be longer ago than the
    longest batch and the longest stop of a writer that is no streamsink; what streamsink's own queries have recorded
    stays whatever its age.
    without_journals: names of applications whose journals are gone for good. Raises Misuse, and deletes nothing, where
    a journal is not found; Corrupt where something that is retained cannot be read.
    """
    from streamsink.sinks.paimon.care.needed import needed_of_all
    from streamsink.table.care.orphan_files import plan, remove_orphans

    before_ms = millis_before(path, older_than)

    def do(table: "Table", _: "Needing") -> "OrphanPlan":
        needing = needed_of_all(table, _paths(journals), without_journals)
        return plan(table, needing, before_ms) if dry_run else remove_orphans(table, needing, before_ms)

    return _with_table(path, "remove_orphan_files", do, (), SinkOptions.of(os.fspath(path), settings, options))


def _with_table(
    path: Path, name: str, do: "Callable[[Table, Needing], T]", journals: Sequence[str], options: SinkOptions
) -> T:
    """Call ``do`` with the open table, and what the journals need of it."""
    from streamsink.sinks.paimon.care.needed import needed_by_journals
    from streamsink.table.history.retained import check_main

    def with_needed(table: "Table") -> T:
        check_main(table.root, name)
        return do(table, needed_by_journals(table, _paths(journals)))

    return on_table(path, name, options, with_needed)


def _paths(journals: str | Sequence[str]) -> tuple[str, ...]:
    from streamsink.storage.stores import table_path

    return tuple(map(table_path, [journals] if isinstance(journals, str) else journals))
