"""What an author of a sink in Flink's form writes: how a transaction is begun, filled, committed or aborted.

It follows Flink's ``TwoPhaseCommitSinkFunction``; docs/TWO_PHASE_COMMIT_SINK.md leads from Flink's words to these. Each
writer of a micro-batch has one transaction, and the record of the batch names those that are pre-committed.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from streamsink.errors import Fenced, Misuse, Retryable, StreamsinkError
from streamsink.storage.file_io import FileIO

T = TypeVar("T")
Context = Mapping[str, Any]
# Key of a session: a command asks, not a query. What a query has committed to is there, or was lost; nothing is to be
# made in its place.
ONLY_ASKED = "only asked"


@dataclass(frozen=True)
class TransactionContext:
    """What a transaction belongs to.

    name: of the transaction, at most 57 letters, digits and '-'. No other transaction ever has it. It is durable in the
    journal before ``begin_transaction`` is called, so that whatever carries it can be found and aborted by a later
    start. application: of the query. number: of the checkpoint's record.
    folder: absolute path of the checkpoint's staging folder. Files there, whose names must begin otherwise than with
    'manifest-' and 'transaction-', stay until the checkpoint is committed. file_io: of the store of that folder.
    user_context: what ``TwoPhaseCommitSink.user_context`` returned for the checkpoint before; {} for
    ``recover_and_abort``.
    """

    name: str
    application: str
    number: int
    folder: str
    file_io: FileIO
    user_context: Context = field(default_factory=dict)


@dataclass(frozen=True)
class PendingTransaction(Generic[T]):
    """A transaction that is pre-committed.

    begun_ms: when it began, in ms since the epoch by the clock of the machine that wrote it, but never outside of the
    time in which, by the driver's clock, its checkpoint was written. rows: how many it has.
    """

    transaction: T
    context: TransactionContext
    begun_ms: int
    rows: int


@dataclass(frozen=True)
class PendingCheckpoint(Generic[T]):
    """A recorded checkpoint that is to be committed, now or again.

    path: of the sink, for messages. application, number, epoch: of its record, and of the driver that commits it.
    checkpoint_id: Spark's batch id. record_id: no other record has it. transactions: in the order of the tasks; none
    for a batch without rows. user_context: as the record keeps it.
    recovering: whether an earlier start has made the record, so that any of the transactions may be committed already.
    expect: number of the record that must be the last committed one: 0 for none. state: a text (JSON) that a sink which
    ``remembers`` keeps in its destination.
    session: what the sink keeps from one checkpoint to the next, such as a connection: empty at first, and used by one
    thread; but ``session["shared"]``, where it is there, is a dictionary that the thread of the batches has as well.
    within_timeout: entered while one of them is committed; it warns of a transaction that grows old, and says what is
    to be done when it cannot be committed. fence: raises Fenced when a newer driver has taken over. It was called
    before; a sink that tries to commit more than once calls it before each further try.
    """

    path: str
    application: str
    number: int
    checkpoint_id: int
    record_id: str
    epoch: int
    transactions: tuple[PendingTransaction[T], ...]
    user_context: Context
    recovering: bool
    expect: int
    state: str
    session: dict[str, Any]
    within_timeout: Callable[[PendingTransaction[T]], AbstractContextManager[None]]
    fence: Callable[[], None]

    def superseded(self, found: int) -> Fenced:
        """The error for a destination whose last checkpoint has another number than ``expect``. found: that number."""
        return Fenced(
            f"{self.path}: the destination's last checkpoint of application '{self.application}' is record {found}, "
            f"expected {self.expect}, while record {self.number} was being committed: another driver has taken "
            "over, or somebody changed what is remembered there. Nothing of this record was committed",
            kind="writer.fenced",
        )


NEVER_FORGETS = "its author has not said how (TwoPhaseCommitFunction.forget)"


class TwoPhaseCommitFunction(ABC, Generic[T]):
    """What is done with transactions. T: the type of a transaction's handle. ``TwoPhaseCommitSink`` is the sink.

    It travels to executors, so it holds no connection; a handle may.

    What is promised: a transaction that is pre-committed is committed after any crash, again until that succeeds; one
    that is not is aborted. Each method may raise anything. ``OSError`` and other errors end the query; a start of the
    query goes on from what is recorded.

    transaction_timeout_ms: after so long the destination may have aborted a transaction by itself; 0 when it never
    does. warn_at: the part of this time after which a transaction that is still pending is warned of.
    ignore_failures_after_transaction_timeout: whether a transaction that cannot be committed after that time is given
    up, with its rows, and the query goes on. All three as in Flink.
    commits_again: whether a checkpoint that was committed can be committed once more from its record and its staging
    folder, after the destination has gone back to an earlier state of its rows and of what it ``remembers``. Only such
    a sink takes on_rollback='republish', with which the staging folders of retained records stay (``journal_retain``).
    remembers: whether the destination keeps the state of the last checkpoint; see ``last_committed``. It may be said by
    the class, or by each sink. path: names the destination in messages.
    """

    path: str
    commits_again: bool = False
    transaction_timeout_ms: int = 0
    warn_at: float = 0.8
    ignore_failures_after_transaction_timeout: bool = False
    remembers: bool = False

    # -- one transaction -------------------------------------------------------------------------------------------

    @abstractmethod
    def begin_transaction(self, context: TransactionContext) -> T:
        """Begin the transaction of that name, and return its handle. Called with a writer's first rows.

        On an executor, or on the driver for small batches.
        """

    @abstractmethod
    def invoke(self, transaction: T, rows: pa.RecordBatch, context: TransactionContext) -> None:
        """Write these rows, one or more, where nobody sees them before ``commit``."""

    @abstractmethod
    def pre_commit(self, transaction: T, context: TransactionContext) -> None:
        """Make all rows durable, so that ``commit`` can succeed on another machine. No rows follow."""

    @abstractmethod
    def commit(self, transaction: T, context: TransactionContext) -> None:
        """Make the rows visible. On the driver, when the record that names the transaction is durable.

        A transaction that is committed must be left alone, however long ago that was. A driver that was superseded may
        call it as well, at any time.
        """

    @abstractmethod
    def abort(self, transaction: T, context: TransactionContext) -> None:
        """Drop the rows, because their writing failed. Called where the transaction was begun."""

    def recover_and_commit(self, transaction: T, context: TransactionContext) -> None:
        """As ``commit``, in a later start of the query. By default the same."""
        self.commit(transaction, context)

    @abstractmethod
    def recover_and_abort(self, context: TransactionContext) -> None:
        """Drop the transaction of this name, of which no record was made. On the driver.

        Nothing but the name is known: the transaction may have been dropped, or never begun. One that is committed must
        be left alone. After an error it is called again by a later start.
        """

    def encode(self, transaction: T) -> str:
        """The handle as a text, for the record: all that ``commit`` needs. By default as JSON."""
        return json.dumps(transaction)

    def decode(self, text: str) -> T:
        """The inverse of ``encode``."""
        found: T = json.loads(text)
        return found

    # -- one checkpoint --------------------------------------------------------------------------------------------

    def check_columns(self, columns: pa.Schema, session: dict[str, Any]) -> None:
        """Raise Misuse when rows with these columns can never be committed. By default none is refused.

        On the driver, before the rows of the first batch that has rows, and of each one with other columns. session: as
        of ``check_transactions``.
        """

    def check_transactions(self, transactions: Sequence[PendingTransaction[T]], session: dict[str, Any]) -> None:
        """Raise Misuse when these could not be committed. By default none is refused.

        On the driver, when all transactions of a checkpoint are pre-committed, and before its record is made: after an
        error they are aborted. What only committing would find is found again by each start of the query.
        session: what the sink keeps in one start of the query; used by one thread at a time.
        """

    def missing(self, pending: PendingTransaction[T]) -> Sequence[str]:
        """Paths of files that are gone, and without which this can never be committed. By default none.

        Asked for ``streamsink.give_up`` alone.
        """
        return ()

    def user_context(self, before: Context, transactions: Sequence[T]) -> Context:
        """What the record of this checkpoint keeps for the next one: a JSON object. By default what there was before.

        before: of the checkpoint before; {} at first. transactions: that are pre-committed.
        """
        return before

    def commit_checkpoint(self, checkpoint: PendingCheckpoint[T]) -> None:
        """Commit all transactions of a checkpoint. By default one after another.

        A sink whose destination can commit them at one instant, or that ``remembers``, does that here. It must leave a
        checkpoint alone that is committed already.
        """
        commit = self.recover_and_commit if checkpoint.recovering else self.commit
        for pending in checkpoint.transactions:
            with checkpoint.within_timeout(pending):
                commit(pending.transaction, pending.context)

    def last_committed(self, application: str, session: dict[str, Any]) -> str | None:
        """The ``PendingCheckpoint.state`` that was committed last; None for none. Only of a sink that ``remembers``.

        ``commit_checkpoint`` stores it in the same instant as the rows, and only where the number of the one before is
        ``PendingCheckpoint.expect``; else it raises ``checkpoint.superseded(found)``. Where nothing is remembered, the
        last checkpoint is kept in ``<journal>/commits``: a destination that goes back to an earlier state is not
        noticed then. session: as of ``PendingCheckpoint``.
        """
        return None

    def applications(self, session: dict[str, Any]) -> Sequence[str]:
        """The applications of which the destination remembers something. Only of a sink that ``remembers``."""
        return ()

    def forget(self, application: str, session: dict[str, Any]) -> None:
        """Remove all that the destination remembers of an application, for ``streamsink.retire``; its rows stay.

        Only of a sink that ``remembers``. Idempotent. A sink that does not implement it cannot be retired from.
        """
        raise Misuse(
            f"{self.path}: application '{application}' cannot be forgotten: {NEVER_FORGETS}. Nothing was changed",
            kind="retire.keeps-names",
        )

    def is_there(self, session: dict[str, Any]) -> bool:
        """Whether that is there which readers read, or nothing was committed yet. For ``streamsink.verify`` alone.

        By default nobody looks.
        """
        return True

    def identity(self, session: dict[str, Any]) -> str:
        """What the destination is called that nothing else is called, also not one that is created in its place.

        By default the path, so that a destination which is dropped and created again is not noticed. Raises Misuse
        when it is not there and would be made, and the session has ``ONLY_ASKED``.
        """
        return self.path


@contextmanager
def of_the_author(path: str, what: str) -> Iterator[None]:
    """Within it the code of a sink's author is called, which may raise anything.

    what: what is being done, and what becomes of it when that fails, for the message. Raises Retryable for errors that
    are not of this library.
    """
    try:
        yield
    except StreamsinkError:
        raise
    except Exception as failed:
        raise Retryable(
            f"{path}: {what} ({type(failed).__name__}, which is shown with this error). Mend what it names, and start "
            "the query again",
            kind="transaction.failed",
        ) from failed
