"""The only sources of time, sleep and randomness, so that a test can pass in its own."""

import random
import time
import uuid


class Clock:
    """Wall clock, monotonic clock and sleep of this process."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def now_ns(self) -> int:
        """Nanoseconds since the epoch, UTC, for steps that take less than a millisecond."""
        return time.time_ns()

    def local_ms(self) -> int:
        """Milliseconds of the local wall clock, as if it were UTC: as Java has them in the metadata of data files."""
        now = self.now_ms()
        return now + time.localtime(now / 1000).tm_gmtoff * 1000

    def monotonic_ms(self) -> float:
        """Milliseconds of a clock that never goes back; only differences have a meaning."""
        return time.perf_counter_ns() / 1_000_000

    def sleep_ms(self, milliseconds: float) -> None:
        """Block for this many milliseconds."""
        time.sleep(milliseconds / 1000)


class IdSource:
    """Unique names and jitter."""

    def new_id(self) -> str:
        """A random UUID in its text form (36 characters)."""
        return str(uuid.uuid4())

    def jitter(self) -> float:
        """A random number in [0, 1)."""
        return random.random()
