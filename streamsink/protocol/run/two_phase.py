"""The protocol of one query: restore, admit, begin, pre_commit, commit, and nothing else. Driver only.

Each method is one step of ``micro_batch.py``; none knows Spark or Paimon. After a crash anywhere the next
``restore`` ends in a state where every recorded checkpoint is visible once and nothing else is.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from streamsink import events
from streamsink.clock import Clock
from streamsink.errors import Fenced, Misuse, RestoredThenFailed, Retryable
from streamsink.faults import fault_point
from streamsink.options import RESTORE_AND_FAIL, SinkOptions
from streamsink.protocol import run_inputs
from streamsink.protocol.admission.admit import Past, admit, recreated_meanwhile
from streamsink.protocol.committable import AppState, Batch, Committable, KnownRun, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.protocol.ids import END_OF_INPUT, Writer
from streamsink.protocol.journal import Group, Journal, JournalIdentity, readable
from streamsink.protocol.recorded_files import KnownFiles, recorded_files
from streamsink.protocol.run.publish_queue import PublishQueue, QueuedRecord, Reconciled
from streamsink.protocol.run.publish_schedule import Background, PublishSchedule, Step
from streamsink.protocol.run.publish_thread import PublishThread
from streamsink.protocol.sink import Committer, Destination, Published
from streamsink.protocol.states import CheckpointState


class TwoPhaseCommit:
    """One application's way through its checkpoints, for one run of its query.

    All methods but ``close`` are called by the batch function, one after another. What a thread beside it may touch is said
    in ``publisher.py``.
    """

    def __init__(
        self,
        destination: Destination,
        store: Journal,
        committer: Committer,
        options: SinkOptions,
        emit: Callable[[events.Event], None],
        *,
        background: Callable[[Step], Background] = PublishThread,
    ):
        """beside: makes what calls the committer's step beside the batches, when the options ask for it."""
        self._to = destination
        self._store = store
        self._committer = committer
        self._options = options
        self._emit = emit
        self._clock = Clock()
        self._queue = PublishQueue(
            destination, store, committer.for_background() if options.groups else committer, options, emit
        )
        self._schedule = PublishSchedule(destination.path, self._queue, options, background)
        self._writer: Writer | None = None
        self._last: AppState | None = None  # the last that is recorded, published or not
        self._begins = True  # nothing of this run is recorded yet
        self._known: list[KnownFiles | None] = []  # what the journal knew at this run's first question

    @property
    def path(self) -> str:
        """Of the destination, for messages."""
        return self._to.path

    # -- start of a run --------------------------------------------------------------------------------------------

    def restore(self, query: str, new_id: Callable[[], str], run: str = "") -> None:
        """Claim the application, publish what earlier runs left pending, remove their orphans.

        run: as ``Journal.claim``. Idempotent: a second run right after finds nothing to do. Raises: RestoredThenFailed on purpose
        under 'restore-and-fail' when something was published; Fenced, Misuse, Corrupt.
        """
        self._new_id = new_id
        fault_point("restore.before_claim")
        published = self._committer.history(self._options.application).state
        self._writer = self._store.claim(query, published.epoch if published else 0, run)
        self._identify(published)
        fault_point("restore.claimed")
        self._emit(events.Claimed(self._to.path, self._options.application, self._writer.epoch))
        reconciled = self._reconcile()
        published = reconciled.published
        orphans = reconciled.leftovers + self._store.sweep(self._writer)
        fault_point("restore.swept")
        self._emit(events.Restored(self._to.path, self._options.application, published, tuple(orphans)))
        if published and self._options.restore == RESTORE_AND_FAIL:
            raise RestoredThenFailed(
                f"{self._to.path}: published pending checkpoint(s) {', '.join(map(str, published))} of an earlier run, "
                "now failing on purpose so that the query restarts with clean writers (restore='restore-and-fail'); "
                "streamsink.run(...) restarts it by itself",
                kind="restore.restarting",
            )

    def _identify(self, published: AppState | None) -> None:
        """Learn the journal's identity. Raises Misuse: it is another journal than the one that the destination's state names."""
        self._store.identify(published.sequence if published else 0, self._new_id)
        journal, last = self._store.identity(), self._store.last_sequence()
        if published is not None:
            self._check_journal(published)
        elif (
            journal.began < last
            and (own := readable(self._store, last))
            and own.state.journal_id not in ("", journal.id)
        ):
            self._store.identify(last, self._new_id, anew=True)  # its identity was lost, as in ``_check_journal``

    def _check_journal(self, published: AppState) -> None:
        """Raises Misuse as ``_identify``. Asked again where a running query finds another record in the table than its own last one."""
        journal = self._store.identity()
        is_named = published.journal_id in ("", journal.id)
        if not is_named and journal.began >= published.sequence:
            return
        own = readable(self._store, published.sequence) if is_named else self._store.load(published.sequence)
        if own is not None and own.state.record_id == published.record_id:
            if not is_named:
                # The right journal, whose identity was lost or deleted: what that said of its completeness is not known any more.
                self._store.identify(published.sequence, self._new_id, anew=True)
        elif own is not None or not is_named:
            raise Misuse(
                f"{self._to.path}: the last record of application '{self._options.application}', number {published.sequence}, "
                f"{_other_journal(published, own, journal, self._store.last_sequence())}. Nothing was written. Restore the right journal; "
                f"or remove this one, the folder {self._store.place}, with what is pending in it, and restart the query",
                kind="journal.other",
            )

    def _reconcile(self) -> Reconciled:
        """Bring journal and table together, with nobody else publishing meanwhile."""
        reconciled = self._queue.reconcile(self._writer)
        self._last = reconciled.last
        if reconciled.rolled_back and not reconciled.replaced:
            self._emit(events.RolledBackRepublished(self._to.path, self._options.application, reconciled.published))
        return reconciled

    # -- one micro-batch -------------------------------------------------------------------------------------------

    def admit(self, batch: Batch) -> Decision:
        """Decide what the batch is, against the last recorded checkpoint. Raises Fenced, Misuse; nothing is written.

        The newest snapshot must carry that one, or one that is pending now or was when this began. Raises whatever
        publishing beside the batches has failed with.
        """
        self._schedule.check()
        expected = self._queue.expected()
        # The table first: a dropped table takes the journal along, and then it is the table that is to be named.
        history = self._committer.history(self._options.application)
        self._store.check_owner(self._writer)
        found = history.state.record_id if history.state else None
        if found not in expected or (found is None and not history.complete):
            if history.state is not None:
                self._check_journal(history.state)
            self._reconcile()
        return admit(batch, self._past(), self._options)

    def recreated_meanwhile(self, batch: Batch, now: Batch) -> Misuse | None:
        """The error for a batch of which a topic became another one while it was written, when ``admit`` says nothing against ``now``."""
        return recreated_meanwhile(batch, now, self._past(), self._options)

    def begin(self, batch: Batch, decision: Decision) -> Checkpoint:
        """Open the checkpoint: its number and its staging folder. Waits while too many are pending. After a crash: swept."""
        self._schedule.wait_for_room()
        last = self._last.sequence if self._last else 0
        sequence = max(last, self._store.last_sequence()) + 1
        checkpoint = Checkpoint(
            batch,
            decision,
            sequence,
            self._store.staging(sequence, self._writer),
            CheckpointState(batch.batch_id),
            self._clock.monotonic_ms(),
        )
        checkpoint.state.step("write")
        fault_point("write.begin")
        return checkpoint

    def pre_commit(
        self, checkpoint: Checkpoint, files: tuple[StagedFile, ...], payload: Mapping[str, Any], group: Group
    ) -> Committable:
        """Make the checkpoint durable: what ``group`` holds of it together with its record's bytes, then the record's name.

        From its return on the checkpoint will be published, whatever happens. Raises Misuse "repeatedly committed" when the
        checkpoint is registered already; Fenced; Retryable when an earlier driver has recorded its number; and what flushing
        raises, when nothing of the checkpoint is left.
        """
        batch, decision = checkpoint.batch, checkpoint.decision
        if any(entry.committable.state.checkpoint_id == batch.batch_id for entry in self._queue.pending()):
            raise Misuse(
                f"{self._to.path}: checkpoint {batch.batch_id} is repeatedly committed: it is pending already",
                kind="checkpoint.repeated",
            )
        state = AppState(
            query=batch.query,
            generation=decision.generation,
            epoch=self._writer.epoch,
            checkpoint_id=batch.batch_id,
            sequence=checkpoint.sequence,
            record_id=self._new_id(),
            table_id=self._to.table_id,
            sources=batch.sources,
            recorded=decision.recorded,
            journal_id=self._store.identity().id,
            fingerprint=batch.fingerprint,
            place=batch.place,
            replaying=decision.replaying,
            files_from=checkpoint.sequence if decision.forgets_files else self._last.files_from if self._last else 0,
            carried=payload.get("carried", self._last.carried if self._last else {}),
            rows=_rows_of_run(batch, files, decision),
            inputs=run_inputs.kept(batch.inputs),
            leads_on=decision.leads_on or (),
            behind=decision.leads_on or (self._last.behind if self._last else self._store.identity().behind),
        )
        read = recorded_files(batch, self._last if not decision.leads_on else None)
        committable = Committable(state, self._options.application, batch.watermark_ms, files, payload, read)
        try:
            self._store.stage_record(committable, group)
            group.flush()
            # Last, when all that the record names can be seen: a successor's sweep leaves it alone, or has come before this look.
            self._store.check_owner(self._writer)
        except BaseException:
            self.abort(checkpoint, group)
            raise
        checkpoint.state.step("flushed")
        fault_point("precommit.before_record")
        try:
            self._store.create_record(committable)
        except (
            Fenced,
            Retryable,
        ):  # another driver's record has the number, so none will ever name what this one has staged
            self._store.discard(checkpoint.staging)
            raise
        checkpoint.state.step("save")
        self._last, self._begins = state, False
        self._queue.add(QueuedRecord(committable, checkpoint.state, checkpoint.begun_ms, self._clock.monotonic_ms()))
        fault_point("precommit.saved")
        return committable

    def publish_when_due(self) -> None:
        """Publish what is pending now, or leave it to a later batch or to the thread, as the options say. Idempotent.

        Raises as ``Committer.publish``; what was not published stays pending for the next restore.
        """
        self._schedule.publish_when_due()

    def commit_up_to_checkpoint(self, checkpoint_id: int) -> list[Published]:
        """Publish everything pending up to and with this checkpoint now, in order. Idempotent. Raises as ``publish_when_due``."""
        return self._queue.publish_up_to(checkpoint_id)

    def abort(self, checkpoint: Checkpoint, group: Group) -> None:
        """Writing failed: let go of what ``group`` holds and remove the checkpoint's files. Nothing of it is durable.

        A successor may have the same number by now: what is in its folder stays.
        """
        checkpoint.state.step("abort")
        group.give_up()
        self._store.discard(checkpoint.staging)

    def finish(self) -> None:
        """No further batch will come: publish what is pending. Raises as ``publish_when_due``; an error that a batch has raised is not repeated.

        Idempotent. Any thread may call it.
        """
        self._schedule.stop()

    def close(self, unused: bool = False) -> None:
        """Finish, and give the hold on the application back; the next writer needs no takeover. unused: as ``Journal.release``."""
        try:
            self.finish()
        finally:
            self._store.release(unused)

    def emit(self, kind: type, **fields) -> None:
        """Tell the listener of an event of this destination and application."""
        self._emit(kind(self._to.path, self._options.application, **fields))

    def _past(self) -> Past:
        return Past(
            self._to.path,
            self._to.table_id,
            self._last,
            self._earlier,
            self._known_run,
            functools.cache(self._others),
            self._known_files,
            self._store.identity().id,
            self._store.identity().behind,
            begins=self._begins,
        )

    def _others(self) -> Mapping[str, LastOfOther]:
        return self._committer.others(self._options.application)

    def _known_run(self, run: str) -> KnownRun:
        """Whether a bounded job's run is published: as the journal says, or the destination where that does not know every run, or knew it as an older
        copy, which may be of another past."""
        known, journal = self._store.known_run(run, self._to.table_id), self._store.identity()
        if journal.began == 0 or known.is_published and (journal.ended or known.journal_id in ("", journal.id)):
            return known
        return self._committer.known_run(self._options.application, run)

    def _known_files(self) -> KnownFiles | None:
        """Looked up once in a run: Spark does not list a file twice in one, so what the run itself records is not asked for."""
        if not self._known:
            whole = self._store.identity().began == 0
            self._known.append(self._store.known_files(self._last.files_from if self._last else 0) if whole else None)
        return self._known[0]

    def _earlier(self, query: str, checkpoint_id: int) -> AppState | None:
        found = self.newest_record(query, checkpoint_id)
        return found.state if found is not None else None

    def newest_record(self, query: str, checkpoint_id: int) -> Committable | None:
        """Of that checkpoint of the query, or of that bounded run, as long as the journal has it."""
        for sequence in reversed(self._store.retained()):
            committable = self._store.load(sequence)
            if committable and (committable.state.query, committable.state.checkpoint_id) == (query, checkpoint_id):
                return committable
        return None


def _rows_of_run(batch: Batch, files: tuple[StagedFile, ...], decision: Decision) -> int | None:
    """How many rows a bounded run was given; None when that is not known, or it is a micro-batch."""
    if batch.batch_id != END_OF_INPUT or batch.rows is not None:
        return batch.rows
    return None if decision.verdict is Verdict.SEEN else sum(file.rows for file in files)


def _other_journal(published: AppState, own: Committable | None, there: JournalIdentity, last: int) -> str:
    """How a journal differs from the one that the table's last record is of. own: its record of the same number."""
    if published.journal_id in ("", there.id):
        return (
            f"has the id {published.record_id}, but in the journal that is there the record of this number has the id {own.state.record_id}: "
            "table and journal have one past and went on in different ways, as when one of them was restored from a backup"
        )
    return (
        f"is of journal {published.journal_id}, but the journal that is there has the id {there.id}, and records of its own up to number "
        f"{last}: it was put in the place of the right one"
    )
