"""The tests are compiled once before they run, and not by each worker of a run."""

import os
import subprocess
import sys
from pathlib import Path

from tools.common import ROOT, say

# So few files the workers compile by themselves.
FEW = 20
_COLLECT = ("-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider")


def not_compiled(folder: Path) -> int:
    """How many files of tests below the folder pytest has not compiled as they are now, for this Python."""
    tag = f".{sys.implementation.cache_tag}-pytest-"
    compiled = {
        path.parent.with_name(f"{path.name.partition(tag)[0]}.py"): path.stat().st_mtime
        for path in folder.rglob(f"__pycache__/*{tag}*.pyc")
    }
    return sum(compiled.get(path, 0) < path.stat().st_mtime for path in folder.rglob("test_*.py"))


def compile_tests(python: str) -> None:
    """Let one process import all tests, where many are new: it keeps them compiled, with what they import.

    Else each worker would compile all of it at the same time. What cannot be imported is left to the run, which says
    what is wrong.
    """
    if not_compiled(ROOT / "tests") <= FEW:
        return
    say("compiling the tests (once)")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([python, *_COLLECT], cwd=ROOT, env=env, **quiet)
