"""Which bounded runs are published: a file for each, whose name is the run's id, kept longer than the run's record.

In it, in JSON, what the run was made of: the fingerprint of its plan and the number of its rows. An older streamsink left it empty.
"""

import contextlib
import os
from collections.abc import Sequence

from streamsink.protocol.committable import KnownRun
from streamsink.storage.file_io import FileIO


class Runs:
    """Of one journal."""

    def __init__(self, file_io: FileIO, folder: str):
        self._io = file_io
        self._folder = folder

    def mark(self, run: str, known: KnownRun) -> None:
        """Durable when this returns. Idempotent. After a crash its name may be there without what is in it."""
        with contextlib.suppress(FileExistsError):
            self._io.write(os.path.join(self._folder, run), known.to_json())
        self._io.sync_dir(self._folder)

    def known(self, run: str) -> KnownRun:
        """is_published says whether it is marked."""
        try:
            return KnownRun.from_json(self._io.read(os.path.join(self._folder, run)))
        except FileNotFoundError:
            return KnownRun(False)

    def names(self) -> list[str]:
        """All of them."""
        return self._io.names(self._folder)

    def forget(self, runs: Sequence[str]) -> None:
        """They do not count as published any more. Durable when this returns. Idempotent."""
        for run in runs:
            self._io.delete(os.path.join(self._folder, run))
        if runs:
            self._io.sync_dir(self._folder)
