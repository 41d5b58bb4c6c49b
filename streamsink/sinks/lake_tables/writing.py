"""How rows become data files of a lake table, at the place where they stay. EXECUTOR and driver.

All files of one attempt lie in one folder, which is named after the attempt: nothing is copied or renamed, and what an
attempt leaves that gets no record is found without a listing of the table. A file ``lake-<attempt>`` in the attempt's
staging folder says so before the first data file exists.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.errors import Misuse, Retryable, StreamsinkError
from streamsink.events import log
from streamsink.faults import fault_point
from streamsink.format.arrow_types import physical
from streamsink.format.types import DataField
from streamsink.protocol.sink import Writing
from streamsink.sinks.lake_tables.parquet_file import LakeFile, OpenParquetFile, partition_of
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.stores import Store
from streamsink.table.write.buffers import SMALL_PIECE_ROWS, size_of
from streamsink.table.write.conform import Conform
from streamsink.table.write.parquet_output import row_groups
from streamsink.table.write.split import WHY_NOT_UTF8, split_by_columns

# In a staging folder, a file whose name begins so announces the folder of the attempt that is named behind it.
ANNOUNCED = "lake-"
# A row group is written when so much Arrow data is buffered for one file.
_ROW_GROUP_BYTES = 64 << 20
# Rows wait until they have so many bytes, or this share of the memory, before they are split by partition.
_SPLIT_BYTES, _SPLIT_SHARE = 16 << 20, 8
_WAY_ON = "Nothing was recorded. Mend or filter such rows in the query"
# The values of the partition columns, as ``physical`` has them.
_Partition = tuple[Any, ...]


@dataclass(frozen=True)
class LakeWriting(Writing):
    """The files of one checkpoint.

    table: for messages. staging: ``Checkpoint.staging``. folder: of the attempt, absolute or a URI; ``attempt`` is its
    id. fields: the columns of the table, to which rows are brought. schema: of the files, whose columns are some of
    these (``PARQUET:field_id`` in their metadata goes into the files). partition_by: columns of which each file has one
    value. most_bytes: a file that has become larger ends. store: of the table; None where it is that of the journal.
    max_open, memory_bytes: the bounds of open files and of buffered bytes. announces: whether the attempt is announced
    when its writer is opened, which is before the rows have come, and not with the first file.
    """

    table: str
    staging: str
    folder: str
    attempt: str
    fields: tuple[DataField, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]
    most_bytes: int
    max_open: int
    memory_bytes: int
    store: Store | None = None
    announces: bool = False

    def open(self, file_io: FileIO) -> "LakeWriter":
        return LakeWriter(file_io, self)

    def encode(self, written: LakeFile) -> str:
        return json.dumps(written.to_json())

    def decode(self, text: str) -> LakeFile:
        return LakeFile.from_json(json.loads(text)).by_task()


class LakeWriter:
    """The writer of one task attempt, or of the driver; see ``Writing.open``."""

    def __init__(self, journal_io: FileIO, writing: LakeWriting):
        self._of = writing
        self._journal_io = journal_io
        self._io = journal_io if writing.store is None else writing.store.open()
        self._conform = Conform(writing.fields, _WAY_ON)
        self._announced = f"{writing.staging}/{ANNOUNCED}{writing.attempt}"
        self._names = f"part-{IdSource().new_id()}"
        self._begun: list[str] = []
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._buffers: dict[_Partition, list[pa.RecordBatch]] = {}
        self._open: dict[_Partition, OpenParquetFile] = {}
        self._done: list[LakeFile] = []
        if writing.announces:
            self._announce()

    def write(self, rows: pa.RecordBatch) -> None:
        """Take these rows, whose columns are matched by name. Raises Misuse when they do not fit; then ``abort``."""
        if not rows.num_rows:
            return
        try:
            fitting = self._conform(rows)
        except Misuse as refused:
            raise Misuse(f"{self._of.table}: {refused}", kind=refused.kind) from refused
        self._waiting.append(fitting)
        self._waiting_bytes += size_of(fitting)
        if self._waiting_bytes >= min(_SPLIT_BYTES, self._of.memory_bytes // _SPLIT_SHARE):
            self._split()
            while self._buffered() > self._of.memory_bytes:
                self._flush(max(self._buffers, key=self._size))

    def close(self, group: FlushGroup) -> list[LakeFile]:
        """End all files. They are durable when ``group`` is flushed. Returns them; nothing without rows."""
        self._split()
        for partition in list(self._buffers):
            self._flush(partition)
        if not self._begun:
            return []
        if self._of.store is None:
            self._end_all(group)
            group.sync_dir(self._of.folder)
        else:  # the group is of another store
            with self._io.flush_group() as own:
                self._end_all(own)
                own.sync_dir(self._of.folder)
                own.flush()
        self._check_announced()
        done, self._done = self._done, []
        return done

    def abort(self) -> None:
        """Delete what was written. Idempotent.

        An error of the store is logged, so that it does not hide the one that has ended the writing. What stays is
        swept by the attempt's name.
        """
        for file in self._open.values():
            file.discard()
        self._open.clear()
        self._waiting.clear()
        self._buffers.clear()
        begun, self._begun = self._begun, []
        try:
            self._io.delete_all(begun)
        except (OSError, StreamsinkError) as failed:
            log.warning("data files could not be deleted, and stay until their attempt is swept: %s", failed)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _split(self) -> None:
        """Move the waiting rows, in order, into the buffers of their partitions."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for batch in pa.Table.from_batches(waiting).combine_chunks().to_batches() if waiting else ():
            for partition, rows in self._parts(batch):
                self._buffers.setdefault(partition, []).append(rows)
                if self._size(partition) >= min(_ROW_GROUP_BYTES, self._of.memory_bytes):
                    self._flush(partition)

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[_Partition, pa.RecordBatch]]:
        columns = self._of.partition_by
        if not columns:
            yield (), batch
            return
        for first, rows in split_by_columns(batch, [batch.column(name) for name in columns]):
            yield tuple(self._value(batch, name, first) for name in columns), rows

    def _value(self, batch: pa.RecordBatch, name: str, row: int) -> Any:
        try:
            return physical(batch.column(name)[row])
        except UnicodeDecodeError:
            raise Misuse(
                f"{self._of.table}: {WHY_NOT_UTF8.format(name)}. Nothing was recorded. Say in the query what its bytes "
                "are, such as decode(value, 'ISO-8859-1'), or filter such rows there",
                kind="partition.encoding",
            ) from None  # the original message quotes a byte of the value

    def _size(self, partition: _Partition) -> int:
        return sum(map(size_of, self._buffers[partition]))

    def _buffered(self) -> int:
        return sum(map(self._size, self._buffers))

    def _flush(self, partition: _Partition) -> None:
        rows = pa.Table.from_batches(self._buffers.pop(partition))
        if rows.num_rows < len(rows.to_batches()) * SMALL_PIECE_ROWS:
            rows = rows.combine_chunks()
        file = self._file(partition, rows)
        for part in row_groups(rows, _ROW_GROUP_BYTES):
            file.append(part)
        if file.bytes >= self._of.most_bytes:
            self._end(partition)

    def _file(self, partition: _Partition, first: pa.Table) -> OpenParquetFile:
        if partition not in self._open:
            if len(self._open) >= self._of.max_open:
                self._end(max(self._open, key=lambda each: self._open[each].bytes))
            if not self._begun:
                if not self._of.announces:
                    self._announce()
                self._io.begin_dir(self._of.folder)
            path = f"{self._of.folder}/{self._names}-{len(self._begun)}.parquet"
            self._begun.append(path)  # before it is opened: a file that fails to open may be there
            row = partition_of(first, self._of.partition_by)
            self._open[partition] = OpenParquetFile(self._io, path, self._of.schema, first, row)
            fault_point("task.file_opened")
        return self._open[partition]

    def _announce(self) -> None:
        """Durable before the first data file, so that whatever comes to be in the folder can be found."""
        self._journal_io.mark(self._announced)
        self._journal_io.sync_dir(self._of.staging)

    def _check_announced(self) -> None:
        if not self._journal_io.exists(self._announced):
            # Whoever swept what is announced has been here already, and does not come again.
            raise Retryable(
                f"{self._of.table}: the folder {self._of.staging} was removed while files were written for it: their "
                "batch was given up, or another driver has taken over. They are deleted, and nothing of them was "
                "recorded. Nothing is to be done",
                kind="attempt.given-up",
            )

    def _end(self, partition: _Partition) -> None:
        """Finish a file before the others: it is made durable at once, and holds no resources any more."""
        with self._io.flush_group() as group:
            self._done.append(self._open.pop(partition).close(group))
            group.flush()
        fault_point("task.file_closed")

    def _end_all(self, group: FlushGroup) -> None:
        for partition in list(self._open):
            self._done.append(self._open.pop(partition).close(group))
            fault_point("task.file_closed")
