"""A real HDFS of one NameNode and some DataNodes in one process: Hadoop's own cluster for tests."""

from pathlib import Path

from tests.services.ports import LOOPBACK
from tests.services.server import Server
from tools.cds import OF_SERVERS
from tools.jars import jars
from tools.java import find_java

JVM = ["-Xms64m", "-Xmx512m", *OF_SERVERS, "-Djava.net.preferIPv4Stack=true"]
JVM += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
# A client that closes a file at once often asks before a node's report of the block has come, and then waits for half a
# second. With six copies the last node of the pipeline has mostly reported by then: of 25 files 0 to 2 wait, with two
# copies 9. More nodes cost two seconds at the start, and nothing later.
DATANODES = 6
# There is one user here, and a small disk is enough.
SETTINGS = {"dfs.permissions.enabled": "false", "dfs.datanode.du.reserved": "0", "dfs.replication": str(DATANODES)}
# How old the numbers may be that the NameNode tells of itself; ten seconds if nobody says.
METRICS_S = 1


class HdfsCluster(Server):
    """A NameNode and its DataNodes, each of which has a copy of every block."""

    ports = 2
    ready_timeout_s = 180

    def __init__(self, data_dir: Path, datanodes: int = DATANODES) -> None:
        super().__init__(data_dir)
        self._datanodes = str(datanodes)

    @property
    def uri(self) -> str:
        """What a path on this cluster begins with."""
        return f"hdfs://{LOOPBACK}:{self._ports[0]}"

    @property
    def calls_url(self) -> str:
        """Where the NameNode tells how often each call was made: ``beans``, of which the one has ``<Call>NumOps``."""
        name_port, web_port = self._ports
        bean = f"Hadoop:service=NameNode,name=RpcDetailedActivityForPort{name_port}"
        return f"http://{LOOPBACK}:{web_port}/jmx?qry={bean}"

    def prepare(self):
        self._details.unlink(missing_ok=True)
        self._settings.mkdir(parents=True, exist_ok=True)
        (self._settings / "hadoop-metrics2.properties").write_text(f"*.period={METRICS_S}\n")

    def command(self):
        name_port, web_port = self._ports
        data = self.data_dir / "data"
        command = [find_java().java, *JVM, f"-Dhadoop.log.dir={self.data_dir / 'logs'}", f"-Dtest.build.data={data}"]
        # Without a fixed folder it writes below the working directory.
        command += [f"-Dhdfs.minidfs.basedir={data / 'dfs'}", "-cp", ":".join([str(self._settings), *jars("hdfs")])]
        command += [
            "org.apache.hadoop.test.MiniDFSClusterManager",
            "-datanodes",
            self._datanodes,
            "-nnport",
            str(name_port),
        ]
        command += ["-httpport", str(web_port), "-writeDetails", str(self._details)]
        if not data.exists():
            command.append("-format")
        settings = {**SETTINGS, "dfs.replication": self._datanodes}
        return command + [part for name, value in settings.items() for part in ("-D", f"{name}={value}")]

    def answers(self):
        """The details are written when the cluster is up, that is, when the DataNodes have joined."""
        return self._details.exists() and self._details.stat().st_size > 0

    @property
    def _settings(self) -> Path:
        return self.data_dir / "settings"

    @property
    def _details(self) -> Path:
        return self.data_dir / "details.json"
