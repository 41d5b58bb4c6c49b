"""A real HDFS of one NameNode and two DataNodes in one process: Hadoop's own cluster for tests."""
import subprocess
import time
from pathlib import Path

from tests.services import process
from tests.services.ports import LOOPBACK, free_ports
from tools.jars import jars
from tools.java import find_java

READY_TIMEOUT_S = 180
START_ATTEMPTS = 3  # another process may take a free port before the cluster does
JVM = ["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
JVM += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
# With one DataNode, a client that closes a file often asks before that one's report of the block has come, and then waits
# half a second; with two, the last one of the pipeline has reported by then.
DATANODES = 2
# there is one user here, and a small disk is enough
SETTINGS = {"dfs.permissions.enabled": "false", "dfs.datanode.du.reserved": "0"}


class HdfsError(Exception):
    """The cluster does not start; the message holds the end of its log."""


class HdfsCluster:
    """A cluster whose data is in `data_dir`; a second start on the same folder keeps the files.

    The port stays the same over restarts. As a context manager: started on entry, stopped on exit."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir)
        self.log = self.data_dir / "hdfs.log"
        self._details = self.data_dir / "details.json"
        self._ports: list[int] = []
        self._process: subprocess.Popen | None = None

    @property
    def uri(self) -> str:
        """What a path on this cluster begins with."""
        return f"hdfs://{LOOPBACK}:{self._ports[0]}"

    def start(self) -> "HdfsCluster":
        """Returns when the DataNodes have joined. Raises: HdfsError, with the end of the log."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        fresh = not self._ports
        for _ in range(START_ATTEMPTS if fresh else 1):
            if fresh:
                self._ports = free_ports(2)
            self._details.unlink(missing_ok=True)
            self._process = process.spawn(self._command(), self.log)
            if self._wait_until_ready():
                return self
            self.kill()
        raise HdfsError(f"HDFS does not start; the end of {self.log}:\n{process.tail(self.log)}")

    def stop(self) -> None:
        """An orderly end. Idempotent."""
        if self._process:
            process.stop(self._process)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process:
            process.kill(self._process)

    def __enter__(self) -> "HdfsCluster":
        return self.start()

    def __exit__(self, *_) -> None:
        self.stop()

    def _command(self) -> list[str]:
        name_port, web_port = self._ports
        data = self.data_dir / "data"
        command = [find_java().java, *JVM, f"-Dhadoop.log.dir={self.data_dir / 'logs'}", f"-Dtest.build.data={data}"]
        # without a fixed folder it writes below the working directory
        command += [f"-Dhdfs.minidfs.basedir={data / 'dfs'}", "-cp", ":".join(jars("hdfs"))]
        command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", str(DATANODES), "-nnport", str(name_port)]
        command += ["-httpport", str(web_port), "-writeDetails", str(self._details)]
        if not data.exists():
            command.append("-format")
        return command + [part for name, value in SETTINGS.items() for part in ("-D", f"{name}={value}")]

    def _wait_until_ready(self) -> bool:
        """The details are written when the cluster is up."""
        end = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < end and self._process.poll() is None:
            if self._details.exists() and self._details.stat().st_size:
                return self._process.poll() is None
            time.sleep(0.1)
        return False
