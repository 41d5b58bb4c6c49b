"""A store that cannot create a name only if it is absent, and a process that commits to a table in it.

python -m tests.locks.replacing TABLE APPLICATION BATCHES ROWS OPTIONS_JSON
"""

import json
import os
import sys

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import arm_from_env

SCHEMA = pa.schema([("application", pa.string()), ("id", pa.int64())])


class ReplacingFileIO(FileIO):
    """Writes over whatever is there, as a plain PUT does, or the rename of Paimon's local file system."""

    atomic_create = False

    def create_new(self, path, data, unique="", *, prepared=False, replaceable=False):
        self.make_dir(os.path.dirname(path))
        temporary = f"{os.path.dirname(path)}/.{os.path.basename(path)}.{unique or self._new_id()}.tmp"
        if not prepared:
            self.write(temporary, data)
        self._calls.rename(temporary, path)
        return True


def store() -> ReplacingFileIO:
    return ReplacingFileIO(PosixCalls(), IdSource().new_id, False)


def driver(table: str, application: str, settings: dict) -> MicroBatchDriver:
    """A query whose rows are its name and a number."""

    def make(start, end):
        return pa.RecordBatch.from_pydict(
            {"application": [application] * (end - start), "id": list(range(start, end))}, schema=SCHEMA
        )

    options = {
        "application": application,
        "flush": False,
        "commit_max_retries": 1000,
        "commit_max_wait_ms": 20,
        "commit_min_wait_ms": 1,
    }
    return MicroBatchDriver(table, SCHEMA, make, SinkOptions.of(table, {**options, **settings}))


def main(table, application, batches, rows, settings) -> None:
    arm_from_env()
    boundaries = [int(rows) * (number + 1) for number in range(int(batches))]
    driver(table, application, json.loads(settings)).run(
        store(), SparkCheckpoint(f"query-of-{application}"), boundaries
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
