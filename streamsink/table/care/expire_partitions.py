"""Partitions expire: those whose time, or whose newest file, is older than the table's options allow.

They are dropped by one OVERWRITE commit under a user of its own, which carries the states of all applications on and
moves none. Readers of older snapshots, and tags, see them still; their files go when these expire.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from streamsink import shell
from streamsink.clock import Clock, IdSource
from streamsink.errors import Conflict, Misuse
from streamsink.events import log
from streamsink.format.binary_row import decode_row
from streamsink.format.manifest import ManifestEntry
from streamsink.format.paths import DEFAULT_PARTITION_NAME, partition_path
from streamsink.format.snapshot import OVERWRITE
from streamsink.options import SinkOptions
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.durations import parse_duration
from streamsink.table.table import Table

_OPTION = "partition.expiration-"
_TIME = f"{_OPTION}time"
_VALUES, _UPDATE = "values-time", "update-time"
_DEFAULT_MOST = 100
# Another writer may change the same files meanwhile; then what is there is looked at again, at most so often.
_TRIES = 3
_DAY = re.compile(r"(\d{1,10})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.\d{1,9})?)?")
# Of the letters of Java's patterns those that a partition's time is made of.
_LETTERS = {"yyyy": "%Y", "uuuu": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "yy": "%y"}
_TOKEN = re.compile(r"([a-zA-Z])\1*|'[^']*'|[^a-zA-Z']+")


@dataclass(frozen=True)
class PartitionRule:
    """Which partitions expire. pattern, format: how a partition's values tell its time; '' for the first column as it
    is, and for ``yyyy-MM-dd[ HH:mm:ss]``. by_update: the time of the newest file counts instead. most: at once.
    """

    time: timedelta
    by_update: bool = False
    pattern: str = ""
    format: str = ""
    most: int = _DEFAULT_MOST

    @classmethod
    def of(cls, table: str, options: Mapping[str, str], *, time: timedelta | None = None) -> "PartitionRule | None":
        """From the table's options; None where no partitions expire. time: counts more than the option.

        Raises Misuse ``option.value``.
        """
        if time is None and _TIME not in options:
            return None
        strategy = options.get(f"{_OPTION}strategy", _VALUES).strip().lower()
        if strategy not in (_VALUES, _UPDATE):
            _refuse(table, f"{_OPTION}strategy", strategy, f"'{_VALUES}' or '{_UPDATE}'")
        most = options.get(f"{_OPTION}max-num", str(_DEFAULT_MOST)).strip()
        if not most.isdecimal():
            _refuse(table, f"{_OPTION}max-num", most, "a whole number")
        if time is not None and time < timedelta():
            _refuse(table, "expiration_time", str(time), "a time that is not negative")
        given = options.get("partition.timestamp-formatter", "")
        return cls(
            time if time is not None else timedelta(milliseconds=parse_duration(table, _TIME, options[_TIME])),
            strategy == _UPDATE,
            options.get("partition.timestamp-pattern", ""),
            _python_format(table, given) if given else "",
            int(most),
        )


@dataclass(frozen=True)
class PartitionPlan:
    """Partitions that are to be dropped; ``str()`` of it says it for people.

    partitions: their folders. files, rows: what is in them. unreadable: folders of which the values tell no time.
    snapshot_id: the one that dropped them; None while they are there.
    """

    table: str
    partitions: tuple[str, ...]
    files: int
    rows: int
    unreadable: tuple[str, ...] = ()
    snapshot_id: int | None = None
    entries: tuple[ManifestEntry, ...] = field(repr=False, default=())

    def __str__(self) -> str:
        said = f"{self.table}: {len(self.partitions)} partitions of {self.files} files and {self.rows} rows are dropped"
        lines = [said if self.partitions else f"{self.table}: no partition is dropped"]
        lines += [f"  {name}" for name in self.partitions]
        return "\n".join([*lines, *(f"  {name} stays, since its values tell no time" for name in self.unreadable)])


def plan(table: Table, rule: PartitionRule | None, now_ms: int | None = None) -> PartitionPlan:
    """The partitions that have expired, the first ones by name where they are too many. Changes nothing.

    Times are local ones, as in Paimon. Raises Corrupt.
    """
    schema, newest = table.latest_schema(), table.snapshots.latest()
    if rule is None or newest is None or not schema.partition_keys:
        return PartitionPlan(table.root, (), 0, 0)
    by_partition: dict[bytes, list[ManifestEntry]] = {}
    for entry in table.manifests.entries_of(newest):
        by_partition.setdefault(entry.partition, []).append(entry)
    now = datetime.fromtimestamp((Clock().now_ms() if now_ms is None else now_ms) / 1000)
    before = now - min(rule.time, now - datetime.min)
    found, unreadable = dict[str, list[ManifestEntry]](), list[str]()
    fields, default_name = schema.partition_fields, schema.options.get("partition.default-name", DEFAULT_PARTITION_NAME)
    legacy = schema.options.get("partition.legacy-name", "true").strip().lower() == "true"
    for partition, entries in by_partition.items():
        values = decode_row(partition, [each.type for each in fields])
        name = partition_path(values, fields, default_name=default_name, legacy=legacy)
        at = _updated(entries) if rule.by_update else _time_of(rule, [each.name for each in fields], values)
        if at is None:
            unreadable.append(name)
        elif at < before:
            found.setdefault(name, []).extend(entries)
    names = sorted(found)[: rule.most]
    gone = tuple(entry for name in names for entry in found[name])
    rows = sum(entry.file.row_count for entry in gone)
    return PartitionPlan(table.root, tuple(names), len(gone), rows, tuple(sorted(unreadable)), entries=gone)


def expire_partitions(table: Table, options: SinkOptions, rule: PartitionRule | None) -> PartitionPlan:
    """Drop the partitions that have expired. Returns what was dropped. After a crash: dropped, or not.

    Idempotent. Rows that come into such a partition meanwhile stay. Raises as ``plan``, and what a commit raises;
    Conflict where other writers changed the same files in each try.
    """
    for attempt in range(1, _TRIES + 1):
        planned = plan(table, rule)
        for name in planned.unreadable:
            log.warning("%s: partition %s does not expire, since its values tell no time", table.root, name)
        if not planned.entries:
            return planned
        user = f"streamsink-expire-partitions-{IdSource().new_id()}"
        changes = Changes(tuple(entry.deleting for entry in planned.entries))
        request = CommitRequest(user, table.snapshots.known_id() + 1, changes, IdSource().new_id(), OVERWRITE)
        try:
            done = TableCommit(table, options).commit(request, Guard())
            return PartitionPlan(
                table.root, planned.partitions, planned.files, planned.rows, planned.unreadable, done.snapshot_id
            )
        except Conflict:
            if attempt == _TRIES:
                raise
    return planned


def _updated(entries: Sequence[ManifestEntry]) -> datetime | None:
    """When the newest file was made, at the latest, as a local time.

    A file says it by the local clock of who made it. That may have been in UTC, as in a container, or earlier code of
    this library, which always said UTC: of both readings the later one counts.
    """
    times = [entry.file.creation_time for entry in entries if entry.file.creation_time is not None]
    if len(times) < len(entries):
        return None
    newest = max(times)
    return max(datetime(1970, 1, 1) + timedelta(milliseconds=newest), datetime.fromtimestamp(newest / 1000))


def _time_of(rule: PartitionRule, names: Sequence[str], values: Sequence[Any]) -> datetime | None:
    """The time that the values tell; None where they tell none."""
    if not rule.pattern:
        text = _text(values[0])
    else:
        by_length = sorted(names, key=len, reverse=True)
        known = dict(zip(names, values))
        found = re.compile("|".join(f"\\${re.escape(name)}" for name in by_length))
        if any(known[used[1:]] is None for used in found.findall(rule.pattern)):
            return None
        text = found.sub(lambda used: _text(known[used[0][1:]]) or "", rule.pattern)
    try:
        if text is None:
            return None
        if rule.format:
            return datetime.strptime(text, rule.format)
        match = _DAY.fullmatch(text)
        return datetime(*(int(part or 0) for part in match.groups())) if match else None  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _python_format(table: str, java: str) -> str:
    """A pattern of Java as ``strptime`` has it."""
    parts = []
    for token in _TOKEN.finditer(java):
        text = token[0]
        if text.startswith("'"):
            parts.append((text[1:-1] or "'").replace("%", "%%"))
        elif not text[0].isalpha():
            parts.append(text.replace("%", "%%"))
        else:
            expected = "a pattern of yyyy, MM, dd, HH, mm and ss"
            parts.append(_LETTERS.get(text) or _refuse(table, "partition.timestamp-formatter", java, expected))
    return "".join(parts)


def _refuse(table: str, option: str, found: str, expected: str) -> str:
    raise Misuse(
        f"{table}: {option} is {found!r}, expected {expected}. Nothing was dropped. Set the table's option to such a "
        f"value {shell.set_option(table, option)}",
        kind="option.value",
    )
