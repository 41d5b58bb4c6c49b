"""What a file source's own log says of a batch. Pure; runs on the driver.

    v1
    {"path":"file:///in/a%20b.json","timestamp":1700000000000,"batchId":3}

Each position of the source is a number, and its entries are in the file of that number. Those of each tenth number
(unless the interval was set otherwise) are in ``<number>.compact``, after the entries of all earlier numbers. A batch
may have several numbers: a driver that died between writing the source's log and writing Spark's log leaves a number
behind, which the next batch takes along.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from streamsink.protocol.positions import SourceFile

_NUMBER = re.compile(r'"batchId":(\d+)\}$')
# How many bytes are read from the end of a compacted file, one after another until they reach back far enough. Such a
# file grows with every file that was ever read.
_TAILS = tuple(64 * 1024 * 8**step for step in range(8))

# Read is called with (path, the most bytes to read from the end, or None for all); it returns the bytes, or None when
# there is no such file.
Read = Callable[[str, int | None], bytes | None]


def of_batch(read: Read, folder: str, start: Any, end: Any) -> tuple[str, tuple[SourceFile, ...] | None]:
    """Return (digest of the entries, the files) of the batch between these two positions of a source.

    read: reads a file of the log. folder: of the source's log. start, end: the positions as Spark's offset log has
    them.

    The files are None where the source reads no files, or its log is not understood. The digest is empty for sources of
    other kinds.
    """
    if end is None:
        return "", ()
    last, first = _number(end), _number(start)
    if last is None:
        return "", None
    before = -1 if first is None else first
    lines = _lines(read, folder, min(before, last - 1), last)
    digest = hashlib.sha256("\n".join(lines or ()).encode()).hexdigest()[:32]
    if lines is None:
        return digest, None
    try:
        entries = [json.loads(line) for line in lines]
        files = tuple(SourceFile(str(e["path"]), int(e["timestamp"])) for e in entries if e["batchId"] > before)
    except (ValueError, KeyError, TypeError):
        return digest, None
    # A batch that moves on reads something. If it has no files, this log is not the one that Spark reads.
    return digest, files if files or before >= last else None


def _number(position: Any) -> int | None:
    number = position.get("logOffset") if isinstance(position, dict) and set(position) == {"logOffset"} else None
    return number if isinstance(number, int) else None


def _lines(read: Read, folder: str, before: int, last: int) -> list[str] | None:
    """The entries of the numbers after ``before`` up to ``last``, in order; None when one of the numbers is missing."""
    found: list[str] = []
    for number in range(last, before, -1):
        data = read(f"{folder}/{number}", None)
        if data is None:
            compacted = _compacted(read, f"{folder}/{number}.compact", before)
            return None if compacted is None else compacted + found
        found = [line for line in data.decode().split("\n")[1:] if _of(line) == number] + found
    return found


def _compacted(read: Read, path: str, before: int) -> list[str] | None:
    for size in _TAILS:
        data = read(path, size)
        if data is None:
            return None
        # The first line is the version, or a part of a line.
        lines = data.decode(errors="replace").split("\n")[1:]
        if len(data) < size or lines and _of(lines[0]) <= before:
            return _after(lines, before)
    return None


def _after(lines: Sequence[str], before: int) -> list[str]:
    return [line for line in lines if _of(line) > before]


def _of(line: str) -> int:
    found = _NUMBER.search(line)
    return int(found[1]) if found else -1
