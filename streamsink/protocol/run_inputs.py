"""The files that a bounded run has read: what is kept of them, and whether a repeated run reads the same ones. Pure.

A file is its path with its time of modification and its size, as a digest. A table keeps one digest of all, and those of a few files: these
tell a folder that has grown from one whose files were replaced.
"""

import hashlib
from collections.abc import Collection, Iterable

from streamsink.protocol.committable import Batch, KnownRun
from streamsink.protocol.same_query import digest

_FEW, _DIGITS = 8, 16


def digests(files: Iterable[str]) -> frozenset[str]:
    """files: of each its path, time and size, in one text."""
    return frozenset(hashlib.sha256(file.encode()).hexdigest()[:_DIGITS] for file in files)


def kept(inputs: Collection[str] | None) -> tuple[str, ...]:
    """What a table keeps: the digest of all, and the least ones. Nothing where it is not known which files were read."""
    if inputs is None:
        return ()
    ordered = sorted(inputs)
    return digest("".join(ordered)), *ordered[:_FEW]


def are_others(known: KnownRun, given: Batch) -> bool:
    """Whether the files are certainly not just those that were read then."""
    return bool(known.inputs) and given.inputs is not None and kept(given.inputs)[0] != known.inputs[0]


def are_gone(known: KnownRun, given: Batch) -> bool:
    """Whether some of the files that were read then are certainly not read now: else others may have come beside them."""
    return bool(given.inputs is not None and set(known.inputs[1:]) - given.inputs)
