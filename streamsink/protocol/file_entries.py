"""What is kept of a file that a batch was read from: an entry of 28 bytes. Pure.

The parts of an entry, in order. Those before the last one are compared from left to right:

    8  digest of the file's own name and its time
    8  digest of its whole path and its time
    4  the source of the query that read it: two sources that read one folder make different rows of one file
    8  digest of its whole path alone; zeros in an entry of earlier code, which had the first 20 bytes only
"""

import hashlib
import re

from streamsink.protocol.positions import SourceFile

NAME, FILE, KNOWN_BYTES, ENTRY_BYTES = 8, 16, 20, 28
# The length of an entry of earlier code.
SHORT_BYTES = 20
_LOCAL = re.compile(r"^file:/+")


def spelling(path: str) -> str:
    """One spelling of a path on a local disk: Spark does not always write the same number of slashes in front of it."""
    return _LOCAL.sub("file:///", path)


def entry(file: SourceFile, place: int, source: str) -> bytes:
    """The entry of a file. place, source: of the source that read it; the place counts only where the name is empty."""
    path = spelling(file.path)
    name, width = path.rpartition("/")[2], KNOWN_BYTES - FILE
    which = hashlib.sha256(source.encode()).digest()[:width] if source else place.to_bytes(width, "big")
    return _digest(f"{file.modified_ms}|{name}") + _digest(f"{file.modified_ms}|{path}") + which + _digest(path)


def path_of(entry: bytes) -> bytes:
    """The digest of the path alone, from one entry."""
    return entry[KNOWN_BYTES:]


def paths_of(entries: bytes) -> bytes:
    """The digests of the paths alone, one after another, of entries that stand one after another.

    It takes eight slices, however many entries there are.
    """
    paths = bytearray(len(entries) // ENTRY_BYTES * (ENTRY_BYTES - KNOWN_BYTES))
    for at in range(KNOWN_BYTES, ENTRY_BYTES):
        paths[at - KNOWN_BYTES :: ENTRY_BYTES - KNOWN_BYTES] = entries[at::ENTRY_BYTES]
    return bytes(paths)


def lengthened(short: bytes) -> bytes:
    """Entries of earlier code in today's length. Their digest of the path alone is zeros, for not known."""
    entries = bytearray(len(short) // SHORT_BYTES * ENTRY_BYTES)
    for at in range(SHORT_BYTES):
        entries[at::ENTRY_BYTES] = short[at::SHORT_BYTES]
    return bytes(entries)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]
