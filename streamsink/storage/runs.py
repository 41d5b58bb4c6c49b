"""Which bounded runs are published: a file for each, whose name is the run's id, kept longer than the run's record."""

import os
from collections.abc import Sequence

from streamsink.storage.file_io import FileIO


class Runs:
    """Of one journal."""

    def __init__(self, file_io: FileIO, folder: str):
        self._io = file_io
        self._folder = folder

    def mark(self, run: str) -> None:
        """Durable when this returns. Idempotent."""
        self._io.mark(os.path.join(self._folder, run))
        self._io.sync_dir(self._folder)

    def knows(self, run: str) -> bool:
        return self._io.exists(os.path.join(self._folder, run))

    def names(self) -> list[str]:
        """All of them."""
        return self._io.names(self._folder)

    def forget(self, runs: Sequence[str]) -> None:
        """They do not count as published any more. Durable when this returns. Idempotent."""
        for run in runs:
            self._io.delete(os.path.join(self._folder, run))
        if runs:
            self._io.sync_dir(self._folder)
