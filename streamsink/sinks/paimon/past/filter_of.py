"""The filter and the fence of a commit: is the record published already, and may this writer publish it now? Driver only."""

import os
from collections.abc import Callable

from streamsink.errors import Fenced, Retryable
from streamsink.format.snapshot import Snapshot
from streamsink.protocol.committable import AppState, Committable
from streamsink.table.application_states import States
from streamsink.table.history.lineage import were_named
from streamsink.table.table import Table


def is_published(
    table: Table, committable: Committable, expect: int, states: States, is_undone: Callable[[int], bool]
) -> bool:
    """The filter and the fence, against the snapshot that this try builds on.

    is_undone: whether the record of this number, which was published, is certainly not in the table any more.
    """
    table.check_identity()
    held = {os.path.basename(final) for final in committable.payload.get("held", ())}
    if held and not were_named(table, held):
        raise _rows_gone(table.root, committable)
    mine = committable.state
    found = state_of(states, committable.application)
    if found is None:
        if expect == 0 or not states.complete and not is_undone(expect):
            return False
        raise _changed(table.root, committable, expect, 0)
    if found.epoch > mine.epoch:
        raise Fenced(
            f"{table.root}: application '{committable.application}' was taken over: the newest snapshot is of "
            f"epoch {found.epoch}, this driver has {mine.epoch}. It publishes nothing more; nothing is lost or doubled",
            kind="writer.fenced",
        )
    if found.record_id == mine.record_id:
        return True
    if found.epoch < mine.epoch and found.sequence > expect:
        raise Retryable(
            f"{table.root}: an earlier driver of application '{committable.application}', which was about to publish when "
            f"this one took over, has published up to record {found.sequence} meanwhile. Nothing is lost or doubled; the next "
            "start sees it and goes on from there",
            kind="restore.overtaken",
        )
    if found.sequence >= mine.sequence:
        raise Fenced(
            f"{table.root}: record {mine.sequence} of application '{committable.application}' is published, "
            "but by another driver: this one has been superseded; nothing is lost or doubled",
            kind="writer.fenced",
        )
    if found.sequence != expect:
        raise _changed(table.root, committable, expect, found.sequence)
    return False


def newest_with(table: Table, committable: Committable) -> Snapshot | None:
    """The newest snapshot, if it says that this very record is the last one that was published."""
    newest = table.snapshots.latest()
    found = state_of(table.states.read(newest), committable.application)
    return newest if found is not None and found.record_id == committable.state.record_id else None


def _rows_gone(root: str, committable: Committable) -> Retryable:
    """Of a record whose rows were in the table by another writer's snapshot, so that only its state was to be published."""
    return Retryable(
        f"{root}: the table was rolled back while {committable.state.checkpoint_name} was being committed: its rows were there, behind a snapshot that "
        "another writer's had replaced, and are not any more. Nothing was published; its record is safe in the journal, and the restart of the query "
        "finds out what became of it",
        kind="table.history-changed",
    )


def state_of(states: States, application: str) -> AppState | None:
    found = states.by_application.get(application)
    return AppState.from_json(found) if found is not None else None


def _changed(root: str, committable: Committable, expect: int, found: int) -> Retryable:
    return Retryable(
        f"{root}: the table was rolled back, or a snapshot was replaced, while "
        f"{committable.state.checkpoint_name} was being committed: record {found} is the newest, expected "
        f"{expect}. Nothing was published; its record is safe in the journal. The restart of "
        "the query finds out which, and publishes again what was replaced; after a rollback on_rollback says what it does",
        kind="table.history-changed",
    )
