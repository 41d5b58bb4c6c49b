"""The queries that write a table, for the report: how far each has come, what is pending, and how long commits take."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from streamsink.errors import Corrupt, StreamsinkError
from streamsink.journal.file_journal import FileJournal
from streamsink.operations.journals import applications_of, journals_at, look_at_journals
from streamsink.operations.report.history import Happened, Seen
from streamsink.protocol.committable import DEAD_LETTERS, AppState
from streamsink.protocol.journal import Mark
from streamsink.storage.file_io import FileIO
from streamsink.table.history.lineage import was_replaced, was_rolled_back
from streamsink.table.table import Table, is_table, open_table

# In a state: what a sink carries on, and in it the tables for dead letters that a query has written beside this one.
_CARRIED, _HEADS = "carried", "dead_letters"


def applications(table: Table, seen: Sequence[Seen]) -> list[dict[str, Any]]:
    """How far each query has come, as the newest snapshot says it, by name. Raises Corrupt."""
    newest = {each.application: each for each in seen if each.application}
    found = []
    for name, said in sorted(table.states.read(table.snapshots.latest()).by_application.items()):
        state, last = AppState.from_json(said), newest.get(name)
        topics = [
            {"topic": each.topic, "source": each.source, "partitions": len(each.next), "next": sum(each.next.values())}
            for each in state.recorded.topics
        ]
        found.append(
            {
                "application": name,
                "checkpoint": state.checkpoint_name,
                "record": state.sequence,
                "starts": state.epoch,
                "query": state.query,
                "last_snapshot": last.id if last else None,
                "last_ms": last.time_ms if last else None,
                "watermark_ms": last.watermark_ms if last else None,
                "read_last": _read_by_last(state),
                "topics": topics,
                "sources": [json.dumps(source.end, default=str) for source in state.sources if not source.numeric],
            }
        )
    return found


def _read_by_last(state: AppState) -> int | None:
    """How many messages the last batch has read from Kafka; None where no source is Kafka, or one says no start."""
    count, numeric = 0, [source for source in state.sources if source.numeric]
    for source in numeric:
        for topic, parts in source.end.items():
            for part, end in parts.items():
                first = source.first(topic, part)
                if first is None:
                    return None
                count += end - first
    return count if numeric else None


def pending(file_io: FileIO, root: str, now_ms: int) -> list[dict[str, Any]]:
    """The journals of the queries, with what is recorded in each and not published. now_ms: since the epoch.

    Raises as ``look_at_journals``.
    """
    return [
        {
            "application": look.application,
            "owner": asdict(look.owner) if look.owner else None,
            "published": look.published,
            "retained": look.retained,
            "missing": look.missing,
            "pending": [
                {
                    "record": each.sequence,
                    "checkpoint": each.name,
                    "rows": each.rows,
                    "files": each.files,
                    "bytes": each.bytes,
                    "age_ms": None if each.written_ms is None else now_ms - each.written_ms,
                    "state": _state(each.problem, each.undone, len(each.gone)),
                }
                for each in look.pending
            ],
        }
        for look in look_at_journals(file_io, root)
    ]


def _state(problem: str, undone: bool, gone: int) -> str:
    if problem:
        return "it cannot be read"
    if undone:
        return "it was published, and is not in the table any more"
    return f"{gone} of its files are gone" if gone else "the next start publishes it"


def marks(table: Table) -> tuple[list[dict[str, Any]], list[Happened]]:
    """(for each record that is retained and published, when it was durable and when visible; what befell its snapshot).

    The times are those of the record's file and of its mark. A journal keeps its last 100 published records, unless
    the option ``journal_retain`` says another number.
    """
    times, happened = [], list[Happened]()
    root = table.root
    place = journals_at(table.file_io, root)
    for name in applications_of(table.file_io, root):
        journal = FileJournal(table.file_io, place, name, 2, of_table=True)
        journal.read_listing()
        for sequence in journal.retained():
            mark = journal.mark_of(sequence) if journal.is_marked(sequence) else None
            if not isinstance(mark, Mark):
                continue
            written = table.file_io.modified_ms(os.path.join(journal.place, f"record-{sequence}.json"))
            if written is not None:
                times.append({"application": name, "record": sequence, "from_ms": int(written), "to_ms": mark.at_ms})
            happened += [*_of_mark(table, name, sequence, mark), *_letters_of(journal, sequence, mark)]
    return times, happened


def _letters_of(journal: FileJournal, sequence: int, mark: Mark) -> Iterator[Happened]:
    """The rows of a record that did not fit, if there are some."""
    try:
        record = journal.load(sequence)
    except StreamsinkError:
        return  # a finding tells that this record is damaged
    part = record.payload.get(DEAD_LETTERS) if record is not None else None
    if record is not None and part is not None and part["files"]:
        rows = sum(each["rows"] for each in part["files"])
        text = f"{rows:,} rows of record {sequence} of '{record.application}' did not fit: '{part['name']}' has them."
        yield Happened(mark.at_ms, mark.snapshot_id, "dead-letters", text)


def _of_mark(table: Table, name: str, sequence: int, mark: Mark) -> list[Happened]:
    at = (mark.snapshot_id, mark.uuid, mark.at_ms)
    what = f"record {sequence} of '{name}'"
    try:
        if was_replaced(table, *at):
            text = f"Snapshot {mark.snapshot_id}, which published {what}, was replaced by another writer's rename."
            return [Happened(mark.at_ms, mark.snapshot_id, "replaced", text)]
        if was_rolled_back(table, *at):
            text = f"Snapshot {mark.snapshot_id}, which published {what}, was deleted: somebody rolled the table back."
            return [Happened(mark.at_ms, mark.snapshot_id, "rolled-back", text)]
    except Corrupt:
        return []  # the history tells that this snapshot is damaged
    if mark.again:
        text = f"A start was about to publish {what} once more; it was in snapshot {mark.snapshot_id} before."
        return [Happened(mark.at_ms, mark.snapshot_id, "republished", text)]
    return []


def dead_letters(table: Table) -> list[dict[str, Any]]:
    """The tables beside this one that have its queries' dead letters, with their rows now."""
    found: dict[str, dict[str, Any]] = {}
    for name, said in table.states.read(table.snapshots.latest()).by_application.items():
        heads = said.get(_CARRIED, {}).get(_HEADS, {})
        for beside in heads if isinstance(heads, dict) else ():
            path = f"{table.layout.main.rpartition('/')[0]}/{beside}"
            if path == table.root:
                continue
            found[path] = {"application": name, "path": path, "rows": _rows_of(table.file_io, path)}
    return [found[path] for path in sorted(found)]


def _rows_of(file_io: FileIO, path: str) -> int | None:
    """None where that table is gone or damaged."""
    try:
        if not is_table(file_io, path):
            return None
        newest = open_table(file_io, path, for_writing=False).snapshots.latest()
    except StreamsinkError:
        return None
    return newest.total_record_count if newest is not None else 0
