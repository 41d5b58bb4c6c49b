"""Tags that are made by period, as the table's options ``tag.*`` say it: Paimon's names, times and rules."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streamsink import shell
from streamsink.errors import Conflict, Misuse
from streamsink.format.snapshot import Snapshot
from streamsink.table.care.removal import Needing
from streamsink.table.care.tags import create_tag, delete_tags
from streamsink.table.durations import parse_duration
from streamsink.table.history.retained import Root, tags
from streamsink.table.table import Table

MODE = "tag.automatic-creation"
_PROCESS_TIME, _WATERMARK = "process-time", "watermark"
_EPOCH = datetime(1970, 1, 1)
_OFFSET = re.compile(r"(?:GMT|UTC)?([+-])(\d{1,2}):?(\d{2})?")
# (period, formatter): how the names look. Other periods have those of 'minute'.
_FORMATS = {
    ("daily", "with_dashes"): "%Y-%m-%d",
    ("daily", "without_dashes"): "%Y%m%d",
    ("daily", "without_dashes_and_spaces"): "%Y%m%d",
    ("hourly", "with_dashes"): "%Y-%m-%d %H",
    ("hourly", "without_dashes"): "%Y%m%d %H",
    ("hourly", "without_dashes_and_spaces"): "%Y%m%d%H",
    ("two-hours", "with_dashes"): "%Y-%m-%d %H",
}
_PERIODS = {"daily": timedelta(days=1), "hourly": timedelta(hours=1), "two-hours": timedelta(hours=2)}
_BY_MINUTE = "%Y-%m-%d %H%M"


@dataclass(frozen=True)
class AutoTags:
    """When tags are made, and what they are called.

    by_watermark: periods are those of the snapshots' watermarks, instead of their times. zone: in which that is read.
    delay: how long after its end a period is tagged. most: how many such tags stay; None for all. kept_ms: for how long
    each stays; None for always. completes: whether a period without snapshots gets a tag as well, late.
    """

    by_watermark: bool
    zone: tzinfo | None
    period: timedelta
    format: str
    delay: timedelta
    most: int | None
    kept_ms: float | None
    completes: bool

    @classmethod
    def of(cls, table: str, options: Mapping[str, str]) -> "AutoTags | None":
        """From the table's options; None where no tags are made by period. Raises Misuse ``option.value``."""

        def duration(key: str) -> timedelta | None:
            return timedelta(milliseconds=parse_duration(table, key, options[key])) if key in options else None

        mode = options.get(MODE, "none").strip().lower()
        if mode not in (_PROCESS_TIME, _WATERMARK):
            return None
        name, own = (
            options.get("tag.creation-period", "daily").strip().lower(),
            duration("tag.creation-period-duration"),
        )
        formatter = options.get("tag.period-formatter", "with_dashes").strip().lower()
        if name not in _PERIODS:
            _refuse(table, "tag.creation-period", name, "'daily', 'hourly' or 'two-hours'")
        if own is None and name != "two-hours" and (name, formatter) not in _FORMATS:
            _refuse(table, "tag.period-formatter", formatter, "one of Paimon's formatters")
        period, delay = own or _PERIODS[name], duration("tag.creation-delay") or timedelta()
        if delay >= period:
            _refuse(table, "tag.creation-delay", str(delay), f"less than the period, {period}")
        zone = "sink.process-time-zone" if mode == _PROCESS_TIME else "sink.watermark-time-zone"
        most, kept = options.get("tag.num-retained-max"), duration("tag.default-time-retained")
        if most is not None and not most.strip().isdecimal():
            _refuse(table, "tag.num-retained-max", most, "a whole number")
        return cls(
            by_watermark=mode == _WATERMARK,
            zone=_zone(table, zone, options.get(zone, "" if mode == _PROCESS_TIME else "UTC")),
            period=period,
            format=_BY_MINUTE if own else _FORMATS.get((name, formatter), "%Y-%m-%d %H"),
            delay=delay,
            most=int(most) if most is not None else None,
            kept_ms=kept / timedelta(milliseconds=1) if kept is not None else None,
            completes=options.get("tag.automatic-completion", "false").strip().lower() == "true",
        )

    def time_of(self, name: str) -> datetime | None:
        """The period that a tag of this name is of; None for a tag that was not made by period."""
        try:
            found = datetime.strptime(name, self.format)
        except ValueError:
            return None
        return found if found.strftime(self.format) == name else None

    def moment_of(self, snapshot: Snapshot) -> datetime | None:
        """The time of the snapshot, in the zone; None where it has no watermark."""
        ms = snapshot.watermark if self.by_watermark else snapshot.time_millis
        if ms is None or ms <= -(2**63):
            return None
        return datetime.fromtimestamp(ms / 1000, self.zone).replace(tzinfo=None)

    def before(self, moment: datetime) -> datetime:
        """The period before the one that holds this moment."""
        return _EPOCH + (moment - _EPOCH) // self.period * self.period - self.period


@dataclass(frozen=True)
class DueTags:
    """Tags that are due by period, and those that are too many then; ``str()`` of it says it for people."""

    table: str
    due: tuple[str, ...]
    too_many: tuple[str, ...]

    def __str__(self) -> str:
        gone = f"; {', '.join(self.too_many)} are too many then" if self.too_many else ""
        return f"{self.table}: " + (f"tags {', '.join(self.due)} are due" if self.due else "no tag is due") + gone


class TagCreation:
    """Makes the tags that are due, each time it is called. Snapshots that it has seen are not read again."""

    def __init__(self, table: Table, needing: Needing):
        self._table = table
        self._needing = needing
        self._seen = (0, "")

    def run(self) -> list[str]:
        """Make the tags that are due, and delete those that are too many. Returns the names of those that were made.

        The first snapshot past the end of each period gets the period's tag. Nothing need be remembered: the newest
        such tag says from where on snapshots are looked at. Idempotent. Raises as ``create_tag`` and ``AutoTags.of``.
        """
        auto = AutoTags.of(self._table.root, self._table.latest_schema().options)
        if auto is None:
            return []

        def make(name: str, snapshot: Snapshot) -> bool:
            return create_tag(self._table, name, snapshot.id, auto.kept_ms, may_exist=True) is not None

        made = self._each(auto, make)
        if made and auto.most is not None:
            many = [tag.name for _, tag in self._own(auto)][: -auto.most or None]
            delete_tags(self._table, many, self._needing)
        return made

    def plan(self) -> DueTags:
        """What ``run`` would do now. Changes nothing."""
        auto = AutoTags.of(self._table.root, self._table.latest_schema().options)
        if auto is None:
            return DueTags(self._table.root, (), ())
        there = [tag.name for _, tag in self._own(auto)]
        due = [name for name in self._each(auto, lambda name, snapshot: True) if name not in there]
        many = (
            sorted([*there, *due], key=lambda name: auto.time_of(name) or _EPOCH)[: -auto.most or None]
            if due and auto.most is not None
            else []
        )
        return DueTags(self._table.root, tuple(due), tuple(many))

    def _each(self, auto: AutoTags, make: Callable[[str, Snapshot], bool]) -> list[str]:
        """The names of the tags that are due and were made. make: whether it made one; raises Conflict for a snapshot
        that has expired meanwhile.
        """
        own, made = self._own(auto), list[str]()
        following = own[-1][0] + auto.period if own else None
        tagged = max((tag.snapshot.id for _, tag in own), default=0)
        for snapshot in self._new(tagged):
            moment = auto.moment_of(snapshot)
            if moment is None or following is not None and moment - auto.delay < following + auto.period:
                continue
            this = following if auto.completes and following is not None else auto.before(moment)
            name = this.strftime(auto.format)
            try:
                made += [name] if make(name, snapshot) else []
            except Conflict:
                continue
            following = this + auto.period
        return made

    def _own(self, auto: AutoTags) -> list[tuple[datetime, Root]]:
        found = [(time, tag) for tag in tags(self._table) if (time := auto.time_of(tag.name)) is not None]
        return sorted(found, key=lambda each: each[0])

    def _new(self, tagged: int) -> Iterator[Snapshot]:
        """The snapshots behind that number, and behind the last one that was seen if that is there still."""
        snapshots, (seen, base_list) = self._table.snapshots, self._seen
        last = snapshots.load(seen) if seen else None
        since = max(tagged, seen) if last is not None and last.base_manifest_list == base_list else tagged
        for number in snapshots.ids():
            snapshot = snapshots.load(number) if number > since else None
            if snapshot is not None:
                yield snapshot
                self._seen = (snapshot.id, snapshot.base_manifest_list)


def _zone(table: str, option: str, name: str) -> tzinfo | None:
    """None for the zone of this machine, as in Paimon for the JVM's."""
    if not name.strip():
        return None
    found = _OFFSET.fullmatch(name.strip())
    if found:
        shift = timedelta(hours=int(found[2]), minutes=int(found[3] or 0))
        return timezone(-shift if found[1] == "-" else shift)
    try:
        return ZoneInfo(name.strip())
    except (ZoneInfoNotFoundError, ValueError):
        return _refuse(table, option, name, "a time zone such as 'Europe/Berlin' or 'GMT+02:00'")


def _refuse(table: str, option: str, found: str, expected: str) -> tzinfo:
    raise Misuse(
        f"{table}: table option {option} is {found!r}, expected {expected}. Nothing was written. Set the "
        f"table's option to such a value {shell.set_option(table, option)}",
        kind="option.value",
    )
