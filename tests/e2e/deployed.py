"""The main job on a cluster, deployed as docs/GUIDE.md says, and the exact account of what it has written."""

import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import streamsink
from streamsink.storage.stores import store_of
from streamsink.table.read.scan import plan
from streamsink.table.table import open_table
from tests.conftest import spark_conf
from tests.e2e import kafka_data
from tests.e2e.cluster import Cluster
from tests.e2e.harness import ROOT
from tests.e2e.submitted import DAEMON, Submitted, archive, python_without_the_library
from tests.services.s3 import ACCESS_KEY, REGION, SECRET_KEY
from tools.jars import jars

PARTITIONS = 4
A_BATCH = 20_500  # more than a driver writes itself, so that the executors' Python writes
DRIVERS = ("127.0.0.4", "127.0.0.5")  # machines of drivers, in turns
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


@dataclass(frozen=True)
class Lake:
    """A warehouse on a store. conf: of Spark, for its own client of the store. env: of a driver's machine."""

    warehouse: str
    store_options: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


def on_s3(server) -> Lake:
    """The keys are in the environment of each machine, where boto3 and Spark's S3A look for them."""
    s3a = {
        "endpoint": server.endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    conf = {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
    conf |= {f"spark.executorEnv.{name}": value for name, value in KEYS.items()}
    conf["spark.jars"] = ",".join(f"local:{jar}" for jar in jars("s3a"))
    options = {name: value for name, value in server.options.items() if value not in KEYS.values()}
    return Lake(f"s3a://{server.bucket}/{uuid.uuid4().hex}/lake", options, conf, KEYS)


def on_hdfs(cluster) -> Lake:
    return Lake(f"{cluster.uri}/{uuid.uuid4().hex}/lake")


def order(number: int) -> str:
    """The message of an order."""
    at = FIRST + timedelta(seconds=number)
    return json.dumps({"order_id": number, "customer": f"c{number % 97}", "event_time": at.isoformat()})


class Deployed:
    """The job, a topic and a table of its own. root: below it are the disks of the drivers' machines."""

    def __init__(self, root: Path, cluster: Cluster, broker: str, lake: Lake):
        self._root, self._cluster, self._broker, self._lake = root, cluster, broker, lake
        self._archive = archive(root)
        self._starts = 0
        self.python = python_without_the_library(root / "python")
        self.topic = f"orders-{uuid.uuid4().hex}"
        self.table = f"{lake.warehouse}/kafka.db/{self.topic}"
        self.sent = 0
        kafka_data.new_topic(broker, PARTITIONS, self.topic)

    @property
    def source(self) -> dict[str, str]:
        """Where the messages are."""
        return {"kafka": self._broker, "topic": self.topic}

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        kafka_data.send_to(self._broker, self.topic, ((n, n % PARTITIONS) for n in numbers), text=order)
        self.sent += count

    def conf(self) -> dict[str, str]:
        """Spark's settings, as the guide gives them; what stands first says where the jars are on these machines."""
        here = spark_conf()
        places = ("spark.driver.extraClassPath", "spark.executor.extraClassPath", "spark.driver.extraJavaOptions")
        return {
            **{name: here[name] for name in places if name in here},
            **self._cluster.executors(),
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            # Compiling what runs for a second takes longer than running it as it is.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.pyspark.python": str(self.python),
            "spark.python.daemon.module": DAEMON,
            "spark.executorEnv.PYTHONPATH": self._archive.name,
            **self._lake.conf,
        }

    def submit(self, fault: str = "", cores: int = 2) -> Submitted:
        """Start the job on another machine than the last time. cores: of all executors, each of which has one."""
        options = [f"--store-option={name}={value}" for name, value in self._lake.store_options.items()]
        program = [str(ROOT / "jobs" / "kafka_to_lake.py"), "--warehouse", self._lake.warehouse, *options]
        program += ["--brokers", self._broker, "--topic", self.topic, "--until-caught-up"]
        program += ["--rows-per-batch", str(A_BATCH)]
        conf = self.conf() | {"spark.cores.max": str(cores)}
        return self.start(program, {"STREAMSINK_FAULT": fault} if fault else {}, conf)

    def start(self, program: list[str], env: dict[str, str], conf: dict[str, str] | None = None) -> Submitted:
        """Start a program on another machine than the last time. conf: instead of ``conf()``."""
        number = self._starts
        self._starts += 1
        folder, host = self._root / f"driver-{number}", DRIVERS[number % len(DRIVERS)]
        arguments = ["--py-files", str(self._archive), *program]
        return Submitted(folder, host, conf or self.conf(), arguments, self._lake.env | env)

    # -- the account -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Each message is there once, nothing is pending, and nothing lies about that nobody names."""
        rows = streamsink.read_arrow(self.table, store_options=self._lake.store_options)
        counts = Counter(rows["order_id"].to_pylist())
        assert (len(counts), rows.num_rows) == (self.sent, self.sent), "(messages in the table, rows) of those sent"
        assert (min(counts), max(counts)) == (0, self.sent - 1)
        assert rows["customer"].null_count == rows["dt"].null_count == 0
        store = store_of(self.table, self._lake.store_options)
        file_io = store.open()
        found = {path.removeprefix(f"{store.root}/") for path in _paths(file_io, store.root)}
        _, files = plan(open_table(file_io, store.root, for_writing=False), None)
        data = {path for path in found if path.startswith("dt=")}
        assert data == {file.path.removeprefix(f"{store.root}/") for file in files}
        assert sorted(path for path in found if "/staging/" in path) == []
        records, done = (_numbers(found, name) for name in (r"record-(\d+)\.json", r"done-(\d+)"))
        assert records and records <= done


def _numbers(found: set[str], name: str) -> set[int]:
    matches = (re.fullmatch(rf"streamsink/streamsink/{name}", path) for path in found)
    return {int(match[1]) for match in matches if match}


def _paths(file_io, folder: str) -> Iterator[str]:
    for entry in file_io.entries(folder):
        path = os.path.join(folder, entry.name)
        if entry.is_dir:
            yield from _paths(file_io, path)
        else:
            yield path
