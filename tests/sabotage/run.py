"""Applies defects one by one to a copy of the tree, and asks the tests of each whether they notice: ``make sabotage``."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.sabotage.defect import Defect, put, read
from tests.sabotage.defects import DEFECTS

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 600
_COPIED = (
    "streamsink",
    "tests",
    "tools",
    "jobs",
    "benchmarks",
    "docs",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "CONVENTIONS.md",
    "Makefile",
)
# What another process compiles at this moment: it gets another name.
_BEING_WRITTEN = shutil.ignore_patterns("*.pyc.*")


@dataclass(frozen=True)
class Caught:
    """by: the test that failed first; None when all were green. Seconds that it took."""

    defect: Defect
    by: str | None
    seconds: float


class Copy:
    """A copy of the tree, in which one module at a time has a defect.

    What Python has compiled is copied too: each test of a defect is a process of its own, which would compile the
    library for two seconds.
    """

    def __init__(self, folder: Path):
        self._root = folder
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=_BEING_WRITTEN)
            elif source.exists():
                shutil.copy(source, folder / name)

    def try_out(self, defect: Defect) -> Caught:
        """Whether the tests notice it. A test that hangs because of it has noticed it as well."""
        module = self._root / "streamsink" / defect.file
        whole = module.read_text(encoding="utf-8")
        begun = time.monotonic()
        put(module, defect.applied(whole))
        try:
            return Caught(defect, self._first_failure(defect.caught_by), time.monotonic() - begun)
        finally:
            put(module, whole)

    def _first_failure(self, tests: Iterable[str]) -> str | None:
        for test in tests:
            command = [
                sys.executable,
                "-B",
                "-m",
                "pytest",
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                "--no-header",
                "--tb=no",
                test,
            ]
            env = {**os.environ, "PYTHONPATH": str(self._root), "STREAMSINK_TURNS": "all"}
            env["PYTHONDONTWRITEBYTECODE"] = "1"  # for drivers too: a module changes here within a second
            try:
                done = subprocess.run(
                    command, cwd=self._root, env=env, capture_output=True, text=True, timeout=LONGEST_S
                )
            except subprocess.TimeoutExpired:
                return f"{test} (no end in {LONGEST_S} s)"
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            if failed:
                return failed[0].split(" - ")[0]
            if done.returncode not in (0, 1):
                raise RuntimeError(f"{test} could not be run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return None


def try_out(defects: Iterable[Defect]) -> list[Caught]:
    """Each of them, one after another, in one copy."""
    with tempfile.TemporaryDirectory(prefix="streamsink-sabotage-") as folder:
        copy = Copy(Path(folder))
        return [copy.try_out(defect) for defect in defects]


def main(words: list[str]) -> int:
    """All defects, or those whose name contains one of the words. 1 when one of them goes unnoticed."""
    chosen = [d for d in DEFECTS if not words or any(word in d.name for word in words)]
    for defect in chosen:
        defect.applied(read(ROOT, defect))
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="streamsink-sabotage-") as folder:
        copy = Copy(Path(folder))
        for number, defect in enumerate(chosen, 1):
            caught = copy.try_out(defect)
            unnoticed += caught.by is None
            print(
                f"{number}/{len(chosen)} {defect.name}: {caught.by or 'NOT NOTICED'} ({caught.seconds:.0f} s)",
                flush=True,
            )
    print(f"{len(chosen) - unnoticed} of {len(chosen)} defects are noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
