"""A process that commits to a table, may be killed at any time, and goes on where its query's checkpoint says.

python -m tests.table.killed_committer TABLE APPLICATION BATCHES ROWS FOLDER [RETRIES]

FOLDER holds what Spark's checkpoint would hold: ``<application>.committed``; and ``<application>.attempts``, one line a
commit.
"""

import os
import sys
from pathlib import Path

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.events import CheckpointPublished
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint

SCHEMA = pa.schema([("application", pa.string()), ("id", pa.int64())])


class DurableCheckpoint(SparkCheckpoint):
    """A checkpoint that keeps in a file how many batches are committed."""

    def __init__(self, query: str, ends: list[int], file: Path):
        self.file = file
        super().__init__(query, ends, committed(file))

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "committed":
            temporary = self.file.with_suffix(".new")
            temporary.write_text(str(value))
            os.replace(temporary, self.file)


def committed(file: Path) -> int:
    """How many batches the query's checkpoint has as committed."""
    return int(file.read_text()) if file.exists() else 0


def main(table: str, application: str, batches: int, rows: int, folder: Path, retries: int | None) -> None:
    """Write ``batches`` micro-batches of ``rows`` rows under one application's name,
    from where the last process was killed."""

    def make(start, end):
        return pa.RecordBatch.from_pydict(
            {"application": [application] * (end - start), "id": list(range(start, end))}, schema=SCHEMA
        )

    options = SinkOptions.of(table, {"application": application, "flush": False, "commit_max_retries": retries})
    driver = MicroBatchDriver(table, SCHEMA, make, options)
    attempts = (folder / f"{application}.attempts").open("a", buffering=1)

    class Told(list):
        def append(self, event):
            if isinstance(event, CheckpointPublished):
                attempts.write(f"{event.attempts}\n")

    driver.events = Told()
    ends = [rows * (n + 1) for n in range(batches)]
    checkpoint = DurableCheckpoint(f"query-{application}", ends, folder / f"{application}.committed")
    driver.run(FileIO(PosixCalls(), IdSource().new_id, False), checkpoint, ends)


if __name__ == "__main__":
    _, table, application, batches, rows, folder, *more = sys.argv
    main(table, application, int(batches), int(rows), Path(folder), int(more[0]) if more else None)
