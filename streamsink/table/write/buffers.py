"""Rows of one partition that wait until they are worth a row group. Executor and driver."""

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
