"""Old snapshots expire, by the rules and options of Paimon, and with them the files that only they need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamsink import shell
from streamsink.clock import Clock
from streamsink.errors import Corrupt, Misuse
from streamsink.events import log
from streamsink.format.snapshot import Snapshot
from streamsink.table.application_states import is_foreign
from streamsink.table.care.named import DataFile, deleted_by, metadata_of
from streamsink.table.care.removal import Needed, Needing, Removal, finish, head_of, protecting, remove, unnamed
from streamsink.table.durations import parse_duration
from streamsink.table.history.retained import Kind, Root, consumers
from streamsink.table.iceberg_metadata.following import Following
from streamsink.table.table import Table

_MIN, _MAX = "snapshot.num-retained.min", "snapshot.num-retained.max"
_TIME, _LIMIT = "snapshot.time-retained", "snapshot.expire.limit"
_DEFAULT_MIN, _DEFAULT_TIME_MS, _DEFAULT_LIMIT = 10, 3_600_000, 50
_NO_MAX = 2**31 - 1


@dataclass(frozen=True)
class Retention:
    """Which snapshots stay.

    At least ``num_min`` and at most ``num_max`` of them; between the two, one stays until the one behind it is older
    than ``time_ms``. At most ``limit`` expire at once.
    """

    num_min: int = _DEFAULT_MIN
    num_max: int = _NO_MAX
    time_ms: float = _DEFAULT_TIME_MS
    limit: int = _DEFAULT_LIMIT

    @classmethod
    def of(
        cls,
        table: str,
        options: Mapping[str, str],
        *,
        num_min: int | None = None,
        num_max: int | None = None,
        time_ms: float | None = None,
        limit: int | None = None,
    ) -> "Retention":
        """From the table's options; an argument that is given counts more.

        Raises Misuse ``option.value``, and ``table.unsupported-option`` for changelogs that outlive their snapshots.
        """

        def number(key: str, default: int) -> int:
            text = options.get(key, str(default)).strip()
            return int(text) if text.isdecimal() else _refuse(table, key, text, "a whole number")

        def duration(key: str, default: float) -> float:
            return parse_duration(table, key, options[key]) if key in options else default

        for key, argument in ((_MIN, num_min), (_MAX, num_max), (_LIMIT, limit)):
            if argument is not None and (not isinstance(argument, int) or isinstance(argument, bool)):
                _refuse(table, key, repr(argument), "a whole number")
        own = cls(number(_MIN, _DEFAULT_MIN), number(_MAX, _NO_MAX), duration(_TIME, _DEFAULT_TIME_MS))
        longer = (
            number("changelog.num-retained.min", own.num_min) > own.num_min
            or number("changelog.num-retained.max", own.num_max) > own.num_max
            or duration("changelog.time-retained", own.time_ms) > own.time_ms
        )
        if longer:
            raise Misuse(
                f"{table}: its options changelog.* keep changelogs for longer than snapshots, which is not done here. "
                "Nothing was deleted. Let Paimon expire this table's snapshots, or take these options off",
                kind="table.unsupported-option",
            )
        found = cls(
            own.num_min if num_min is None else num_min,
            own.num_max if num_max is None else num_max,
            own.time_ms if time_ms is None else time_ms,
            number(_LIMIT, _DEFAULT_LIMIT) if limit is None else limit,
        )
        if found.num_min < 1:
            _refuse(table, _MIN, str(found.num_min), "at least 1")
        if found.num_max < found.num_min:
            _refuse(table, _MAX, str(found.num_max), f"at least {found.num_min}, which is {_MIN}")
        if found.limit < 1:
            _refuse(table, _LIMIT, str(found.limit), "at least 1")
        return found


@dataclass(frozen=True)
class ExpiryPlan:
    """What would expire; ``str()`` of it says it for people.

    snapshots: the numbers that go, in order. first_kept: the first one that stays; 0 in a table without snapshots.
    held: why no more of them go. notes: what cannot be read, and so stays.
    """

    table: str
    snapshots: tuple[int, ...]
    first_kept: int
    held: str
    removal: Removal = field(repr=False, default=Removal((), None, (), ()))
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        files = f"{len(self.removal.data)} data files and {len(self.removal.metadata)} files of metadata"
        said = f"{self.table}: no snapshot expires: {self.held}"
        if self.snapshots:
            said = (
                f"{self.table}: snapshots {self.snapshots[0]} to {self.snapshots[-1]} expire ({len(self.snapshots)}), "
                f"with {files}; from {self.first_kept} on they stay: {self.held}"
            )
        return "\n".join([said, *(f"  {note}" for note in self.notes)])


def plan(table: Table, retention: Retention, needing: Needing, now_ms: int | None = None) -> ExpiryPlan:
    """What expires now. Changes nothing. Raises Corrupt, naming the file, where what must stay cannot be read."""
    chosen, needed = choose(table, retention, needing, now_ms)
    if not chosen.snapshots:
        return chosen
    last = table.snapshots.load(chosen.first_kept)
    if last is None:
        return replace(chosen, snapshots=(), first_kept=chosen.snapshots[0])
    doomed = [found for number in chosen.snapshots if (found := table.snapshots.load(number)) is not None]
    removal, notes = _removal(table, doomed, last, needed.files)
    gone = tuple(each.id for each in doomed)
    return replace(chosen, snapshots=gone, removal=removal, notes=(*chosen.notes, *notes))


def choose(
    table: Table, retention: Retention, needing: Needing, now_ms: int | None = None
) -> tuple[ExpiryPlan, Needed]:
    """(the snapshots that expire now, without their files; what is needed). Raises as ``plan``.

    This reads few snapshots. To know which files go with them, ``plan`` reads the manifests of all that stay.
    """
    ids, newest = table.snapshots.ids(), table.snapshots.latest()
    if not ids or newest is None:
        return ExpiryPlan(table.root, (), 0, "it has no snapshot"), Needed()
    ids = [number for number in ids if number <= newest.id]
    end, held = _end(table, retention, ids, Clock().now_ms() if now_ms is None else now_ms)
    needed, kept = _needed(table, newest, needing()), tuple[str, ...]()
    if needed.since is not None and needed.since < end:
        if needed.since <= ids[0] and end - ids[0] >= retention.limit:
            kept = (f"{end - ids[0]} snapshots from {ids[0]} on, or more, would expire, and stay: {needed.why}",)
        end, held = needed.since, needed.why
    going, first = tuple(number for number in ids if number < end), next(number for number in ids if number >= end)
    return ExpiryPlan(table.root, going, first if going else ids[0], held, notes=kept), needed


def expire(table: Table, retention: Retention, needing: Needing) -> ExpiryPlan:
    """Finish what a dead process has begun, and let expire what is to expire now. Returns what has expired.

    Idempotent. After a crash every snapshot that is there is whole, and the next call finishes. What the table's
    Iceberg metadata names stays until it names it no more. Raises as ``plan``.
    """
    everyone = everybody_needing(table, needing)
    finished = finish(table, everyone)
    planned = plan(table, retention, needing)
    for note in planned.notes:
        log.warning("%s: %s", table.root, note)
    if planned.snapshots and not Following(table).forget(planned.snapshots):
        held = "its Iceberg metadata could not be made without those that would expire (see the log)"
        return replace(planned, snapshots=finished.snapshots, held=held)
    done = remove(table, planned.removal, everyone)
    return replace(planned, snapshots=(*finished.snapshots, *done.snapshots))


def everybody_needing(table: Table, needing: Needing) -> Needing:
    """What is needed by ``needing``, by consumers, and as the newest state of applications."""

    def needed() -> Needed:
        newest = table.snapshots.latest()
        return needing() if newest is None else _needed(table, newest, needing())

    return needed


def _end(table: Table, retention: Retention, ids: Sequence[int], now_ms: int) -> tuple[int, str]:
    """(number of the first snapshot that the retention keeps, why it is kept)."""
    newest, earliest = ids[-1], ids[0]
    bounds = [
        (newest - retention.num_min + 1, f"{_MIN} is {retention.num_min}"),
        (earliest + retention.limit, f"{_LIMIT} is {retention.limit}, so the next call goes on"),
    ]
    end, held = min(bounds)
    older_than = now_ms - retention.time_ms
    for number in range(max(newest - retention.num_max + 1, earliest), end):
        following = table.snapshots.load(number + 1)
        if following is not None and older_than <= following.time_millis:
            return number, f"{_TIME} is {retention.time_ms:,.0f} ms, and snapshot {number + 1} is not older"
    return max(end, earliest), held


def _needed(table: Table, newest: Snapshot, needed: Needed) -> Needed:
    only_changelogs = table.known_schema.options.get("consumer.changelog-only", "false").strip().lower() == "true"
    for each in () if only_changelogs else consumers(table):
        needed = needed.with_other(
            Needed(each.next_snapshot, f"consumer {each.name} reads snapshot {each.next_snapshot} next")
        )
    stated = _newest_with_states(table, newest)
    why = f"snapshot {stated} is the newest one that says how far streamsink's queries have come"
    return needed.with_other(Needed(stated, why))


def _newest_with_states(table: Table, newest: Snapshot) -> int | None:
    """Number of the newest snapshot that carries states of applications; None where no retained one does."""
    found: Snapshot | None = newest
    for number in range(newest.id - 1, -1, -1):
        if found is None or not is_foreign(found):
            break
        found = table.snapshots.load(number) if number else None
    return found.id if found is not None else None


def _removal(
    table: Table, doomed: Sequence[Snapshot], last: Snapshot, needed: frozenset[str]
) -> tuple[Removal, tuple[str, ...]]:
    """What goes with these snapshots, and what cannot be read of them. last: the first one that stays.

    A file that a snapshot deletes is needed by those before it alone, which all go.
    """
    heads, notes, data, metadata = (
        tuple(head_of(table, each) for each in doomed),
        list[str](),
        dict[str, DataFile](),
        set[str](),
    )
    for snapshot in (*doomed[1:], last):
        try:
            data |= {file.name: file for file in deleted_by(table, snapshot)}
        except Corrupt as broken:
            notes.append(f"data files that snapshot {snapshot.id} deletes stay, because it cannot be read: {broken}")
    for snapshot in doomed:
        try:
            metadata |= metadata_of(table, _root(table, snapshot), gone_ok=True)
        except Corrupt as broken:
            notes.append(f"manifests of snapshot {snapshot.id} stay, because it cannot be read: {broken}")
    end = (last.id, last.base_manifest_list)
    whole = Removal(heads, end, tuple(data.values()), tuple(sorted(metadata)))
    staying = protecting(table, end, without={table.layout.within(head.path) for head in heads})
    gone_data, gone_metadata = unnamed(table, whole, staying, needed)
    return Removal(heads, end, tuple(gone_data), tuple(gone_metadata)), tuple(notes)


def _root(table: Table, snapshot: Snapshot) -> Root:
    path = table.snapshots.path(snapshot.id)
    return Root(Kind.SNAPSHOT, "", path, f"snapshot-{snapshot.id}", snapshot)


def _refuse(table: str, option: str, found: str, expected: str) -> int:
    raise Misuse(
        f"{table}: {option} is {found}, expected {expected}. Nothing was deleted. Set the table's option "
        f"{shell.set_option(table, option)}, or the argument, to such a value",
        kind="option.value",
    )
