"""Files and folders that become durable together: a commit waits for the disk once, not once for each of them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO


@dataclass(frozen=True)
class Unflushed:
    """A file that was begun. finish: makes it whole and durable. give_up: lets go of it, whatever it holds; never raises."""

    finish: Callable[[], None]
    give_up: Callable[[], None]


class FlushGroup:
    """What is written here is durable when ``flush`` has returned. Until then nothing may be named that refers to any of it.

    A power failure in between leaves any part of it. A context: when its block raises, what is not flushed is given up (the files
    stay, for a sweep by name). For one thread.
    """

    def __init__(self, file_io: Any):
        self._io = file_io
        self._files: list[Unflushed] = []
        self._folders: dict[str, None] = {}
        self._made: list[str] = []

    def write(self, path: str, data: bytes) -> None:
        """A new file of a unique name. Raises FileExistsError, OSError."""
        self._files.append(self._io.begin(path, data))

    def close(self, stream: BinaryIO) -> None:
        """A file of ``FileIO.open_output`` that is written: ``flush`` closes it."""
        self._files.append(self._io.unflushed(stream))

    def sync_dir(self, path: str) -> None:
        """Names in this folder, when ``flush`` is called, shall be durable too."""
        self._folders[path] = None

    def made_dir(self, path: str) -> None:
        """This folder was made just now: its own name shall be durable too."""
        self.sync_dir(os.path.dirname(path))
        self._made.append(path)

    def flush(self) -> None:
        """Make all of it durable, in no order. Raises the first error; then nothing is known to be durable."""
        actions = [file.finish for file in self._files] + [
            partial(self._io.sync_dir, folder) for folder in self._folders
        ]
        try:
            self._io.at_once(actions)
            for folder in self._made:
                self._io.settled(folder)
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Let go of what is not flushed. Idempotent; never raises."""
        files, self._files, self._folders, self._made = self._files, [], {}, []
        for file in files:
            file.give_up()

    def __enter__(self) -> "FlushGroup":
        return self

    def __exit__(self, *raised: object) -> None:
        self.give_up()
