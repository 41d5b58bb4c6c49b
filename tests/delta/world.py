"""Queries into a Delta table, on a disk or with the data files in memory, for tests that let things happen to them."""

import io
import os
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streamsink.clock import IdSource
from streamsink.delta import DeltaSink
from streamsink.options import SinkOptions
from streamsink.sinks.delta.log import DeltaLog
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint


def rows(first, end):
    return pa.RecordBatch.from_pydict({"id": list(range(first, end)), "version": [0] * (end - first)}, schema=SCHEMA)


class LogOnDisk(DeltaLog):
    """deltalake writes to a disk, wherever the other files are."""

    def again(self):
        return type(self)(self._io, self._path, self._uri, self._options)


@dataclass(frozen=True)
class DeltaOnDisk(DeltaSink):
    """The table's log is in a folder of a disk; all else is in the store that is given."""

    disk: str = field(default="", compare=False)
    make: type = field(default=LogOnDisk, compare=False)

    def log(self, file_io, options):
        return self.make(local_file_io(), self.path, self.disk, {})


def seen(file_io, root: str, disk: str) -> list[int]:
    """The ids in all files that the table names. root: where the data files are. disk: where the log is."""
    if not DeltaTable.is_deltatable(disk):
        return []
    paths = DeltaTable(disk).get_add_actions(flatten=True).column("path").to_pylist()
    return [i for path in paths for i in read(file_io, f"{root}/{unquote(path)}").column("id").to_pylist()]


def read(file_io, path: str) -> pa.Table:
    return pq.ParquetFile(io.BytesIO(file_io.read(path))).read(use_threads=False)


class Between(SparkCheckpoint):
    """A checkpoint that lets something happen when so many batches are committed, within one start of the query."""

    def __init__(self, batches, happens):
        super().__init__("query")
        self._at = (batches, happens)

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "committed" and value and value == self._at[0]:
            self._at[1]()


class World:
    """One query into a table on a disk."""

    def __init__(self, folder, schema=SCHEMA, make=rows, sink=DeltaSink):
        self.path, self.checkpoint = os.path.join(str(folder), "table"), SparkCheckpoint("query")
        self.sink, self._schema, self._make, self.first = sink(self.path), schema, make, 0

    def run(self, *ends, io=None, sink=None, checkpoint=None, **options):
        settings = SinkOptions.of(
            self.path, {"restore": "restore-and-continue", "commit_min_wait_ms": 0, "commit_max_wait_ms": 0, **options}
        )
        driver = MicroBatchDriver(self.path, self._schema, self._make, settings)
        driver.destination = lambda: sink or self.sink
        driver.first_file = self.first
        driver.run(io or local_file_io(), checkpoint or self.checkpoint, ends)

    def table(self, version=None) -> DeltaTable:
        return DeltaTable(self.path, version=version)

    def ids(self) -> list[int]:
        return sorted(seen(local_file_io(), self.path, self.path))

    def unnamed(self) -> set[str]:
        """Data files that the newest version does not name."""
        paths = self.table().get_add_actions(flatten=True).column("path").to_pylist()
        found = {
            os.path.relpath(os.path.join(folder, name), self.path)
            for folder, _, names in os.walk(os.path.join(self.path, "data"))
            for name in names
        }
        return found - {unquote(path) for path in paths}

    def forget_checkpoint(self):
        self.checkpoint = SparkCheckpoint("query")


def in_memory(calls) -> FileIO:
    return FileIO(calls, IdSource().new_id)
