"""What the retained snapshots of a table tell: who committed what and when, restarts, and accidents."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.errors import Corrupt
from streamsink.format.snapshot import OVERWRITE, Snapshot
from streamsink.protocol.committable import AppState
from streamsink.storage.reading import Questions
from streamsink.table.application_states import PREFIX, is_foreign, state_of_text
from streamsink.table.branching.fast_forward import PROPERTY as FAST_FORWARD
from streamsink.table.branching.rollback import PROPERTY as ROLLBACK
from streamsink.table.history.lineage import PROCEDURE
from streamsink.table.snapshots import Snapshots
from streamsink.table.table import Table

#: So many snapshots are read at most, the newest ones, unless more are asked for.
MOST_SNAPSHOTS = 10_000
# Of a distant store so many snapshots are asked for at once.
_AT_ONCE = 64
# The beginnings of our own commit users that are no query, and what they are to people.
_CARE = ("streamsink-rollback-", "streamsink-fast-forward-", "streamsink-retire-")


@dataclass(frozen=True)
class Seen:
    """One snapshot, without what the report does not need.

    rows: how many more than before. application: the query that published it, '' for any other writer. writer: who
    that is to people. checkpoints: how many it publishes; 0 where it is no query's. planned_ms: when Spark planned the
    batch, 0 where that is not recorded. delta: name of the list of its own manifests.
    """

    id: int
    time_ms: int
    kind: str
    rows: int
    total: int
    user: str
    writer: str
    application: str
    checkpoints: int
    watermark_ms: int | None
    planned_ms: int
    delta: str


@dataclass(frozen=True)
class Happened:
    """Something that is no plain commit. kind: a word for programs. text: one sentence. times: how often."""

    time_ms: int | None
    snapshot: int | None
    kind: str
    text: str
    times: int = 1


@dataclass(frozen=True)
class History:
    """seen: the snapshots that were read, in order. happened: in order. retained, read: how many there are, and were
    looked at.
    """

    seen: Sequence[Seen]
    happened: Sequence[Happened]
    retained: int
    read: int


def read_history(table: Table, most: int, told: Callable[[int, int], None]) -> History:
    """Read the newest snapshots, at most so many, each once. A damaged one, or one that is missing, is told of.

    told(done, all): is called now and then.
    """
    chain = Snapshots(table.file_io, table.layout)
    ids = chain.ids()
    wanted = ids[-most:]
    found, happened = list[Seen](), list[Happened]()
    last: dict[str, Mapping[str, Any]] = {}
    before: int | None = None
    for number, snapshot in _loaded(table, chain, wanted, told):
        if before is not None and number != before + 1:
            happened.append(_missing(before, number, found))
        before = number
        if isinstance(snapshot, Corrupt):
            happened.append(Happened(_time(found), number, "damaged", f"Snapshot {number} cannot be read: {snapshot}."))
        elif snapshot is not None:
            happened += _of_states(snapshot, table, last, found)
    return History(found, happened, len(ids), len(wanted))


def _loaded(
    table: Table, chain: Snapshots, ids: Sequence[int], told: Callable[[int, int], None]
) -> Iterator[tuple[int, "Snapshot | Corrupt | None"]]:
    for begin in range(0, len(ids), _AT_ONCE):
        group = ids[begin : begin + _AT_ONCE]
        told(begin, len(ids))
        questions = Questions(read=tuple(chain.path(number) for number in group))
        with table.file_io.asking(questions if table.file_io.is_distant else Questions()):
            for number in group:
                try:
                    yield number, chain.load(number)
                except Corrupt as broken:
                    yield number, broken


def _of_states(
    snapshot: Snapshot, table: Table, last: dict[str, Mapping[str, Any]], found: list[Seen]
) -> list[Happened]:
    """Put the snapshot to those that were found, and return what happened with it."""
    happened = list(_of_kind(snapshot))
    if found and snapshot.time_millis < found[-1].time_ms:
        back = found[-1].time_ms - snapshot.time_millis
        text = f"Snapshot {snapshot.id} says a time {back:,} ms before that of snapshot {found[-1].id}: clocks differ."
        happened.append(Happened(snapshot.time_millis, snapshot.id, "clock", text))
    if not is_foreign(snapshot):  # who was retired begins anew, with record 1
        for name in [each for each in last if f"{PREFIX}{each}" not in (snapshot.properties or {})]:
            del last[name]
    application, state = "", None
    try:
        application, state = _publisher(snapshot, table.snapshots.path(snapshot.id))
    except Corrupt as broken:
        happened.append(Happened(snapshot.time_millis, snapshot.id, "damaged", f"{broken}."))
    checkpoints = 0
    if state is not None:
        known = last.get(application)
        happened += _of_query(snapshot, application, state, known)
        checkpoints = max(1, state["sequence"] - known["sequence"]) if known else 1
        last[application] = {name: state[name] for name in ("sequence", "epoch", "query")}
    found.append(
        Seen(
            snapshot.id,
            snapshot.time_millis,
            snapshot.commit_kind,
            rows=snapshot.delta_record_count,
            total=snapshot.total_record_count,
            user=snapshot.commit_user,
            writer=_writer(snapshot, application),
            application=application,
            checkpoints=checkpoints,
            watermark_ms=_watermark(snapshot),
            planned_ms=(state or {}).get("planned_ms", 0),
            delta=snapshot.delta_manifest_list,
        )
    )
    return happened


def _publisher(snapshot: Snapshot, path: str) -> tuple[str, Mapping[str, Any] | None]:
    """(name, state) of the query whose commit the snapshot is; ('', None) for any other writer's. path: of its file.

    A commit user is the application's name and the query's id. Every other application's state is only carried, so it
    is not read: there may be thousands of topics in each.
    """
    for key, text in (snapshot.properties or {}).items():
        name = key.removeprefix(PREFIX)
        if name == key or not snapshot.commit_user.startswith(f"{name}-"):
            continue
        try:
            value = state_of_text(text)
            told = AppState.told(value)
        except (ValueError, KeyError, TypeError, OSError, zlib.error) as broken:
            raise Corrupt(f"{path}: its property {key} cannot be read", kind="snapshot.state") from broken
        is_it = snapshot.commit_user.startswith(f"{name}-{told.query}")
        if is_it and snapshot.commit_identifier == told.checkpoint_id:
            return name, {**value, "query": told.query}
    return "", None


def _writer(snapshot: Snapshot, application: str) -> str:
    if application:
        return f"query {application}"
    if is_foreign(snapshot):
        return f"another program, user {snapshot.commit_user}"
    return "care (compaction, expiry, commands)"


def _of_kind(snapshot: Snapshot) -> Iterator[Happened]:
    properties, what = snapshot.properties or {}, ""
    if ROLLBACK in properties or snapshot.commit_user.startswith((PROCEDURE, _CARE[0])):
        kind, what = "rollback", "gives the table the rows of an earlier snapshot: a rollback"
    elif FAST_FORWARD in properties or snapshot.commit_user.startswith(_CARE[1]):
        kind, what = "fast-forward", "takes over what a branch has"
    elif snapshot.commit_user.startswith(_CARE[2]):
        kind, what = "retired", "takes a query out of the table for good"
    elif snapshot.commit_kind == OVERWRITE:
        kind = "overwrite-by-others" if is_foreign(snapshot) else "overwrite"
        what = "replaces or drops rows (OVERWRITE)"
    if what:
        rows = f"{snapshot.delta_record_count:+,} rows"
        text = f"Snapshot {snapshot.id} of '{snapshot.commit_user}' {what}; {rows}."
        yield Happened(snapshot.time_millis, snapshot.id, kind, text)


def _of_query(
    snapshot: Snapshot, name: str, state: Mapping[str, Any], known: Mapping[str, Any] | None
) -> Iterator[Happened]:
    if known is None:
        return
    at = (snapshot.time_millis, snapshot.id)
    if state["sequence"] <= known["sequence"]:
        text = (
            f"Snapshot {snapshot.id} has record {state['sequence']} of '{name}', and record {known['sequence']} was "
            "published before it: the table went back, and the query published again."
        )
        yield Happened(*at, "republished", text)
    if state["query"] != known["query"]:
        text = f"'{name}' goes on with another checkpoint of Spark's from snapshot {snapshot.id} on."
        yield Happened(*at, "new-checkpoint", text)
    starts = state["epoch"] - known["epoch"]
    if starts > 0:
        often = "was started again" if starts == 1 else f"was started {starts:,} times"
        text = f"'{name}' {often} before snapshot {snapshot.id} (start {state['epoch']:,})."
        yield Happened(*at, "restart", text, starts)


def _missing(before: int, number: int, found: Sequence[Seen]) -> Happened:
    gone = f"Snapshot {before + 1} is" if number == before + 2 else f"Snapshots {before + 1} to {number - 1} are"
    return Happened(_time(found), before + 1, "missing", f"{gone} missing between retained ones.")


def _time(found: Sequence[Seen]) -> int | None:
    return found[-1].time_ms if found else None


def _watermark(snapshot: Snapshot) -> int | None:
    """Only a watermark that is one: Paimon writes the smallest number where there is none."""
    mark = snapshot.watermark
    return mark if mark is not None and 0 < mark < 2**53 else None


def counts(happened: Sequence[Happened]) -> dict[str, int]:
    """How often each kind has happened, in alphabetical order."""
    often = Counter[str]()
    for each in happened:
        often[each.kind] += each.times
    return dict(sorted(often.items()))
