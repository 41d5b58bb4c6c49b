"""How the rows of a task, or of a small batch, go into one transaction. EXECUTOR and driver."""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic

import pyarrow as pa

from streamsink.clock import Clock, IdSource
from streamsink.errors import Retryable, StreamsinkError
from streamsink.events import log
from streamsink.protocol.sink import Writing
from streamsink.sinks.transactions.function import Context, T, TransactionContext, TwoPhaseCommitFunction, of_the_author
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup

# In a staging folder, a file whose name begins so says that a transaction of the name behind it may have begun.
ANNOUNCED = "transaction-"


@dataclass(frozen=True)
class PreCommitted:
    """A transaction that is pre-committed, as its writer hands it to the driver.

    handle: as ``encode`` returned it. bytes: of the rows in Arrow. handed_over: a task wrote it.
    """

    name: str
    handle: str
    rows: int
    bytes: int
    begun_ms: int
    handed_over: bool = False


@dataclass(frozen=True)
class TransactionWriting(Writing, Generic[T]):
    """One transaction for each writer that has rows. context: of the checkpoint, without a name and a store."""

    function: TwoPhaseCommitFunction[T]
    application: str
    number: int
    staging: str
    user_context: Context

    def open(self, file_io: FileIO) -> "TransactionWriter[T]":
        return TransactionWriter(file_io, self)

    def encode(self, written: PreCommitted) -> str:
        return json.dumps(asdict(written))

    def decode(self, text: str) -> PreCommitted:
        return replace(PreCommitted(**json.loads(text)), handed_over=True)


class TransactionWriter(Generic[T]):
    """The writer of one task attempt, or of the driver; see ``Writing.open``."""

    def __init__(self, file_io: FileIO, writing: TransactionWriting[T]):
        self._function = writing.function
        name = f"{writing.number}-{IdSource().new_id()}"
        self._context = TransactionContext(
            name, writing.application, writing.number, writing.staging, file_io, writing.user_context
        )
        self._announced = f"{writing.staging}/{ANNOUNCED}{name}"
        self._begun_ms: int | None = None
        self._transaction: list[T] = []  # at most one
        self._rows = self._bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        """Write these rows into the transaction, which begins with the first ones."""
        if not rows.num_rows:
            return
        if self._begun_ms is None:
            self._begin()
        self._function.invoke(self._transaction[0], rows, self._context)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes

    def _begin(self) -> None:
        self._begun_ms = Clock().now_ms()
        # Durable before the transaction begins: from then on it can be found, whoever dies.
        self._context.file_io.create_if_absent(self._announced, b"")
        self._transaction.append(self._function.begin_transaction(self._context))

    def close(self, group: FlushGroup) -> list[PreCommitted]:
        """Pre-commit the transaction. Its rows are durable when this returns. Returns it, or nothing without rows."""
        if not self._transaction or self._begun_ms is None:
            return []
        transaction = self._transaction[0]
        self._function.pre_commit(transaction, self._context)
        if not self._context.file_io.exists(self._announced):
            # Whoever aborted what is announced has been here already, and does not come again.
            raise Retryable(
                f"{self._function.path}: the folder {self._context.folder} was removed while a task was writing into "
                f"transaction {self._context.name}: its batch was given up, or another driver has taken over. The "
                "transaction is aborted. Nothing is to be done",
                kind="transaction.given-up",
            )
        handle = self._function.encode(transaction)
        return [PreCommitted(self._context.name, handle, self._rows, self._bytes, self._begun_ms)]

    def abort(self) -> None:
        """Drop the transaction. Idempotent.

        An error is logged, so that it does not hide the one that has ended the writing. What stays is aborted with the
        staging folder, by name.
        """
        begun, self._begun_ms = self._begun_ms, None
        if begun is None:
            return
        what = f"transaction {self._context.name} could not be aborted; it is tried again when its folder is removed"
        try:
            with of_the_author(self._function.path, what):
                if self._transaction:
                    self._function.abort(self._transaction[0], self._context)
                else:
                    self._function.recover_and_abort(self._context)
        except (OSError, StreamsinkError) as failed:
            log.warning("%s", failed)


def abort_all(
    function: TwoPhaseCommitFunction[Any], file_io: FileIO, application: str, folder: str, keep: Collection[str]
) -> bool:
    """Abort each transaction that is announced in a staging folder, except those of these names.

    Returns whether all are aborted; else the error is logged, and the folder must stay for a later try.
    """
    done = True
    for name in file_io.names(folder):
        transaction = name.removeprefix(ANNOUNCED)
        number = transaction.partition("-")[0]
        if name == transaction or transaction in keep or not number.isdigit():
            continue
        what = f"transaction {transaction} could not be aborted; it is tried again by a later start"
        try:
            with of_the_author(function.path, what):
                function.recover_and_abort(TransactionContext(transaction, application, int(number), folder, file_io))
        except (OSError, StreamsinkError) as failed:
            log.warning("%s", failed)
            done = False
    return done
