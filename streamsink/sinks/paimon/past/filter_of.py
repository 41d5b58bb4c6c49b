"""The filter and the fence of a commit: whether a record is published, and whether this writer may publish it."""

import os
from collections.abc import Callable

from streamsink.errors import Fenced, Retryable
from streamsink.format.snapshot import Snapshot
from streamsink.protocol.committable import AppState, Committable
from streamsink.protocol.sink import Fence
from streamsink.storage.reading import Questions
from streamsink.table.application_states import States
from streamsink.table.commit.tries import Guard
from streamsink.table.history.lineage import were_named
from streamsink.table.table import Table


class RecordGuard(Guard):
    """Lets one record be published: over the right record, by the right driver, once."""

    def __init__(
        self,
        table: Table,
        committable: Committable,
        expect: int,
        fence: Callable[[], None],
        *,
        is_undone: Callable[[int], bool],
    ):
        """expect, fence: as of ``Committer.publish``. is_undone: as of ``is_published``."""
        self._table = table
        self._committable = committable
        self._expect = expect
        self._fence = fence
        self._is_undone = is_undone

    def questions(self) -> Questions:
        return asked_by(self._fence)

    def fence(self) -> None:
        self._fence()

    def is_published(self, states: States) -> bool:
        return is_published(self._table, self._committable, self._expect, states, self._is_undone)


def asked_by(fence: Callable[[], None]) -> Questions:
    """What the fence asks, as far as it says so."""
    told = fence.questions if isinstance(fence, Fence) else None
    return told if isinstance(told, Questions) else Questions()


def is_published(
    table: Table, committable: Committable, expect: int, states: States, is_undone: Callable[[int], bool]
) -> bool:
    """Whether the record is in the snapshot that this try builds on. Driver only, called in every try of a commit.

    expect: number of the record that must be the last one there, 0 for none. states: of that snapshot. is_undone:
    whether the record of a number, which was published, is certainly not in the table any more. Raises Fenced when a
    later driver has taken over or has published the record's number; Retryable when an earlier driver has published
    meanwhile, or the table was rolled back.
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
            f"{table.root}: an earlier driver of application '{committable.application}', which was about to publish "
            f"when this one took over, has published up to record {found.sequence} meanwhile. Nothing is lost or "
            "doubled; the next start sees it and goes on from there",
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
    """The newest snapshot if it names this very record as the application's last one; else None."""
    newest = table.snapshots.latest()
    found = state_of(table.states.read(newest), committable.application)
    return newest if found is not None and found.record_id == committable.state.record_id else None


def _rows_gone(root: str, committable: Committable) -> Retryable:
    """The error for a record whose rows are gone that another writer's snapshot had held.

    Only the state of such a record was to be published.
    """
    return Retryable(
        f"{root}: the table was rolled back while {committable.state.checkpoint_name} was being committed: its rows "
        "were there, behind a snapshot that another writer's had replaced, and are not any more. Nothing was "
        "published; its record is safe in the journal, and the restart of the query finds out what became of it",
        kind="table.history-changed",
    )


def state_of(states: States, application: str) -> AppState | None:
    """The state that a snapshot has of the application; None when it has none."""
    found = states.by_application.get(application)
    return AppState.told(found) if found is not None else None


def _changed(root: str, committable: Committable, expect: int, found: int) -> Retryable:
    return Retryable(
        f"{root}: the table was rolled back, or a snapshot was replaced, while {committable.state.checkpoint_name} was "
        f"being committed: record {found} is the newest, expected {expect}. Nothing was published; its record is safe "
        "in the journal. The restart of the query finds out which, and publishes again what was replaced; after a "
        "rollback on_rollback says what it does",
        kind="table.history-changed",
    )
