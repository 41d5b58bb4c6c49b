"""What the tries of one commit find, what they know of each other, and what is cleaned up behind them. Driver only."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import cast

from streamsink.clock import Clock, IdSource
from streamsink.errors import Conflict, Fenced, OutcomeUnknown, Retryable, StreamsinkError
from streamsink.format.snapshot import COMPACT, Snapshot
from streamsink.storage.reading import Questions
from streamsink.table.application_states import States
from streamsink.table.commit import late
from streamsink.table.commit.changes import Ahead, Files, Written
from streamsink.table.commit.delta import CommitRequest, Deltas
from streamsink.table.commit.late import Base
from streamsink.table.commit.retry import RetryPolicy
from streamsink.table.commit.settle import Committed, Found, move_hint, unanswered
from streamsink.table.commit.unanswered import Made, Unanswered, is_built_on, without_files
from streamsink.table.history.deletion import Look, delete, delete_temporary
from streamsink.table.table import Table


class Guard:
    """What a commit asks in each of its tries about the newest snapshot, before it writes anything.

    This one lets all pass.
    """

    def questions(self) -> Questions:
        """What ``fence`` asks about."""
        return Questions()

    def fence(self) -> None:
        """Raises when this writer may not publish any more."""

    def is_published(self, states: States) -> bool:
        """Whether the request is published already. states: those of the newest snapshot.

        Raises to refuse the request.
        """
        return False

    def carried(self, states: States) -> States:
        """The states that the new snapshot carries forward, with that of the request's application. states: as above.

        Those that there are, except where states come from a branch.
        """
        return states


class Tries:
    """The tries of one call of ``TableCommit.commit``.

    unanswered: those whose publishing gave no answer. delta_list: of the manifest that the request brings; most
    requests have no other, so it is written once.
    """

    def __init__(self, table: Table, delta_list: Written | None):
        self._table = table
        self.unanswered: list[Unanswered] = []
        self.delta_list = delta_list

    def landed(self, newest: Snapshot | None) -> Unanswered | None:
        """The earlier try that gave no answer and has come: its snapshot is there, by user, identifier, kind and uuid.

        ``is_landed_on_another`` must follow.
        """
        if newest is None or not self.unanswered:
            return None
        mine = {_identity(lost.snapshot): lost for lost in self.unanswered}
        for snapshot_id in range(min(lost.snapshot.id for lost in self.unanswered), newest.id + 1):
            found = self._table.snapshots.load(snapshot_id)
            if found is not None and _identity(found) in mine:
                return mine[_identity(found)]
        return None

    def is_landed_on_another(self, landed: Unanswered, following: Snapshot | None = None) -> bool:
        """Whether another snapshot has the place of the one on which the try is built. Moves the hint.

        Nobody knows when the try came, so it may have come too late as any other. Raises as ``is_base_kept``.
        """
        is_kept = self.is_base_kept(landed.made, landed.base, following)
        move_hint(self._table, landed.snapshot, IdSource().new_id())
        return not is_kept

    def is_base_kept(self, made: Made, base: Base, following: Snapshot | None) -> bool:
        """As ``late.is_base_kept``. It is looked once more when the store gave no answer: that our snapshot is there
        does not tell that it came in time, and where it is taken back, a part of that may be done.

        Raises as there, and OutcomeUnknown. following: as there.
        """
        try:
            return self._is_base_kept(made, base, following)
        except OutcomeUnknown:
            if not self._table.file_io.atomic_create:
                raise
            return self._is_base_kept(made, base, following)

    def _is_base_kept(self, made: Made, base: Base, following: Snapshot | None) -> bool:
        with unanswered(self._table.layout.snapshot(made.snapshot.id)):
            return late.is_base_kept(self._table, made.snapshot, base, following)

    def clean(self, ahead: Written | None, committed: Snapshot) -> None:
        """The commit exists, as this snapshot: delete what other tries have written, as far as nothing can come to name
        it.

        A try whose number is taken by another snapshot can never come to exist. But it may have existed, and have been
        built on, before another writer's rename replaced it: files that are named stay. All that is done before the
        journal's mark, after which nobody looks for them. ahead: the delta list that was written before the commit
        began.
        """
        for lost in self.unanswered:
            found = self._table.snapshots.load(lost.snapshot.id)
            if found is not None and _identity(found) != _identity(lost.snapshot):
                delete(self._table, lost.made.files, Look.SINCE_TRY)
            delete_temporary(self._table, lost.made.name)
        # A try that gave no answer may have used it, even if its snapshot is not found any more.
        if ahead and not self.unanswered and ahead[0] != committed.delta_manifest_list:
            delete(self._table, [self._table.layout.manifest(ahead[0])], Look.SINCE_TRY)

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Within it the tries are made. After an error with which no snapshot came, the list that they share goes; a
        snapshot that has come without an answer goes where it came too late.
        """
        try:
            yield
        except (Conflict, Fenced, Retryable):
            with suppress(OSError, StreamsinkError):  # the error of the commit is the one to be seen
                if self.delta_list is not None and not self.unanswered:
                    delete(self._table, [self._table.layout.manifest(self.delta_list[0])], Look.SINCE_TRY)
                for lost in self.unanswered:
                    if self._table.snapshots.load(lost.snapshot.id) == lost.snapshot:
                        self.is_base_kept(lost.made, lost.base, None)
            raise

    def gave_up(self, policy: RetryPolicy, request: CommitRequest, tried: int) -> Exception:
        """The error of a commit that no try has published. tried: how often it was tried."""
        if self.unanswered:
            return self.unanswered[-1].error
        ran_out = "commit_max_retries" if tried > policy.retries else "commit_timeout_ms"
        lost = (
            f"{self._table.root}: other writers won the snapshot number in every try (tries: {tried}, at most "
            f"{policy.retries + 1} within {policy.timeout_ms:g} ms). Nothing of this commit is visible."
        )
        if request.state is not None:
            return Retryable(
                f"{lost} What the query has recorded is safe in its journal and is published at its next start. With "
                f"many writers raise {ran_out}",
                kind="commit.retries",
            )
        if request.kind == COMPACT:
            return Retryable(
                f"{lost} The files that were to be compacted are in the table as they were. Compaction beside a query "
                "tries again by itself; a call of streamsink.maintenance.compact, or its command, can be made again. "
                f"With many writers raise {ran_out}",
                kind="commit.retries",
            )
        return Retryable(
            f"{lost} The table is as it was. Call this again. With many writers raise {ran_out}", kind="commit.retries"
        )


def _identity(snapshot: Snapshot) -> tuple[str, int, str, str | None]:
    return snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind, snapshot.uuid


class Looking:
    """Finds out what each try of a commit builds on. One for each table and process that commits to it."""

    def __init__(self, table: Table, deltas: Deltas):
        self._table = table
        self._deltas = deltas
        self._clock = Clock()

    def look(self, request: CommitRequest, guard: Guard, tries: Tries, attempt: int, seen_ms: int) -> Committed | Found:
        """Steps 1 to 3: the commit, if it is there already, or what this try builds on and changes.

        seen_ms: when the store was asked.
        """
        newest = self._table.snapshots.latest()  # 1 filter
        landed = tries.landed(newest)
        if landed is not None:
            settle = functools.partial(tries.is_landed_on_another, landed)
            return Committed(landed.snapshot, attempt - 1, self._clock.now_ms(), settle=settle)
        states = self._table.states.read(newest)
        guard.fence()
        if guard.is_published(states):
            self._table.file_io.sync_dir(self._table.layout.snapshot_dir)  # whoever published it may have died before
            # There is no snapshot only where what was to be taken out is gone with all of them, and nobody asks for it.
            return Committed(cast(Snapshot, newest), attempt - 1, self._clock.now_ms(), may_be_alone=True)
        is_alone = False
        if tries.unanswered and is_built_on(self._table, request, tries.unanswered, newest) and newest is not None:
            if request.application is None:
                return Committed(newest, attempt - 1, self._clock.now_ms())  # there is no state to publish
            request, is_alone = without_files(request), True
        delta = self._deltas.of(request, newest)  # 2 base, 3 delta and conflicts
        if attempt == 1:
            self._table.schemas.check_there({self._table.known_schema.id, *request.changes.schema_ids})
        return Found(request, newest, seen_ms, guard.carried(states), delta, is_alone)

    def usable_ahead(self, ahead: Ahead | None, found: Committed | Found) -> Files | None:
        """What was written for the first try, if it is built on what this try has found; else that is deleted."""
        if ahead is None:
            return None
        if isinstance(found, Found) and ahead.is_on(found.newest) and not (found.delta.unwritten or found.is_alone):
            return ahead.files
        delete(self._table, ahead.files.own, Look.SINCE_TRY, durable=False)
        return None
