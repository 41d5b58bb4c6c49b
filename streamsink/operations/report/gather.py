"""Gathers what the report of a table says, as one JSON object. Changes nothing, and needs no Spark.

Each part is looked at for itself: what is damaged is told in its place, and the rest of the report is there.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamsink.clock import Clock
from streamsink.errors import StreamsinkError
from streamsink.operations.doctor import diagnose, is_ill
from streamsink.operations.report import buckets, queries
from streamsink.operations.report.care import care_of
from streamsink.operations.report.files import changed_files, live_files
from streamsink.operations.report.history import MOST_SNAPSHOTS, History, Seen, counts, read_history
from streamsink.protocol.sink import VERSION
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table, open_table

# So much of what has happened, and so many snapshots, writers and findings are listed one by one, the newest ones.
MOST_HAPPENED, MOST_LISTED, MOST_WRITERS, MOST_FINDINGS, MOST_RECORDS = 100, 20, 8, 50, 20
_OTHERS = "all others"
# What reading a record ends with that is JSON and says something else than it should, because it was altered.
_ODD = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
# What has no time of its own is sorted where the first one of its kind may have been.
_WITHOUT_TIME = 0


@dataclass(frozen=True)
class Wanted:
    """How much is looked at. snapshots: how many are read, the newest ones. findings: whether ``doctor`` looks."""

    snapshots: int = MOST_SNAPSHOTS
    findings: bool = True


def gather(
    file_io: FileIO, root: str, wanted: Wanted = Wanted(), told: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The report as a JSON object; docs/REPORT.md has its names. told: is given how far it has come, for a terminal.

    Raises Misuse where there is no table that can be read here, and Corrupt where its schema is damaged.
    """
    table, now = open_table(file_io, root, for_writing=False), Clock().now_ms()
    history = read_history(
        table, wanted.snapshots, lambda done, every: told(f"{done:,} of {every:,} snapshots are read")
    )
    told("queries and journals")
    times, of_marks = _attempt("marks", lambda: queries.marks(table)) or ([], [])
    happened = sorted(
        [*history.happened, *of_marks], key=lambda each: (each.time_ms or _WITHOUT_TIME, each.snapshot or 0)
    )
    told("files")
    newest = _attempt("newest", table.snapshots.latest)
    is_whole = not isinstance(newest, dict)
    document = {
        "table": root,
        "branch": table.layout.branch,
        "made_ms": now,
        "version": VERSION,
        "summary": _summary(table, history),
        "history": _history(history, happened),
        "commits": _commits(history.seen, times),
        "batches": _batches(table, history.seen),
        "files": _attempt("files", lambda: live_files(table, newest)) if is_whole else newest,
        "queries": _attempt("queries", lambda: queries.applications(table, history.seen)),
        "pending": _attempt("pending", lambda: _few(queries.pending(file_io, root, now))),
        "dead_letters": _attempt("dead letters", lambda: queries.dead_letters(table)),
    }
    told("maintenance")
    document["care"] = care_of(table, _attempt)
    document["findings"] = _findings(file_io, root, told) if wanted.findings else None
    return document


def is_ill_at(document: dict[str, Any]) -> bool:
    """Whether a finding is to be mended, as ``streamsink doctor`` says with its exit code."""
    return bool((document["findings"] or {}).get("ill"))


def _attempt(name: str, look: Callable[[], Any]) -> Any:
    """What a look finds; {"problem": ...} where what it needs is damaged or refused."""
    try:
        return look()
    except (StreamsinkError, FileNotFoundError, IsADirectoryError, PermissionError) as broken:
        return None if name == "marks" else {"problem": str(broken)}
    except _ODD as odd:
        problem = f"What is recorded of this is not in a form that is known here ({type(odd).__name__}: {odd})"
        return None if name == "marks" else {"problem": problem}


def _summary(table: Table, history: History) -> dict[str, Any]:
    last = history.seen[-1] if history.seen else None
    schema = table.known_schema
    return {
        "rows": last.total if last else 0,
        "retained": history.retained,
        "read": history.read,
        "first": history.seen[0].id if history.seen else None,
        "newest": last.id if last else None,
        "newest_ms": last.time_ms if last else None,
        "columns": len(schema.fields),
        "schema_id": schema.id,
        "partition_keys": list(schema.partition_keys),
    }


def _history(history: History, happened: Sequence[Any]) -> dict[str, Any]:
    """By parts of time, the number of snapshots of each kind, and of each writer; and what happened."""
    seen = history.seen
    scale = buckets.Scale.over([each.time_ms for each in seen])
    kinds = sorted({each.kind for each in seen})
    usual = _largest([each.writer for each in seen])

    def named(each: Seen) -> str:
        return each.writer if each.writer in usual else _OTHERS

    by_kind = scale.grouped((each.time_ms, each.kind) for each in seen)
    by_writer = scale.grouped((each.time_ms, named(each)) for each in seen)
    writers = [*usual, *([_OTHERS] if any(each.writer not in usual for each in seen) else [])]
    marked = [(each.time_ms, each) for each in happened if each.time_ms is not None]
    return {
        "scale": scale.to_json(),
        "kinds": {kind: [part.count(kind) for part in by_kind] for kind in kinds},
        "writers": {writer: [part.count(writer) for part in by_writer] for writer in writers},
        "restarts": [sum(e.times for e in part if e.kind == "restart") for part in scale.grouped(marked)],
        "accidents": [sum(e.times for e in part if e.kind != "restart") for part in scale.grouped(marked)],
        "counts": counts(happened),
        "events": len(happened),
        "happened": [asdict(each) for each in happened[-MOST_HAPPENED:]],
        "listed": [_listed(each) for each in seen[-MOST_LISTED:]],
    }


def _listed(each: Seen) -> dict[str, Any]:
    names = ("id", "time_ms", "kind", "rows", "total", "user", "writer")
    return {name: getattr(each, name) for name in names}


def _largest(names: Sequence[str]) -> list[str]:
    """The names that are there most often, at most so many, the most frequent one first."""
    often = Counter(names)
    return sorted(often, key=lambda name: (-often[name], name))[:MOST_WRITERS]


def _commits(seen: Sequence[Seen], times: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How long commits take, as far as the table tells.

    publish: from the durable record to the mark behind the snapshot; only of records that the journals still have.
    planned: from Spark's planning of a batch to its snapshot; only where the position of a source is a counter, as of
    files. between: from a query's snapshot to its next one.
    """
    last: dict[str, int] = {}
    between = list[tuple[int, float]]()
    for each in seen:
        if each.application:
            if each.application in last:
                between.append((each.time_ms, max(0, each.time_ms - last[each.application])))
            last[each.application] = each.time_ms
    planned = [(each.time_ms, float(each.time_ms - each.planned_ms)) for each in seen if each.planned_ms]
    publish = [(each["to_ms"], float(max(0, each["to_ms"] - each["from_ms"]))) for each in times]
    return {name: _lengths(found) for name, found in (("publish", publish), ("planned", planned), ("between", between))}


def _lengths(found: Sequence[tuple[int, float]]) -> dict[str, Any] | None:
    if not found:
        return None
    scale = buckets.Scale.over([time_ms for time_ms, _ in found])
    values = [value for _, value in found]
    return {
        "summary": buckets.summary(values),
        "lengths": buckets.durations(values),
        "scale": scale.to_json(),
        "over_time": buckets.over_time(scale, found),
    }


def _batches(table: Table, seen: Sequence[Seen]) -> dict[str, Any]:
    """Rows and bytes that the commits of queries have added, and how far their watermark was behind."""
    commits = [each for each in seen if each.application]
    changed = changed_files(table, [each for each in seen if each.application])
    sized = [each for each in commits if each.id in changed]
    delayed = [(each.time_ms, float(max(0, each.time_ms - each.watermark_ms))) for each in commits if each.watermark_ms]
    rows = [(each.time_ms, each.rows) for each in commits]
    size = [(each.time_ms, changed[each.id]["added_bytes"]) for each in sized]
    files = [changed[each.id]["added_files"] for each in sized]
    return {
        "commits": len(commits),
        "checkpoints": sum(each.checkpoints for each in commits),
        "rows": _amounts(rows),
        "bytes": _amounts(size),
        "files": buckets.summary(files),
        "watermark": _amounts(delayed),
    }


def _amounts(found: Sequence[tuple[int, float]]) -> dict[str, Any] | None:
    if not found:
        return None
    scale = buckets.Scale.over([time_ms for time_ms, _ in found])
    return {
        "summary": buckets.summary(value for _, value in found),
        "scale": scale.to_json(),
        "over_time": buckets.over_time(scale, found),
    }


def _few(journals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the first records of each journal alone, and how many there are."""
    return [{**each, "count": len(each["pending"]), "pending": each["pending"][:MOST_RECORDS]} for each in journals]


def _findings(file_io: FileIO, root: str, told: Callable[[str], None]) -> dict[str, Any]:
    def of_check(done: int, every: int) -> None:
        told(f"{done:,} of {every:,} snapshots are checked")

    found = _attempt("findings", lambda: diagnose(file_io, root, told=of_check))
    if isinstance(found, dict):
        return {**found, "ill": True, "count": 1, "listed": []}
    return {"ill": is_ill(found), "count": len(found), "listed": [vars(each) for each in found[:MOST_FINDINGS]]}
