"""What is done about transactions that have been pending for nearly so long that the destination drops them. Driver.

As in Flink's ``TwoPhaseCommitSinkFunction``: a warning as the timeout nears; when it has passed and committing fails,
an error, or by an option only a warning.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamsink import events
from streamsink.clock import Clock
from streamsink.errors import Corrupt, Retryable
from streamsink.protocol.committable import AppState
from streamsink.sinks.transactions.function import PendingTransaction, TwoPhaseCommitFunction, of_the_author


@dataclass(frozen=True)
class Timeouts:
    """The timeout of one sink's transactions. emit: takes events."""

    function: TwoPhaseCommitFunction[Any]
    application: str
    emit: Callable[[events.Event], None]

    @contextmanager
    def heeded(self, state: AppState, pending: PendingTransaction[Any]) -> Iterator[None]:
        """Within it the transaction is committed. state: of its record.

        Raises Retryable when that fails, and Corrupt when it fails after the timeout, unless the option says to go on.
        """
        of, limit = self.function, self.function.transaction_timeout_ms
        age = max(0, Clock().now_ms() - pending.begun_ms)
        if limit and age >= of.warn_at * limit:
            self._say(events.TransactionNearsTimeout, state, pending, age)
        name = pending.context.name
        what = (
            f"transaction {name} of {state.checkpoint_name} (record {state.sequence}, {pending.rows} rows) could not "
            "be committed. It is pre-committed, so every start of the query commits it again until that succeeds, and "
            "nothing after it is committed before"
        )
        try:
            with of_the_author(of.path, what):
                yield
        except Retryable as failed:
            if not limit or age < limit:
                raise
            if not of.ignore_failures_after_transaction_timeout:
                raise self._timed_out(state, pending, age) from failed
            self._say(events.TransactionGivenUp, state, pending, age)

    def _say(
        self, kind: type[events.TransactionNearsTimeout], state: AppState, pending: PendingTransaction[Any], age: int
    ) -> None:
        of, limit = self.function.path, self.function.transaction_timeout_ms
        name, rows = pending.context.name, pending.rows
        self.emit(kind(of, self.application, state.checkpoint_id, name, rows, age_ms=age, timeout_ms=limit))

    def _timed_out(self, state: AppState, pending: PendingTransaction[Any], age: int) -> Corrupt:
        return Corrupt(
            f"{self.function.path}: transaction {pending.context.name} of {state.checkpoint_name} (record "
            f"{state.sequence}, {pending.rows} rows) began {age} ms ago, the destination may abort it after "
            f"{self.function.transaction_timeout_ms} ms, and it could not be committed. Nothing after it was "
            "committed. Look whether its rows are in the destination. If the destination still has the transaction, "
            "commit it there by hand, or mend what the cause of this error names, and start the query again. If the "
            "rows are lost, write them again by a job of your own, which reads the source at the positions of this "
            "checkpoint; then set ignore_failures_after_transaction_timeout=True on the sink for one start of the "
            "query, which gives the transaction up and goes on",
            kind="transaction.timed-out",
        )
