"""What every set-up step shares: where things are kept, one lock a thing, retries, and errors that say what to do."""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_SPARK = "4.1.3"
# The pause between the attempts of a step that needs the network, which is often away for some seconds.
RETRY_PAUSES_S = (3, 10, 30)
ATTEMPTS = len(RETRY_PAUSES_S) + 1


class SetupError(Exception):
    """The machine cannot be prepared; the message says what is missing."""


def say(message: str) -> None:
    """Print progress to stderr: stdout belongs to results."""
    print(f"[setup] {message}", file=sys.stderr, flush=True)


def cache_dir() -> Path:
    """The folder for what several checkouts share (jars, Java): $STREAMSINK_CACHE, else ~/.cache/streamsink."""
    path = Path(os.environ.get("STREAMSINK_CACHE") or Path.home() / ".cache" / "streamsink").absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def checkout_cache() -> Path:
    """The folder for what belongs to this checkout alone (virtual environments and what is tied to their paths)."""
    path = ROOT / ".cache"
    path.mkdir(exist_ok=True)
    return path


@contextlib.contextmanager
def locked(path: Path):
    """Let one process at a time prepare one thing. The kernel frees the lock of a process that dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_atomically(path: Path, text: str) -> None:
    """Write so that a reader without the lock sees the old content or the new, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def read_json(path: Path) -> dict | None:
    """The object in the file, or None when it is missing or damaged:
    a cache entry that cannot be read is made again."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def run_retrying(command: list, what: str, env: dict | None = None) -> None:
    """Run `command`; try again after a pause, since registries and networks hiccup.
    Raises SetupError after the last try."""
    for attempt in range(1, ATTEMPTS + 1):
        # stdout joins stderr, because the only thing on our stdout is the result of the whole call.
        code = subprocess.run(
            [str(part) for part in command], env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr
        ).returncode
        if code == 0:
            return
        if attempt < ATTEMPTS:
            say(f"{what}: exit code {code}, attempt {attempt} of {ATTEMPTS}; trying again")
            time.sleep(RETRY_PAUSES_S[attempt - 1])
    raise SetupError(f"{what} failed {ATTEMPTS} times; the last command was: {' '.join(str(part) for part in command)}")
