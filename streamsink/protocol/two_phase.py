"""The protocol of one query: restore, admit, begin, pre_commit, commit_up_to_checkpoint, forget. Driver only.

Each method is one step for ``spark/foreach_batch.py``; none knows Spark or Paimon. After a crash anywhere the next
``restore`` ends in a state where every recorded checkpoint is visible once and nothing else is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamsink import events
from streamsink.errors import Misuse, RestoredThenFailed
from streamsink.faults import fault_point
from streamsink.options import RESTORE_AND_FAIL, SinkOptions
from streamsink.protocol.admission import Decision, Past, admit
from streamsink.protocol.committable import AppState, Batch, Committable, StagedFile
from streamsink.protocol.ids import Writer
from streamsink.protocol.pending import PendingStore
from streamsink.protocol.restore import RestorePlan, plan_restore
from streamsink.protocol.sink import Committer, Published
from streamsink.protocol.states import CheckpointState


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is being written. ``staging``: absolute folder of its files; ``sequence``: its record's number."""

    batch: Batch
    decision: Decision
    sequence: int
    staging: str
    state: CheckpointState


@dataclass(frozen=True)
class Destination:
    """The table as the protocol sees it: its path and its identity."""

    path: str
    table_id: str


class TwoPhaseCommit:
    """One application's way through its checkpoints, for one run of its query."""

    def __init__(self, destination: Destination, store: PendingStore, committer: Committer, options: SinkOptions,
                 emit: Callable[[events.Event], None]):
        self._to = destination
        self._store = store
        self._committer = committer
        self._options = options
        self._emit = emit
        self._writer: Writer | None = None
        self._last: AppState | None = None
        self._pending: dict[int, tuple[Committable, CheckpointState]] = {}

    # -- start of a run --------------------------------------------------------------------------------------------

    def restore(self, query: str, new_id: Callable[[], str]) -> None:
        """Claim the application, publish what earlier runs left pending, remove their orphans.

        Idempotent: a second run right after finds nothing to do. Raises: RestoredThenFailed on purpose under
        'restore-and-fail' when something was published; Fenced, Misuse, Corrupt.
        """
        self._new_id = new_id
        fault_point("restore.before_claim")
        published = self._committer.history(self._options.application).state
        self._writer = self._store.claim(query, published.epoch if published else 0)
        fault_point("restore.claimed")
        self._emit(events.Claimed(self._to.path, self._options.application, self._writer.epoch))
        published, leftovers = self._reconcile()
        orphans = leftovers + self._store.sweep(self._writer)
        fault_point("restore.swept")
        self._emit(events.Restored(self._to.path, self._options.application, published, tuple(orphans)))
        if published and self._options.restore == RESTORE_AND_FAIL:
            raise RestoredThenFailed(
                f"{self._to.path}: published pending checkpoint(s) {', '.join(map(str, published))} of an earlier run, "
                "now failing on purpose so that the query restarts with clean writers (restore='restore-and-fail'); "
                "streamsink.run(...) restarts it by itself",
                kind="restore.restarting",
            )

    def filter_and_commit(self, plan: RestorePlan) -> tuple[tuple[int, ...], list[str]]:
        """Publish the records of a restore plan in order, those that are visible already only being marked.

        Returns the ids of the published checkpoints, and the files of dead tries that were deleted. Those go before the
        mark: a record with a mark is never looked at again.
        """
        leftovers = self._committer.sweep(plan.mark)
        for committable in plan.mark:
            self._store.mark_published(committable)
        self._last = plan.last
        for committable in plan.publish:
            fault_point("restore.before_publish")
            mine = committable.published_by(self._writer.epoch)
            outcome = self._publish(mine, restored=True)
            if committable.state.sequence not in plan.rolled_back:  # whose first publishing a tag may still hold
                leftovers += self._committer.sweep((mine,))
            self._published(mine, outcome, 0.0)
            self._store.forget(committable.state.sequence)
        fault_point("restore.published")
        return tuple(c.state.checkpoint_id for c in plan.publish), leftovers

    def _reconcile(self) -> tuple[tuple[int, ...], list[str]]:
        """Bring journal and table together; what ``filter_and_commit`` returns."""
        history = self._committer.history(self._options.application)
        plan = plan_restore(self._to.path, history, self._store, self._committer, self._options)
        lost = tuple(c.state.checkpoint_id for c in plan.publish if c.state.sequence in plan.rolled_back)
        for snapshot_id in plan.replaced:
            self._emit(events.SnapshotReplaced(self._to.path, self._options.application, snapshot_id, lost))
        published, leftovers = self.filter_and_commit(plan)
        if plan.rolled_back and not plan.replaced:
            self._emit(events.RolledBackRepublished(self._to.path, self._options.application, published))
        return published, leftovers

    # -- one micro-batch -------------------------------------------------------------------------------------------

    def admit(self, batch: Batch) -> Decision:
        """Decide what the batch is, against the newest snapshot. Raises Fenced, Misuse; nothing is written."""
        # The table first: a dropped table takes the journal along, and then it is the table that is to be named.
        history = self._committer.history(self._options.application)
        self._store.check_owner(self._writer)
        if history.state is None or self._last is None or history.state.record_id != self._last.record_id:
            self._reconcile()
        past = Past(self._to.path, self._to.table_id, self._last, self._earlier, self._store.knows_run)
        return admit(batch, past, self._options)

    def begin(self, batch: Batch, decision: Decision) -> Checkpoint:
        """Open the checkpoint: its number and its staging folder. After a crash: swept."""
        last = self._last.sequence if self._last else 0
        sequence = max(last, self._store.last_sequence()) + 1
        checkpoint = Checkpoint(
            batch, decision, sequence, self._store.staging(sequence, self._writer), CheckpointState(batch.batch_id)
        )
        checkpoint.state.step("write")
        fault_point("write.begin")
        return checkpoint

    def pre_commit(self, checkpoint: Checkpoint, files: tuple[StagedFile, ...], payload: Mapping) -> Committable:
        """Make the checkpoint durable. From its return on the checkpoint will be published, whatever happens.

        Raises Misuse "repeatedly committed" when the checkpoint is registered already; Fenced.
        """
        batch, decision = checkpoint.batch, checkpoint.decision
        if any(c.state.checkpoint_id == batch.batch_id for c, _ in self._pending.values()):
            raise Misuse(
                f"{self._to.path}: checkpoint {batch.batch_id} is repeatedly committed: it is pending already",
                kind="checkpoint.repeated",
            )
        checkpoint.state.step("flushed")
        state = AppState(
            query=batch.query, generation=decision.generation, epoch=self._writer.epoch,
            checkpoint_id=batch.batch_id, sequence=checkpoint.sequence, record_id=self._new_id(),
            table_id=self._to.table_id, sources=batch.sources, recorded=decision.recorded,
        )
        committable = Committable(state, self._options.application, batch.watermark_ms, files, payload)
        self._store.check_owner(self._writer)
        fault_point("precommit.before_record")
        self._store.save(committable)
        checkpoint.state.step("save")
        self._pending[checkpoint.sequence] = (committable, checkpoint.state)
        fault_point("precommit.saved")
        return committable

    def commit_up_to_checkpoint(self, checkpoint_id: int, elapsed_ms: Callable[[], float] = lambda: 0.0) -> list[Published]:
        """Publish everything pending up to and with this checkpoint, in order.

        Idempotent. Raises as ``Committer.publish``; what was not published stays pending for the next restore.
        """
        outcomes = []
        for sequence in sorted(self._pending):
            committable, state = self._pending[sequence]
            if committable.state.checkpoint_id > checkpoint_id:
                break
            self._store.check_owner(self._writer)
            outcome = self._publish(committable, restored=False)
            state.step("publish")
            del self._pending[sequence]
            self._published(committable, outcome, elapsed_ms())
            outcomes.append(outcome)
        return outcomes

    def abort(self, checkpoint: Checkpoint) -> None:
        """Writing failed: remove the checkpoint's files. Nothing of it is durable."""
        checkpoint.state.step("abort")
        self._store.forget(checkpoint.sequence)

    def forget(self, checkpoint: Checkpoint) -> None:
        """Drop what only the way to publishing needed. After a crash: done by the next restore."""
        checkpoint.state.step("forget")
        self._store.forget(checkpoint.sequence)

    def close(self) -> None:
        """Give the hold on the application back; the next writer needs no takeover."""
        self._store.release()

    def _publish(self, committable: Committable, restored: bool) -> Published:
        return self._committer.publish(
            committable, expect=committable.state.sequence - 1, restored=restored,
            fence=lambda: self._store.check_owner(self._writer),
        )

    def _published(self, committable: Committable, outcome: Published, elapsed: float) -> None:
        self._store.mark_published(committable, outcome.where)
        if outcome.base_replaced:
            self._emit(events.SnapshotReplaced(self._to.path, self._options.application, outcome.snapshot_id - 1, ()))
        self._last = committable.state
        fault_point("commit.marked")
        self._emit(events.CheckpointPublished(
            self._to.path, self._options.application, outcome.checkpoint_id, outcome.snapshot_id,
            committable.rows, len(committable.files), len(self._pending), outcome.attempts, elapsed,
        ))

    def _earlier(self, query: str, checkpoint_id: int) -> AppState | None:
        """The newest record of that checkpoint of the same query that the journal still has."""
        for sequence in reversed(self._store.retained()):
            committable = self._store.load(sequence)
            state = committable.state if committable else None
            if state and state.query == query and state.checkpoint_id == checkpoint_id:
                return state
        return None
