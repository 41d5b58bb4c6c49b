"""Writes data files in one pass over Arrow batches, with rolling files and bounded memory. Executor and driver.

All writers of a task together hold at most ``memory_bytes`` of buffered Arrow data: when that is full, the largest
buffer is flushed as a row group, and at most one row group is copied meanwhile. They have at most ``max_open`` files
open; the largest one is closed to make room. Neither bound grows with the number of rows, partitions or tables.
"""

import os

import pyarrow as pa

from streamsink.clock import Clock, IdSource
from streamsink.faults import fault_point
from streamsink.format.data_file import DataFileMeta
from streamsink.format.schema import TableSchema
from streamsink.format.stats import StatsCollector
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.history.deletion import delete_staged
from streamsink.table.write.buffers import SMALL_PIECE_ROWS, Buffer, Limits, size_of
from streamsink.table.write.conform import Conform
from streamsink.table.write.folders import TOKEN, Folders
from streamsink.table.write.parquet_output import Encoding, ParquetOutput, row_groups
from streamsink.table.write.spec import WriteSpec, WrittenFile
from streamsink.table.write.split import PartitionKey, split_by_partition

# A row group is written when so much Arrow data is buffered for one file.
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Rows wait until they have so many bytes, or this share of the memory (one eighth), before they are split by partition:
# splitting a few rows over many partitions takes as long as splitting many, and leaves small pieces.
_SPLIT_BYTES, _SPLIT_SHARE = 16 * 1024 * 1024, 8
# Where the store limits the size of a file that can get its final name, files are rolled at this share of the limit,
# because the row groups that are written at once may exceed the size at which a file is rolled.
_ROLLED_AT = 0.8


class TableWriter:
    """Writes Arrow batches into staged files, or into files that have their final names at once.

    There is one for each table and task attempt.
    """

    def __init__(self, file_io: FileIO, spec: WriteSpec, limits: Limits | None = None):
        """limits: shared with the writers of other tables; by default those of the spec, for this writer alone."""
        self._io = file_io
        self._spec = spec
        self._schema = spec.schema()
        self._conform = Conform(self._schema.fields)
        self._limits = limits or Limits(spec.max_open, spec.memory_bytes)
        self._limits.join(self)
        limits_of_names = file_io.name_limits(spec.table or spec.staging)
        self.folders = Folders(self._schema, spec.table, limits_of_names, names_at_once=spec.at_once is not None)
        self._files = _FileSeries(file_io, spec, self._schema, self._limits, folders=self.folders)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._buffers: dict[bytes, Buffer] = {}
        self.buffered = 0

    @property
    def largest_buffer(self) -> int:
        """Bytes of the largest buffer; 0 if there is none."""
        return max([self._waiting_bytes, *(buffer.bytes for buffer in self._buffers.values())])

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return len(self._files.open)

    @property
    def largest_file(self) -> int:
        """Bytes of the largest open file; -1 if there is none."""
        return max((file.bytes for file in self._files.open.values()), default=-1)

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch, whose columns are matched by name.

        Raises Misuse when it does not fit; then call ``abort``.
        """
        if batch.num_rows == 0:
            return
        rows = self._conform(batch)
        self._waiting.append(rows)
        self._waiting_bytes += size_of(rows)
        self.buffered += size_of(rows)
        if not self._schema.partition_keys or self._waiting_bytes >= min(
            _SPLIT_BYTES, self._limits.memory_bytes // _SPLIT_SHARE
        ):
            self._split()
        self._limits.fit_memory()

    def flush_largest(self) -> None:
        """Write the largest buffer as a row group; if rows wait, split these instead, which may fill and write buffers.

        There must be buffered or waiting rows.
        """
        if self._waiting:
            self._split()
            return
        self._flush(max(self._buffers.values(), key=lambda b: b.bytes))

    def close_largest(self) -> None:
        """Finish the largest open file. There must be one."""
        self._files.finish_largest()

    def write_buffered(self) -> None:
        """Write all rows that were taken so far, so that ``close`` need not open a file."""
        self._split()
        for buffer in list(self._buffers.values()):
            self._flush(buffer)

    def close(self, group: FlushGroup) -> list[WrittenFile]:
        """Write and close everything. Every file is durable once ``group`` is flushed, and stays open until then."""
        self.write_buffered()
        return self._files.close(group)

    def abort(self) -> None:
        """Delete everything that this attempt wrote. Idempotent."""
        self._waiting.clear()
        self._buffers.clear()
        self.buffered = self._waiting_bytes = 0
        self._files.abort()

    def _split(self) -> None:
        """Move the waiting rows, in order, into the buffers of their partitions."""
        waiting, self._waiting = self._waiting, []
        self.buffered -= self._waiting_bytes
        self._waiting_bytes = 0
        if len(waiting) > 1:
            waiting = pa.Table.from_batches(waiting).combine_chunks().to_batches()
        for batch in waiting:
            for key, rows in split_by_partition(batch, self._schema, self._spec.table):
                buffer = self._buffers.get(key.row)
                if buffer is None:
                    self.folders.of(key)  # raises before any row of this partition is written
                    buffer = self._buffers[key.row] = Buffer(key)
                self.buffered += buffer.add(rows)
                if buffer.bytes >= min(ROW_GROUP_BYTES, self._limits.memory_bytes):
                    self._flush(buffer)

    def _flush(self, buffer: Buffer) -> None:
        del self._buffers[buffer.key.row]
        self.buffered -= buffer.bytes
        self._files.append(buffer.key, pa.Table.from_batches(buffer.batches))


class _OpenFile:
    """One Parquet file being written."""

    def __init__(self, series: "_FileSeries", staged: str, key: PartitionKey, first: pa.Table):
        """staged: its path until it has its final name, which it may have at once."""
        self.key = key
        self.name = os.path.basename(staged)
        self.staged = staged
        self.rows = 0
        self.stats = StatsCollector(series.schema.fields, series.schema.options)
        self._stream = series.io.open_output(staged)
        self._give_up = series.io.unflushed(self._stream).give_up
        try:
            self._output = ParquetOutput(self._stream, series.schema.fields, first, series.encoding)
        except BaseException:
            self._give_up()
            raise

    @property
    def bytes(self) -> int:
        return self._stream.tell()

    def append(self, rows: pa.Table) -> None:
        """Write the rows as one row group."""
        pieces = rows.to_batches()
        if rows.num_rows < len(pieces) * SMALL_PIECE_ROWS:
            rows = rows.combine_chunks()
            pieces = rows.to_batches()
        for batch in pieces:
            self.stats.update(batch)
        self._output.write(rows)
        self.rows += rows.num_rows

    def close(self, group: FlushGroup) -> int:
        """Write the footer and return the file's size in bytes. ``group`` flushes the file."""
        self._output.close()
        group.close_on_flush(self._stream)
        return self._stream.tell()

    def discard(self) -> None:
        """Close without regard to the content: on a full disk its last bytes may not be writable."""
        self._output.discard()
        self._give_up()


class _FileSeries:
    """The files of one writer. Each partition has at most one open file, which is rolled at the target size."""

    def __init__(self, file_io: FileIO, spec: WriteSpec, schema: TableSchema, limits: Limits, *, folders: Folders):
        self.io = file_io
        self.spec = spec
        self.schema = schema
        self.encoding = Encoding.of(schema.options)
        token = IdSource().new_id()
        self._names = spec.beginning + (token.replace("-", "")[:TOKEN] if spec.at_once else token)
        self.count = 0
        self.open: dict[bytes, _OpenFile] = {}
        largest = file_io.largest_written if spec.at_once else file_io.largest_file
        most = spec.target_file_bytes if largest is None else int(_ROLLED_AT * largest)
        self._roll_bytes = min(spec.target_file_bytes, most)
        self._limits = limits
        self._folders = folders
        self._created: list[str] = []
        self._done: list[WrittenFile] = []

    def append(self, key: PartitionKey, rows: pa.Table) -> None:
        file = self.open.get(key.row)
        if file is None:
            self._limits.make_room()
            file = self._create(key, rows)
        for part in row_groups(rows, ROW_GROUP_BYTES):
            file.append(part)
        if file.bytes >= self._roll_bytes:
            self._finish(file)

    def finish_largest(self) -> None:
        self._finish(max(self.open.values(), key=lambda f: f.bytes))

    def close(self, group: FlushGroup) -> list[WrittenFile]:
        self._folders.announce(self.io, self.spec, [file.key for file in self.open.values()])
        for file in list(self.open.values()):
            self._close(file, group)
        return self._done

    def abort(self) -> None:
        for file in self.open.values():
            file.discard()
        delete_staged(self.io, self._created)
        self.open.clear()
        self._created.clear()
        self._done.clear()

    def _create(self, key: PartitionKey, first: pa.Table) -> _OpenFile:
        folder = os.path.join(self.spec.table, self._folders.of(key)) if self.spec.at_once else self.spec.staging
        staged = os.path.join(folder, f"{self._names}-{self.count}.parquet")
        self.count += 1
        self._created.append(staged)  # before it is opened: a file that fails to open may be there
        file = self.open[key.row] = _OpenFile(self, staged, key, first)
        fault_point("task.file_opened")
        return file

    def _finish(self, file: _OpenFile) -> None:
        """Finish a file before the others: it is made durable at once and then holds no resources any more."""
        self._folders.announce(self.io, self.spec, [file.key])
        with self.io.flush_group() as group:
            self._close(file, group)
            group.flush()

    def _close(self, file: _OpenFile, group: FlushGroup) -> None:
        size = file.close(group)
        del self.open[file.key.row]
        fault_point("task.file_closed")
        self._done.append(self._written(file, size))

    def _written(self, file: _OpenFile, size: int) -> WrittenFile:
        stats, columns = file.stats.finish()
        meta = DataFileMeta.for_append(
            file_name=file.name,
            file_size=size,
            row_count=file.rows,
            schema_id=self.schema.id,
            value_stats=stats,
            value_stats_cols=columns,
            creation_time=Clock().local_ms(),
        )
        return WrittenFile(file.key.row, file.staged, os.path.join(self._folders.of(file.key), file.name), meta)
