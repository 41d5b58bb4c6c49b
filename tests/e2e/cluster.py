"""A small Spark cluster of processes of its own: a master, and workers on two hosts (of the loopback interface).

Spark never runs a speculative copy on the host of the original, so a local cluster, which is one host, never
speculates.
"""

import json
import os
import time
from pathlib import Path

import pyspark

from tests.e2e.harness import ROOT
from tests.services import process
from tests.services.ports import LOOPBACK, free_ports
from tools.java import find_java

HOSTS = ("127.0.0.2", "127.0.0.3")
HOME = Path(pyspark.__file__).parent
READY_S = 180
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class Cluster:
    """A context manager: started on entry, ended on exit."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._processes = []
        self.master = ""

    def __enter__(self) -> "Cluster":
        port = free_ports(1)[0]
        self.master = f"spark://{LOOPBACK}:{port}"
        self._spawn("master", "deploy.master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
        for number, host in enumerate(HOSTS):
            size = [
                "--host",
                host,
                "--cores",
                "1",
                "--memory",
                "600m",
                "--work-dir",
                str(self._folder / f"work-{number}"),
            ]
            self._spawn(f"worker-{number}", "deploy.worker.Worker", *size, "--webui-port", "0", self.master)
        self._wait()
        return self

    def __exit__(self, *_) -> None:
        for one in reversed(self._processes):
            process.kill(one)

    def conf(self, executor_env: dict) -> dict:
        """Settings of a driver: one executor with one core on each host, as cheap as the driver's JVM."""
        executor_env = {"PYTHONPATH": str(ROOT), **executor_env}
        options = json.loads(Path(os.environ["STREAMSINK_TEST_SPARK_CONF"]).read_text()).get(
            "spark.driver.extraJavaOptions", ""
        )
        return {
            **{f"spark.executorEnv.{name}": value for name, value in executor_env.items()},
            "spark.master": self.master,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": options,
            "spark.jars": "",
            "spark.sql.adaptive.enabled": "false",
        }

    def _spawn(self, name: str, main: str, *arguments: str) -> None:
        command = [find_java().java, *JVM, "-cp", f"{HOME / 'jars'}/*", f"org.apache.spark.{main}", *arguments]
        env = dict(os.environ) | {"SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_NO_DAEMONIZE": "1"}
        self._processes.append(process.spawn(command, self._folder / f"{name}.log", env))

    def _wait(self) -> None:
        """Wait until both workers are registered: an executor is then started on each host."""
        end = time.monotonic() + READY_S
        logs = [self._folder / f"worker-{number}.log" for number in range(len(HOSTS))]
        while not all("Successfully registered" in log.read_text(errors="replace") for log in logs):
            if time.monotonic() > end or any(one.poll() is not None for one in self._processes):
                self.__exit__()
                raise AssertionError("\n".join(process.tail(log) for log in logs))
            time.sleep(0.1)
