"""A query that writes into the sink that the docs show, in memory, for tests that let things happen to it."""

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.crashing import dies_at
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.sinks.shown import plain_files


def rows(first, end):
    return pa.RecordBatch.from_pydict({"id": list(range(first, end)), "version": [0] * (end - first)}, schema=SCHEMA)


class Lake:
    """The sink of the docs in memory, and one query."""

    def __init__(self):
        self.calls, self.checkpoint = MemoryCalls(), SparkCheckpoint("query")

    def io(self, over=None):
        return FileIO(over or self.calls, IdSource().new_id)

    def run(self, ends, over=None, **options):
        driver = MicroBatchDriver(
            "/lake", SCHEMA, rows, SinkOptions.of("/lake", {"restore": "restore-and-continue", **options})
        )
        driver.destination = lambda: plain_files("/lake")
        driver.run(self.io(over), self.checkpoint, ends)

    def record(self, ends, **options):
        """The driver dies when its batch is recorded."""
        assert dies_at("precommit.saved", 1, self.calls, lambda calls: self.run(ends, calls, **options))
        self.calls.process_death()
