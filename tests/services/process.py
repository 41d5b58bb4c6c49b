"""One child process that ends when the tests end, whatever ends them."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

STOP_TIMEOUT_S = 60
PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    """Runs in the child: even a killed test process leaves no server behind."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(
    command: list[str], log: Path, env: dict[str, str] | None = None, folder: Path | None = None
) -> subprocess.Popen:
    """Start `command`, its output appended to `log`.

    folder: where it works; it is then the first of a process group of its own, which can be ended with it.
    """
    # The signal is tied to the thread that starts the child, so only the main thread may ask for it.
    main_thread = threading.current_thread() is threading.main_thread()
    hook = _die_with_parent if _LIBC and main_thread else None
    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env or dict(os.environ),
            preexec_fn=hook,
            cwd=folder,
            start_new_session=folder is not None,
        )


def stop(process: subprocess.Popen) -> None:
    """Send SIGTERM, and SIGKILL when that is not obeyed. Idempotent."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            kill(process)


def kill(process: subprocess.Popen) -> None:
    """Send SIGKILL, which is what a power cut looks like to the server. Idempotent."""
    if process.poll() is None:
        process.kill()
    process.wait(STOP_TIMEOUT_S)


def children(pid: int) -> list[int]:
    """The ids of the processes that it has started and that run now. Empty where there is no /proc."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue  # the thread has ended meanwhile
    return found


def tail(log: Path, lines: int = 30) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
