"""The files that a bounded run has read: what is kept of them, and whether a repeated run reads the same ones. Pure.

A file stands for its path, its time of modification and its size, as one digest. A table keeps one digest of all files
and the digests of a few: these tell a folder that has grown from a folder whose files were replaced.
"""

import hashlib
from collections.abc import Collection, Iterable

from streamsink.protocol.committable import Batch, KnownRun
from streamsink.protocol.same_query import digest

_FEW, _DIGITS = 8, 16


def digests(files: Iterable[str]) -> frozenset[str]:
    """The digest of each file. files: the path, time and size of each, in one text."""
    return frozenset(hashlib.sha256(file.encode()).hexdigest()[:_DIGITS] for file in files)


def kept(inputs: Collection[str] | None) -> tuple[str, ...]:
    """What a table keeps of the files of a run: one digest of all of them, then the smallest digests of single files.

    Empty where it is not known which files were read (``inputs`` is None).
    """
    if inputs is None:
        return ()
    ordered = sorted(inputs)
    return digest("".join(ordered)), *ordered[:_FEW]


def are_others(known: KnownRun, given: Batch) -> bool:
    """Whether the files are certainly not exactly those that the published run has read."""
    return bool(known.inputs) and given.inputs is not None and kept(given.inputs)[0] != known.inputs[0]


def are_gone(known: KnownRun, given: Batch) -> bool:
    """Whether some of the files that the published run has read are certainly not read now.

    Where it is False for files that differ, others may only have been added.
    """
    return bool(given.inputs is not None and set(known.inputs[1:]) - given.inputs)
