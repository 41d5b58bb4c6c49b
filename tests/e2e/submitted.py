"""Drivers that ``spark-submit`` starts on a cluster, each on a machine of its own: another address, folder and disk.

The Python of drivers and executors has what the library needs, and not the library: that comes by ``--py-files``.
"""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.cluster import end_group, machine, spark_home, state_of
from tests.e2e.harness import LOOK_S, ROOT, WAIT_S, until
from tests.services import process

ARCHIVE = "streamsink.zip"
DAEMON = "streamsink.spark.worker_daemon"
_APPLICATION = re.compile(r"Connected to Spark cluster with app ID (\S+)")
_BATCH = re.compile(r"^batch +(\d+)  rows", re.MULTILINE)


def archive(folder: Path) -> Path:
    """Make what docs/GUIDE.md says, by the same command."""
    made = folder / ARCHIVE
    make = ["make", "-s", "archive", f"PYTHON={sys.executable}", f"ARCHIVE={made}"]
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True, text=True)
    return made


def python_without_the_library(folder: Path) -> Path:
    """An interpreter that finds the libraries of this one, but not streamsink, wherever it works."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", purelib], check=True, capture_output=True, text=True)
    # A path in a .pth file is searched, and .pth files there are not read, by one of which the checkout is linked in.
    Path(site.stdout.strip(), "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


class Submitted:
    """A driver. As a context manager it is ended on exit, with its JVM.

    folder: the only place of its machine where it may write. conf: Spark's settings. arguments: the program's path and
    what it is given.
    """

    def __init__(self, folder: Path, host: str, conf: Mapping[str, str], arguments: list[str], env: Mapping[str, str]):
        here = folder / "work"
        here.mkdir(parents=True)
        self.output = folder / "driver.log"
        settings = {"spark.driver.host": host, "spark.driver.bindAddress": host, **conf}
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [str(spark_home() / "bin" / "spark-submit"), *given, *arguments]
        self.process = process.spawn(command, self.output, machine(folder) | dict(env), here)

    def __enter__(self) -> "Submitted":
        return self

    def __exit__(self, *_) -> None:
        self.kill()

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def application(self) -> str:
        """The id that the master has given it."""
        until(lambda: _APPLICATION.search(self.said()), self.check)
        return _APPLICATION.search(self.said())[1]

    def batches(self) -> list[int]:
        """The batches that it has said to be published."""
        return [int(number) for number in _BATCH.findall(self.said())]

    def wait_published(self, batch: int) -> None:
        until(lambda: max(self.batches(), default=-1) >= batch, self.check)

    def wait_stopped(self) -> None:
        """Wait until the fault that was ordered has paused its Python."""
        until(self._is_stopped, self.check)

    def wake(self) -> None:
        """Let its Python go on, which a fault has paused."""
        for pid in process.children(self.process.pid):
            os.kill(pid, signal.SIGCONT)

    def is_over(self, wait_s: float) -> bool:
        """Whether it ends, or is paused, within so many seconds."""
        end = time.monotonic() + wait_s
        while self.process.poll() is None and not self._is_stopped():
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_S)
        return True

    def wait(self) -> int:
        """Wait for its end. Returns the exit code."""
        return self.process.wait(WAIT_S)

    def kill(self) -> None:
        """Send SIGKILL to Python and to the JVM at once."""
        end_group(self.process)

    def _is_stopped(self) -> bool:
        return any(state_of(pid) == "T" for pid in process.children(self.process.pid))

    def check(self) -> None:
        """Fail when it has ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"the driver ended ({self.process.returncode}): {self.said()[-4000:]}")
