"""When recorded checkpoints are published: in the batch, or by a thread while the next one is written; one by one or in
groups. The thread also keeps ``publish_interval_ms``, under 'sync' too.
"""

from collections.abc import Callable

from streamsink.clock import Clock
from streamsink.errors import Retryable
from streamsink.events import log
from streamsink.faults import fault_point
from streamsink.options import ASYNC, SinkOptions
from streamsink.protocol.run.publish_queue import PublishQueue
from streamsink.protocol.run.publish_thread import Background, Step
from streamsink.protocol.sink import Published

# While something is pending, how often it is asked whether the query has ended.
LOOK_MS = 1000
# How long a batch or a stop waits for the thread; longer when commit_timeout_ms is.
PATIENCE_MS = 120_000


class PublishSchedule:
    """Publishes in the batch or beside it, as the options say.

    The batch thread calls all methods but ``_step``, which the publishing thread calls. ``stop`` may come from any
    thread.
    """

    def __init__(
        self,
        table: str,
        queue: PublishQueue,
        options: SinkOptions,
        background: Callable[[Step], Background],
        *,
        settles_later: bool,
    ):
        """settles_later: as of the committer."""
        self._table = table
        self._queue = queue
        self._options = options
        self._clock = Clock()
        self._patience_ms = max(PATIENCE_MS, options.commit_timeout_ms or 0)
        self._background = background(self._step) if options.publishes_later or settles_later else None
        # Each is set by one thread alone, so that neither undoes what the other one says: the publishing thread has
        # failed; a batch, a stop or another call from outside has raised its error.
        self._failed_beside = False
        self._heard = False
        self._stopped = False

    def check(self) -> None:
        """Raises the error that publishing failed with, the original one; Retryable when this run was stopped."""
        if self._queue.failed:
            self._heard = True
            self._queue.check()
        if self._stopped:
            raise Retryable(
                f"{self._table}: this run of the query was closed, and publishes no further batch. Nothing is lost; a "
                "restarted query goes on",
                kind="run.closed",
            )

    @property
    def publishes_each_batch(self) -> bool:
        """Whether ``publish_when_due`` publishes the batch that was just recorded, in the same thread."""
        return not self._options.publishes_later

    def wait_for_room(self) -> None:
        """Wait until fewer than ``publish_queue`` checkpoints are pending.

        Called before a batch is written, not before its pre-commit: a batch that waits has no files yet, and learns of
        a failed or fenced committer before it does its work in vain. Raises that error; Retryable when nothing moved.
        """
        if self._options.publish != ASYNC:
            return
        if not self._has_room() and self._background is not None:
            self._background.hurry()
            timeout_ms = 2 * self._patience_ms  # one publishing may take that long, and one makes room
            with self._queue.changed:
                if not self._queue.changed.wait_for(self._has_room, timeout_ms / 1000):
                    raise self._stuck(timeout_ms)
        self.check()

    def publish_when_due(self) -> None:
        """What is durable may be published: in this call, or by a later one or the thread.

        Raises as publishing does.
        """
        if self._options.publish != ASYNC and len(self._queue.pending()) >= self._options.publish_every_batches:
            self.publish_up_to(None)
            if self._background is not None and self._queue.has_unsettled:
                self._background.wake()
        elif self._background is not None:
            fault_point("group.queued")
            self._background.wake()

    def publish_up_to(self, checkpoint_id: int | None) -> list[Published]:
        """Publish in this call, as ``PublishQueue.publish_up_to``. The stop does not raise its error again."""
        try:
            return self._queue.publish_up_to(checkpoint_id)
        except BaseException:
            self._heard = True
            raise

    def _settle(self) -> None:
        try:
            self._queue.settle()
        except BaseException:
            self._heard = True
            raise

    def stop(self) -> None:
        """The run has ended: stop the thread, then publish what is pending, unless publishing has failed.

        Raises an error of the thread that no call has raised yet; Retryable when the thread does not end.
        Idempotent. What could not be published is pending still, and the next start publishes it.
        """
        self._stopped = True
        if self._background is None:
            return
        if not self._background.stop(self._patience_ms):
            raise self._stuck(self._patience_ms)
        if self._queue.failed:
            if self._failed_beside and not self._heard:
                self._heard = True
                self._queue.check()
        else:
            if self._queue.pending():
                fault_point("group.stopping")
                self.publish_up_to(None)
            self._settle()

    def _has_room(self) -> bool:
        return self._queue.failed or len(self._queue.pending()) < self._options.publish_queue

    def _step(self, ended: bool) -> float | None:
        """Publish what is due. An error is kept by the queue, and the next batch raises it, or the stop does.

        It is logged as well, because perhaps neither will come. ended: no batch will come.
        """
        try:
            if not self._queue.failed:
                self._queue.settle()
                if self._options.publishes_later and (ended or self._due()):
                    self._queue.publish_up_to(None)
                    self._queue.settle()
        except BaseException as failed:  # handed on: the batch function raises it
            self._failed_beside = True
            if not self._heard:
                log.warning(
                    "%s: what is pending could not be published beside the batches: %s. It is safe in the journal, and "
                    "is published at the next start. A further batch of this run raises the error",
                    self._table,
                    failed,
                )
            return None
        left_ms = self._interval_left_ms()
        return left_ms if left_ms is None else min(left_ms, LOOK_MS)

    def _due(self) -> bool:
        full = len(self._queue.pending()) >= self._options.publish_every_batches
        return self._options.publish == ASYNC and full or self._interval_left_ms() == 0

    def _interval_left_ms(self) -> float | None:
        """Until the oldest pending checkpoint has waited long enough; None when none is pending or publishing ended."""
        pending = self._queue.pending()
        if not pending or self._queue.failed:
            return None
        if not self._options.publish_interval_ms:
            return LOOK_MS
        return max(0.0, pending[0].recorded_ms + self._options.publish_interval_ms - self._clock.monotonic_ms())

    def _stuck(self, waited_ms: float) -> Retryable:
        return Retryable(
            f"{self._table}: the publishing thread has not moved for {waited_ms:.0f} ms: the store does not answer. "
            "Nothing is lost: what is pending is safe in the journal and is published at the next start",
            kind="publish.stuck",
        )
