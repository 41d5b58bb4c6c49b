"""Which records and marks a journal has, as its driver knows it. One thread records while another publishes."""

import threading
from collections.abc import Collection, Sequence

from streamsink.storage.file_io import FileIO

# In a distant store so many old records are taken off at once, now and then.
_PRUNED_AT_ONCE = 16


class Listing:
    """The numbers of the records that are there, and of those that are marked. The lock is never held during I/O."""

    def __init__(self, file_io: FileIO, folder: str):
        """folder: of the journal."""
        self._io = file_io
        self._folder = folder
        self._lock = threading.Lock()
        self._sequences: list[int] = []
        self._marked: set[int] = set()
        # All names of the folder as of ``read``, until somebody takes them.
        self.names: Sequence[str] | None = None
        self._all: Sequence[str] = ()

    def read(self) -> None:
        """List what is in the store now. A mark without a record is none.

        Of a listing in several pages the names of marks come first. So a record may seem to be pending that is marked
        meanwhile, which the table tells.
        """
        self.names = self._all = self._io.names(self._folder)
        self._sequences = _numbers(self.names, "record-", ".json")
        self._marked = set(_numbers(self.names, "done-", "")) & set(self._sequences)

    def take_names(self) -> Sequence[str] | None:
        """All names of the folder as of the last ``read``, for who asks first; None for others, who look again."""
        names, self.names = self.names, None
        return names

    def hidden(self) -> list[str]:
        """Names of temporary files of creations; in a distant store as of the last ``read``."""
        names = self._all if self._io.is_distant else self._io.names(self._folder)
        return [name for name in names if name.startswith(".") and name.endswith(".tmp")]

    def numbers(self, prefix: str, suffix: str) -> list[int]:
        """The numbers in the names of the files in the folder that begin and end so."""
        return _numbers(self._io.names(self._folder), prefix, suffix)

    def last(self) -> int:
        """The newest record, 0 when there is none."""
        with self._lock:
            return self._sequences[-1] if self._sequences else 0

    def retained(self) -> list[int]:
        """All records, in order."""
        with self._lock:
            return list(self._sequences)

    def pending(self) -> list[int]:
        """Those without a mark, in order."""
        with self._lock:
            return [sequence for sequence in self._sequences if sequence not in self._marked]

    def is_marked(self, sequence: int) -> bool:
        """Whether the record is marked."""
        with self._lock:
            return sequence in self._marked

    def add(self, sequence: int) -> None:
        """This record was created."""
        with self._lock:
            self._sequences.append(sequence)

    def mark(self, sequence: int) -> None:
        """This record was marked."""
        with self._lock:
            self._marked.add(sequence)

    def remove(self, sequences: Collection[int]) -> None:
        """These records were deleted."""
        with self._lock:
            self._sequences = [sequence for sequence in self._sequences if sequence not in sequences]
            self._marked.difference_update(sequences)

    def take_beyond(self, retain: int) -> tuple[Sequence[int], Sequence[int]]:
        """Take the oldest published records off the list, except the newest ``retain`` of them. Pending ones stay.

        Returns the numbers of those taken off, and the numbers of all that were published before.
        """
        with self._lock:
            published = [sequence for sequence in self._sequences if sequence in self._marked]
            oldest: list[int] = []
            if len(self._marked) - retain < (_PRUNED_AT_ONCE if self._io.is_distant else 1):
                return oldest, published
            for sequence in self._sequences:
                if sequence not in self._marked or len(self._marked) - len(oldest) <= retain:
                    break
                oldest.append(sequence)
            self._sequences = self._sequences[len(oldest) :]
            self._marked.difference_update(oldest)
            return oldest, published


def _numbers(names: Sequence[str], prefix: str, suffix: str) -> list[int]:
    texts = [n[len(prefix) : len(n) - len(suffix)] for n in names if n.startswith(prefix) and n.endswith(suffix)]
    return sorted(int(t) for t in texts if t.isdigit())
