"""A real YARN: a ResourceManager and NodeManagers, each a process of its own, beside the HDFS of the tests.

HDFS is known by a name here, as on clusters with two NameNodes: only who has Hadoop's settings finds it.
What is not set is Hadoop's default: so a container that takes more memory than it has asked for is ended.
"""

import contextlib
import json
import os
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from tests.services.ports import LOOPBACK
from tests.services.server import Server
from tools.cds import OF_SERVERS
from tools.jars import jars
from tools.java import find_java

JVM = ["-Xms64m", "-Xmx384m", *OF_SERVERS, "-Djava.net.preferIPv4Stack=true"]
JVM += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
# Of classes that YARN loads by reflection on Java's own, as its start scripts have it for Java 17.
JVM += ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
# NodeManagers look like two machines: the ports of containers are their own anyway.
HOSTS = ("127.0.0.2", "127.0.0.3")
NODE_MB, NODE_CORES = "6144", "6"
# A lost machine is noticed after ten minutes if nobody says, and a lost ResourceManager after a quarter of an hour.
EXPIRY_MS, CONNECT_MS = "30000", "10000"
_ADDRESSES = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
_QUEUES = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    # Drivers may take all of it; a tenth if nobody says, which is for large clusters.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}
TIMEOUT_S = 30
NAME, HA = "lake", "org.apache.hadoop.hdfs.server.namenode.ha"


class ResourceManager(Server):
    """Decides which container runs where, and starts drivers that died again.

    hdfs: URI of the cluster's own file system.
    """

    ports = len(_ADDRESSES)
    stop_signal = signal.SIGKILL  # it keeps nothing, and an orderly end takes seconds

    def __init__(self, data_dir: Path, hdfs: str) -> None:
        super().__init__(data_dir)
        self._hdfs = hdfs

    @property
    def address_of(self) -> dict[str, str]:
        """Settings of YARN: where each service of it is."""
        names = (f"yarn.resourcemanager.{name}" for name in _ADDRESSES)
        return {name: f"{LOOPBACK}:{port}" for name, port in zip(names, self._ports)}

    def client_settings(self, folder: Path, **yarn: str) -> Path:
        """Make the folder for HADOOP_CONF_DIR of a machine from which jobs are sent. yarn: what is other there."""
        write_settings(folder / "core-site.xml", {"fs.defaultFS": f"hdfs://{NAME}"})
        # One copy is enough of what is handed to the containers.
        write_settings(folder / "hdfs-site.xml", by_name(self._hdfs) | {"dfs.replication": "1"})
        waits = {"connect.max-wait.ms": CONNECT_MS, "connect.retry-interval.ms": "1000"}
        write_settings(
            folder / "yarn-site.xml",
            self.address_of | {f"yarn.resourcemanager.{name}": value for name, value in waits.items()} | yarn,
        )
        return folder

    def prepare(self):
        own = {
            "yarn.nm.liveness-monitor.expiry-interval-ms": EXPIRY_MS,
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
        }
        self.client_settings(self.data_dir / "settings", **own)
        write_settings(self.data_dir / "settings" / "capacity-scheduler.xml", _QUEUES)

    def command(self):
        return daemon(self.data_dir, "resourcemanager.ResourceManager")

    def answers(self):
        try:
            return self.asked("info")["state"] == "STARTED"
        except OSError:
            return False

    def asked(self, what: str, body: Mapping[str, str] | None = None) -> dict:
        """The answer of its REST interface. body: what is put there. Raises OSError when it does not answer."""
        url = f"http://{self.address_of['yarn.resourcemanager.webapp.address']}/ws/v1/cluster/{what}"
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(
            url, data, {"Content-Type": "application/json"}, method="PUT" if body else None
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            return json.load(reply)


class NodeManager(Server):
    """A machine of the cluster: it starts containers, each in a folder of its own below ``data_dir``."""

    ports = 3

    def __init__(self, data_dir: Path, host: str, manager: ResourceManager) -> None:
        super().__init__(data_dir)
        self.host = host
        self._manager = manager

    def prepare(self):
        names = ("yarn.nodemanager.address", "yarn.nodemanager.localizer.address", "yarn.nodemanager.webapp.address")
        own = {name: f"{self.host}:{port}" for name, port in zip(names, self._ports)}
        own |= {"yarn.nodemanager.resource.memory-mb": NODE_MB, "yarn.nodemanager.resource.cpu-vcores": NODE_CORES}
        # A machine whose disk is nine tenths full gets no containers if nobody says; here that is a disk of others.
        own |= {"yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100"}
        own |= {"yarn.nodemanager.local-dirs": str(self.data_dir / "local")}
        own |= {"yarn.nodemanager.log-dirs": str(self.data_dir / "logs")}
        self._manager.client_settings(self.data_dir / "settings", **own)

    def command(self):
        return daemon(self.data_dir, "nodemanager.NodeManager")

    def environment(self):
        """That of a machine with Java: its containers have no Python, no checkout and no settings from here."""
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH", "USER") if name in os.environ}
        return kept | {"HOME": str(self.data_dir), "JAVA_HOME": find_java().home}

    def answers(self):
        """When the ResourceManager counts on it."""
        nodes = self._manager.asked("nodes")["nodes"]
        name = f"{self.host}:{self.port}"
        return any((one["nodeId"], one["state"]) == (name, "RUNNING") for one in nodes)

    def processes(self) -> list[tuple[int, str]]:
        """Each process that runs in a container here now, and the container's id; also when the NodeManager is dead."""
        local = self.data_dir / "local"
        inside = [(pid, place.parts) for pid, place in _places() if place.is_relative_to(local)]
        found = [(pid, [part for part in parts if part.startswith("container_")]) for pid, parts in inside]
        return [(pid, names[0]) for pid, names in found if names]

    def logs_of(self, application: str) -> str:
        """What the containers of an application have said here."""
        found = sorted((self.data_dir / "logs" / application).rglob("*"))
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')}" for path in found if path.is_file())

    def lose(self) -> None:
        """Send SIGKILL to it and to all containers, as the loss of a machine does. Idempotent."""
        self.kill()
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send it to each process that runs in a container here."""
        for pid, _ in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        super().stop()
        self.lose()


class YarnCluster:
    """A context manager: started on entry, ended on exit with everything that runs on it."""

    def __init__(self, folder: Path, hdfs: str) -> None:
        self.manager = ResourceManager(folder / "manager", hdfs)
        self.nodes = [NodeManager(folder / f"node-{host}", host, self.manager) for host in HOSTS]

    def __enter__(self) -> "YarnCluster":
        try:
            self.manager.start()
            for node in self.nodes:
                node.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for node in self.nodes:
            node.stop()
        self.manager.stop()


def daemon(data_dir: Path, main: str) -> list[str]:
    """The command that starts a daemon of YARN with the settings of its folder."""
    command = [find_java().java, *JVM, f"-Dhadoop.log.dir={data_dir}", f"-Dyarn.log.dir={data_dir}"]
    path = ":".join([str(data_dir / "settings"), *jars("yarn")])
    return [*command, "-cp", path, f"org.apache.hadoop.yarn.server.{main}"]


def by_name(hdfs: str) -> dict[str, str]:
    """Settings of a client by which it finds an HDFS as ``hdfs://lake``."""
    return {
        "dfs.nameservices": NAME,
        f"dfs.ha.namenodes.{NAME}": "nn1",
        f"dfs.namenode.rpc-address.{NAME}.nn1": hdfs.removeprefix("hdfs://"),
        f"dfs.client.failover.proxy.provider.{NAME}": f"{HA}.ConfiguredFailoverProxyProvider",
    }


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    """Write a file of Hadoop's settings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    file.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def _places() -> Iterator[tuple[int, Path]]:
    """Each process of the machine, and the folder where it works."""
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            yield int(entry.parent.name), entry.readlink()
        except OSError:
            continue  # it has ended meanwhile
