"""Kafka starting positions from the table's own record, for a new checkpoint that reads nothing twice. Driver only."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streamsink.commands.own_sinks import check_of_tables
from streamsink.errors import Misuse
from streamsink.journal.file_journal import FileJournal, journal_dir
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.journal import readable
from streamsink.protocol.recorded import Recorded, TopicRecord
from streamsink.sinks.paimon.past.history_of import journal_of, names_of, needs_a_start, was_undone, where_marked
from streamsink.storage.file_io import FileIO
from streamsink.storage.store_failures import told_of
from streamsink.storage.stores import Store
from streamsink.table.history.lineage import were_named
from streamsink.table.table import Table, is_table, open_table

# Kafka's sign, in ``startingOffsets``, for the earliest offset of a partition.
_EARLIEST = -2


@dataclass(frozen=True)
class Wanted:
    """What the caller of ``starting_offsets`` asks for besides the table and the application.

    partitions: {topic: number of its partitions}; partitions that the table does not know begin at their earliest
    offset. source: place or name of one source of the query; None for all sources. from_beginning: topics whose record
    is not to count. without: topics to leave out.
    """

    partitions: Mapping[str, int] = field(default_factory=dict)
    source: int | str | None = None
    from_beginning: Sequence[str] = ()
    without: Sequence[str] = ()


def starting_offsets(store: Store, application: str, wanted: Wanted) -> str:
    """JSON for Kafka's option ``startingOffsets``, which begins behind what the application has written.

    What is pending in the journal counts, too, because the next start publishes that first. Of a table that was rolled
    back, only what it has counts.
    Raises Misuse when the table records no Kafka positions of that application; when only a start of the query settles
    which of its rows are there; and when several sources have read a topic up to different positions and none of them
    is named.
    """
    with told_of(store.root, "starting_offsets"):
        return offsets_of(store.open(), store.root, application, wanted)


def offsets_of(file_io: FileIO, root: str, application: str, wanted: Wanted) -> str:
    """As ``starting_offsets``, on a store that is open."""
    check_of_tables(file_io, root, application, "starting_offsets")
    if not is_table(file_io, root) and file_io.entries(journal_dir(root, application)):
        return _of_several_tables(file_io, root, application, wanted)
    table = open_table(file_io, root, for_writing=False)
    states = table.states.read(table.snapshots.latest())
    found = states.by_application.get(application)
    state = AppState.from_json(found) if found is not None else None
    newest = _Journal(table, journal_of(table, application), application).newest_there(state, states.complete)
    if newest is not None and (state is None or newest.state.sequence > state.sequence):
        state = newest.state
    if state is None or not state.recorded:
        known = ", ".join(sorted(states.by_application)) or "none"
        raise Misuse(
            f"{table.root}: no Kafka positions are recorded for application '{application}'; applications that have "
            f"written here: {known}",
            kind="positions.none",
        )
    return offsets_text(root, state.recorded, wanted)


class _Journal:
    """What the journal of a query of one table says beyond what the table itself says, or still says."""

    def __init__(self, table: Table, journal: FileJournal, application: str):
        journal.read_listing()
        self._table = table
        self._journal = journal
        self._application = application

    def newest_there(self, state: AppState | None, complete: bool) -> Committable | None:
        """The newest record behind ``state``, the table's last one, that is pending or is published.

        A published record counts where no snapshot names it any more. None where a rollback took what was behind
        ``state``. complete: whether the table has all of its history. Raises Misuse when only a start of the query
        settles whether rows of a record are there.
        """
        base = state.sequence if state is not None else 0
        marked = [
            sequence for sequence in self._journal.retained() if sequence > base and self._journal.is_marked(sequence)
        ]
        is_told = state is not None or complete
        found = {s: (readable(self._journal, s), where_marked(self._journal, s)) for s in marked}
        first = next((s for s in marked if is_told or was_undone(self._table, *found[s])), None)
        if first is None:
            return self._journal.newest()
        self._check_settled([s for s in marked if s >= first and needs_a_start(self._table, *found[s])])
        if is_told:
            return None
        before = {s: readable(self._journal, s) for s in self._journal.retained() if s < first}
        named = max(
            (s for s, record in before.items() if record is not None and were_named(self._table, names_of(record))),
            default=0,
        )
        self._check_settled(
            [s for s, record in before.items() if s > named and needs_a_start(self._table, record, None)]
        )
        return before.get(named)

    def _check_settled(self, unsettled: Sequence[int]) -> None:
        if unsettled:
            raise Misuse(
                f"{self._table.root}: the snapshot that published record {unsettled[0]} of application "
                f"'{self._application}' was rolled back, or another writer's has replaced it, and whether its rows are "
                "in the table, or will be, only a start of the query settles: so where a new checkpoint begins cannot "
                f"be told. Start the query once under application='{self._application}' with on_rollback='republish': "
                "it publishes what the table has not, or asks. Then call this again",
                kind="positions.unsettled",
            )


def _of_several_tables(file_io: FileIO, root: str, application: str, wanted: Wanted) -> str:
    """Where a query into several tables is: its journal's newest record is published or will be."""
    newest = FileJournal(file_io, root, application, 2, of_table=True).newest()
    if newest is None or not newest.state.recorded:
        raise Misuse(
            f"{root}: no Kafka positions are recorded for application '{application}' in its journal",
            kind="positions.none",
        )
    return offsets_text(root, newest.state.recorded, wanted)


def offsets_text(root: str, recorded: Recorded, wanted: Wanted) -> str:
    """What ``starting_offsets`` returns for these positions. root: of the table or destination, for messages."""
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
                    "positions, or topics of that name in different clusters. Name one of them: source=..., its place "
                    "in the query from 0, or its name",
                    kind="positions.several-sources",
                )
    for topic, count in wanted.partitions.items():
        for number in range(count):
            offsets.setdefault(topic, {}).setdefault(str(number), _EARLIEST)
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
            f"{root}: no Kafka positions are recorded for source {source!r}; those that are: {known}",
            kind="positions.none",
        )
    return found
