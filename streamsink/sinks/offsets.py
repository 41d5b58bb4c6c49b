"""Kafka starting positions from the table's own record, for a new checkpoint that reads nothing twice."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamsink.errors import Misuse
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.recorded import Recorded, TopicRecord
from streamsink.sinks.history_of import is_undone_in, names_of
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog, journal_dir
from streamsink.storage.stores import Store
from streamsink.table.lineage import were_named
from streamsink.table.table import Table, is_table, open_table

_EARLIEST = -2


@dataclass(frozen=True)
class Wanted:
    """What the caller of ``starting_offsets`` asks for besides the table and the application.

    partitions: {topic: number}; those that the table does not know begin at their earliest offset. source: place or name of
    one source of the query; None for all. from_beginning: topics whose record is not to count. without: topics to leave out.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    source: int | str | None = None
    from_beginning: Sequence[str] = ()
    without: Sequence[str] = ()


def starting_offsets(store: Store, application: str, wanted: Wanted) -> str:
    """JSON for ``startingOffsets``. Counts what is pending in the journal too: the next start publishes that first. Of a table that was rolled
    back, what it has counts.

    Raises Misuse when the table records no Kafka positions of that application, or several sources have read a topic up
    to different positions and none of them is named.
    """
    return offsets_of(store.open(), store.root, application, wanted)


def offsets_of(file_io: FileIO, root: str, application: str, wanted: Wanted) -> str:
    """As ``starting_offsets``, on a store that is open."""
    if not is_table(file_io, root) and file_io.entries(journal_dir(root, application)):
        return _of_several_tables(file_io, root, application, wanted)
    table = open_table(file_io, root, for_writing=False)
    states = table.states.read(table.snapshots.latest())
    found = states.by_application.get(application)
    state = AppState.from_json(found) if found is not None else None
    journal = PendingLog(file_io, table.root, application, 2)
    newest = _newest_there(table, journal) if state is None and not states.complete else journal.newest()
    if newest is not None and (state is None or newest.state.sequence > state.sequence) and not _went_back(journal, state, states.complete):
        state = newest.state
    if state is None or not state.recorded:
        known = ", ".join(sorted(states.by_application)) or "none"
        raise Misuse(
            f"{table.root}: no Kafka positions are recorded for application '{application}'; applications that have "
            f"written here: {known}",
            kind="positions.none",
        )
    return _text(root, state.recorded, wanted)


def _went_back(journal: PendingLog, state: AppState | None, complete: bool) -> bool:
    """Whether the table has lost what was published behind ``state``, its last one: the journal's positions are not the table's then."""
    journal.read_listing()
    base = state.sequence if state is not None else 0
    return (state is not None or complete) and any(journal.is_marked(sequence) for sequence in journal.retained() if sequence > base)


def _newest_there(table: Table, journal: PendingLog) -> Committable | None:
    """The newest record, published or pending, of an application of which no snapshot says anything any more. Of those before one that a
    rollback has taken, the last one of which a snapshot names files."""
    journal.read_listing()
    records = [record for record in map(journal.load, journal.retained()) if record is not None]
    lost = [record for record in records if journal.is_marked(record.state.sequence) and is_undone_in(table, journal, record)]
    if not lost:
        return journal.newest()
    before = [record for record in records[:records.index(lost[0])] if were_named(table, names_of(record))]
    return before[-1] if before else None


def _of_several_tables(file_io: FileIO, root: str, application: str, wanted: Wanted) -> str:
    """Where a query into several tables is: its journal's newest record, which is published or will be."""
    newest = PendingLog(file_io, root, application, 2).newest()
    if newest is None or not newest.state.recorded:
        raise Misuse(
            f"{root}: no Kafka positions are recorded for application '{application}' in its journal", kind="positions.none"
        )
    return _text(root, newest.state.recorded, wanted)


def _text(root: str, recorded: Recorded, wanted: Wanted) -> str:
    offsets: dict[str, dict[str, int]] = {}
    _check_without(root, recorded, wanted.without)
    for record in _wanted_of(root, recorded, wanted.source):
        if record.topic in wanted.without:
            continue
        if record.topic in wanted.from_beginning:
            if record.topic not in wanted.partitions:
                offsets.setdefault(record.topic, {}).update(dict.fromkeys(record.next, _EARLIEST))
            continue
        known = offsets.setdefault(record.topic, {})
        for part, at in record.next.items():
            if known.setdefault(part, at) != at:
                sources = sorted({other.source for other in recorded.of_topic(record.topic)})
                raise Misuse(
                    f"{root}: sources {', '.join(map(repr, sources))} have read topic '{record.topic}' up to different "
                    "positions, or topics of that name in different clusters. Name one of them: source=..., its place in "
                    "the query from 0, or its name",
                    kind="positions.several-sources",
                )
    for topic, count in wanted.partitions.items():
        for part in range(count):
            offsets.setdefault(topic, {}).setdefault(str(part), _EARLIEST)
    return json.dumps(offsets, sort_keys=True)


def _check_without(root: str, recorded: Recorded, without: Sequence[str]) -> None:
    known = {record.topic for record in recorded.topics}
    unknown = sorted(set(without) - known)
    if unknown:
        raise Misuse(
            f"{root}: without names {', '.join(map(repr, unknown))}, of which no positions are recorded; recorded are "
            f"{', '.join(sorted(known))}. Give a list of recorded topics",
            kind="positions.unknown-topic",
        )


def _wanted_of(root: str, recorded: Recorded, source: int | str | None) -> list[TopicRecord]:
    if source is None:
        return list(recorded.topics)
    found = [record for record in recorded.topics if record.source == str(source)]
    if not found:
        known = ", ".join(sorted({repr(record.source) for record in recorded.topics}))
        raise Misuse(
            f"{root}: no Kafka positions are recorded for source {source!r}; those that are: {known}", kind="positions.none"
        )
    return found
