"""Which bounded runs are published: a file for each, whose name is the run's id, kept longer than the run's record.

In it, in JSON, what the run was made of, the fingerprint of its plan and the number of its rows, and the id of the table that has them. An
older streamsink left it empty.
"""

import os
from collections.abc import Sequence

from streamsink.clock import IdSource
from streamsink.protocol.committable import KnownRun
from streamsink.protocol.positions import same_id
from streamsink.storage.file_io import FileIO


class Runs:
    """Of one journal."""

    def __init__(self, file_io: FileIO, folder: str):
        self._io = file_io
        self._folder = folder

    def mark(self, run: str, known: KnownRun) -> None:
        """Durable when this returns. Idempotent. After a crash its name may be there without what is in it.

        One of another table may be there: a driver made it that slept while its table was dropped, with its journal, and created anew.
        """
        path, said = os.path.join(self._folder, run), known.to_json()
        try:
            self._io.write(path, said)
        except FileExistsError:
            if not same_id(self.known(run).table_id, known.table_id):
                self._io.replace(path, said, IdSource().new_id())
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
