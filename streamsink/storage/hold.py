"""Holds, which keep a second query of the same name out while the driver of the first one lives.

Exactly-once never depends on a hold; it depends on epochs and fences.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from streamsink.clock import Clock, IdSource
from streamsink.errors import StreamsinkError
from streamsink.events import log

BEAT_MS, LEASE_MS = 5_000, 15_000
BEAT_THREAD = "streamsink-hold-"  # prefix of the names of beating threads
_LOOKS_PER_BEAT = 5
# Longer than a command has a lock that looks whether somebody has it.
_LOOK_MS = 10
_RELEASED = b"released"


class Hold(ABC):
    """One driver's hold on one application.

    is_wanted: the driver goes on without its hold, which an earlier driver of the same query still had; see ``again``.
    """

    is_wanted = False

    @abstractmethod
    def allows(self, rival: int | None) -> bool:
        """Whether this driver may claim the application.

        rival: the epoch of the newest owner if that is another query. Otherwise None, because a restart of the same
        query takes over at once.
        """

    @abstractmethod
    def keep(self, epoch: int) -> None:
        """Hold from now on, because this driver has claimed ``epoch``: until ``release``, or until the process ends."""

    def again(self) -> None:
        """Take the hold if it is wanted, and the earlier driver has ended since; else commands take this one for dead.

        Idempotent, and called again and again, in the middle of batches. So it raises no error of the store: what
        cannot be taken now is taken by a later call.
        """

    def left_by(self, epoch: int) -> list[str]:
        """Paths of what may be left of the hold of ``epoch``, which was superseded long ago."""
        return []

    @abstractmethod
    def release(self) -> None:
        """Release the hold. Idempotent; any thread may call it."""


class Flock(Hold):
    """A hold by a lock of the operating system, which ends with the process."""

    def __init__(self, try_hold: Callable[[], Callable[[], None] | None]):
        """try_hold: takes the lock and returns a function that releases it, or None if another process has it."""
        self._try_hold = try_hold
        self._release: Callable[[], None] | None = None
        self._changing = threading.Lock()
        self._is_told = False  # whether the log has that the lock could not be asked for

    def allows(self, rival: int | None) -> bool:
        if self._release is None:
            self._release = self._try_hold()
        if self._release is None and rival is not None:
            Clock().sleep_ms(_LOOK_MS)
            self._release = self._try_hold()
        return self._release is not None or rival is None

    def keep(self, epoch: int) -> None:
        """The lock is held since ``allows``, unless a driver has it that this one took over from."""
        self.is_wanted = self._release is None

    def again(self) -> None:
        with self._changing:
            if self.is_wanted:
                self._release = self._try_again()
                self.is_wanted = self._release is None

    def release(self) -> None:
        with self._changing:
            self.is_wanted = False
            release, self._release = self._release, None
        if release is not None:
            release()

    def _try_again(self) -> Callable[[], None] | None:
        try:
            return self._try_hold()
        except OSError as failed:
            if not self._is_told:
                self._is_told = True
                log.warning(
                    "the lock by which this driver holds its application cannot be opened: %s: %s. The query goes on, "
                    "since epochs keep its rows once; until the lock is there, commands and queries of that name take "
                    "this driver for a dead one, and end it. It is tried again with each batch, and not told again",
                    type(failed).__name__,
                    failed,
                )
            return None


class BeatingHold(Hold):
    """A hold for stores without locks: the file ``hold-<epoch>``, which its one writer changes every few seconds.

    A rival watches the file for one lease length on its own clock; if it does not change, its writer is taken for dead.
    The clocks of two machines are never compared. A driver that is paused for longer than the lease is taken for dead
    too, and is fenced when it wakes up, as in every takeover.
    """

    def __init__(self, file_io: Any, folder: str, beat_ms: int = BEAT_MS, lease_ms: int = LEASE_MS):
        self._io = file_io
        self._folder = folder
        self._beat_ms = beat_ms
        self._lease_ms = lease_ms
        self._clock = Clock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._path = ""

    def allows(self, rival: int | None) -> bool:
        if rival is None:
            return True
        first = self._read(rival)
        end = self._clock.monotonic_ms() + self._lease_ms
        while first != _RELEASED and self._clock.monotonic_ms() < end:
            self._clock.sleep_ms(self._beat_ms / _LOOKS_PER_BEAT)
            found = self._read(rival)
            if found != first:
                return found == _RELEASED
        return True

    def keep(self, epoch: int) -> None:
        self._path = self._path_of(epoch)
        self._ended.clear()
        self._beat(0)
        self._thread = threading.Thread(target=self._beat_on, args=(epoch,), name=f"{BEAT_THREAD}{epoch}", daemon=True)
        self._thread.start()

    def left_by(self, epoch: int) -> list[str]:
        return [self._path_of(epoch)]

    def said_of(self, epoch: int) -> bytes | None:
        """What the hold of this epoch says now; None when it was released, or nobody has begun to hold."""
        found = self._read(epoch)
        return None if found == _RELEASED else found

    def release_of(self, epoch: int) -> None:
        """Release the hold of a driver that is dead. One that sleeps goes on to beat when it wakes up, and holds."""
        self._io.replace(self._path_of(epoch), _RELEASED, IdSource().new_id())

    def release(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended.set()
        thread.join(self._beat_ms / 1000)  # a beat that is still running would overwrite the release
        try:
            if self._io.exists(self._path):
                self._io.replace(self._path, _RELEASED, IdSource().new_id())
        except (OSError, StreamsinkError):
            return  # then a rival waits for one lease length

    def _beat_on(self, epoch: int) -> None:
        number = 0
        while not self._ended.wait(self._beat_ms / 1000):
            number += 1
            try:
                if self._io.exists(os.path.join(self._folder, f"owner-{epoch + 1}")):
                    return  # superseded
                self._beat(number)
            except (OSError, StreamsinkError):
                continue  # the store may answer next time; until then a rival may take over

    def _beat(self, number: int) -> None:
        self._io.replace(self._path, b"%d" % number, IdSource().new_id())

    def _read(self, epoch: int) -> bytes | None:
        try:
            return self._io.read(self._path_of(epoch))
        except FileNotFoundError:
            return None  # it was claimed a moment ago, or its driver died before the first beat

    def _path_of(self, epoch: int) -> str:
        return os.path.join(self._folder, f"hold-{epoch}")
