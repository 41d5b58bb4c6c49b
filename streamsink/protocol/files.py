"""Files as positions: which files of a batch have been recorded before. Pure.

A file is its path with its time of modification: a path alone is a name, under which another file may stand later. What is kept
of a file is an entry of 20 bytes, whose parts are compared from left to right:

    8  digest of the file's own name and its time
    8  digest of its whole path and its time
    4  the source of the query that read it: two sources that read one folder make different rows of one file
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import SourceFile, SourceRange

_NAME, _FILE, ENTRY_BYTES = 8, 16, 20
_LOCAL = re.compile(r"^file:/+")


def spelling(path: str) -> str:
    """One spelling of a path on a local disk, whose slashes Spark does not always write in the same number."""
    return _LOCAL.sub("file:///", path)


def entries(sources: Sequence[SourceRange]) -> bytes | None:
    """What is kept of all files of a batch, one entry after another; None when not every source of it tells its files."""
    if not sources or any(source.files is None for source in sources):
        return None
    return b"".join(_entry(file, place, source.name) for place, source in enumerate(sources) for file in source.files)


def recorded_files(batch: Batch, last: AppState | None) -> bytes | None:
    """What the record of the batch keeps of its files. None too for the first batch of a checkpoint with a past: its files before
    that are in no record."""
    return entries(batch.sources) if last is not None or batch.batch_id == 0 else None


def _entry(file: SourceFile, place: int, source: str) -> bytes:
    """source: its name; its place counts where it has none."""
    path = spelling(file.path)
    name = path.rpartition("/")[2]
    digests = (hashlib.sha256(f"{file.modified_ms}|{text}".encode()).digest()[:_NAME] for text in (name, path))
    which = hashlib.sha256(source.encode()).digest()[:ENTRY_BYTES - _FILE] if source else place.to_bytes(ENTRY_BYTES - _FILE, "big")
    return b"".join(digests) + which


class _Is(Enum):
    """HERE: recorded. ELSEWHERE: recorded from another source of the query. MOVED: its name and time are, under another path."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    MOVED = "moved"
    NEW = "new"


class KnownFiles:
    """All files that an application's records were made of; looking one up costs the same however many they are, but for a logarithm."""

    def __init__(self, recorded: bytes):
        """recorded: their entries, in any order."""
        self._sorted = _in_order(recorded)

    def __len__(self) -> int:
        return len(self._sorted) // ENTRY_BYTES

    def look_up(self, entry: bytes, alone: bool) -> _Is:
        """alone: the query has one source, so whichever read the file gave its rows."""
        if self._has(entry) or alone and self._has(entry[:_FILE]):
            return _Is.HERE
        if self._has(entry[:_FILE]):
            return _Is.ELSEWHERE
        return _Is.MOVED if self._has(entry[:_NAME]) else _Is.NEW

    def _has(self, beginning: bytes) -> bool:
        return self._at(bisect_left(range(len(self)), beginning, key=self._at)).startswith(beginning)

    def _at(self, number: int) -> bytes:
        """Nothing after the last one."""
        return self._sorted[number * ENTRY_BYTES:(number + 1) * ENTRY_BYTES]


def _in_order(recorded: bytes) -> bytes:
    """Arrow sorts a million of them in half a second, and makes no object of each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not recorded:
        return recorded
    entries = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(ENTRY_BYTES), len(recorded) // ENTRY_BYTES, [None, pa.py_buffer(recorded)]
    )
    ordered = entries.take(pc.array_sort_indices(entries))
    return ordered.buffers()[1].to_pybytes()[:len(recorded)]


@dataclass(frozen=True)
class Parts:
    """Paths of a batch's files. seen: recorded before. new: not. unclear: rows of such a path may be either. moved: how many of the
    new ones have the name and time of a recorded file in another folder.
    """

    seen: frozenset[str]
    new: frozenset[str]
    unclear: tuple[str, ...]
    moved: int


def can_tell(batch: Batch) -> bool:
    """Whether the rows of the batch are those of files that its sources tell: not when they come out of state."""
    told = [source.files for source in batch.sources]
    return not batch.stateful and None not in told and any(told)


def accepted_as_new(batch: Batch, last: AppState | None, known_files: Callable[[], KnownFiles | None]) -> tuple[bool, bool]:
    """(whether the files recorded before it do not count any more, whether later batches are to be asked) once a batch was accepted.

    Under another checkpoint all that follows is new as well. Within one it was this batch alone, where files tell the others apart.
    """
    if last is None or batch.query != last.query:
        return batch.batch_id != END_OF_INPUT, False
    in_replay = last.replaying or batch.batch_id <= last.checkpoint_id
    return False, in_replay and can_tell(batch) and known_files() is not None


def sort_out(sources: Sequence[SourceRange], known: KnownFiles) -> Parts:
    """Each file of the batch, of which every source tells its files."""
    found: dict[_Is, set[str]] = {kind: set() for kind in _Is}
    for place, source in enumerate(sources):
        for file in source.files:
            found[known.look_up(_entry(file, place, source.name), len(sources) == 1)].add(spelling(file.path))
    seen, new = found[_Is.HERE], found[_Is.NEW] | found[_Is.MOVED]
    return Parts(frozenset(seen), frozenset(new), tuple(sorted(found[_Is.ELSEWHERE] | seen & new)), len(found[_Is.MOVED]))


def check(batch: Batch, parts: Parts, options: SinkOptions, *, table: str, word: str, other: bool) -> None:
    """Raises Misuse, with the ways on, when the files do not decide what is to be written.

    word: the token. other: the batch before this one is of another checkpoint.
    """
    happened = f"{table}: the checkpoint was deleted, replaced or restored from an older copy, and batch {batch.batch_id} of {batch.query}"
    ways = (
        f"accept_as_new='{word}' writes all rows of this batch{' and of all batches after it' if other else ''}, "
        f"accept_as_seen='{word}' records it without writing any"
    )
    if parts.unclear:
        raise Misuse(
            f"{happened} holds {len(parts.unclear)} files (first: {parts.unclear[0]}) that one source of the query has read and another "
            "one, which reads them too, has not, so a row's file does not tell whether the row is here. Nothing was written. Choose: "
            f"{ways}",
            kind="files.other-source",
        )
    if parts.moved and not parts.seen:
        raise Misuse(
            f"{happened} holds no file that is recorded, but {parts.moved} with the name and time of modification of a recorded one in "
            "another folder: the folder was moved or copied, or its path is spelled in another way, and then their rows are here. "
            f"Nothing was written. Read the folder under its first path, with a new checkpoint; or choose: {ways}",
            kind="files.moved",
        )
    if parts.seen and parts.new and batch.combines:
        raise Misuse(
            f"{happened} holds {len(parts.seen)} files whose rows are here and {len(parts.new)} whose rows are not, and the batch function has "
            f"made rows of several ({batch.combines}) before it called the sink, so that no row's file tells whether it is new. Nothing was written. "
            "Start a new checkpoint whose batches read one file each (maxFilesPerTrigger=1) until it is past the files that are here: a batch of "
            f"such a file alone is taken as seen, and one of a new file alone is written. Or choose: {ways}",
            kind="files.combined",
        )
    if parts.seen and parts.new and not options.file_column:
        raise Misuse(
            f"{happened} holds {len(parts.seen)} files whose rows are here and {len(parts.new)} whose rows are not. Nothing was written. "
            "Select _metadata.file_path among the columns, name it in the option file_column, and set "
            f"accept_as_same='{word}', because the query changes by that: then the rows of the new files are written, each once. "
            f"Or choose: {ways}",
            kind="files.overlap",
        )
