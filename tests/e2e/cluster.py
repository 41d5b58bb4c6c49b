"""A small Spark cluster of processes of its own: a master, and workers on two hosts (of the loopback interface).

Spark never runs a speculative copy on the host of the original, so a local cluster, which is one host, never
speculates. The machines of a real cluster share nothing with each other nor with a driver but what is on a store. So
these processes have work folders of their own, and of the environment of the tests only what every machine has: no
PYTHONPATH, no interpreter, no keys.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pyspark

from tests.e2e.harness import ROOT
from tests.services import process
from tests.services.ports import LOOPBACK, free_ports
from tools.java import find_java

HOSTS = ("127.0.0.2", "127.0.0.3")
READY_S = 180
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Cluster:
    """A context manager: started on entry, ended on exit. Workers are counted from 0."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._master: subprocess.Popen | None = None
        self._workers: dict[int, subprocess.Popen] = {}
        self._starts = 0
        self.master = ""

    def __enter__(self) -> "Cluster":
        port = free_ports(1)[0]
        self.master = f"spark://{LOOPBACK}:{port}"
        address = ["--host", LOOPBACK, "--port", str(port), "--webui-port", "0"]
        self._master, _ = self._spawn("master", "deploy.master.Master", *address)
        try:
            started = [self._begin_worker(number) for number in range(len(HOSTS))]
            for log in started:
                self._wait_registered(log)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for number in list(self._workers):
            self.kill_worker(number)
        if self._master is not None:
            process.kill(self._master)

    def conf(self, executor_env: dict) -> dict:
        """Settings of a driver: one executor with one core on each host, as cheap as the driver's JVM, with the Python
        and the checkout of the tests."""
        executor_env = {"PYTHONPATH": str(ROOT), **executor_env}
        return {
            **{f"spark.executorEnv.{name}": value for name, value in executor_env.items()},
            **self.executors(),
            "spark.jars": "",
            "spark.sql.adaptive.enabled": "false",
        }

    def executors(self) -> dict:
        """Settings of a driver: one executor with one core on each host, as cheap as the driver's JVM."""
        return {
            "spark.master": self.master,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": _settings().get("spark.driver.extraJavaOptions", ""),
        }

    def work_dir(self, number: int) -> Path:
        """Where a worker gives each executor a folder: ``<application>/<executor>``."""
        return self._folder / f"work-{number}"

    def executors_of(self, number: int, application: str) -> list[int]:
        """The process ids of the executors that a worker runs now for an application, given by its id."""
        worker = self._workers.get(number)
        pids = [] if worker is None else process.children(worker.pid)
        return [pid for pid in pids if {EXECUTOR, application} <= set(command_of(pid))]

    def kill_worker(self, number: int) -> None:
        """Send SIGKILL to the worker, its executors and their Python, as the loss of a machine does. Idempotent."""
        worker = self._workers.pop(number, None)
        if worker is not None:
            end_group(worker)

    def start_worker(self, number: int) -> None:
        """Start a worker anew. Returns when the master knows it."""
        self._wait_registered(self._begin_worker(number))

    def _begin_worker(self, number: int) -> Path:
        host, folder = HOSTS[number], self.work_dir(number)
        size = ["--host", host, "--cores", "1", "--memory", "600m", "--work-dir", str(folder), "--webui-port", "0"]
        name = f"worker-{number}-{self._starts}"
        self._starts += 1
        self._workers[number], log = self._spawn(name, "deploy.worker.Worker", *size, self.master)
        return log

    def _spawn(self, name: str, main: str, *arguments: str) -> tuple[subprocess.Popen, Path]:
        """Start a daemon as one does by hand, in a process group and a folder of its own."""
        folder, log = self._folder / name, self._folder / f"{name}.log"
        folder.mkdir(parents=True)
        settings = _settings()
        daemon = {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": settings.get("spark.driver.extraJavaOptions", ""),
            "SPARK_DAEMON_CLASSPATH": settings.get("spark.driver.extraClassPath", ""),
        }
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.{main}", *arguments]
        return process.spawn(command, log, machine(folder) | daemon, folder), log

    def _wait_registered(self, log: Path) -> None:
        """Wait until a worker is registered: an executor is then started there for each application."""
        end = time.monotonic() + READY_S
        while "Successfully registered" not in log.read_text(errors="replace"):
            if time.monotonic() > end or any(one.poll() is not None for one in (self._master, *self._workers.values())):
                raise AssertionError(process.tail(log))
            time.sleep(0.1)


def _settings() -> dict[str, str]:
    """What the tests start Spark with. An archive of classes belongs to its class path."""
    return json.loads(Path(os.environ["STREAMSINK_TEST_SPARK_CONF"]).read_text())


def spark_home() -> Path:
    """The one that the tests start Spark from, else PySpark's own. An archive of classes belongs to one."""
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def machine(folder: Path) -> dict[str, str]:
    """The environment of a process on a machine whose own disk is ``folder``: Spark and Java are installed, and nothing
    is said of Python, of keys or of the tests."""
    own = folder / "tmp"
    own.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "PATH", "USER") if name in os.environ}
    # There is no such folder of settings: one that exists would stand on the class path, for which there is no archive.
    spark = {"SPARK_HOME": str(spark_home()), "SPARK_CONF_DIR": str(folder / "conf"), "SPARK_LOCAL_DIRS": str(own)}
    spark["SPARK_LAUNCHER_OPTS"] = JVM
    return kept | spark | {"HOME": str(folder), "TMPDIR": str(own), "JAVA_HOME": find_java().home}


def end_group(one: subprocess.Popen) -> None:
    """Send SIGKILL to a process that was started with a folder of its own, and to all that it has started."""
    try:
        os.killpg(one.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    one.wait(process.STOP_TIMEOUT_S)


def command_of(pid: int) -> list[str]:
    """The command by which a process was started; [] when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def state_of(pid: int) -> str:
    """R, S, T, ... as the system says it; '' when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
