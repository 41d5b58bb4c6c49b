"""Sinks whose rows wait in the journal's own staging folder until their checkpoint is committed. EXECUTOR and driver.

For a destination that has no transactions which survive their client (Kafka), or that must commit rows together with
what it remembers (a database). Executors need no access to it.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.protocol import ways
from streamsink.sinks.transactions.function import PendingCheckpoint, PendingTransaction, TransactionContext
from streamsink.sinks.transactions.sink import TwoPhaseCommitSink

_SUFFIX = ".arrow"


@dataclass
class StagedRows:
    """The transaction of one writer: its rows, in order, as one Arrow IPC file.

    size: of the file in bytes, when it is complete.
    """

    size: int = 0
    _stream: Any = field(default=None, repr=False)
    _writer: Any = field(default=None, repr=False)

    def write(self, rows: pa.RecordBatch, context: TransactionContext) -> None:
        """Add these rows. All have the same columns."""
        if self._writer is None:
            self._stream = context.file_io.open_output(path_of(context))
            self._writer = pa.ipc.new_file(self._stream, rows.schema, options=_options())
        self._writer.write_batch(rows)

    def finish(self, context: TransactionContext) -> None:
        """Make the file complete and durable."""
        self._writer.close()
        self.size = self._stream.tell()
        stream, self._stream, self._writer = self._stream, None, None
        with context.file_io.flush_group() as group:
            group.close_on_flush(stream)
            group.sync_dir(context.folder)
            group.flush()

    def drop(self, context: TransactionContext) -> None:
        """Delete the file. Idempotent."""
        stream, self._stream, self._writer = self._stream, None, None
        if stream is not None:
            context.file_io.unflushed(stream).give_up()
        context.file_io.delete(path_of(context))


class StagedRowsSink(TwoPhaseCommitSink[StagedRows]):
    """A destination that is given the rows of a checkpoint at once, by the driver, when they are recorded.

    Write a frozen dataclass with the fields ``path`` and ``journal``, and implement ``commit_checkpoint``, which reads
    the rows with ``read_rows``. Nothing is begun in the destination before, so nothing there has to be aborted, and
    nothing times out.
    """

    def begin_transaction(self, context: TransactionContext) -> StagedRows:
        return StagedRows()

    def invoke(self, transaction: StagedRows, rows: pa.RecordBatch, context: TransactionContext) -> None:
        transaction.write(rows, context)

    def pre_commit(self, transaction: StagedRows, context: TransactionContext) -> None:
        transaction.finish(context)

    def commit(self, transaction: StagedRows, context: TransactionContext) -> None:
        raise NotImplementedError("never called: a checkpoint is committed as a whole")

    def abort(self, transaction: StagedRows, context: TransactionContext) -> None:
        transaction.drop(context)

    def recover_and_abort(self, context: TransactionContext) -> None:
        context.file_io.delete(path_of(context))

    def encode(self, transaction: StagedRows) -> str:
        return json.dumps({"size": transaction.size})

    def decode(self, text: str) -> StagedRows:
        return StagedRows(json.loads(text)["size"])

    @abstractmethod
    def commit_checkpoint(self, checkpoint: PendingCheckpoint[StagedRows]) -> None:
        """Write all rows of a checkpoint, so that readers see all or none; see ``TwoPhaseCommitFunction``.

        Their order is that of the transactions, and within one that of ``read_rows``.
        """

    def read_rows(self, pending: PendingTransaction[StagedRows]) -> Iterator[pa.RecordBatch]:
        """The rows of one writer, in the order in which it was given them.

        One file is in memory at a time, compressed, and of it one batch as it is. Raises Corrupt when the file is gone
        or is not what was written.
        """
        path, size, of = path_of(pending.context), pending.transaction.size, pending.context.application
        try:
            data = pending.context.file_io.read(path)
        except FileNotFoundError as gone:
            raise self._damaged(path, "it is gone", of) from gone
        if len(data) != size:
            raise self._damaged(path, f"it has {len(data)} bytes, expected {size}", of)
        try:
            reader = pa.ipc.open_file(pa.BufferReader(data))
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
        except (pa.ArrowInvalid, OSError) as broken:  # OSError where it cannot be decompressed
            raise self._damaged(path, "it is no Arrow file", of) from broken

    def missing(self, pending: PendingTransaction[StagedRows]) -> Sequence[str]:
        path, size = path_of(pending.context), pending.transaction.size
        return () if pending.context.file_io.size(path) == size else (path,)

    def _damaged(self, path: str, found: str, application: str) -> Corrupt:
        return Corrupt(
            f"{self.path}: the rows of a recorded checkpoint are in {path}, and {found}. Nothing of this checkpoint, "
            f"or after it, was committed. Restore the file {shell.restore(path)}, and start the query again. "
            f"{ways.give_up(self.path, application, is_table=False)}",
            kind="pending.files-gone",
        )


def path_of(context: TransactionContext) -> str:
    """The file with the rows of one transaction."""
    return f"{context.folder}/{context.name}{_SUFFIX}"


def _options() -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression="lz4")
