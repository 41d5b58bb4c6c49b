"""The contract of a lock, and how it is acquired.

    with lock.acquire() as lease:
        lease.check()        # still ours? then renewed to its full length
        ...                  # one short step

A lease ends by itself when its holder dies. A holder that was paused for longer than its lease learns this from
``check``. Each acquisition has a **fencing token**, a number that only grows: a store that could compare it would
refuse late writes. One thread at a time uses a lock object. After a crash the lease runs out, or the kernel ends it
(``file_lock.py``).
"""

import os
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import tenacity

from streamsink.clock import Clock, IdSource
from streamsink.errors import Fenced, Misuse, Retryable
from streamsink.events import log

UNAVAILABLE = "lock.unavailable"  # the kind of a Retryable: the lock's server cannot be reached at present
_FIRST_WAIT_MS = 20
_MOST_WAIT_MS = 1_000


@dataclass(frozen=True)
class LockTerms:
    """Which lock, and its times.

    lock_id: '<catalog-key>.<database>.<table>'. lease_ms: how long a holder that does not renew keeps the lock.
    acquire_timeout_ms: the longest time to wait for it.
    """

    lock_id: str
    lease_ms: int
    acquire_timeout_ms: int


class Lease:
    """One acquisition of a lock; as a context manager it releases the lock at the end.

    ``token`` is greater than that of every earlier lease.
    """

    def __init__(self, lock: "Lock", owner: str, token: int):
        self._lock = lock
        self.owner = owner
        self.token = token

    def check(self) -> None:
        """Return only if the lock is still ours, with the lease renewed to its full length.

        Raises: Fenced if another writer may have the lock by now; Retryable if the lock's server cannot be reached.
        """
        if not self._lock.renew(self):
            raise Fenced(
                f"lock {self._lock.lock_id}: the lease of {self.owner} has ended and somebody else may hold the lock: "
                "this writer was paused, or cut off from the lock's server, for longer than its lease, or another "
                "writer released a lock that was not its own. Nothing may be written under this lease any more",
                kind="lock.fenced",
            )

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._lock.release(self)
        except Retryable as away:
            # The work under the lock is complete, and the lease ends by itself.
            log.warning("lock %s: not released, its lease runs out instead: %s", self._lock.lock_id, away)


class Lock(ABC):
    """One table's lock. ``acquire`` waits for it with growing, random pauses; subclasses say how a lock is taken."""

    def __init__(self, terms: LockTerms, clock: Clock | None = None, ids: IdSource | None = None):
        self.lock_id = terms.lock_id
        self.terms = terms
        self._clock = clock or Clock()
        self._ids = ids or IdSource()

    @staticmethod
    def empty() -> "Lock":
        """No lock: for stores that create a name only when it is absent, whoever else writes there."""
        return _NoLock(LockTerms("", 0, 0))

    @property
    def is_empty(self) -> bool:
        """Whether this lock excludes nobody."""
        return False

    def acquire(self) -> Lease:
        """Wait for the lock, at most ``acquire_timeout_ms``, also while its server cannot be reached.

        After a crash the lease ends by itself. Raises: Retryable, which says who holds the lock, when the time is over;
        Misuse if the server refuses us.
        """
        owner = f"{socket.gethostname()}:{os.getpid()}:{self._ids.new_id()}"
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(lambda token: token is None) | tenacity.retry_if_exception(_is_away),
            stop=tenacity.stop_after_delay(self.terms.acquire_timeout_ms / 1000),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_WAIT_MS / 1000, max=_MOST_WAIT_MS / 1000),
            sleep=lambda seconds: self._clock.sleep_ms(seconds * 1000),
        )
        token: int | None = None
        try:
            token = retrying(lambda: self.try_acquire(owner))
        except tenacity.RetryError as gave_up:
            raise self._timed_out(gave_up.last_attempt) from gave_up
        finally:
            if token is None:
                self.give_up(owner)
        return Lease(self, owner, cast(int, token))  # None is retried, until an error ends the retries

    @abstractmethod
    def try_acquire(self, owner: str) -> int | None:
        """Take the lock if it is free. Returns the token if ``owner`` has the lock now, otherwise None.

        Idempotent: repeated after a lost reply it finds that ``owner`` has the lock. Raises: Retryable of kind
        UNAVAILABLE; Misuse.
        """

    @abstractmethod
    def renew(self, lease: Lease) -> bool:
        """Whether the lock is still this lease's; if so, renew it.

        Idempotent. Raises: Retryable of kind UNAVAILABLE.
        """

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Release the lock if it is still this lease's; never end the lease of another holder.

        Raises: Retryable of kind UNAVAILABLE.
        """

    @abstractmethod
    def give_up(self, owner: str) -> None:
        """Stop waiting for ``owner``, and leave nothing behind that others would wait for. Raises nothing."""

    @abstractmethod
    def holder(self) -> str:
        """Text for a message: who holds the lock and since when, as far as is known, and what to do.

        Raises: Retryable of kind UNAVAILABLE.
        """

    def take_away(self) -> bool:
        """End the lease of a holder that is certainly dead, of whichever program. Whether there was one.

        A writer of ours that lives after all notices it before it writes; another program's may not. Raises: Misuse for
        a lock that ends by itself; Retryable of kind UNAVAILABLE.
        """
        raise Misuse(f"lock {self.lock_id}: nothing was taken away: {self.holder()}", kind="lock.ends-by-itself")

    def _timed_out(self, last: tenacity.Future) -> Retryable:
        waited = f"lock {self.lock_id}: not acquired within lock_acquire_timeout_ms={self.terms.acquire_timeout_ms}"
        safe = "What was pre-committed is safe in the journal and is published at the next start"
        try:
            failed = last.exception()
            if failed is not None:
                raise failed
            return Retryable(f"{waited}: {self.holder()}. {safe}", kind="lock.timeout")
        except Retryable as away:
            return Retryable(f"{waited}: {away}. {safe}", kind="lock.timeout")


def _is_away(error: BaseException) -> bool:
    return isinstance(error, Retryable) and error.kind == UNAVAILABLE


class _NoLock(Lock):
    """A lock that excludes nobody."""

    @property
    def is_empty(self) -> bool:
        return True

    def try_acquire(self, owner: str) -> int | None:
        return 0

    def renew(self, lease: Lease) -> bool:
        return True

    def release(self, lease: Lease) -> None:
        return

    def give_up(self, owner: str) -> None:
        return

    def holder(self) -> str:
        return "nobody"
