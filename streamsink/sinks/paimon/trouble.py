"""What the store refuses when a record is published: in words, retryably, for the record is durable. Driver only."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from streamsink.errors import Misuse, Retryable
from streamsink.storage.store_failures import KINDS

_KINDS = {
    **{code: (kind, way_out) for code, (kind, _, way_out) in KINDS.items()},
    errno.EXDEV: ("partition.elsewhere", "Put the folder back onto the file system of the table's staging folder"),
    errno.ENOTDIR: ("partition.not-a-folder", "Move away what has the folder's name"),
    errno.EMLINK: ("storage.links", "Remove links to the file, of which the file system allows no more"),
}


@contextmanager
def explained(root: str, sequence: int, way_on: str) -> Iterator[None]:
    """Publishing record ``sequence`` of the table at ``root``: an error of the store that can be mended says how.

    way_on: what to do about a record that can never be published.

    Raises Retryable for those, Misuse for a name that the store never takes; others are passed on.
    """
    try:
        yield
    except OSError as failed:
        where = f" ({failed.filename})" if failed.filename else ""
        what = os.strerror(failed.errno) if failed.errno else str(failed)
        if failed.errno == errno.ENAMETOOLONG:
            raise Misuse(
                f"{root}: record {sequence} is pending and cannot be published: the store takes no name as long as one that it "
                f"needs{where}. Nothing was published. {way_on}",
                kind="pending.unpublishable",
            ) from failed
        if failed.errno not in _KINDS:
            raise
        kind, way_on = _KINDS[failed.errno]
        raise Retryable(
            f"{root}: record {sequence} is pending and cannot be published now: {what}{where}. Nothing is lost, and what is published "
            f"stays as it is. {way_on}; a restart of the query then publishes it",
            kind=kind,
        ) from failed
