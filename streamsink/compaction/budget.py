"""What compaction beside a query may use: bytes an hour, and a share of one core, or of a session's tasks."""

from collections.abc import Callable
from dataclasses import dataclass

from streamsink.clock import Clock

_HOUR_MS = 3_600_000
# What was not used is kept up to this share of an hour's bytes, so that a pause is not followed by a burst.
_KEPT = 0.25
# The work between two sleeps counts as no more, so that a machine that stood still is not followed by a long sleep.
_MOST_WORK_MS = 10_000.0
# Likewise a job of Spark, which may have waited for the query's own ones.
_LONGEST_JOB_MS = 600_000.0


class Bytes:
    """A budget of bytes that fills up with time. It begins full."""

    def __init__(self, per_hour: int, clock: Clock):
        self._per_hour = per_hour
        self._clock = clock
        self._left = per_hour * _KEPT
        self._since_ms = clock.monotonic_ms()

    def may_use(self, size: int) -> bool:
        """Whether so many bytes may be used now. What is larger than a full budget may be used when it is full."""
        now_ms = self._clock.monotonic_ms()
        full = self._per_hour * _KEPT
        self._left = min(full, self._left + (now_ms - self._since_ms) * self._per_hour / _HOUR_MS)
        self._since_ms = now_ms
        return self._left >= min(size, full)

    def use(self, size: int) -> None:
        """So many bytes are used. What is too much is waited for before the next ones."""
        self._left -= size


class Core:
    """A share of one core: behind each piece of work it sleeps as long as the share demands."""

    def __init__(self, percent: int, clock: Clock, sleep: Callable[[float], None]):
        """sleep: for so many ms; it may raise."""
        self._factor = max(0.0, 100 / percent - 1)
        self._clock = clock
        self._sleep = sleep
        self._since_ms = clock.monotonic_ms()

    def begin(self) -> None:
        """Work begins now."""
        self._since_ms = self._clock.monotonic_ms()

    def pace(self) -> None:
        """Sleep for the work since the last call."""
        work_ms = min(_MOST_WORK_MS, max(0.0, self._clock.monotonic_ms() - self._since_ms))
        self._sleep(work_ms * self._factor)
        self.begin()


@dataclass(frozen=True)
class Slots:
    """A share of the tasks that a Spark session can run at one time.

    percent: the share. slots: how many tasks it can run.
    """

    percent: int
    slots: int

    @property
    def at_once(self) -> int:
        """So many tasks may run at one time: one at least, and never all, so that the query's own ones can."""
        return max(1, min(self.slots - 1, self.slots * self.percent // 100))

    def rest_ms(self, work_ms: float) -> float:
        """How long nothing may run behind a job of ``at_once`` tasks, where these are more than the share."""
        share = max(1, self.slots) * self.percent / 100
        return min(_LONGEST_JOB_MS, max(0.0, work_ms)) * max(0.0, self.at_once / share - 1)
