"""What a file source's own log says of a batch. Pure. DRIVER.

    v1
    {"path":"file:///in/a%20b.json","timestamp":1700000000000,"batchId":3}

Each position of the source is a number, whose entries stand in the file of that number; those of each tenth (unless it was set
otherwise) in ``<number>.compact``, after the entries of all earlier numbers. A batch may have several: a driver that died between
the source's log and Spark's leaves a number behind, which the next batch takes along.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from streamsink.protocol.positions import SourceFile

_NUMBER = re.compile(r'"batchId":(\d+)\}$')
# How much of a compacted file is read from its end, until it reaches back far enough: such a file grows with every file that was ever read.
_TAILS = tuple(64 * 1024 * 8**step for step in range(8))

# (path, how many bytes from the end at most) -> the bytes; None when there is no such file.
Read = Callable[[str, int | None], bytes | None]


def of_batch(read: Read, folder: str, start: Any, end: Any) -> tuple[str, tuple[SourceFile, ...] | None]:
    """(digest of the entries, the files) of the batch between these positions of the source whose log is in ``folder``.

    The files are None where the source is none of files, or its log is not understood; the digest is empty for other sources.
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
    # A batch that moves on reads something: else this log is not the one that Spark reads.
    return digest, files if files or before >= last else None


def _number(position: Any) -> int | None:
    number = position.get("logOffset") if isinstance(position, dict) and set(position) == {"logOffset"} else None
    return number if isinstance(number, int) else None


def _lines(read: Read, folder: str, before: int, last: int) -> list[str] | None:
    """Entries of the numbers after ``before`` up to ``last``, in order; None when one of them is not there."""
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
        lines = data.decode(errors="replace").split("\n")[1:]  # without the version, or the line that is cut
        if len(data) < size or lines and _of(lines[0]) <= before:
            return _after(lines, before)
    return None


def _after(lines: Sequence[str], before: int) -> list[str]:
    return [line for line in lines if _of(line) > before]


def _of(line: str) -> int:
    found = _NUMBER.search(line)
    return int(found[1]) if found else -1
