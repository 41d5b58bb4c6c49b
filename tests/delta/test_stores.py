"""Delta tables on S3 and on HDFS: real servers, deltalake's own clients for the log, and ours for the data files."""

import os

from deltalake import DeltaTable, write_deltalake

from streamsink.clock import IdSource
from streamsink.delta import DeltaSink
from streamsink.options import SinkOptions
from streamsink.sinks.delta.log import storage_options
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import store_of
from streamsink.testing.conformance import SCHEMA
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.advice.following import told
from tests.delta.world import World, rows


class Remote:
    """One query into a table on a store."""

    def __init__(self, path, options):
        self.store = store_of(path, options)
        self.path, self.options, self.checkpoint = path, options, SparkCheckpoint("query")

    def run(self, *ends):
        settings = SinkOptions.of(self.path, {"restore": "restore-and-continue", "store_options": self.options})
        driver = MicroBatchDriver(self.path, SCHEMA, rows, settings)
        driver.destination = lambda: DeltaSink(self.path)
        driver.run(self.store.open(), self.checkpoint, ends)

    @property
    def storage(self) -> dict:
        return storage_options(self.path, self.options)

    def table(self) -> DeltaTable:
        return DeltaTable(self.path, storage_options=self.storage)

    def ids(self) -> list[int]:
        return sorted(self.table().to_pyarrow_table().column("id").to_pylist())


def check(remote):
    remote.run(3, 5, 5)
    write_deltalake(remote.path, remote.table().to_pyarrow_table(), mode="append", storage_options=remote.storage)
    remote.run(3, 5, 5, 9)
    remote.checkpoint = SparkCheckpoint("query")
    remote.run(3, 5, 5, 9)
    assert remote.ids() == sorted([*range(9), *range(5)])
    assert remote.table().transaction_version("streamsink:streamsink") == 4


class Replacing(FileIO):
    """A store in which whoever comes last wins."""

    atomic_create = False


def test_a_store_that_replaces_is_refused_before_a_table_is_made(tmp_path):
    world = World(tmp_path)
    said = told("lock.missing", lambda: world.run(3, io=Replacing(PosixCalls(), IdSource().new_id)))
    said.says("Nothing was written", "If-None-Match")
    assert not os.path.exists(world.path)


def test_a_table_on_s3(s3_server):
    check(Remote("s3://lake/delta/orders", s3_server.options))


def test_a_table_on_hdfs(hdfs_cluster):
    check(Remote(f"{hdfs_cluster.uri}/delta/orders", {}))
