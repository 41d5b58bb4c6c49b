"""Rows that wait until they are worth a row group, and the bounds of what may wait or be open. Executor and driver."""

from typing import Protocol

import pyarrow as pa

from streamsink.table.write.split import PartitionKey

# Rows that came in smaller pieces than this (from a batch over many partitions) are first copied into one piece,
# because each piece has a fixed cost.
SMALL_PIECE_ROWS = 4096
# What a buffered column of a piece takes beyond its values: Arrow's own objects, and allocations rounded up to 64 bytes
# (650 were measured).
COLUMN_OVERHEAD_BYTES = 640
# As soon as one partition has so many small pieces, they are copied into one, which has that cost only once.
_MOST_SMALL_PIECES = 16


class Writes(Protocol):
    """A writer of one table, as ``Limits`` sees it."""

    buffered: int

    @property
    def largest_buffer(self) -> int: ...

    @property
    def open_files(self) -> int: ...

    @property
    def largest_file(self) -> int: ...

    def flush_largest(self) -> None: ...

    def close_largest(self) -> None: ...


class Limits:
    """How many open files and buffered bytes all writers of one task attempt may hold together."""

    def __init__(self, max_open: int, memory_bytes: int):
        self.memory_bytes = memory_bytes
        self._max_open = max_open
        self._writers: list[Writes] = []

    def join(self, writer: Writes) -> None:
        """Count this writer from now on."""
        self._writers.append(writer)

    def fit_memory(self) -> None:
        """Flush the largest buffers until all buffers together are within ``memory_bytes``."""
        while sum(writer.buffered for writer in self._writers) > self.memory_bytes:
            max(self._writers, key=lambda w: w.largest_buffer).flush_largest()

    def make_room(self) -> None:
        """Close the largest open file if no more may be opened. This is called before a file is opened."""
        if sum(writer.open_files for writer in self._writers) >= self._max_open:
            max(self._writers, key=lambda w: w.largest_file).close_largest()


class Buffer:
    """Arrow batches of one partition that are not written yet."""

    def __init__(self, key: PartitionKey):
        self.key = key
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0

    def add(self, rows: pa.RecordBatch) -> int:
        """Take rows, and return by how many bytes the buffer has grown."""
        before = self.bytes
        self._append(rows)
        small = self.batches[-_MOST_SMALL_PIECES:]
        if len(small) == _MOST_SMALL_PIECES and sum(piece.num_rows for piece in small) < SMALL_PIECE_ROWS:
            del self.batches[-_MOST_SMALL_PIECES:]
            self.bytes -= sum(size_of(piece) for piece in small)
            for whole in pa.Table.from_batches(small).combine_chunks().to_batches():
                self._append(whole)
        return self.bytes - before

    def _append(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)
        self.bytes += size_of(rows)


def size_of(rows: pa.RecordBatch) -> int:
    """Bytes that these rows take in memory, about."""
    return rows.nbytes + rows.num_columns * COLUMN_OVERHEAD_BYTES
