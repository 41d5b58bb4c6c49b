"""Which files an application's records were made of, kept when the records themselves are not retained any more.

    files-<level>-<first>-<last>   of these records, never changed: a header line; how many entries each record has
                                   (4 bytes each, little endian); the entries (``protocol/file_entries.py``), record by
                                   record

A record keeps its own entries. Before the first record that is in no such file is deleted, up to 64 records are merged
into one file of level 0; 64 files of one level become one of the next. So a batch costs the same however many records
there are, and the files are read only when admission asks.

A journal with records that tell no files, or with a hole, does not know them all, and keeps nothing. The entries of
records that are given up are cut off, because their numbers are given again.
"""

import hashlib
import itertools
import json
import os
import re
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamsink import shell
from streamsink.errors import Corrupt
from streamsink.protocol.committable import Committable
from streamsink.protocol.file_entries import ENTRY_BYTES, SHORT_BYTES, lengthened
from streamsink.protocol.recorded_files import KnownFiles
from streamsink.storage.file_io import FileIO

_NAME = re.compile(r"files-(\d+)-(\d+)-(\d+)")
_FORMAT = "streamsink-files"
# By version: whether the file says how many entries each record has, and the length of an entry. Earlier code wrote
# versions 1 and 2; entries that it has not counted stay uncounted.
_VERSIONS = {1: (False, SHORT_BYTES), 2: (True, SHORT_BYTES), 3: (True, ENTRY_BYTES), 4: (False, ENTRY_BYTES)}
_COUNTED, _UNCOUNTED = 3, 4
_COUNT_BYTES = 4
_LOT, _LEVELS = 64, 10
# A record or file may be merged with others between the listing and the reading of it.
_ATTEMPTS = 3

Load = Callable[[int], Committable | None]


@dataclass(frozen=True)
class Segment:
    """One such file, which has the entries of the records ``first`` to ``last``."""

    level: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"files-{self.level}-{self.first}-{self.last}"


@dataclass(frozen=True)
class Part:
    """What one such file says.

    counts: how many entries each record has; None where earlier code did not write that down. entries: of all records,
    in order.
    """

    counts: tuple[int, ...] | None
    entries: bytes

    @classmethod
    def of(cls, records: Sequence[bytes]) -> "Part":
        """The part of these records, in order. records: the entries of each."""
        return cls(tuple(len(entries) // ENTRY_BYTES for entries in records), b"".join(records))

    @classmethod
    def joined(cls, parts: Sequence["Part"]) -> "Part":
        """One part for several that follow each other; it is counted if all of them are."""
        counted = [part.counts for part in parts if part.counts is not None]
        counts = tuple(itertools.chain.from_iterable(counted)) if len(counted) == len(parts) else None
        return cls(counts, b"".join(part.entries for part in parts))

    def first(self, records: int) -> "Part | None":
        """The part of its first ``records`` records; None when the entries were not counted."""
        if self.counts is None:
            return None
        counts = self.counts[:records]
        return Part(counts, self.entries[: sum(counts) * ENTRY_BYTES])

    def encode(self) -> bytes:
        """The bytes of the file: the header line, the counts, the entries."""
        counts = b"" if self.counts is None else struct.pack(f"<{len(self.counts)}I", *self.counts)
        body, version = counts + self.entries, _UNCOUNTED if self.counts is None else _COUNTED
        header = {
            "format": _FORMAT,
            "version": version,
            "length": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        return json.dumps(header).encode() + b"\n" + body

    @classmethod
    def decode(cls, data: bytes, records: int) -> "Part | None":
        """Read a file of so many records; None when it is damaged, or has the counts of another number of records."""
        first, _, body = data.partition(b"\n")
        try:
            header = json.loads(first)
            whole = (header["format"], header["length"], header["sha256"]) == (
                _FORMAT,
                len(body),
                hashlib.sha256(body).hexdigest(),
            )
            kind = _VERSIONS.get(header["version"])
        except (ValueError, KeyError, TypeError):
            return None
        if not whole or kind is None:
            return None
        is_counted, width = kind
        at = records * _COUNT_BYTES if is_counted else 0
        if len(body) < at or (len(body) - at) % width:
            return None
        counts = struct.unpack(f"<{records}I", body[:at]) if is_counted else None
        entries = lengthened(body[at:]) if width == SHORT_BYTES else body[at:]
        return cls(counts, entries) if counts is None or sum(counts) * ENTRY_BYTES == len(entries) else None


class FilesLog:
    """The files of one journal. One thread asks (``known``) while another publishes."""

    def __init__(self, file_io: FileIO, folder: str, load: Load):
        """load: reads one record of the journal; None when it is gone."""
        self._io = file_io
        self._dir = folder
        self._load = load
        # Held during I/O, but only admission waits for it, after an accident.
        self._changing = threading.Lock()
        # Entries and ``files_from`` of the records that this process has marked and that are retained.
        self._recent: dict[int, tuple[bytes | None, int]] = {}
        self._segments: list[Segment] | None = None
        self._knows_all = True

    def published(self, committable: Committable) -> None:
        """This record is marked published. It is remembered, so that merging it with others need not read it."""
        self._recent[committable.state.sequence] = committable.source_files, committable.state.files_from

    # -- keeping ---------------------------------------------------------------------------------------------------

    def keep(self, take: Callable[[], tuple[Sequence[int], Sequence[int]]]) -> Sequence[int]:
        """Make durable elsewhere what records say that are about to be deleted. After a crash it is repeated.

        take: takes the records off the journal's list, and returns their numbers, and those of all published records,
        these among them; both in order. Returns the numbers of the records taken off.
        """
        with self._changing:
            doomed, published = take()
            if doomed and self._recent.get(published[-1], (b"", 0))[0] is None:
                # Nothing is read or listed for a source that tells no files.
                self._knows_all = False
            for _ in doomed:
                if not self._knows_all or self._covered() >= doomed[-1]:
                    break
                self._put_together(published)
            for sequence in doomed:
                self._recent.pop(sequence, None)
            return doomed

    def _put_together(self, published: Sequence[int]) -> None:
        """Merge the next records into a file of level 0.

        Where that is not possible, nothing is known for certain from then on.
        """
        first = self._covered() + 1
        lot = [s for s in published if first <= s < first + _LOT]
        found = [self._of(sequence) for sequence in lot]
        told = [entries for entries, _ in found if entries is not None]
        if not lot or lot != list(range(first, lot[-1] + 1)) or len(told) < len(found):
            self._knows_all = False
            return
        # Records that do not count any more are kept apart from those that do.
        start = max(since for _, since in found)
        count = start - first if first < start <= lot[-1] else len(lot)
        self._write(Segment(0, first, lot[count - 1]), Part.of(told[:count]))
        self._merge(start)

    def _merge(self, since: int) -> None:
        """Merge 64 files of one level whose entries count into one of the next. since: the first record that counts."""
        for level in range(_LEVELS):
            mine = [s for s in self._listed() if s.level == level and s.first >= since][:_LOT]
            if len(mine) < _LOT:
                return
            if all(a.last + 1 == b.first for a, b in itertools.pairwise(mine)):
                self._write(
                    Segment(level + 1, mine[0].first, mine[-1].last),
                    Part.joined([self._read(segment) for segment in mine]),
                )
                self._drop(mine)

    def _of(self, sequence: int) -> tuple[bytes | None, int]:
        known = self._recent.get(sequence)
        if known is None:
            record = self._load(sequence)
            known = (record.source_files, record.state.files_from) if record else (None, 0)
        return known

    def _write(self, segment: Segment, part: Part) -> None:
        # A driver that was paused may have made the same file of the same records.
        self._io.create_if_absent(self._path(segment), part.encode())
        self._segments = sorted({*self._listed(), segment}, key=_in_order)

    def _drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._io.delete(self._path(segment))
        self._segments = [segment for segment in self._listed() if segment not in segments]

    def cut(self, last: int) -> None:
        """Forget the records behind number ``last``: they are about to be deleted, and their numbers given again.

        Durable when the folder is synced. After a crash it is repeated, or has had no effect. A file by earlier code
        that did not count its entries cannot be divided, and is deleted as a whole.
        """
        with self._changing:
            found = self._found()
            self._segments = _outermost(found)
            for segment in [segment for segment in self._segments if segment.first <= last < segment.last]:
                part = self._read(segment).first(last + 1 - segment.first)
                if part is not None:
                    self._write(Segment(segment.level, segment.first, last), part)
            # Of all files found, also of those that a larger one hides.
            self._drop([segment for segment in found if segment.last > last])
            self._recent = {sequence: known for sequence, known in self._recent.items() if sequence <= last}

    # -- knowing ---------------------------------------------------------------------------------------------------

    def known(self, since: int, retained: Callable[[], Sequence[int]]) -> KnownFiles | None:
        """All files of the records from ``since`` on; None when a record from the first one on does not tell them.

        retained: the numbers of the records that are there. Raises Corrupt, OSError.
        """
        for attempt in range(_ATTEMPTS):
            with self._changing:
                try:
                    return self._gather(since, retained())
                except FileNotFoundError:
                    # Another driver, which was paused and goes on, has merged the file with others.
                    self._segments = None
                    if attempt == _ATTEMPTS - 1:
                        raise
        return None

    def _gather(self, since: int, retained: Sequence[int]) -> KnownFiles | None:
        covered = self._covered()
        rest = [sequence for sequence in retained if sequence > covered]
        if not self._knows_all or rest != list(range(covered + 1, covered + 1 + len(rest))):
            return None
        found = [self._of(sequence) for sequence in rest]
        told = [entries for entries, _ in found if entries is not None]
        if len(told) < len(found) or any(s.first < since <= s.last for s in self._listed()):
            return None
        parts = [self._read(segment).entries for segment in self._listed() if segment.first >= since]
        return KnownFiles(b"".join(parts + [entries for sequence, entries in zip(rest, told) if sequence >= since]))

    def _covered(self) -> int:
        """The number of the last record up to which all records are in such files."""
        covered = 0
        for segment in self._listed():
            if segment.first > covered + 1:
                break
            covered = max(covered, segment.last)
        return covered

    def _listed(self) -> list[Segment]:
        """The files that count, by their first record. The folder is listed on first use."""
        if self._segments is None:
            self._segments = _outermost(self._found())
        return self._segments

    def _found(self) -> list[Segment]:
        return [
            Segment(*map(int, match.groups())) for match in map(_NAME.fullmatch, self._io.names(self._dir)) if match
        ]

    def _read(self, segment: Segment) -> Part:
        path = self._path(segment)
        part = Part.decode(self._io.read(path), segment.last + 1 - segment.first)
        if part is None:
            raise Corrupt(
                f"{path}: the list of files that were read is damaged. Nothing was written. Restore the file "
                f"{shell.restore(path)}; or delete it {shell.discard(path)}: then it is not known which files are in "
                "the table, and after a lost checkpoint "
                "the sink asks instead of deciding by files",
                kind="journal.files",
            )
        return part

    def _path(self, segment: Segment) -> str:
        return os.path.join(self._dir, segment.name)


def _in_order(segment: Segment) -> tuple[int, int]:
    return segment.first, -segment.last


def _outermost(found: Sequence[Segment]) -> list[Segment]:
    """The files that count: all except those whose records are in a larger one.

    The writer of the larger one died before it deleted them.
    """
    chosen: list[Segment] = []
    for segment in sorted(found, key=_in_order):
        if not chosen or segment.last > chosen[-1].last:
            chosen.append(segment)
    return chosen
