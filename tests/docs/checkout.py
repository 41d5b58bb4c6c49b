"""A copy of the checkout as a reader has it, and the commands that a reader gives there."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of
from tests.docs.ways import PAGES
from tests.e2e.cluster import end_group
from tests.e2e.harness import until
from tests.services import process

# What programs make there, as .gitignore has it, and what git has of its own. `.cache` belongs to one folder.
_NOT_COPIED = shutil.ignore_patterns(
    *".git .cache .venv .pytest_cache __pycache__ *.egg-info build dist lake ckpt env spark-warehouse".split()
)
# What a call of make, pytest and the fixtures set for a run of the tests, and a reader's shell has not.
_OF_THE_TESTS = re.compile(
    "MAKE.*|MFLAGS|BROKERS|TOPIC|ARGS|WALKS|WORKERS|ARCHIVE|URL|PYTEST_.*|PYTHONPATH|PYSPARK_.*|SPARK_.*|STREAMSINK_.*"
)
_KEPT = ("STREAMSINK_CACHE", "STREAMSINK_IVY_SETTINGS")


def environment() -> dict[str, str]:
    """That of a reader's shell on this machine."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or not _OF_THE_TESTS.fullmatch(name)}


def commands_of(page: str, place: int) -> list[str]:
    """The lines of a block, without what is said of them."""
    lines = (line.partition(" #")[0].strip() for line in blocks_of(page)[place].text.splitlines())
    return [line for line in lines if line]


def here(page: str, text: str, words: Mapping[str, object]) -> str:
    """What the page says with what stands there here: ``elsewhere`` of its ways, filled with words."""
    for said, instead in PAGES[page].elsewhere.items():
        if said in text:
            text = text.replace(said, instead.format(**words))
    return text


class Running:
    """A command in a shell of its own. As a context manager it is ended on exit, with all that it has started."""

    def __init__(self, command: str, folder: Path, log: Path, env: Mapping[str, str]):
        self._log = log
        # A terminal's shell ignores no Ctrl-C, as one does that was itself started in the background.
        shell = ["env", "--default-signal=INT", "bash", "-euo", "pipefail", "-c", command]
        self.process = process.spawn(shell, log, dict(env), folder)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_) -> None:
        end_group(self.process)

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until(self, true, wait_s: float) -> None:
        until(true, self._is_there, wait_s)

    def interrupt(self) -> None:
        """What Ctrl-C in a terminal does: a signal to all of them."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self, wait_s: float) -> int:
        """Wait for its end. Returns the exit code."""
        try:
            return self.process.wait(wait_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end in {wait_s} s: {self.said()[-4000:]}") from None

    def _is_there(self) -> None:
        assert self.process.poll() is None, f"it ended ({self.process.returncode}): {self.said()[-4000:]}"


class Checkout:
    """Of this tree. env: of the reader's shell there."""

    def __init__(self, folder: Path):
        shutil.copytree(ROOT, folder / "streamsink", ignore=_NOT_COPIED)
        self.root, self.env = folder / "streamsink", environment()
        self._logs, self._runs = folder, 0

    def start(self, command: str) -> Running:
        self._runs += 1
        return Running(command, self.root, self._logs / f"said-{self._runs}.txt", self.env)

    def run(self, command: str, wait_s: float) -> str:
        """Run a command, which must end with 0. Returns all that it prints."""
        with self.start(command) as running:
            code = running.wait(wait_s)
            assert code == 0, f"{command}: {code}\n{running.said()[-6000:]}"
            return running.said()
