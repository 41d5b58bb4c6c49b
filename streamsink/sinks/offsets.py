"""Kafka starting positions from the table's own record, for a new checkpoint that reads nothing twice."""

import json
from collections.abc import Mapping

from streamsink.errors import Misuse
from streamsink.protocol.committable import AppState
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog, journal_dir
from streamsink.storage.stores import Store
from streamsink.table.table import is_table, open_table

_EARLIEST = -2


def starting_offsets(store: Store, application: str, partitions: Mapping[str, int]) -> str:
    """JSON for ``startingOffsets``. Counts what is pending in the journal too: the next start publishes that first.

    Raises Misuse when the table records no Kafka positions of that application.
    """
    return offsets_of(store.open(), store.root, application, partitions)


def offsets_of(file_io: FileIO, root: str, application: str, partitions: Mapping[str, int]) -> str:
    """As ``starting_offsets``, on a store that is open."""
    if not is_table(file_io, root) and file_io.entries(journal_dir(root, application)):
        return _of_several_tables(PendingLog(file_io, root, application, 2), application, partitions)
    table = open_table(file_io, root, for_writing=False)
    found = table.states.read(table.snapshots.latest()).by_application.get(application)
    state = AppState.from_json(found) if found is not None else None
    journal = PendingLog(file_io, table.root, application, 2)
    newest = journal.newest()
    if newest is not None and (state is None or newest.state.sequence > state.sequence):
        state = newest.state
    if state is None or not state.recorded:
        known = ", ".join(sorted(table.states.read(table.snapshots.latest()).by_application)) or "none"
        raise Misuse(
            f"{table.root}: no Kafka positions are recorded for application '{application}'; applications that have "
            f"written here: {known}",
            kind="positions.none",
        )
    return _text(state, partitions)


def _of_several_tables(journal: PendingLog, application: str, partitions: Mapping[str, int]) -> str:
    """Where a query into several tables is: its journal's newest record, which is published or will be."""
    newest = journal.newest()
    if newest is None or not newest.state.recorded:
        raise Misuse(
            f"no Kafka positions are recorded for application '{application}' in its journal", kind="positions.none"
        )
    return _text(newest.state, partitions)


def _text(state: AppState, partitions: Mapping[str, int]) -> str:
    offsets = {topic: dict(parts) for topic, parts in state.recorded.items()}
    for topic, count in partitions.items():
        for part in range(count):
            offsets.setdefault(topic, {}).setdefault(str(part), _EARLIEST)
    return json.dumps(offsets, sort_keys=True)
