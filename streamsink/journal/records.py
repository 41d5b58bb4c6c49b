"""The records of one journal, read from their files. Driver only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from streamsink.journal.listing import Listing
from streamsink.journal.record_format import corrupt, decode_record
from streamsink.protocol.committable import Committable
from streamsink.storage.file_io import FileIO
from streamsink.storage.reading import Questions

# Records that are read ahead, and kept while a restart needs them; each has the size of its files' names.
_MOST_LOADED = 256


class Records:
    """Loads records, each of which is written once and never changed."""

    def __init__(self, file_io: FileIO, folder: str, application: str, listing: Listing, *, of_table: bool):
        """folder: of the journal. of_table: as of ``decode_record``."""
        self._io = file_io
        self._folder = folder
        self._application = application
        self._listing = listing
        self._of_table = of_table
        self._kept: dict[int, Committable] | None = None  # within ``loading``

    def path(self, sequence: int) -> str:
        """Path of the record of that number."""
        return os.path.join(self._folder, f"record-{sequence}.json")

    def load(self, sequence: int) -> Committable | None:
        """As ``Journal.load``."""
        kept = self._kept
        if kept is not None and sequence in kept:
            return kept[sequence]
        path = self.path(sequence)
        try:
            data = self._io.read(path)
        except FileNotFoundError:
            return None
        committable = decode_record(data, path, self._of_table)
        if committable.state.sequence != sequence or committable.application != self._application:
            raise corrupt(path, "it is the record of another checkpoint", self._of_table)
        if kept is not None and len(kept) < _MOST_LOADED:
            kept[sequence] = committable
        return committable

    @contextmanager
    def loading(self) -> Iterator[None]:
        """As ``Journal.loading``. Nobody removes or gives up a record meanwhile."""
        before, self._kept = self._kept, self._kept or {}
        try:
            with self._io.asking(self.questions()):
                yield
        finally:
            self._kept = before

    def questions(self) -> Questions:
        """What is asked about pending records, the one before them with its mark, and the last one."""
        pending, retained = self._listing.pending(), self._listing.retained()
        before = [s for s in retained if self._listing.is_marked(s)][-1:]
        wanted = sorted({*pending[:_MOST_LOADED], *before, *retained[-1:]})
        marks = tuple(os.path.join(self._folder, f"done-{s}") for s in before)
        return Questions(read=(*(self.path(s) for s in wanted if self._kept is None or s not in self._kept), *marks))
