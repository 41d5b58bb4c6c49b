"""Exclusive table locks of a Hive Metastore, the same that Paimon's HiveCatalog takes, so that they exclude each other.

The metastore queues requests. A waiting request is polled until it is granted, or is taken back. The metastore's lock
ids only grow and serve as fencing tokens. The length of a lease is the metastore's setting ``hive.txn.timeout``,
measured by its clock. Only plain Thrift is supported, no SASL.
"""

import socket
from collections.abc import Callable
from typing import Any

from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse, Retryable
from streamsink.locks.hive_client import HiveClient, user
from streamsink.locks.lock import UNAVAILABLE, Lease, Lock, LockTerms


class HiveLock(Lock):
    """The lock of one table, which its database and table name. A connection lives as long as a lease."""

    def __init__(
        self, host: str, port: int, terms: LockTerms, *, clock: Clock | None = None, ids: IdSource | None = None
    ):
        super().__init__(terms, clock, ids)
        _, self._database, self._table = terms.lock_id.rsplit(".", 2)
        try:
            self._client = HiveClient(host, port)
        except ImportError as missing:
            raise Misuse(
                "a lock in a Hive Metastore needs the package 'pymetastore', which is not installed: "
                "pip install 'streamsink[hive]'",
                kind="lock.driver",
            ) from missing
        self._types = self._client.types
        self._request: int | None = None  # id of our request, whether it is waiting or granted
        self._asked = False  # whether the metastore may have a request of ours, even if its reply was lost

    # -- Lock ------------------------------------------------------------------------------------------------------

    def try_acquire(self, owner: str) -> int | None:
        types = self._types
        if self._request is None and self._asked:
            self._request = next((found.lockid for found in self._shown() if found.agentInfo == owner), None)
        if self._request is None:
            self._asked = True
            answer = self._call(lambda client: client.lock(self._wanted(owner)))
            self._request = answer.lockid
        else:
            # Asking also keeps a waiting request alive.
            answer = self._call(
                lambda client: client.check_lock(types.CheckLockRequest(lockid=self._request)), gone=None
            )
        if answer is None:
            self._request = None  # the request timed out on the server, and the next attempt makes a new one
            return None
        return self._request if answer.state == types.LockState.ACQUIRED else None

    def renew(self, lease: Lease) -> bool:
        types = self._types
        answer = self._call(lambda client: client.check_lock(types.CheckLockRequest(lockid=lease.token)), gone=None)
        return answer is not None and answer.state == types.LockState.ACQUIRED

    def release(self, lease: Lease) -> None:
        try:
            self._unlock(lease.token)
        finally:
            self._forget()

    def give_up(self, owner: str) -> None:
        try:
            if self._request is None and self._asked:
                self._request = next((found.lockid for found in self._shown() if found.agentInfo == owner), None)
            if self._request is not None:
                self._unlock(self._request)
        except Retryable:
            return  # the metastore ends the request when it hears nothing more of it
        finally:
            self._forget()

    def holder(self) -> str:
        granted = [found for found in self._shown() if found.state == self._types.LockState.ACQUIRED]
        if not granted:
            return "nobody holds it now: many writers take turns"
        held = granted[0]
        since = (self._clock.now_ms() - (held.acquiredat or 0)) // 1000
        return (
            f"{held.user} on {held.hostname} ({held.agentInfo}) has held lock {held.lockid} of the metastore for "
            f"{since} s; when it is dead, the metastore ends it after hive.txn.timeout, or 'streamsink unlock' with "
            "-o lock=... and --holder-is-dead --yes does it at once"
        )

    def take_away(self) -> bool:
        granted = [found for found in self._shown() if found.state == self._types.LockState.ACQUIRED]
        for held in granted:
            self._unlock(held.lockid)
        return bool(granted)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _wanted(self, owner: str) -> Any:
        types = self._types
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE, level=types.LockLevel.TABLE, dbname=self._database, tablename=self._table
        )
        return types.LockRequest(component=[component], user=user(), hostname=socket.gethostname(), agentInfo=owner)

    def _shown(self) -> list[Any]:
        request = self._types.ShowLocksRequest(dbname=self._database, tablename=self._table)
        return self._call(lambda client: client.show_locks(request)).locks or []

    def _unlock(self, request: int) -> None:
        wanted = self._types.UnlockRequest(lockid=request)
        self._call(lambda client: client.unlock(wanted))

    def _forget(self) -> None:
        self._request, self._asked = None, False
        self._client.close()

    def _call(self, action: Callable[[Any], Any], gone: Any = None) -> Any:
        """The metastore's answer, or ``gone`` if it does not know the lock any more."""
        unknown = self._types.NoSuchLockException
        try:
            return self._client.call(action, answers=(unknown,))
        except unknown:
            return gone
        except self._client.broken as failed:
            raise Retryable(
                f"lock {self.lock_id}: hive://{self._client.url}: {type(failed).__name__}: {failed}", kind=UNAVAILABLE
            ) from failed
