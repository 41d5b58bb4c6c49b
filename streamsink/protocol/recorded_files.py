"""The files that an application's records were made of, and how a file of a batch compares with them. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from typing import Final

from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.file_entries import ENTRY_BYTES, FILE, KNOWN_BYTES, NAME, entry, path_of, paths_of
from streamsink.protocol.positions import SourceRange

# A path's digest as a number, for ``memoryview.cast``.
_PATH_TYPE: Final = "q"


def entries(sources: Sequence[SourceRange]) -> bytes | None:
    """What is kept of all files of a batch: their entries, one after another.

    None when not every source of the batch tells its files.
    """
    found: list[bytes] = []
    for place, source in enumerate(sources):
        if source.files is None:
            return None
        found += (entry(file, place, source.name) for file in source.files)
    return b"".join(found) if sources else None


def recorded_files(batch: Batch, last: AppState | None) -> bytes | None:
    """What the record of a batch keeps of its files, as ``entries`` returns it.

    None too for the first batch of a checkpoint with a past: the files before it are in no record.
    """
    return entries(batch.sources) if last is not None or batch.batch_id == 0 else None


class FileIs(Enum):
    """How a file compares with the recorded ones.

    HERE: it is recorded. ELSEWHERE: it is recorded, from another source of the query. RETIMED: its path is recorded
    with another time. MOVED: its name and time are recorded under another path. NEW: none of these.
    """

    HERE = "here"
    ELSEWHERE = "elsewhere"
    RETIMED = "retimed"
    MOVED = "moved"
    NEW = "new"


class KnownFiles:
    """All files that an application's records were made of.

    The cost of looking one up grows only with the logarithm of their number.
    """

    def __init__(self, recorded: bytes):
        """recorded: the entries of the files, in any order."""
        self._sorted = _in_order(recorded)
        # The digests of all paths, in order; made when the first file is not recorded.
        self._paths: memoryview[int] | None = None

    def __len__(self) -> int:
        return len(self._sorted) // ENTRY_BYTES

    def look_up(self, entry: bytes, alone: bool) -> FileIs:
        """How the file with this entry compares with the recorded ones.

        alone: the query has one source, so whichever source read the file made the same rows of it.
        """
        if self._has(entry[:KNOWN_BYTES]) or alone and self._has(entry[:FILE]):
            return FileIs.HERE
        if self._has(entry[:FILE]):
            return FileIs.ELSEWHERE
        if self._has_path(path_of(entry)):
            return FileIs.RETIMED
        return FileIs.MOVED if self._has(entry[:NAME]) else FileIs.NEW

    def _has_path(self, digest: bytes) -> bool:
        """Whether the path is recorded. Entries of earlier code do not tell theirs."""
        if self._paths is None:
            self._paths = _in_order_of_numbers(paths_of(self._sorted))
        [wanted] = memoryview(digest).cast(_PATH_TYPE)
        at = bisect_left(self._paths, wanted)
        return at < len(self._paths) and self._paths[at] == wanted

    def _has(self, beginning: bytes) -> bool:
        return self._at(bisect_left(range(len(self)), beginning, key=self._at)).startswith(beginning)

    def _at(self, number: int) -> bytes:
        """The entry with this number; empty after the last one."""
        return self._sorted[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES]


def _in_order(recorded: bytes) -> bytes:
    """Sort entries. Arrow sorts a million of them in half a second, and makes no Python object for each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not recorded:
        return recorded
    entries = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(ENTRY_BYTES), len(recorded) // ENTRY_BYTES, [None, pa.py_buffer(recorded)]
    )
    ordered = entries.take(pc.array_sort_indices(entries))
    return ordered.buffers()[1].to_pybytes()[: len(recorded)]


def _in_order_of_numbers(digests: bytes) -> "memoryview[int]":
    import pyarrow as pa
    import pyarrow.compute as pc

    if not digests:
        return memoryview(b"").cast(_PATH_TYPE)
    numbers = pa.Int64Array.from_buffers(pa.int64(), len(digests) // 8, [None, pa.py_buffer(digests)])
    ordered = numbers.take(pc.array_sort_indices(numbers))
    return memoryview(ordered.buffers()[1].to_pybytes()[: len(digests)]).cast(_PATH_TYPE)
