"""Python processes of the tests that start at once: ``python -m module`` in a fork of an interpreter that has its
imports.

An interpreter that imports PySpark, pyarrow and the library computes for half a second before it does anything, and the
tests start some hundred. What is forked is a clean process without threads, never the tests' own; each fork has its own
environment, folder, streams and session, and dies by any signal like a process that was started.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from multiprocessing import forkserver, reduction
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What the forks use. A module that is not installed is left out.
_IMPORTED = (
    "tests.locks.worker",
    "tests.locks.replacing",
    "tests.storage.writer",
    "tests.storage.racer",
    "pyspark.sql",
)
_IMPORTED += ("tests.e2e.driver", "streamsink.spark.query.foreach_batch", "tests.table.killed_committer", "boto3")
_IMPORTED += ("psycopg", "pymysql", "sqlite3", "pymetastore.hive_metastore.ThriftHiveMetastore", "hdfs_native")
_LOOK_S, _LONGEST_START_S = 0.001, 200


def context() -> ForkServerContext:
    """The one process that forks, for ``multiprocessing``. It is started with the first fork."""
    from tests.locks.places import PASSWORDS

    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(list(_IMPORTED))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PASSWORDS.items():  # the locks of its processes want them there
            patch.setenv(name, value)
        forkserver.ensure_running()
    return found


class Forked:
    """``subprocess.Popen([sys.executable, "-m", module, *arguments], ...)`` as far as the tests use one.

    stdin, stdout, stderr: files, or subprocess.PIPE (the first two, as text), or None for those of the tests. session:
    in a process group of its own.
    """

    def __init__(
        self,
        module: str,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        session: bool = False,
        **streams: Any,
    ):
        here: list[int] = []
        self.stdin = self.stdout = None
        given = []
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = streams.pop(name, None)
            if stream == subprocess.PIPE:
                read, write = os.pipe()
                ours, theirs = (write, read) if name == "stdin" else (read, write)
                setattr(self, name, open(ours, "w" if name == "stdin" else "r", encoding="utf-8"))
                here.append(theirs)
            elif stream == subprocess.DEVNULL or (stream is None and name == "stdin"):
                theirs = os.open(os.devnull, os.O_RDWR)
                here.append(theirs)
            else:
                theirs = number if stream is None else stream.fileno()
            given.append(_Fd(theirs))
        if streams:
            raise TypeError(f"unknown: {sorted(streams)}")
        wanted = dict(os.environ if env is None else env)
        self._process = context().Process(
            target=_run, args=(module, [str(one) for one in arguments], wanted, session, given), daemon=True
        )
        self._process.start()
        for fd in here:
            os.close(fd)
        self.pid = self._process.pid
        end = time.monotonic() + _LONGEST_START_S
        with contextlib.suppress(ProcessLookupError):  # it may be over already
            while session and os.getpgid(self.pid) != self.pid:
                if time.monotonic() > end:
                    raise AssertionError(f"the fork has no session of its own after {_LONGEST_START_S} s")
                time.sleep(_LOOK_S)

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Returns the exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, None]:
        """Read what it prints, up to its end."""
        said = self.stdout.read()
        self.wait(timeout)
        return said, None


class _Fd:
    """An open file that the fork is given too: it arrives there as a number."""

    def __init__(self, fd: int):
        self._fd = fd

    def __reduce__(self):
        return _arrived, (reduction.DupFd(self._fd),)


def _arrived(sent: Any) -> int:
    return sent.detach()


def _run(module: str, arguments: list[str], env: dict[str, str], session: bool, streams: list[int]) -> None:
    """In the fork."""
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(ROOT)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    # Those of the process that forks may have been made for other files.
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in enumerate("rww"))
    sys.argv = [module, *arguments]
    code: object = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException as failed:
        code = -signal.SIGINT if isinstance(failed, KeyboardInterrupt) else 1
        traceback.print_exception(failed.with_traceback(failed.__traceback__.tb_next))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):  # it may be closed already
            stream.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code if isinstance(code, int) else int(code is not None))
