"""What a micro-batch asks of HDFS's NameNode, as the NameNode itself counts it."""

import json
import time
import urllib.request
import uuid
from collections import Counter

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.hdfs import HdfsCalls, HdfsFileIO
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.protocol.query import QUERY
from tests.services import hdfs
from tests.services.hdfs import METRICS_S, HdfsCluster

SCHEMA = pa.schema([("id", pa.int64())])
FIRST, COUNTED = 4, 8
# Calls of a client for one batch: data file, manifest, two lists, record, snapshot, hint and mark are created; what
# nobody may see half written is renamed; the others ask what is there. `complete` is left out: it is called again until
# the DataNodes have reported.
MOST = {
    "Create": 9,
    "AddBlock": 9,
    "Fsync": 7,
    "Rename2": 6,
    "GetFileInfo": 9,
    "GetBlockLocations": 7,
    "GetListing": 1,
    "Mkdirs": 1,
    "Delete": 1,
}


def _counted(cluster: HdfsCluster) -> Counter:
    """How often each call was made since the NameNode's start, when the numbers stand still."""
    before: Counter | None = None
    while True:
        with urllib.request.urlopen(cluster.calls_url) as answer:
            [found] = json.load(answer)["beans"]
        now = Counter({name: found.get(f"{name}NumOps", 0) for name in MOST})
        if now == before:
            return now
        before = now
        time.sleep(2 * METRICS_S)


def test_a_small_batch_makes_few_calls(hdfs_cluster):
    """In the mean over some batches: a merge of manifests and a pruned record fall into single ones."""
    root = f"{hdfs_cluster.uri}/{uuid.uuid4().hex}/shop.db/orders"

    def rows(start: int, end: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"id": list(range(start, end))}, schema=SCHEMA)

    driver = MicroBatchDriver(root, SCHEMA, rows, SinkOptions.of(root, {}))
    driver.is_small = True
    checkpoint = SparkCheckpoint(QUERY, [10 * (number + 1) for number in range(FIRST + COUNTED)])
    sink = driver.start(HdfsFileIO(HdfsCalls(hdfs_cluster.uri, {}), IdSource().new_id), checkpoint)
    for number in range(FIRST):
        sink.batch(driver.describe(checkpoint, number))
    before = _counted(hdfs_cluster)
    for number in range(FIRST, FIRST + COUNTED):
        sink.batch(driver.describe(checkpoint, number))
    after = _counted(hdfs_cluster)
    mean = {name: (after[name] - before[name]) / COUNTED for name in MOST}
    assert {name: calls for name, calls in mean.items() if calls > MOST[name]} == {}
    assert mean["Create"] >= 7  # they were counted


@pytest.mark.soak
def test_a_file_whose_last_block_no_node_has_reported_is_read_whole(tmp_path, monkeypatch):
    """A NameNode may let a file be closed before that; the client alone reads some such files as empty."""
    monkeypatch.setitem(hdfs.SETTINGS, "dfs.namenode.file.close.num-committed-allowed", "1")
    with HdfsCluster(tmp_path / "hdfs", datanodes=2) as cluster:
        calls = HdfsCalls(cluster.uri, {})
        for number in range(300):
            path, data = f"{cluster.uri}/f{number}", b"x" * (100, 512)[number % 2]
            calls.write_new(path, data, True)
            assert calls.read(path) == data
        calls.write_new(f"{cluster.uri}/empty", b"", True)
        assert calls.read(f"{cluster.uri}/empty") == b""
