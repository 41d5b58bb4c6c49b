"""Locks in a database, in the table that Paimon's writers use (JdbcCatalog with lock.enabled=true).

Streamsink's and Paimon's writers therefore exclude each other. ``paimon_distributed_locks`` is Paimon's table: a row is
the lock, its insertion the acquisition, its age the expiry. Paimon deletes that row without checking whose it is. Our
own table ``streamsink_lock_tokens`` keeps for ever the newest token of each lock, its owner, and which row of Paimon's
table belongs to that owner. Every decision is one transaction, and the time is the database's, so that no wrong clock
of ours can end a lease.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tenacity

from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse, Retryable
from streamsink.locks.lock import UNAVAILABLE, Lease, Lock, LockTerms
from streamsink.locks.sql_dialects import Address, Dialect

_TABLES = {
    "paimon_distributed_locks": "CREATE TABLE IF NOT EXISTS paimon_distributed_locks("
    "lock_id VARCHAR(255) NOT NULL, acquired_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP NOT NULL, "
    "expire_time_seconds BIGINT DEFAULT 0 NOT NULL, PRIMARY KEY (lock_id))",
    "streamsink_lock_tokens": "CREATE TABLE IF NOT EXISTS streamsink_lock_tokens("
    "lock_id VARCHAR(255) NOT NULL, token BIGINT NOT NULL, owner VARCHAR(255) NOT NULL, acquired_at TIMESTAMP NULL, "
    "expire_time_seconds BIGINT NOT NULL, PRIMARY KEY (lock_id))",
}
_MARK_S = 10  # see Dialect.now
# A database that finds a deadlock rolls one of its transactions back completely, and this may be the holder's.
_TRIES = 10
_MOST_PAUSE_S = 0.2
# (sql, *parameters) -> a cursor of the open transaction, on which the statement has been executed.
_Run = Callable[..., Any]
_Result = TypeVar("_Result")
_SAME_ROW = "lock_id = ? AND acquired_at = ? AND expire_time_seconds = ?"


class JdbcLock(Lock):
    """A lock that is a row of Paimon's lock table.

    The length of a lease is rounded up to whole seconds. A connection lives as long as a lease.
    """

    def __init__(
        self,
        dialect: Dialect,
        address: Address,
        password: str | None,
        terms: LockTerms,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ):
        super().__init__(terms, clock, ids)
        self._dialect = dialect
        self._driver = dialect.driver()
        self._address = address
        self._password = password
        self._connection: Any = None
        self._has_tables = False
        self._lease_s = math.ceil(terms.lease_ms / 1000)

    # -- Lock ------------------------------------------------------------------------------------------------------

    def try_acquire(self, owner: str) -> int | None:
        def decide(run: _Run) -> int | None:
            token, last_owner, *row = self._newest(run)
            if last_owner == owner and self._renew(run, row):
                return token  # an earlier attempt acquired the lock, and its reply was lost
            run(f"DELETE FROM paimon_distributed_locks WHERE lock_id = ? AND {self._dialect.expired}", self.lock_id)
            before, after = self._dialect.insert_ignore
            inserted = run(
                f"{before} paimon_distributed_locks (lock_id, acquired_at, expire_time_seconds) "
                f"VALUES (?, {self._dialect.now}, ?){after}",
                self.lock_id,
                self._lease_s + _MARK_S,
            ).rowcount
            if inserted != 1:
                return None
            run(
                "UPDATE streamsink_lock_tokens SET token = ?, owner = ? WHERE lock_id = ?",
                token + 1,
                owner,
                self.lock_id,
            )
            self._remember_row(run)
            return token + 1

        return self._transaction(decide)

    def renew(self, lease: Lease) -> bool:
        def decide(run: _Run) -> bool:
            token, owner, *row = self._newest(run)
            return (token, owner) == (lease.token, lease.owner) and self._renew(run, row)

        return self._transaction(decide)

    def release(self, lease: Lease) -> None:
        try:
            self._transaction(lambda run: self._delete_row_of(run, lease.owner))
        finally:
            self._disconnect()

    def give_up(self, owner: str) -> None:
        try:
            if self._connection is not None:
                self._transaction(lambda run: self._delete_row_of(run, owner))
        except Retryable:
            return  # if we acquired the lock and the reply was lost, its lease runs out
        finally:
            self._disconnect()

    def holder(self) -> str:
        def ask(run: _Run) -> tuple[str, list[Any], Any]:
            _, owner, *ours = self._newest(run)
            found = run(
                f"SELECT acquired_at, expire_time_seconds, {self._dialect.age_s} FROM paimon_distributed_locks "
                "WHERE lock_id = ?",
                self.lock_id,
            ).fetchone()
            return owner, ours, found

        owner, ours, found = self._transaction(ask)
        if found is None:
            return "nobody holds it now: many writers take turns"
        *row, age = found
        left = f"it ends by itself {max(row[1] - age, 0)} s from now unless its holder renews it"
        if row == ours:
            return f"{owner} (host:process:id) renewed it {age - _MARK_S} s ago; {left}"
        return (
            f"a writer that is not streamsink (a catalog of Paimon's) has held it for {age} s; {left}. When that "
            "writer is certainly dead, delete the row of this lock_id from paimon_distributed_locks (in a shell: "
            "streamsink unlock, with -o lock=... and --holder-is-dead --yes, does it)"
        )

    def take_away(self) -> bool:
        try:
            delete = "DELETE FROM paimon_distributed_locks WHERE lock_id = ?"
            return bool(self._transaction(lambda run: run(delete, self.lock_id).rowcount))
        finally:
            self._disconnect()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _newest(self, run: _Run) -> tuple[Any, ...]:
        """(token, owner, acquired_at, expire_time_seconds) of the newest lease of a streamsink writer.

        The row that holds them stays locked until the transaction ends; it is inserted if it is missing.
        """
        ask = (
            "SELECT token, owner, acquired_at, expire_time_seconds FROM streamsink_lock_tokens "
            f"WHERE lock_id = ?{self._dialect.for_update}"
        )
        found = run(ask, self.lock_id).fetchone()
        if found is None:
            before, after = self._dialect.insert_ignore
            run(
                f"{before} streamsink_lock_tokens (lock_id, token, owner, expire_time_seconds) VALUES (?, 0, '', "
                f"0){after}",
                self.lock_id,
            )
            found = run(ask, self.lock_id).fetchone()
        return found

    def _renew(self, run: _Run, row: Sequence[Any]) -> bool:
        """Restart the lease of this row if the row still exists; whether it does.

        As long as the row exists, expired or not, nobody else has taken the lock.
        """
        renewed = run(
            f"UPDATE paimon_distributed_locks SET acquired_at = {self._dialect.now} WHERE {_SAME_ROW}",
            self.lock_id,
            *row,
        )
        if renewed.rowcount != 1:
            return False
        self._remember_row(run)
        return True

    def _remember_row(self, run: _Run) -> None:
        """Note which row of Paimon's table is ours: its own writers delete rows of others, and insert theirs."""
        row = run(
            "SELECT acquired_at, expire_time_seconds FROM paimon_distributed_locks WHERE lock_id = ?", self.lock_id
        ).fetchone()
        run(
            "UPDATE streamsink_lock_tokens SET acquired_at = ?, expire_time_seconds = ? WHERE lock_id = ?",
            *row,
            self.lock_id,
        )

    def _delete_row_of(self, run: _Run, owner: str) -> None:
        _, newest_owner, *row = self._newest(run)
        if newest_owner == owner:
            run(f"DELETE FROM paimon_distributed_locks WHERE {_SAME_ROW}", self.lock_id, *row)

    def _transaction(self, decide: Callable[[_Run], _Result]) -> _Result:
        """Run ``decide`` as one transaction and return its result.

        It is run again if the database rolled it back to resolve a deadlock. Raises: Misuse or Retryable for any other
        error of the database. Every error closes the connection.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, self._driver.Error) and self._dialect.is_deadlock(error)
            ),
            stop=tenacity.stop_after_attempt(_TRIES),
            wait=tenacity.wait_random(0, _MOST_PAUSE_S),
            reraise=True,
            sleep=lambda seconds: self._clock.sleep_ms(seconds * 1000),
        )
        try:
            return retrying(self._once, decide)
        except (self._driver.Error, OSError) as failed:  # OSError: of a certificate's file
            raise self._translated(failed) from None  # the driver's own error may show how it connected

    def _once(self, decide: Callable[[_Run], _Result]) -> _Result:
        try:
            if self._connection is None:
                self._connection = self._dialect.connect(self._address, self._password)
            self._make_tables()
            if self._dialect.begin:
                self._connection.execute(self._dialect.begin)
            result = decide(self._run)
            self._connection.commit()
            return result
        except BaseException:
            self._disconnect()
            raise

    def _run(self, text: str, *parameters: Any) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(self._dialect.sql(text), parameters)
        return cursor

    def _make_tables(self) -> None:
        """Create the tables that are missing.

        The others are not touched: the user may have no right to create tables.
        """
        if self._has_tables:
            return
        for name, statement in _TABLES.items():
            try:
                self._run(f"SELECT 1 FROM {name} WHERE 1 = 0")
            except self._driver.Error:
                self._connection.rollback()
                self._run(statement)
            self._connection.commit()
        self._has_tables = True

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(self._driver.Error):
                self._connection.close()
            self._connection = None

    def _translated(self, failed: Exception) -> Exception:
        said = str(failed).strip()
        if self._password:
            said = said.replace(self._password, "***")
        what = f"lock {self.lock_id}: {self._address.place}: {type(failed).__name__}: {said}"
        if self._dialect.is_refusal(failed):
            return Misuse(f"{what}. Check 'lock', 'lock_user' and 'lock_password_env'", kind="lock.refused")
        return Retryable(what, kind=UNAVAILABLE)
