"""Which bounded runs are published: a file for each run and table, named by the run's id, kept longer than its record.

The file says as JSON what the run was made of (the fingerprint of its plan, the number of its rows), and the id of the
table that has the rows. An older streamsink left it empty.
"""

import contextlib
import os
from collections.abc import Sequence

from streamsink.protocol.committable import KnownRun
from streamsink.protocol.positions import same_id
from streamsink.storage.file_io import FileIO


class Runs:
    """The marks of published runs in one journal."""

    def __init__(self, file_io: FileIO, folder: str):
        self._io = file_io
        self._folder = folder

    def mark(self, run: str, known: KnownRun) -> None:
        """Mark a run as published. Durable when this returns. Idempotent.

        After a crash the file may be there without its content. A mark of the same run for another table may be there:
        a driver made it that was paused while its table was dropped, with its journal, and created anew; or this driver
        is the one that was paused. So each table has marks of its own.
        """
        folder, said = self._folder, known.to_json()
        try:
            self._io.write(os.path.join(folder, run), said)
        except FileExistsError:
            if not same_id(self._read(folder, run).table_id, known.table_id):
                folder = self._folder_of(known.table_id)
                with contextlib.suppress(FileExistsError):
                    self._io.write(os.path.join(folder, run), said)
        self._io.sync_dir(folder)

    def known(self, run: str, table_id: str) -> KnownRun:
        """What is known of a run. Its ``is_published`` says whether it is marked for this table."""
        found = self._read(self._folder, run)
        return found if same_id(found.table_id, table_id) else self._read(self._folder_of(table_id), run)

    def names(self) -> list[str]:
        """The ids of all marked runs, of every table."""
        return sorted({name for folder in self._folders() for name in self._io.names(folder)})

    def forget(self, runs: Sequence[str]) -> None:
        """These runs no longer count as published, in any table. Durable when this returns. Idempotent."""
        for folder in self._folders() if runs else ():
            for run in runs:
                self._io.delete(os.path.join(folder, run))
            with contextlib.suppress(FileNotFoundError):  # the folder is made with its first mark
                self._io.sync_dir(folder)

    def _read(self, folder: str, run: str) -> KnownRun:
        try:
            return KnownRun.from_json(self._io.read(os.path.join(folder, run)))
        except FileNotFoundError:
            return KnownRun(False)

    def _folder_of(self, table_id: str) -> str:
        """The folder of a table whose mark of a run came second."""
        return f"{self._folder}-{table_id}"

    def _folders(self) -> list[str]:
        journal, name = os.path.split(self._folder)
        return [
            self._folder,
            *(os.path.join(journal, each) for each in self._io.names(journal) if each.startswith(f"{name}-")),
        ]
