"""The connection to a database, and what becomes of its errors. Driver only."""

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import tenacity

from streamsink.clock import Clock
from streamsink.errors import Misuse, Retryable, StreamsinkError
from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.dialect import Dialect, Run

# A server ends idle connections, and of two transactions that wait for each other it ends one.
_TRIES = 5
_MOST_PAUSE_S = 0.2
_Result = TypeVar("_Result")


class Link:
    """One connection, which is opened when it is needed, and again after an error. One thread uses it at a time.

    path: of the sink, for messages.
    """

    def __init__(self, dialect: Dialect, address: Address, path: str):
        self._dialect = dialect
        self._driver = dialect.driver()
        self._address = address
        self._path = path
        self._connection: Any = None

    def transaction(
        self, work: Callable[[Run], _Result], what: str, *, refused: str = "", keep: bool = True
    ) -> _Result:
        """Run ``work`` as one transaction, and return its result.

        It is run again, in a new transaction, when the connection is lost or the transaction had to give way, also when
        it is not known whether it was committed: so ``work`` must find out by itself whether it is done already.

        what: that could not be done, and what that means, for messages. refused: the way on when the database refuses
        what it was given. keep: commit; else the transaction is rolled back. Raises Retryable and Misuse; none of them
        has a value of a row. After any error the connection is closed, so nothing is left open.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._is_quick),
            stop=tenacity.stop_after_attempt(_TRIES),
            wait=tenacity.wait_random(0, _MOST_PAUSE_S),
            reraise=True,
            sleep=lambda seconds: Clock().sleep_ms(seconds * 1000),
        )
        try:
            return retrying(self._once, work, keep)
        except self._driver.Error as failed:
            # Without its cause: the driver's own text may show rows, or how it connected.
            raise self._translated(failed, what, refused) from None

    def _is_quick(self, error: BaseException) -> bool:
        return isinstance(error, self._driver.Error) and self._dialect.is_quick(error)

    def _once(self, work: Callable[[Run], _Result], keep: bool) -> _Result:
        try:
            if self._connection is None:
                self._connection = self._dialect.connect(self._address)
            if self._dialect.begin:
                self._connection.cursor().execute(self._dialect.begin)
            result = work(Run(self._connection))
            self._connection.commit() if keep else self._connection.rollback()
            return result
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; what is not committed is rolled back. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._driver.Error):
                self._dialect.close(connection)

    def __del__(self) -> None:
        self.close() if hasattr(self, "_connection") else None

    def _translated(self, failed: Exception, what: str, refused: str) -> StreamsinkError:
        said = f"{self._path}: {what}: {type(failed).__name__}: {self._dialect.told(failed)}"
        if self._dialect.is_passing(failed):
            return Retryable(
                f"{said}. Look whether the database is there, and who has locks in it; the query goes on when it is "
                "started again",
                kind="database.unavailable",
            )
        if refused and not self._dialect.is_forbidden(failed):
            return Misuse(f"{said}. {refused}", kind="database.rows-refused")
        return Misuse(
            f"{said}. Check the URL, user, password_env, the rights of the user, and whether somebody has dropped what "
            "it names; then start the query again",
            kind="database.refused",
        )
