"""Processes that take a lock, for tests that race, kill and pause them."""

import os
import signal
import time

from streamsink.locks.configured import lock_of
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import SinkOptions
from tests.locks import replacing


def make(root: str, settings: dict, clock=None):
    """The lock of the table at ``root``."""
    return lock_of(root, SinkOptions.of(root, settings), clock)


def increment(root: str, settings: dict, folder: str, times: int) -> None:
    """Add one to a counter that nothing except the lock protects; a mark shows whether anyone else is inside."""
    lock = make(root, settings)
    counter, mark = f"{folder}/counter", f"{folder}/inside"
    for _ in range(times):
        with lock.acquire() as lease:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            lease.check()
            with open(counter) as stream:
                value = int(stream.read())
            time.sleep(0.001)
            with open(counter, "w") as stream:
                stream.write(str(value + 1))
            with open(f"{folder}/tokens", "a") as stream:
                stream.write(f"{lease.token}\n")
            os.unlink(mark)


def hold_and_say(root: str, settings: dict, said) -> None:
    """Take the lock, send the token and a time before the lease began, and wait to be killed."""
    lock, before = make(root, settings), time.monotonic()
    with lock.acquire() as lease:
        said.send(lease.token)
        said.send(before)
        signal.pause()


def hold_then_check(root: str, settings: dict, said) -> None:
    """Take the lock, send the token, and be stopped by the test at the first recv; then check, and send the result."""
    with make(root, settings).acquire() as lease:
        said.send(lease.token)
        said.recv()
        try:
            lease.check()
            said.send("still ours")
        except Exception as fenced:
            said.send(f"{type(fenced).__name__} {fenced.kind}")


def create_names(root: str, settings: dict, folder: str, me: str, names: int) -> list[str]:
    """Create ``owner-0`` and the following names in a store that replaces, under the lock.
    Sends those that were won."""

    class Slow(replacing.ReplacingFileIO):
        def create_new(self, path, data, unique="", *, prepared=False, replaceable=False):
            time.sleep(0.01)  # Anyone else who looks meanwhile takes the name for free.
            return super().create_new(path, data, unique, prepared=prepared, replaceable=replaceable)

    ready = replacing.store()
    store = under_lock(Slow(ready._calls, ready._new_id, False), root, SinkOptions.of(root, settings))
    return [f"owner-{n}" for n in range(names) if store.create_if_absent(f"{folder}/owner-{n}", me.encode())]
