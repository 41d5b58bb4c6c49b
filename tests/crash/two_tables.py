"""A world of two tables, whose batches come to both or to one of them."""

import pyarrow as pa

from streamsink.table.routed.rules import ROUTE
from tests.crash.many_world import SCHEMA, ManyWorld

X, Y = "more_x", "more_y"
# Every batch has rows for both tables, but where a world says that they all come to one.
ENDS = (4, 8, 12, 16)


class TwoTables(ManyWorld):
    """to_x(number): whether this row comes to the first table; else it comes to the second one."""

    tables = (X, Y)

    def __init__(self, **options):
        super().__init__(restore="restore-and-continue", **options)
        self.to_x = lambda number: number % 2 == 0

    def _rows(self, start: int, end: int) -> pa.RecordBatch:
        numbers, version = range(start, end), next(self._versions)
        return pa.RecordBatch.from_pylist(
            [{"id": n, "part": "p", "n": "1", "version": version, ROUTE: X if self.to_x(n) else Y} for n in numbers],
            schema=SCHEMA,
        )

    def numbers(self) -> list[int]:
        return sorted(number for _, number, _ in self.rows())
