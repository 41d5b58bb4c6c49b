"""One micro-batch, in the order on which the promise rests: admit, begin, write, stage, pre-commit, publish. Driver
only.

Spark's batch function, bounded jobs and the crash tests all run this code. What differs between them is how rows become
files, which is a ``BatchRows``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from streamsink import events
from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse
from streamsink.faults import fault_point
from streamsink.options import SinkOptions
from streamsink.protocol.admission import position_errors
from streamsink.protocol.committable import Batch, StagedFile, told_of
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.protocol.journal import Group
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.run.one_call import OneCall, given_at_one_time, given_twice
from streamsink.protocol.run.publish_thread import Background, PublishThread, Step
from streamsink.protocol.run.two_phase import TwoPhaseCommit
from streamsink.protocol.sink import OpenSink, Published


class QueryRun:
    """One start of one query: what earlier starts left is settled, then its batches come one after another.

    A batch id comes once in a run. Spark gives an id again only in a new run, so in the same run it is no replay: it is
    a second part of the batch, or an id that is not Spark's, and skipping it would lose its rows.
    """

    def __init__(self, sink: OpenSink, protocol: TwoPhaseCommit):
        self.protocol = protocol
        self._sink = sink
        self._clock = Clock()
        self._one_call = OneCall()
        self._returned = -1  # the last batch for which a call has returned
        self._failed: tuple[int, BatchRows] | None = None  # the call that raised last

    @classmethod
    def start(
        cls,
        sink: OpenSink,
        query: str,
        options: SinkOptions,
        emit: Callable[[events.Event], None],
        *,
        background: Callable[[Step], Background] = PublishThread,
        run: str = "",
    ) -> "QueryRun":
        """Claim the application and settle what earlier starts left. Raises as ``TwoPhaseCommit.restore``; it is closed
        then.

        background: makes what publishes while batches are written, when the options ask for it. run: Spark's id of this
        start of the query; empty for a bounded job, which is repeated under its id.
        """
        options, emit = replace(options, application=sink.application), sink.care.hearing(emit)
        protocol = TwoPhaseCommit(sink.to, sink.journal, sink.committer, options, emit, background=background)
        try:
            protocol.restore(query, IdSource().new_id, run)
        except BaseException:
            protocol.close(unused=True)
            raise
        return cls(sink, protocol)

    @property
    def has_returned(self) -> bool:
        """Whether a batch of this run has gone through."""
        return self._returned >= 0

    def micro_batch(self, batch: Batch, rows: BatchRows) -> int:
        """Publish the batch exactly once, or make it durable so that it will be. Rows written; 0 for a replay.

        Idempotent across runs: a batch that an earlier run has published or recorded changes nothing. After a crash at
        any instruction the next ``start`` settles what was pending. Raises errors of ``streamsink.errors``, and what
        writing raises; after that the same rows may be given again. When publishing has failed, or nobody knows whether
        the batch is recorded, the run is over: each further call raises that error, and a new ``start`` settles it.
        Raises Misuse when this run has done the batch already. Two calls for one batch at one time: before the record
        both raise Misuse and nothing is recorded; after the record the second one waits for the first, and then raises
        Misuse.
        """
        self._sink.care.check()
        with self._as_the_only_call(batch, rows), self._computing_ahead(batch, rows):
            step = events.Steps(self.protocol.emit, self._clock.monotonic_ms, batch.batch_id)
            batch, decision = self._admitted(batch, rows)
            step(events.BatchAdmitted, **decision.told(batch))
            if decision.verdict is Verdict.SKIP:
                self.protocol.emit(events.BatchSkipped, checkpoint_id=batch.batch_id, reason=decision.reason)
                # An earlier call of this run may have ended between the batch's record and its snapshot.
                self.protocol.publish_when_due()
                return 0
            checkpoint = self.protocol.begin(batch, decision)
            step(events.CheckpointBegun, sequence=checkpoint.sequence)
            with self._sink.group() as group:
                try:
                    files, payload = self._write(checkpoint, rows, group)
                    step(events.BatchWritten, **told_of(files), way=rows.way)
                    self._check_sources(batch, rows.looked_at_again(batch))
                    if not self._one_call.decide():
                        raise self._concurrent(batch)
                except BaseException as failed:
                    self.protocol.abort(checkpoint, group, failed)
                    raise
                self.protocol.pre_commit(checkpoint, files, payload, group)
            step(events.CheckpointRecorded, sequence=checkpoint.sequence)
            self.protocol.publish_when_due()
            return sum(file.rows for file in files)

    @contextmanager
    def _as_the_only_call(self, batch: Batch, rows: BatchRows) -> Iterator[None]:
        """Within it no other call writes, and the batch was not given before in this run.

        Raises Misuse as ``micro_batch``.
        """
        if not self._one_call.begin(batch.batch_id):
            raise self._concurrent(batch)
        try:
            self._check_once(batch, rows)
            try:
                yield
            except BaseException:
                self._failed = (batch.batch_id, rows)
                raise
            self._returned, self._failed = batch.batch_id, None
        finally:
            self._one_call.end()

    def _computing_ahead(self, batch: Batch, rows: BatchRows) -> AbstractContextManager[None]:
        """Let the rows be computed while the destination is looked at, which hardly ever refuses them.

        Only from a run's second batch on, which is no replay. A state is not computed for nothing, or twice.
        """
        return rows.computing(batch) if self.has_returned and not batch.stateful else nullcontext()

    def _check_once(self, batch: Batch, rows: BatchRows) -> None:
        if batch.batch_id > self._returned:
            if self._failed is None or self._failed[0] != batch.batch_id or rows.same_as(self._failed[1]):
                return
            found = "its earlier call failed with other rows than these"
        else:
            found = f"batch {self._returned} of it is done"
        raise given_twice(self.protocol.path, batch.batch_id, found)

    def _concurrent(self, batch: Batch) -> Misuse:
        return given_at_one_time(self.protocol.path, batch.batch_id)

    def _admitted(self, batch: Batch, rows: BatchRows) -> tuple[Batch, Decision]:
        """What is to be done with the batch.

        It is asked again with each fact about its rows that the first answer needs.
        """
        decision = self.protocol.admit(batch)
        if decision.counts_rows:
            batch = replace(batch, rows=rows.count())
            decision = self.protocol.admit(batch)
        if decision.compares_rows:
            batch = replace(batch, compared=rows.compared(self.protocol.newest_record(batch.query, batch.batch_id)))
            decision = self.protocol.admit(batch)
        if decision.verdict is Verdict.FILTER:
            batch = rows.described(batch)
            decision = self.protocol.admit(batch)
        if batch.stateful and decision.verdict in (Verdict.SKIP, Verdict.SEEN):
            rows.read_over()  # what the state becomes by them is what the next batch builds on
        if decision.verdict is Verdict.FILTER:
            self.protocol.emit(events.BatchFiltered, checkpoint_id=batch.batch_id, **decision.left_out(batch))
        return batch, decision

    def _check_sources(self, batch: Batch, now: Batch) -> None:
        """Raises Misuse when a topic of the batch is another one than when it was admitted."""
        if any(position_errors.changed_meanwhile(batch, now)):
            self.protocol.admit(now)  # where its id is recorded, this says which ways on there are
            error = self.protocol.recreated_meanwhile(batch, now)
            if error is not None:
                raise error

    def _write(
        self, checkpoint: Checkpoint, rows: BatchRows, group: Group
    ) -> tuple[tuple[StagedFile, ...], Mapping[str, Any]]:
        """Rows to staged files and their manifest: what the record will name."""
        written: Sequence[Any] = ()
        if checkpoint.decision.verdict is not Verdict.SEEN:
            rows.check_read(checkpoint)
            written = rows.write(checkpoint, group)
            fault_point("write.staged")
        files, payload = self._sink.stage(checkpoint, written, group)
        rows.staged(files)
        return files, payload

    def commit_up_to_checkpoint(self, checkpoint_id: int) -> list[Published]:
        """Publish everything pending up to and with this checkpoint now.

        Raises as ``TwoPhaseCommit.publish_when_due``.
        """
        return self.protocol.commit_up_to_checkpoint(checkpoint_id)

    def finish(self) -> None:
        """No further batch will come: publish what is pending."""
        self.protocol.finish()

    def close(self) -> None:
        """Finish, and give the application back to other queries."""
        with self._sink.care.stopping():
            self.protocol.close()
