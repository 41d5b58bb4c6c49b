"""What a commit costs on each store,
and on the local disk under the locks whose servers start quickly, without Spark."""

import contextlib
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.data import Sizes
from benchmarks.machine import in_turns, load, spread
from benchmarks.publishing import publishing_ms
from benchmarks.report import Table
from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.storage.calls import Calls, PosixCalls
from streamsink.storage.file_io import FileIO
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.services import postgres
from tests.services.hdfs import HdfsCluster
from tests.services.s3 import S3Server
from tests.services.server import ServerError
from tests.storage.back_ends import BackEnd
from tools.common import SetupError

ROWS = 10
_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
_QUERY = "00000000-0000-0000-0000-000000000001"
_PASSWORD_ENV = "STREAMSINK_BENCH_POSTGRES"
# The commits of one way in one round, as a part of those of `writers`.
_PART = 6
# What starting a server raises where it cannot be had.
NO_SERVER = (SetupError, ServerError, ImportError, OSError)


@dataclass(frozen=True)
class Way:
    """``root``: a folder of the store.
    ``open``: makes a FileIO over these calls, which are the store's own and are counted."""

    root: str
    calls: Calls
    open: Callable[[Calls], FileIO]
    options: Mapping = field(default_factory=dict)


def stores(spark, folder: Path, sizes: Sizes) -> list[Table]:
    """Milliseconds and calls of a micro-batch of a few rows, and how much of it is publishing."""
    took, share, calls = defaultdict(list), defaultdict(list), defaultdict(list)
    commits = sizes.commits // _PART
    with contextlib.ExitStack() as servers:
        ways, missing = _ways(folder / "stores", servers)

        def measure(name: str, number: int) -> None:
            way = ways[name]
            for wall, publish, asked in _commits(way, f"{way.root}/round-{number}/shop.db/orders", commits):
                took[name].append(wall)
                share[name].append(100 * publish / wall)
                calls[name].append(asked)

        in_turns(sizes.rounds, tuple(ways), measure)
    slow = {name: statistics.quantiles(took[name], n=100, method="inclusive")[94] for name in ways}
    rows = [
        [name, spread(took[name], 1), f"{slow[name]:.1f}", spread(calls[name]), spread(share[name])] for name in ways
    ]
    note = (
        f"Batches of {ROWS} rows, each one data file and one snapshot; {commits} a round, after one that is not "
        "counted. Servers run on this machine: a network between adds its round trips. I/O calls are those of the "
        "table's store (a write into an open file is one, although HDFS and S3 send it later); a lock's own are not "
        f"among them. Median [min..max]. Load {load()}."
        f"{''.join(f' Not measured: {name} ({why}).' for name, why in missing.items())}"
    )
    return [
        Table(
            "One commit by store and lock",
            ("store", "ms a batch", "95 of 100 within ms", "I/O calls", "publishing, % of it"),
            rows,
            note,
        )
    ]


def _ways(folder: Path, servers: contextlib.ExitStack) -> tuple[dict[str, Way], dict[str, str]]:
    """What can be measured here, in the order of its rows; and why the rest cannot."""
    ways = {
        "local disk": _local(folder / "local"),
        "local disk, flush=False": _local(folder / "unflushed", flush=False),
        "memory (the tests' model of a disk)": _memory(),
    }
    starts = {
        "HDFS (1 NameNode, 2 DataNodes)": lambda: _hdfs(folder / "hdfs", servers),
        "S3 (SeaweedFS)": lambda: _s3(folder / "s3", servers),
        "local disk, lock 'file'": lambda: _local(folder / "file", {"lock": "file"}),
        "local disk, lock in SQLite": lambda: _local(folder / "sqlite", {"lock": f"jdbc:sqlite:{folder}/locks.db"}),
        "local disk, lock in PostgreSQL": lambda: _postgresql(folder / "postgresql", servers),
    }
    missing = {}
    for name, start in starts.items():
        try:
            ways[name] = start()
        except NO_SERVER as why:
            missing[name] = str(why).splitlines()[0]
    return ways, missing


def _local(folder: Path, options: Mapping | None = None, flush: bool = True) -> Way:
    folder.mkdir(parents=True)
    return Way(str(folder), PosixCalls(), lambda calls: FileIO(calls, IdSource().new_id, flush), options or {})


def _memory() -> Way:
    made = BackEnd("memory", "/memory", MemoryCalls())
    made.io().make_dir(made.root)
    return Way(made.root, made.calls, made.io)


def _hdfs(folder: Path, servers: contextlib.ExitStack) -> Way:
    from streamsink.storage.hdfs import HdfsCalls

    cluster = HdfsCluster(folder, datanodes=2)  # as in the rows that are told already
    servers.callback(cluster.kill)  # An orderly end takes long, and nobody needs the data.
    uri = cluster.start().uri
    made = BackEnd("hdfs", f"{uri}/bench", HdfsCalls(uri, {}))
    return Way(made.root, made.calls, made.io)


def _s3(folder: Path, servers: contextlib.ExitStack) -> Way:
    from streamsink.storage.s3_calls import S3Calls

    server = S3Server(folder)
    servers.callback(server.kill)
    server.start().client().create_bucket(Bucket=server.bucket)
    made = BackEnd("s3", f"s3://{server.bucket}/bench", S3Calls(server.options))
    return Way(made.root, made.calls, made.io)


def _postgresql(folder: Path, servers: contextlib.ExitStack) -> Way:
    server = postgres.Postgres(folder / "server")
    servers.callback(server.stop)
    os.environ[_PASSWORD_ENV] = postgres.PASSWORD
    url = server.start().jdbc_url
    return _local(folder / "lake", {"lock": url, "lock_user": postgres.USER, "lock_password_env": _PASSWORD_ENV})


def _commits(way: Way, root: str, commits: int) -> list[tuple[float, float, int]]:
    """(ms, ms of it in publishing, I/O calls) of each micro-batch into a new table, after one that warms up."""
    calls, found = CrashingCalls(way.calls), []
    driver = MicroBatchDriver(root, _SCHEMA, _rows, SinkOptions.of(root, way.options))
    checkpoint = SparkCheckpoint(_QUERY, [ROWS * (number + 1) for number in range(commits + 1)])
    with publishing_ms() as publish, contextlib.closing(driver.start(way.open(calls), checkpoint)) as sink:
        for batch_id in range(commits + 1):
            before, begun = calls.count, time.perf_counter()
            sink.batch(driver.describe(checkpoint, batch_id))
            found.append(((time.perf_counter() - begun) * 1000, publish[-1], calls.count - before))
    return found[1:]


def _rows(begin: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": range(begin, end), "name": [f"name-{n}" for n in range(begin, end)]}, schema=_SCHEMA
    )
