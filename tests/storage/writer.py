"""One writer process of several on one table of any store: ``writer.py ROOT STORE_OPTIONS APPLICATION BATCHES ROWS``.

Its source is the same each time and its checkpoint says that nothing was done: what is published is recognised and
skipped.
"""

import json
import sys

import pyarrow as pa

from streamsink.options import SinkOptions
from streamsink.storage.stores import store_of
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

SCHEMA = pa.schema([("application", pa.string()), ("id", pa.int64())])


def main(root: str, options: str, application: str, batches: int, rows: int) -> None:
    """Write ``batches`` micro-batches of ``rows`` rows under one application's name."""

    def make(start, end):
        return pa.RecordBatch.from_pydict(
            {"application": [application] * (end - start), "id": list(range(start, end))}, schema=SCHEMA
        )

    store = store_of(root, json.loads(options))
    settings = SinkOptions.of(
        store.root,
        {"application": application, "commit_max_retries": 1000, "commit_max_wait_ms": 200, "commit_min_wait_ms": 1},
    )
    boundaries = [rows * (i + 1) for i in range(batches)]
    checkpoint = SparkCheckpoint(f"query-of-{application}", list(boundaries))
    MicroBatchDriver(store.root, SCHEMA, make, settings).run(store.open(), checkpoint, boundaries)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]))
