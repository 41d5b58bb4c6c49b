"""What is recorded and not published, and the thread that publishes it beside the batches.

One for each run of a query, started when it first has something to do.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streamsink.clock import Clock
from streamsink.events import CheckpointPublished
from streamsink.protocol.committable import Committable
from streamsink.protocol.sink import Published

# Work that is done while batches are written. Its argument says whether no further batch will come, so that nothing may
# wait any longer. It returns in how many ms it shall be called again, None for not before the next wake.
Step = Callable[[bool], float | None]


# (what was published at one instant, the records that it stands for, where)
Done = tuple[Committable, Sequence[Committable], Published]


class Took(NamedTuple):
    """Milliseconds: since the batch of the first record began, and of publishing alone. 0 where a restart publishes."""

    commit_ms: float = 0.0
    publish_ms: float = 0.0

    @classmethod
    def now(cls, clock: Clock, begun_ms: float, tried_ms: float) -> "Took":
        """Until now, since these instants of the clock (monotonic)."""
        now_ms = clock.monotonic_ms()
        return cls(now_ms - begun_ms, now_ms - tried_ms)


def published_event(table: str, application: str, done: Done, pending: int, took: Took) -> CheckpointPublished:
    """What a listener is told of it. pending: how many records are."""
    unit, records, outcome = done
    at, of = (outcome.checkpoint_id, outcome.snapshot_id), (unit.rows, len(unit.files))
    tried, more = (pending, outcome.attempts), {"checkpoints": len(records), "bytes": unit.bytes}
    return CheckpointPublished(table, application, *at, *of, *tried, took.commit_ms, **more, publish_ms=took.publish_ms)


@dataclass(frozen=True)
class QueuedRecord:
    """A checkpoint of this run that is durable and not published.

    begun_ms, recorded_ms: when its batch began and when its record was made, on the monotonic clock.
    """

    committable: Committable
    begun_ms: float
    recorded_ms: float


class Background(ABC):
    """Calls the step, never twice at one time: a ``PublishThread``, or in tests a chosen interleaving."""

    @abstractmethod
    def wake(self) -> None:
        """There may be work. Called by the batch function; returns without waiting for the work."""

    @abstractmethod
    def hurry(self) -> None:
        """The batch function is about to wait for the work. Returns at once all the same."""

    @abstractmethod
    def stop(self, timeout_ms: float) -> bool:
        """No step runs after this returned True; False when one did not end in time. Idempotent."""


class PublishThread(Background):
    """Calls ``step`` when it is woken, and again after the time that the step asked for.

    A daemon: an interpreter that exits does not wait for it. ``has_ended``: whether the query has ended, so that no
    batch will come and nobody may stop this; asked by the thread itself now and then while something is pending.
    """

    def __init__(self, step: Step, name: str = "", has_ended: Callable[[], bool] = lambda: False):
        self._step = step
        self._name = name
        self._has_ended = has_ended
        self._changed = threading.Condition()
        self._woken = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()
            if self._thread is None and not self._stopping:
                self._thread = threading.Thread(
                    target=self._run, name=f"streamsink-publisher {self._name}", daemon=True
                )
                self._thread.start()

    def hurry(self) -> None:
        self.wake()

    def stop(self, timeout_ms: float) -> bool:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_ms / 1000)
        return not thread.is_alive()

    def _run(self) -> None:
        wait_ms: float | None = None
        while not self._stopping:
            if self._sleep(wait_ms):
                wait_ms = self._step(False)
            elif not self._stopping:
                wait_ms = self._step(self._has_ended())

    def _sleep(self, wait_ms: float | None) -> bool:
        """Whether it was woken; False after that time, and when it shall stop."""
        with self._changed:
            seconds = None if wait_ms is None else wait_ms / 1000
            self._changed.wait_for(lambda: self._woken or self._stopping, seconds)
            woken, self._woken = self._woken and not self._stopping, False
            return woken
