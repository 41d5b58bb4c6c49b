"""What the servers of the tests have in common:
a port that stays the same over restarts, readiness, and an end by process id."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.services import process
from tests.services.ports import free_ports
from tools.common import cache_dir, locked

MAKE_TIMEOUT_S = 300
START_ATTEMPTS = 3  # Another process may take a free port before the server does.
# On a busy machine the children of a killed server end a while after it, and what they hold is free then.
AGAIN_ATTEMPTS, AGAIN_S = 20, 1.0


class ServerError(Exception):
    """The server does not start; the message holds the end of its log."""


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder or file in the cache that takes seconds to make:
    ``make(path)`` makes it the first time, and tests copy it."""
    made = cache_dir() / name
    with locked(made.with_name(f"{name}.lock")):
        if not made.exists():
            scratch = made.with_name(f"{name}.tmp")
            shutil.rmtree(scratch, ignore_errors=True)
            make(scratch)
            scratch.rename(made)
    return made


def run(what: str, command: list, **options) -> None:
    """Run a program of the server's that makes something. Raises ServerError with what it said."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=MAKE_TIMEOUT_S, **options
    )
    if done.returncode:
        raise ServerError(f"{what}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


class Server:
    """A server whose data is in `data_dir`. A second start on the same folder keeps the data. A context manager."""

    stop_signal = signal.SIGTERM
    ports = 1
    ready_timeout_s = 120

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(data_dir)
        self.log = self.data_dir / "server.log"
        self._ports: list[int] = []
        self._process: subprocess.Popen | None = None

    @property
    def port(self) -> int:
        return self._ports[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    def prepare(self) -> None:
        """Make what a start needs below `data_dir`; the ports are known by then. Idempotent."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        return None

    def answers(self) -> bool:
        """Whether the server serves."""
        raise NotImplementedError

    def start(self):
        """Start the server and return when it answers. Raises ServerError with the end of the log."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        fresh = not self._ports
        for attempt in range(START_ATTEMPTS if fresh else AGAIN_ATTEMPTS):
            if attempt and not fresh:
                time.sleep(AGAIN_S)
            if fresh:
                self._ports = free_ports(self.ports)
            self.prepare()
            self._process = process.spawn(self.command(), self.log, self.environment())
            if self._wait_until_ready():
                return self
            self.kill()
        raise ServerError(f"{type(self).__name__} does not start; the end of {self.log}:\n{process.tail(self.log)}")

    def stop(self) -> None:
        """End the server in order. Idempotent."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(self.stop_signal)
            try:
                self._process.wait(process.STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Send SIGKILL. Idempotent."""
        if self._process:
            process.kill(self._process)

    def restart(self):
        """End and start the server again on the same data and port."""
        self.stop()
        return self.start()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_) -> None:
        self.stop()

    def _wait_until_ready(self) -> bool:
        end = time.monotonic() + self.ready_timeout_s
        while time.monotonic() < end and self._process.poll() is None:
            if self.answers():
                # Another server on that port may have answered while ours died.
                return self._process.poll() is None
            time.sleep(0.1)
        return False


class Database(Server):
    """A server that serves when it accepts a connection of Python's driver."""

    def connect(self):
        """A connection that commits by itself. Raises OSError when the server does not serve."""
        raise NotImplementedError

    def answers(self):
        try:
            self.connect().close()
        except OSError:
            return False
        return True
