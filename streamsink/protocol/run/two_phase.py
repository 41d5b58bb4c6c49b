"""The protocol of one query: restore, admit, begin, pre_commit, publish. Driver only.

Each method is one step of ``micro_batch.py``; none knows Spark or Paimon. After a crash anywhere the next
``restore`` ends in a state where every recorded checkpoint is visible once and nothing else is.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from streamsink import events
from streamsink.clock import Clock
from streamsink.errors import Fenced, Misuse, RestoredThenFailed, Retryable, StreamsinkError
from streamsink.events import log
from streamsink.faults import fault_point
from streamsink.options import RESTORE_AND_FAIL, SinkOptions
from streamsink.protocol.admission.admit import admit, recreated_meanwhile
from streamsink.protocol.committable import Batch, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint, Decision
from streamsink.protocol.ids import Writer
from streamsink.protocol.journal import Group, Journal
from streamsink.protocol.run.journal_check import JournalCheck, check_not_superseded
from streamsink.protocol.run.past import RecordedPast
from streamsink.protocol.run.publish_queue import PublishQueue
from streamsink.protocol.run.publish_schedule import PublishSchedule
from streamsink.protocol.run.publish_thread import Background, PublishThread, QueuedRecord, Step
from streamsink.protocol.run.reconcile import Reconciled, Reconciler
from streamsink.protocol.sink import Committer, Destination, Published


class TwoPhaseCommit:
    """One application's way through its checkpoints, for one run of its query.

    The batch function calls the methods one after another; ``finish`` and ``close`` may come from any thread.
    ``publish_queue.py`` says what a thread beside it may touch of ``queue``.
    """

    def __init__(
        self,
        destination: Destination,
        journal: Journal,
        committer: Committer,
        options: SinkOptions,
        emit: Callable[[events.Event], None],
        *,
        background: Callable[[Step], Background] = PublishThread,
    ):
        """background: makes what publishes while batches are written, when the options ask for it."""
        self._to = destination
        self._journal = journal
        self._committer = committer
        self._options = options
        self._emit = emit
        self._clock = Clock()
        publishes = committer.for_background() if options.publishes_later else committer
        self.queue = PublishQueue(destination, journal, publishes, options, emit)
        self._reconciler = Reconciler(destination, journal, publishes, options, emit, queue=self.queue)
        self._schedule = PublishSchedule(
            destination.path, self.queue, options, background, settles_later=publishes.settles_later
        )
        self._recorded = RecordedPast(destination, journal, committer, options)
        self.writer = Writer(options.application, "", 0)  # until ``restore`` has claimed: nobody's epoch
        # The error after which nobody knows whether a record has its name.
        self._unsettled: BaseException | None = None

    @property
    def path(self) -> str:
        """Of the destination, for messages."""
        return self._to.path

    # -- start of a run --------------------------------------------------------------------------------------------

    def restore(self, query: str, new_id: Callable[[], str], run: str = "") -> None:
        """Claim the application, publish what earlier runs left pending, and remove their orphans.

        run: as ``Journal.claim``. Idempotent: a second start right after finds nothing to publish. Raises
        RestoredThenFailed on purpose under 'restore-and-fail' when something was published; Fenced, Misuse, Corrupt.
        """
        self._new_id, begun_ms = new_id, self._clock.monotonic_ms()
        self._journal_check = JournalCheck(self._to.path, self._options.application, self._journal, new_id)
        fault_point("restore.before_claim")
        with self._committer.asking(self._journal.questions(self.writer)):
            last = self._committer.history(self._options.application).state
            self.writer = self._journal.claim(query, last.epoch if last else 0, run)
        fault_point("restore.claimed")
        self._emit(events.Claimed(self._to.path, self._options.application, self.writer.epoch))
        reconciled = self._reconcile(functools.partial(self._journal_check.identify, last))
        published, orphans = reconciled.published, reconciled.leftovers + self._journal.sweep(self.writer)
        fault_point("restore.swept")
        done = (published, tuple(orphans), self._clock.monotonic_ms() - begun_ms)
        self._emit(events.Restored(self._to.path, self._options.application, *done))
        if published and self._options.restore == RESTORE_AND_FAIL:
            raise RestoredThenFailed(
                f"{self._to.path}: published pending checkpoint(s) {', '.join(map(str, published))} of an earlier run, "
                "now failing on purpose so that the query restarts with clean writers (restore='restore-and-fail'); "
                "streamsink.run(...) restarts it by itself",
                kind="restore.restarting",
            )

    def _reconcile(self, identify: Callable[[], None] = lambda: None) -> Reconciled:
        """Bring journal and destination together. Nobody else publishes meanwhile."""
        reconciled = self._reconciler.reconcile(self.writer, identify)
        self._recorded.last = reconciled.last
        if reconciled.rolled_back and not reconciled.replaced:
            self._emit(events.RolledBackRepublished(self._to.path, self._options.application, reconciled.published))
        return reconciled

    # -- one micro-batch -------------------------------------------------------------------------------------------

    def admit(self, batch: Batch) -> Decision:
        """Decide what the batch is, against the last recorded checkpoint. Nothing of the batch is written.

        The newest snapshot must carry the last published record, or one that was pending when admission began.
        Otherwise journal and destination are reconciled first, which may publish, and raises as ``restore``. Raises
        Fenced, Misuse, the error with which publishing in the background has failed, and the one with which a record of
        this run may or may not have got its name.
        """
        self._check_settled()
        self._schedule.check()
        expected = self.queue.expected()
        with self._committer.asking(self._journal.questions(self.writer), others=self._recorded.begins):
            # The table first: a dropped table takes the journal along, and then the error must name the table.
            history = self._committer.history(self._options.application)
            self._journal.check_owner(self.writer)
            found = history.state.record_id if history.state else None
            if found in expected and (found is not None or history.complete):
                return admit(batch, self._recorded.past(), self._options)
        if history.state is not None:
            self._journal_check.check(history.state)
        self._reconcile()
        return admit(batch, self._recorded.past(), self._options)

    def _check_settled(self) -> None:
        """Raises the error after which a record may be there.

        The run is over then. A further batch would be given the number and the staging folder of that record, and
        would delete its files when it fails.
        """
        if self._unsettled is not None:
            raise self._unsettled

    def recreated_meanwhile(self, batch: Batch, now: Batch) -> Misuse | None:
        """The error for a batch of which a topic was recreated while it was written, and ``admit`` finds no fault in
        ``now``.
        """
        return recreated_meanwhile(batch, now, self._recorded.past(), self._options)

    def newest_record(self, query: str, checkpoint_id: int) -> Committable | None:
        """The newest record of that checkpoint of the query, or of that bounded run, as long as the journal has it."""
        return self._recorded.newest_record(query, checkpoint_id)

    def begin(self, batch: Batch, decision: Decision) -> Checkpoint:
        """Open the checkpoint: its number and its staging folder.

        Waits while too many are pending. After a crash: swept.
        """
        self._schedule.wait_for_room()
        last = self._recorded.last.sequence if self._recorded.last else 0
        sequence = max(last, self._journal.last_sequence()) + 1
        staging = self._journal.staging(sequence, self.writer)
        attempt = self._journal.attempt(sequence, self._new_id)
        checkpoint = Checkpoint(batch, decision, sequence, staging, self._clock.monotonic_ms(), attempt)
        fault_point("write.begin")
        return checkpoint

    def pre_commit(
        self, checkpoint: Checkpoint, files: tuple[StagedFile, ...], payload: Mapping[str, Any], group: Group
    ) -> Committable:
        """Make the checkpoint durable: what ``group`` holds of it together with its record's bytes, then the record's
        name.

        From its return on the checkpoint will be published, whatever happens. Raises Misuse "repeatedly committed" when
        the checkpoint is registered already; Fenced; Retryable when an earlier driver has recorded its number; and what
        flushing raises. Then no record names what was staged, and the next start removes what is left of it. Any other
        error of naming the record leaves open whether it is there. Then nothing is deleted, ``admit`` raises the error
        again, and the next start settles it.
        """
        batch = checkpoint.batch
        if any(entry.committable.state.checkpoint_id == batch.batch_id for entry in self.queue.pending()):
            raise Misuse(
                f"{self._to.path}: checkpoint {batch.batch_id} is repeatedly committed: it is pending already",
                kind="checkpoint.repeated",
            )
        committable = self._recorded.record_of(checkpoint, files, payload, self.writer)
        try:
            self._journal.stage_record(committable, group)
            group.flush()
            # The owner is asked after the flush. A successor that claims later finds the complete folder and leaves it;
            # one that has claimed before is found by this check.
            self._journal.check_before_record(self.writer, checkpoint.sequence)
        except BaseException as ended:
            self.abort(checkpoint, group, ended)
            raise
        fault_point("precommit.before_record")
        try:
            self._create_record(committable)
            self._recorded.last, self._recorded.begins = committable.state, False
            self.queue.add(QueuedRecord(committable, checkpoint.begun_ms, self._clock.monotonic_ms()))
        except (Fenced, Retryable):
            # Another driver's record has the number, or its sweep took what was staged: no record will name this
            # folder.
            self._discard(checkpoint)
            raise
        except BaseException as failed:
            # The record may be there all the same, and then it names this folder.
            self._unsettled = failed
            raise
        fault_point("precommit.saved")
        return committable

    def _create_record(self, committable: Committable) -> None:
        create = functools.partial(self._journal.create_record, committable)
        if self._schedule.publishes_each_batch:
            self._committer.recording(create, self._journal.questions(self.writer))
        else:
            create()

    def publish_when_due(self) -> None:
        """Publish what is pending now, or leave it to a later batch or to the thread, as the options say. Idempotent.

        Raises as ``Committer.publish``; what was not published stays pending for the next restore.
        """
        self._schedule.publish_when_due()

    def commit_up_to_checkpoint(self, checkpoint_id: int) -> list[Published]:
        """Publish everything pending up to and with this checkpoint now, in order. Idempotent.

        Raises as ``publish_when_due``, and the error after which a record of this run may or may not be there.
        """
        self._check_settled()
        published = self._schedule.publish_up_to(checkpoint_id)
        self.queue.settle()
        return published

    def abort(self, checkpoint: Checkpoint, group: Group, failed: BaseException | None = None) -> None:
        """Writing failed: let go of what ``group`` holds and remove the checkpoint's files. Nothing of it is durable.

        A successor may have the same number by now: what is in its folder stays. What cannot be removed stays as well,
        until a later start removes it, and is logged: the caller raises the error that has ended the batch, ``failed``;
        of some, ``check_not_superseded`` raises another one where this driver is superseded.
        """
        group.give_up()
        self._discard(checkpoint)
        check_not_superseded(self._journal, self.writer, failed)

    def _discard(self, checkpoint: Checkpoint) -> None:
        try:
            self._journal.discard(checkpoint.staging)
        except (OSError, StreamsinkError) as failed:
            log.warning(
                "%s: batch %s ended with an error, and its staging folder %s could not be removed (%s). No record "
                "names it; a later start removes it",
                self._to.path,
                checkpoint.batch.batch_id,
                checkpoint.staging,
                failed,
            )

    # -- end of a run ----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """No further batch will come: publish what is pending. Idempotent; any thread may call it.

        Raises as ``publish_when_due``; an error that a batch has raised is not raised again.
        """
        self._schedule.stop()

    def close(self, unused: bool = False) -> None:
        """Finish, and give the hold on the application back: the next writer needs no takeover.

        unused: as ``Journal.release``.
        """
        try:
            self.finish()
        finally:
            self._journal.release(unused)

    def emit(self, kind: type[events.Event], **fields: Any) -> None:
        """Tell the listener of an event of this destination and application."""
        self._emit(kind(self._to.path, self._options.application, **fields))
