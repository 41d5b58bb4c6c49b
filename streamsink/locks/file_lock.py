"""A lock between the processes of one host, made with flock(2).

A process that dies releases it at once; a paused process keeps it.
"""

import json
from collections.abc import Callable
from typing import Any

from streamsink import shell
from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Retryable
from streamsink.locks.lock import UNAVAILABLE, Lease, Lock, LockTerms
from streamsink.storage.file_io import FileIO


class FileLock(Lock):
    """Locks the file ``path``; the file ``path``.token beside it holds the newest token and its owner.

    A lease has no length, because the kernel knows when the holder is gone. If somebody deletes the locked file, a
    second holder is possible. It takes the next token, and that fences the first one.
    """

    def __init__(
        self, file_io: FileIO, path: str, terms: LockTerms, clock: Clock | None = None, ids: IdSource | None = None
    ):
        super().__init__(terms, clock, ids)
        self._io = file_io
        self._path = path
        self._token_path = f"{path}.token"
        self._release: Callable[[], None] | None = None

    def try_acquire(self, owner: str) -> int | None:
        try:
            self._release = self._io.try_hold(self._path)
            if self._release is None:
                return None
            token = self._newest()["token"] + 1
            written = {"token": token, "owner": owner, "since_ms": self._clock.now_ms()}
            self._io.replace(self._token_path, json.dumps(written).encode(), owner.rpartition(":")[2])
        except OSError as failed:
            self._let_go()
            raise Retryable(f"{self._path}: {failed.strerror}", kind=UNAVAILABLE) from failed
        except BaseException:
            self._let_go()
            raise
        return token

    def renew(self, lease: Lease) -> bool:
        if self._release is None:
            return False
        try:
            return self._newest()["owner"] == lease.owner
        except OSError as failed:
            raise Retryable(f"{self._token_path}: {failed.strerror}", kind=UNAVAILABLE) from failed

    def release(self, lease: Lease) -> None:
        self._let_go()

    def give_up(self, owner: str) -> None:
        self._let_go()

    def holder(self) -> str:
        newest = self._newest()
        since = (self._clock.now_ms() - newest["since_ms"]) // 1000
        return (
            f"{newest['owner']} (host:process:id) has held {self._path} for {since} s; end that process when it hangs"
        )

    def _let_go(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None

    def _newest(self) -> dict[str, Any]:
        try:
            data = self._io.read(self._token_path)
        except FileNotFoundError:
            data = b""
        try:
            # The file may be empty after a power failure, which no holder has survived.
            return json.loads(data) if data else {"token": 0, "owner": "", "since_ms": self._clock.now_ms()}
        except ValueError as broken:
            raise Corrupt(
                f"{self._token_path}: not a lock's token. It holds no data: make sure that no writer runs, and delete "
                f"it {shell.discard(self._token_path)}",
                kind="lock.token",
            ) from broken
