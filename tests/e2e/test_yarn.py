"""docs/how-to/YARN.md on a real YARN and HDFS: its blocks are run as they stand there, and drivers die."""

import contextlib
import json
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hdfs_native
import pytest

from tests.compat.java import JavaPaimon
from tests.conftest import unavailable
from tests.docs.blocks import blocks_of
from tests.e2e import kafka_data
from tests.e2e.on_yarn import CHECKPOINT, OF_KAFKA, TABLE, WAIT_S, Job, Site, pack, rows_in, with_here
from tests.services.lossy import LossyRelay
from tests.services.ports import LOOPBACK
from tests.services.yarn import NAME, YarnCluster
from tools.common import SetupError
from tools.jars import jars

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(3600)]
pytestmark += [pytest.mark.usefixtures("spark_settings")]

A_BATCH = 20_500  # more than a driver writes itself, so that the executors' Python writes
A_FEW = 100
LONGEST_PAUSE_S = 3
USER = "orders"


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    return pack(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, hdfs_cluster):
    try:
        jars("yarn")
    except SetupError as why:
        unavailable("YARN", why)
    with YarnCluster(tmp_path_factory.mktemp("yarn"), hdfs_cluster.uri) as started:
        yield started


@dataclass
class Orders:
    """The page's program, and what it reads and writes. root: path of its folder."""

    broker: str
    hdfs: str
    topic: str
    root: str
    sent: int = 0

    @property
    def program(self) -> str:
        here = {"localhost:9092": self.broker, '"subscribe", "orders"': f'"subscribe", "{self.topic}"'}
        here |= {f'"{place}"': f'"hdfs://{NAME}{self.root}/{place}"' for place in (TABLE, CHECKPOINT)}
        [text] = [block.text for block in blocks_of(OF_KAFKA) if block.file]
        return with_here(text, here | {"10 seconds": "1 second"})

    @property
    def table(self) -> str:
        return f"{self.hdfs}{self.root}/{TABLE}"

    def send(self, count: int) -> None:
        kafka_data.send_to(self.broker, self.topic, ((i, 0) for i in range(self.sent, self.sent + count)), text=_order)
        self.sent += count

    def wait_until_seen(self, job: Job) -> None:
        job.until("each order is there", lambda: len(rows_in(self.table)) >= self.sent)

    def owners(self) -> set[str]:
        """To whom the files of the table and of the checkpoint belong."""
        return {file.owner for file in hdfs_native.Client(self.hdfs).list_status(self.root, recursive=True)}

    def check(self, spark) -> None:
        """Each order is there once, as our reader sees it and as Paimon's own does."""
        once = list(range(self.sent))
        assert sorted(rows_in(self.table).elements()) == once
        assert sorted(i for (i,) in JavaPaimon(spark, on=self.table).read(self.table, columns=["id"])) == once


def _order(number: int) -> str:
    return json.dumps({"id": number, "dt": "2026-11-21", "amount": 1.5})


@pytest.fixture
def orders(kafka_broker, hdfs_cluster) -> Orders:
    topic = kafka_data.new_topic(kafka_broker.bootstrap, 1)
    return Orders(kafka_broker.bootstrap, hdfs_cluster.uri, topic, f"/{uuid.uuid4().hex}")


def test_a_driver_that_died_is_started_again_as_often_as_the_cluster_allows(
    tmp_path, cluster, archive, orders, spark, rng
):
    """Two attempts if nobody says, whatever the job asks for. Then the same command goes on where both had been."""
    site = Site(tmp_path, cluster, user=USER)
    orders.send(A_BATCH)
    with Job(tmp_path / "first", site, archive, orders.program) as job:
        orders.wait_until_seen(job)
        assert {command[0] for command in job.daemons()} == {"./env/bin/python"}
        for attempt in (1, 2):
            job.driver(attempt)
            orders.send(A_FEW)
            if attempt == 2:
                orders.wait_until_seen(job)
                orders.send(A_FEW)
            time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
            job.kill_driver(attempt)
        assert job.wait() == 1
        assert "failed 2 times" in job.said()
    orders.send(A_FEW)
    with Job(tmp_path / "second", site, archive, orders.program) as job:
        orders.wait_until_seen(job)
    orders.check(spark)
    assert orders.owners() == {USER}


@contextlib.contextmanager
def reached_by_relays(cluster: YarnCluster) -> Iterator[tuple[dict[str, str], dict[str, LossyRelay]]]:
    """A driver reaches the ResourceManager through a relay of its machine.

    The setting of YARN that says so, and the relays by the machines' addresses.
    """
    name = "yarn.resourcemanager.scheduler.address"
    port = int(cluster.manager.address_of[name].rpartition(":")[2])
    with contextlib.ExitStack() as open_now:
        relays = {node.host: LossyRelay(port, at=(node.host, port)) for node in cluster.nodes}
        for relay in relays.values():
            open_now.enter_context(relay)
        yield {name: f"${{env.NM_HOST:-{LOOPBACK}}}:{port}"}, relays


@pytest.mark.parametrize("is_asleep", [False, True], ids=["awake", "asleep"])
def test_a_driver_that_is_cut_off_writes_nothing_behind_the_next_one(
    tmp_path, cluster, archive, orders, spark, is_asleep
):
    """Nobody can end it: its NodeManager is dead, and it does not hear the ResourceManager, which starts the next
    attempt on another machine. Both read and write the same checkpoint and table: at one time, or the first one stands
    still with its executor until the other one has written. The first one ends with the error that says why, the other
    one goes on, and each order is there once."""
    here, elsewhere = cluster.nodes
    elsewhere.stop()
    try:
        with reached_by_relays(cluster) as (setting, relays):
            # An executor that was not heard while all stood still is not taken for dead.
            site = Site(tmp_path, cluster, spark={"spark.network.timeout": f"{WAIT_S}s"}, **setting)
            orders.send(A_FEW)
            with Job(tmp_path / "first", site, archive, orders.program) as job:
                orders.wait_until_seen(job)
                elsewhere.start()
                first = job.driver(1)["python"]
                here.kill()
                relays[here.host].cut_off()
                if is_asleep:
                    orders.send(A_FEW)
                    here.signal(signal.SIGSTOP)
                    job.driver(2)
                    orders.send(A_FEW)
                    orders.wait_until_seen(job)
                    here.signal(signal.SIGCONT)
                job.until("the first driver ends", lambda: not Path(f"/proc/{first}").exists(), lambda: orders.send(1))
                second = job.driver(2)
                orders.send(A_FEW)
                orders.wait_until_seen(job)
                assert job.driver(2) == second
                said = here.logs_of(job.application)
    finally:
        for machine in cluster.nodes:
            machine.restart()
    assert "streamsink.errors.Fenced" in said, said[-5_000:]
    orders.check(spark)
