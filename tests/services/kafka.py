"""One Apache Kafka broker in KRaft mode."""

import re
import shutil
import socket
import struct
import subprocess
from pathlib import Path

from tests.services.ports import LOOPBACK
from tests.services.server import Server, made_once, run
from tools.cds import OF_SERVERS
from tools.jars import BROKER, jars
from tools.java import find_java

# It is fixed, because a random one may begin with "-", which the formatter takes for an option.
CLUSTER_ID = "c3RyZWFtc2luay1rYWZrYQ"
OTHER_CLUSTER_ID = "b3RoZXItc3RyZWFtc2luaw"
VERSION = BROKER.split(",")[0].split(":")[-1]
JVM = ["-Xms64m", "-Xmx384m", *OF_SERVERS, "-Djava.net.preferIPv4Stack=true"]
JVM += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

# One broker is its own controller. Internal topics have one partition and one copy, so that they exist at once.
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
num.replica.fetchers=1
log.cleaner.dedupe.buffer.size=2097152
metadata.max.idle.interval.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
"""


def answers(port: int) -> bool:
    """Whether a broker answers an ApiVersions request. The port opens before the broker serves."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection((LOOPBACK, port), 2) as connection:
            connection.settimeout(5)
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


class KafkaBroker(Server):
    """One broker, its own controller. cluster_id: 16 bytes in the alphabet of URLs."""

    ports = 2
    properties = PROPERTIES

    def __init__(self, data_dir: Path, cluster_id: str = CLUSTER_ID) -> None:
        super().__init__(data_dir)
        self._cluster_id = cluster_id

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers."""
        return f"{LOOPBACK}:{self._ports[0]}"

    def command(self):
        java = ":".join(jars("broker"))
        return [find_java().java, *JVM, "-cp", java, "kafka.Kafka", str(self.data_dir / "server.properties")]

    def prepare(self):
        data = self.data_dir / "data"
        if not data.exists():
            shutil.copytree(made_once(f"kafka-storage-{VERSION}", _format), data)
            meta = data / "meta.properties"
            meta.write_text(re.sub(r"cluster\.id=.*", f"cluster.id={self._cluster_id}", meta.read_text()))
        port, controller = self._ports
        text = self.properties.format(port=port, controller=controller, data=data)
        (self.data_dir / "server.properties").write_text(text)

    def answers(self):
        return answers(self.port)


def _format(folder: Path) -> None:
    """Make what every broker finds at its start: two small files, for which Kafka's formatter takes seconds."""
    folder.mkdir(parents=True)
    properties = folder.with_suffix(".properties")
    properties.write_text(PROPERTIES.format(port=9092, controller=9093, data=folder))
    command = [find_java().java, *JVM, "-cp", ":".join(jars("broker")), "kafka.tools.StorageTool", "format"]
    run("formatting Kafka's storage", [*command, "-t", CLUSTER_ID, "-c", properties], stdin=subprocess.DEVNULL)
