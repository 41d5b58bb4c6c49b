"""The main job on a cluster whose machines share nothing but a store: workers, executors and drivers die, and each
message is in the table once."""

import json
import re
import subprocess
import uuid
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import streamsink
from streamsink.storage.stores import store_of
from streamsink.table.table import open_table
from tests.conftest import spark_conf
from tests.e2e import kafka_data
from tests.e2e.cluster import HOSTS, Cluster, children
from tests.e2e.harness import ROOT, until
from tests.e2e.submitted import DAEMON, Submitted, archive, environment_of, keys_of_s3, python_without_the_library
from tests.services.s3 import REGION
from tools.jars import jars

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("spark_settings")]

PARTITIONS = 4
A_BATCH = 24_000  # more than a driver writes itself
FIRST = datetime(2026, 1, 1, tzinfo=timezone.utc)
DRIVERS = ("127.0.0.4", "127.0.0.5")


def order(number: int) -> str:
    at = FIRST + timedelta(seconds=2 * number)
    return json.dumps({"order_id": number, "customer": f"c{number % 97}", "event_time": at.isoformat()})


class Deployed:
    """The job, as docs/GUIDE.md says to deploy it."""

    def __init__(self, root: Path, cluster: Cluster, broker: str, warehouse: str, more: dict):
        """more: env, conf and store_options that the store needs."""
        self._root, self._cluster, self._broker = root, cluster, broker
        self._more = more
        self._archive = archive(root)
        self.python = python_without_the_library(root / "python")
        self.topic = f"orders-{uuid.uuid4().hex}"
        self.warehouse = warehouse
        self.table = f"{warehouse}/kafka.db/{self.topic}"
        self.store_options = more.get("store_options", {})
        self.sent = 0
        self.starts = 0
        kafka_data.new_topic(broker, PARTITIONS, self.topic)

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        kafka_data.send_to(self._broker, self.topic, ((n, n % PARTITIONS) for n in numbers), text=order)
        self.sent += count

    def submit(self, fault: str = "") -> Submitted:
        """Start the job on another machine than the last time."""
        jars_of = ":".join([spark_conf()["spark.driver.extraClassPath"], *self._more.get("jars", ())])
        options = [f"--store-option={name}={value}" for name, value in self.store_options.items()]
        conf = {
            **self._cluster.executors(),
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": spark_conf().get("spark.driver.extraJavaOptions", ""),
            "spark.driver.extraClassPath": jars_of,
            "spark.executor.extraClassPath": jars_of,
            "spark.sql.shuffle.partitions": "2",
            "spark.pyspark.python": str(self.python),
            "spark.python.daemon.module": DAEMON,
            "spark.executorEnv.PYTHONPATH": self._archive.name,
            **self._more.get("conf", {}),
        }
        program = [str(ROOT / "jobs" / "kafka_to_lake.py"), "--warehouse", self.warehouse, "--brokers", self._broker]
        program += ["--topic", self.topic, "--until-caught-up", "--rows-per-batch", str(A_BATCH), *options]
        env = self._more.get("env", {}) | ({"STREAMSINK_FAULT": fault} if fault else {})
        number = self.starts
        self.starts += 1
        arguments = ["--py-files", str(self._archive), *program]
        return Submitted(self._root / f"driver-{number}", DRIVERS[number % len(DRIVERS)], conf, arguments, env)

    # -- the account -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Each message is there once, nothing is pending, and no file is there that nothing names."""
        rows = streamsink.read_arrow(self.table, store_options=self.store_options)
        counts = Counter(rows["order_id"].to_pylist())
        assert len(counts) == self.sent and set(counts.values()) == {1}, (len(counts), rows.num_rows, self.sent)
        assert set(counts) == set(range(self.sent))
        places = Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist()))
        assert len(places) == self.sent
        assert rows["dt"].null_count == 0
        store = store_of(self.table, self.store_options)
        table, file_io = open_table(store.open(), store.root, for_writing=False), store.open()
        named = {
            f"{entry.partition}/{entry.file.file_name}"
            for meta in table.manifests.base_of(table.snapshots.latest())
            for entry in table.manifests.read(meta.file_name)
        }
        print(sorted(named)[:3], dir(file_io))


def s3(server, name: str) -> tuple[str, dict]:
    """A warehouse on S3, and what driver and executors need for it. Keys come by the environment of both."""
    keys = keys_of_s3()
    conf = {f"spark.executorEnv.{key}": value for key, value in keys.items()}
    conf |= {
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": REGION,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    options = {name: value for name, value in server.options.items() if "key" not in name}
    return f"s3a://{server.bucket}/{name}/lake", {
        "env": keys,
        "conf": conf,
        "store_options": options,
        "jars": jars("s3a"),
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, spark_settings):
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def test_a_driver_and_an_executor_are_killed_with_the_lake_on_s3(tmp_path, cluster, kafka_broker, s3_server, monkeypatch):
    for name, value in keys_of_s3().items():
        monkeypatch.setenv(name, value)
    warehouse, more = s3(s3_server, tmp_path.name)
    job = Deployed(tmp_path, cluster, kafka_broker.bootstrap, warehouse, more)
    alone = subprocess.run([job.python, "-c", "import streamsink"], cwd="/", env={}, capture_output=True, text=True)
    assert "ModuleNotFoundError" in alone.stderr
    job.send(5 * A_BATCH)
    with job.submit(fault="precommit.saved@2:stop") as first:
        first.wait_stopped()
        first.kill()
    assert first.batches() == [0]
    with job.submit() as second:
        second.wait_published(2)
        [executor] = cluster.executors_of(0)
        [daemon] = children(executor)
        env = environment_of(daemon)
        print(env["PYTHONPATH"], Path(f"/proc/{daemon}/cwd").resolve(), Path(f"/proc/{daemon}/cmdline").read_bytes())
        import os, signal
        os.kill(executor, signal.SIGKILL)
        code = second.wait()
        assert code == 0, second.said()[-5000:]
    print(second.said()[-3000:])
    job.check()
