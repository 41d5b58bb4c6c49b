"""How often and how fast a commit tries again.

The sink's options come before the table's, those before the defaults.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import tenacity

from streamsink.clock import Clock
from streamsink.errors import Misuse
from streamsink.options import CommitOptions
from streamsink.table.durations import parse_duration

_Number = TypeVar("_Number", bound=float)

DEFAULT_RETRIES = 10
DEFAULT_MIN_WAIT_MS, DEFAULT_MAX_WAIT_MS = 10.0, 10_000.0
# Paimon's own default is no limit, but a streaming query should rather fail and be restarted.
DEFAULT_TIMEOUT_MS = 120_000.0
# Waits vary by this share, so that writers that lost to the same one do not try again at the same moment.
_JITTER = 0.2


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long a commit is tried.

    retries: number of tries after the first one. The wait before a try doubles from ``min_wait_ms`` to ``max_wait_ms``.
    timeout_ms: time after which no further try begins.
    """

    retries: int
    min_wait_ms: float
    max_wait_ms: float
    timeout_ms: float

    @classmethod
    def of(cls, table: str, options: CommitOptions, of_table: Mapping[str, str]) -> "RetryPolicy":
        """A sink's option that is given wins over the table's ``commit.*`` option, and that one over the default.

        of_table: the table's options. Raises Misuse ``option.value`` for one that is not a number or duration.
        """

        def choose(
            given: _Number | None, key: str, read: Callable[[str, str, str], _Number], default: _Number
        ) -> _Number:
            if given is not None:
                return given
            return read(table, key, of_table[key]) if key in of_table else default

        return cls(
            choose(options.commit_max_retries, "commit.max-retries", _whole, DEFAULT_RETRIES),
            choose(options.commit_min_wait_ms, "commit.min-retry-wait", parse_duration, DEFAULT_MIN_WAIT_MS),
            choose(options.commit_max_wait_ms, "commit.max-retry-wait", parse_duration, DEFAULT_MAX_WAIT_MS),
            choose(options.commit_timeout_ms, "commit.timeout", parse_duration, DEFAULT_TIMEOUT_MS),
        )

    def attempts(self, clock: Clock) -> Iterator[int]:
        """Numbers of tries, from 1, with a wait before each but the first; it ends when tries or time have run out."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_always,
            stop=tenacity.stop_after_attempt(self.retries + 1) | tenacity.stop_after_delay(self.timeout_ms / 1000),
            wait=self._wait,
            sleep=lambda seconds: clock.sleep_ms(seconds * 1000),
            retry_error_callback=lambda _: None,
        )
        for attempt in retrying:
            yield attempt.retry_state.attempt_number
            attempt.retry_state.set_result(None)

    @property
    def _wait(self) -> Callable[[tenacity.RetryCallState], float]:
        longest = max(self.min_wait_ms, self.max_wait_ms)
        doubling = tenacity.wait_exponential(multiplier=self.min_wait_ms / 1000, max=longest / 1000)
        jitter = tenacity.wait_random(0, 1)
        return lambda state: doubling(state) * (1 + _JITTER * jitter(state))


def _whole(table: str, option: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise Misuse(f"{table}: table option {option} is {text!r}, expected a whole number", kind="option.value")
    return int(text)
