"""Files and folders that become durable together, so that a commit waits for the disk once and not for each of them."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO


@dataclass(frozen=True)
class Unflushed:
    """A file that was begun.

    finish: makes the file whole and durable. give_up: closes it, whatever it contains by then; never raises.
    """

    finish: Callable[[], None]
    give_up: Callable[[], None]


class FlushGroup:
    """Files and folders that are durable once ``flush`` has returned.

    Until then nothing that refers to any of them may get its name: a power failure can leave any part of the group.
    As a context manager it gives up, at the end of the block, what was not flushed; the files stay for a sweep that
    finds them by name. One thread uses a group.
    """

    def __init__(self, file_io: Any):
        self._io = file_io
        self._files: list[Unflushed] = []
        self._folders: dict[str, None] = {}
        self._made: list[str] = []

    def write(self, path: str, data: bytes) -> None:
        """Write a new file of a unique name. Raises: FileExistsError, OSError."""
        self._files.append(self._io.begin(path, data))

    def close_on_flush(self, stream: BinaryIO) -> None:
        """Add a completely written file of ``FileIO.open_output``, which stays open until ``flush``."""
        self._files.append(self._io.unflushed(stream))

    def sync_dir(self, path: str) -> None:
        """Add a folder: the names that it has when ``flush`` is called become durable too."""
        self._folders[path] = None

    def made_dir(self, path: str) -> None:
        """Add a folder that was just made: its own name becomes durable too, unless somebody else has deleted it by
        then, or the folders above it, because nothing was in them.
        """
        self._folders.setdefault(os.path.dirname(path), None)
        self._made.append(path)

    def flush(self) -> None:
        """Make everything durable, in no particular order.

        Raises the first error; then none of it may be assumed durable.
        """
        actions = [file.finish for file in self._files] + [partial(self._sync, folder) for folder in self._folders]
        try:
            self._io.at_once(actions)
            for folder in self._made:
                self._io.settled(folder)
        finally:
            self.give_up()

    def _sync(self, folder: str) -> None:
        try:
            self._io.sync_dir(folder)
        except FileNotFoundError:
            if not any(os.path.dirname(made) == folder for made in self._made):
                raise
            # Whoever places a file makes it again, and the folders above it.

    def give_up(self) -> None:
        """Close and forget what is not flushed. Idempotent; never raises."""
        files, self._files, self._folders, self._made = self._files, [], {}, []
        for file in files:
            file.give_up()

    def __enter__(self) -> "FlushGroup":
        return self

    def __exit__(self, *raised: object) -> None:
        self.give_up()


def in_threads(actions: Sequence[Callable[[], None]], threads: int) -> None:
    """Run the actions concurrently, the first one in this thread. Raises the first error, after all have ended."""
    with contextlib.ExitStack() as all_ended:
        for action in actions[1:]:
            all_ended.callback(_begin(action, threads))
        for action in actions[:1]:
            action()


@functools.lru_cache(maxsize=2)
def _threads(process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of this process. ``process`` is its id, because a forked child has none of its parent's threads."""
    return ThreadPoolExecutor(threads, "streamsink-store")


def _begin(action: Callable[[], None], threads: int) -> Callable[[], None]:
    """Start the action in a thread. Returns a function that waits for its end and raises its error."""
    try:
        return _threads(os.getpid(), threads).submit(action).result
    except RuntimeError:
        # The interpreter is ending and starts no new threads, so the action runs when it is waited for.
        return action
