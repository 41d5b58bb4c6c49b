"""Publishing beside the batches without a thread: it runs at a chosen I/O call of the batch, always the same."""

from streamsink.protocol.run.publish_thread import Background, Step
from streamsink.testing.crashing import CrashingCalls


class Stepping(Background):
    """Runs the whole step between two I/O calls of the batch function, ``delay`` calls after it was woken.

    delay: 0 runs it at once; None runs it only when a batch waits for room, so that stopping publishes the rest.

    The interleavings of a thread that this leaves out differ only in the order of calls that do not see each other.
    There are tests with real threads as well.
    """

    def __init__(self, step: Step, calls: CrashingCalls, delay: int | None):
        self._step = step
        self._delay = delay
        self._left: int | None = None
        self._stepping = False
        self._stopped = False
        self.steps = 0
        calls.before_call = self._at_call

    def wake(self) -> None:
        self._left = self._delay
        if self._left == 0:
            self._turn()

    def hurry(self) -> None:
        self._turn()

    def stop(self, timeout_ms: float) -> bool:
        self._stopped = True
        return True

    def _at_call(self) -> None:
        if self._left is None or self._stepping:
            return
        self._left -= 1
        if self._left <= 0:
            self._turn()

    def _turn(self) -> None:
        if self._stopped:
            return
        self._left = None
        self._stepping = True
        try:
            self._step(False)
        finally:
            self._stepping = False
        self.steps += 1
