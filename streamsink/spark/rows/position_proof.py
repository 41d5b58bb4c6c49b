"""Writers that look at each row on its way: does it lie in the positions that its batch covers? Runs on the executors.

What a writer of a task has counted travels to the driver together with what it wrote. So the driver reports what is
wrong with the whole batch, and Spark does not retry a task that cannot succeed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Writing
from streamsink.storage.file_io import FileIO
from streamsink.table.write.position_ranges import PositionRanges

# A column with the JVM's own answer, for where the position columns themselves need not come to Python.
OUTSIDE = "__streamsink_outside"


@dataclass(frozen=True)
class Proven:
    """What one writer wrote, how many rows it was given, and how many of them do not lie in the batch's positions."""

    written: tuple[Any, ...]
    rows: int
    outside: int


@dataclass(frozen=True)
class ProvenWriting(Writing):
    """Another ``Writing``, whose rows are checked first.

    ranges: what the rows are compared with; None where they have the column ``OUTSIDE`` instead. dropped: columns that
    the writer inside does not get.
    """

    inner: Writing
    ranges: PositionRanges | None
    dropped: tuple[str, ...]

    def open(self, file_io: FileIO) -> "ProvenWriter":
        return ProvenWriter(self, file_io)

    def encode(self, written: Proven) -> str:
        return json.dumps([[self.inner.encode(each) for each in written.written], written.rows, written.outside])

    def decode(self, text: str) -> Proven:
        written, rows, outside = json.loads(text)
        return Proven(tuple(self.inner.decode(each) for each in written), rows, outside)


class ProvenWriter:
    """One for each task attempt, as the writer inside it."""

    def __init__(self, proven: ProvenWriting, file_io: FileIO):
        self._inner = proven.inner.open(file_io)
        self._ranges = proven.ranges
        self._dropped = frozenset(proven.dropped)
        self._rows = self._outside = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._ranges is None:
            self._outside += pc.sum(batch.column(OUTSIDE)).as_py() or 0
        else:
            self._outside += self._ranges.outside(batch)
        self._inner.write(batch.select([name for name in batch.schema.names if name not in self._dropped]))

    def close(self, group: Group) -> Sequence[Proven]:
        return [Proven(tuple(self._inner.close(group)), self._rows, self._outside)]

    def abort(self) -> None:
        self._inner.abort()
