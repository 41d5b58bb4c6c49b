"""Errors while a record is published, and of options that a query of several tables cannot have. Driver only.

Those of the store can be retried, because the record is durable.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from streamsink import shell
from streamsink.errors import Corrupt, Misuse, Retryable
from streamsink.options import MODE_APPEND, ON_ROLLBACK_FAIL, SYNC, SinkOptions
from streamsink.protocol.committable import Committable
from streamsink.storage.store_failures import KINDS

_KINDS = {
    **{code: (kind, way_out) for code, (kind, _, way_out) in KINDS.items()},
    errno.EXDEV: ("partition.elsewhere", "Put the folder back onto the file system of the table's staging folder"),
    errno.ENOTDIR: ("partition.not-a-folder", "Move away what has the folder's name"),
    errno.EMLINK: ("storage.links", "Remove links to the file, of which the file system allows no more"),
}

# Options of a query of one table, the only value that each of them may have here, and why.
_ONLY = {
    "mode": (MODE_APPEND, "a batch replaces nothing in them"),
    "on_rollback": (ON_ROLLBACK_FAIL, "what one table lost is not published again while the others keep it"),
    "publish": (SYNC, "a batch is published before it ends"),
    "publish_every_batches": (1, "a batch is published before it ends"),
    "lock_id": (None, "each table's own path gives the name of its lock"),
}


@contextmanager
def explained(root: str, sequence: int, way_on: str) -> Iterator[None]:
    """Within it record ``sequence`` of the table at ``root`` is published: an error of the store says how to mend it.

    way_on: what to do about a record that can never be published. Raises Retryable for an error that can be mended,
    Misuse for a name that the store never takes; other errors are passed on.
    """
    try:
        yield
    except OSError as failed:
        where = f" ({failed.filename})" if failed.filename else ""
        what = failed.strerror or (os.strerror(failed.errno) if failed.errno else str(failed))
        if failed.errno == errno.ENAMETOOLONG:
            raise Misuse(
                f"{root}: record {sequence} is pending and cannot be published: the store takes no name as long as one "
                f"that it needs{where}. Nothing was published. {way_on}",
                kind="pending.unpublishable",
            ) from failed
        if failed.errno not in _KINDS:
            raise
        kind, way_on = _KINDS[failed.errno]
        raise Retryable(
            f"{root}: record {sequence} is pending and cannot be published now: {what}{where}. Nothing is lost, and "
            f"what is published stays as it is. {way_on}; a restart of the query then publishes it",
            kind=kind,
        ) from failed


def explaining(settle: Callable[..., bool], root: str, sequence: int, way_on: str) -> Callable[..., bool]:
    """The same function, whose errors are explained."""

    def settled(*following: Any) -> bool:
        with explained(root, sequence, way_on):
            return settle(*following)

    return settled


def files_gone(root: str, committable: Committable, gone: Sequence[str], way_on: str) -> Corrupt:
    """The error of a pending record some of whose files are gone. way_on: as in ``explained``."""
    return Corrupt(
        f"{root}: record {committable.state.sequence}, {committable.state.checkpoint_name}, is pending, but "
        f"{len(gone)} of its files are gone (first: {gone[0]}): something deleted them, such as orphan cleaning or a "
        f"rollback. Nothing of it was published. Restore them {shell.restore(gone[0])}. {way_on}",
        kind="pending.files-gone",
    )


def check_options(path: str, options: SinkOptions, *, several: bool) -> None:
    """Raises Misuse for an option that a query into several tables cannot have, or one with dead letters.

    several: False for one table with dead letters, which may be rolled back alone, so that ``on_rollback`` is free.
    """
    for option, (only, why) in _ONLY.items():
        if getattr(options, option) != only and (several or option != "on_rollback"):
            raise Misuse(
                f"{path}: option '{option}' is {getattr(options, option)!r}, expected {only!r} "
                f"{'for several tables' if several else 'with dead letters'}: {why}. Nothing was written",
                kind="option.value",
            )
