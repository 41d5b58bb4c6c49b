"""The page docs/how-to/YARN.md, followed by a reader on the cluster of the tests, and what becomes of the job."""

import contextlib
import json
import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import streamsink
from streamsink.errors import StreamsinkError
from tests.docs.blocks import ROOT, blocks_of
from tests.docs.shell import Shell
from tests.e2e.cluster import JVM, command_of, machine, spark_home
from tests.e2e.harness import until
from tests.services import process
from tests.services.ports import LOOPBACK
from tests.services.yarn import YarnCluster
from tools.jars import jars

PAGE, OF_KAFKA = "docs/how-to/YARN.md", "docs/how-to/KAFKA_TO_LAKE.md"
PROGRAM, ARCHIVE = "orders_to_lake.py", "env.tar.gz"
PACKAGE = "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3"
CONF_DIR, TABLE, CHECKPOINT = "/etc/hadoop/conf", "lake/shop.db/orders", "ckpt/orders"
PACK_S, WAIT_S, LOOK_S = 1_800, 600, 0.5
_SUBMITTED = re.compile(r"Submitted application (application_\w+)")


def pack(folder: Path) -> Path:
    """Run the page's first block in a copy of the checkout, as a reader does. Returns the archive."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "streamsink", folder / "streamsink", ignore=shutil.ignore_patterns("__pycache__"))
    Shell(folder, bare=True).run(blocks_of(PAGE)[0].text, timeout_s=PACK_S)
    return folder / ARCHIVE


def with_here(text: str, here: Mapping[str, str]) -> str:
    """What a page says, with what stands there here."""
    for said, instead in here.items():
        assert said in text, f"the page does not say {said}"
        text = text.replace(said, instead)
    return text


class Site:
    """The machine from which a reader sends jobs, whose settings know the cluster.

    folder: of the settings, which are those of Hadoop, and of Spark, by which a driver and an executor take little.
    user: who sends them, and writes; None for the user of this process. spark: settings of Spark besides. yarn: what is
    other there in those of YARN.
    """

    def __init__(
        self,
        folder: Path,
        cluster: YarnCluster,
        user: str | None = None,
        spark: Mapping[str, str] | None = None,
        **yarn: str,
    ):
        self.cluster = cluster
        self._folder = folder
        self._user = {"HADOOP_USER_NAME": user} if user else {}
        self._hadoop = cluster.manager.client_settings(folder / "hadoop", **yarn)
        settings = {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": LOOPBACK,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": JVM,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": JVM,
            "spark.executor.instances": "1",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            **(spark or {}),
        }
        for containers in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
            settings |= {f"{containers}.{name}": value for name, value in self._user.items()}
        (folder / "spark").mkdir()
        (folder / "spark" / "spark-defaults.conf").write_text("".join(f"{n} {v}\n" for n, v in settings.items()))

    def script(self) -> str:
        """The page's second block, with the places of this cluster."""
        kafka = f"--jars {','.join(jars('kafka'))}"
        return with_here(blocks_of(PAGE)[1].text, {CONF_DIR: str(self._hadoop), PACKAGE: kafka})

    def environment(self) -> dict[str, str]:
        env = machine(self._folder / "home")
        programs = f"{spark_home()}/bin{os.pathsep}{env['PATH']}"
        return env | self._user | {"SPARK_CONF_DIR": str(self._folder / "spark"), "PATH": programs}


class Job:
    """An application, from a folder with the archive and the program. As a context manager it is ended on exit."""

    def __init__(self, folder: Path, site: Site, archive: Path, program: str):
        folder.mkdir()
        (folder / ARCHIVE).symlink_to(archive)
        (folder / PROGRAM).write_text(program)
        self._site, self._manager, self._log = site, site.cluster.manager, folder / "submitted.log"
        command = ["bash", "-euo", "pipefail", "-c", site.script()]
        self._process = process.spawn(command, self._log, site.environment(), folder)

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_) -> None:
        if self._process.poll() is None:
            if found := _SUBMITTED.search(self.said()):
                with contextlib.suppress(OSError):
                    self._manager.asked(f"apps/{found[1]}/state", {"state": "KILLED"})
            process.stop(self._process)

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def application(self) -> str:
        self.until("it is submitted", lambda: _SUBMITTED.search(self.said()))
        return _SUBMITTED.search(self.said())[1]

    def driver(self, attempt: int) -> dict[str, int]:
        """The process ids of a driver, by the names of its programs: java, python. Waits until it has both."""
        found: dict[str, int] = {}

        def has_both() -> bool:
            inside = [pid for pid, container in self._processes() if container == self._of_driver(attempt)]
            found.update({Path(command_of(pid)[0]).name: pid for pid in inside if command_of(pid)})
            return {"java", "python"} <= found.keys()

        self.until(f"driver {attempt} runs", has_both)
        return found

    def daemons(self) -> list[list[str]]:
        """The commands of the executors' Python that starts workers."""
        commands = [command_of(pid) for pid, container in self._processes() if not container.endswith("_000001")]
        return [command for command in commands if "pyspark.daemon" in command]

    def _of_driver(self, attempt: int) -> str:
        """The id of the container."""
        return f"{self.application.replace('application', 'container')}_{attempt:02}_000001"

    def _processes(self) -> list[tuple[int, str]]:
        return [each for node in self._site.cluster.nodes for each in node.processes()]

    def kill_driver(self, attempt: int) -> None:
        """Send SIGKILL to its ApplicationMaster, as the kernel does that is short of memory."""
        os.kill(self.driver(attempt)["java"], signal.SIGKILL)

    def wait(self) -> int:
        return self._process.wait(WAIT_S)

    def until(self, what: str, true: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> None:
        """Look until it is true, and leave the processors to the cluster in between. Fails when the job ends before, or
        when it takes too long. meanwhile: what is done after each look."""

        def check() -> None:
            assert self._process.poll() is None, f"the job ended ({self._process.returncode})"
            meanwhile()
            time.sleep(LOOK_S)

        try:
            until(true, check, WAIT_S)
        except AssertionError as why:
            raise AssertionError(f"{what}: {why}: {self._found()}") from None

    def _found(self) -> str:
        """What an operator would look at."""
        found = [self.said()[-4_000:], json.dumps(self._manager.asked("nodes"))]
        if submitted := _SUBMITTED.search(self.said()):
            found += [node.logs_of(submitted[1])[-4_000:] for node in self._site.cluster.nodes]
        return "\n".join(found)


def rows_in(table: str) -> Counter:
    """How often each order is in a table. Empty while there is no table."""
    try:
        return Counter(streamsink.read_arrow(table, columns=["id"])["id"].to_pylist())
    except StreamsinkError:
        return Counter()
