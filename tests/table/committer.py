"""A process that commits to a table: run by tests that race several of them.

    python committer.py TABLE APPLICATION BATCHES ROWS
"""

import sys

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import Checkpoint, MicroBatchDriver

SCHEMA = pa.schema([("application", pa.string()), ("id", pa.int64())])


def main(table: str, application: str, batches: int, rows: int) -> None:
    """``batches`` micro-batches of ``rows`` rows under one application's name."""
    def make(start, end):
        return pa.RecordBatch.from_pydict(
            {"application": [application] * (end - start), "id": list(range(start, end))}, schema=SCHEMA
        )

    options = SinkOptions.of(table, {
        "application": application, "flush": False, "commit_max_retries": 1000, "commit_max_wait_ms": 20,
        "commit_min_wait_ms": 1,
    })
    driver = MicroBatchDriver(table, SCHEMA, make, options)
    boundaries = [rows * (i + 1) for i in range(batches)]
    driver.run(FileIO(PosixCalls(), IdSource().new_id, False), Checkpoint(IdSource().new_id()), boundaries)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
