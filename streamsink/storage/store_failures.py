"""Failures of the store that people can resolve, as errors that name the table and say what to do."""

import contextlib
import errno
from collections.abc import Iterator

from streamsink.errors import Misuse, Retryable, StreamsinkError

_WRITE_ACCESS = "Give the driver's and executors' user write access"
KINDS = {
    errno.ENOSPC: ("storage.full", "the disk is full", "Free space or give the table another disk"),
    errno.EDQUOT: ("storage.full", "the disk quota is used up", "Raise the quota"),
    errno.EROFS: ("storage.read-only", "the file system is read-only", "Mount it writable"),
    errno.EACCES: ("storage.denied", "permission is denied", _WRITE_ACCESS),
    errno.EPERM: ("storage.denied", "the operation is not permitted", _WRITE_ACCESS),
}
KEPT = (
    "What is published stays as it is, and nothing is lost: what is recorded of this batch is published after a "
    "restart, else it is replayed."
)
_KEPT_BY_CALLS = "What is published stays as it is, and what this call has done already stays done."


def in_words(table: str, code: int | None, path: str | None = None, call: str = "") -> StreamsinkError | None:
    """The error for this errno, or None if it is none of these failures.

    path: where it happened. call: as of ``told_of``.
    """
    if code not in KINDS:
        return None
    kind, what, way_out = KINDS[code]
    error = Retryable if kind == "storage.full" else Misuse  # space may become free by itself
    kept, again = (_KEPT_BY_CALLS, f"call streamsink.{call} again") if call else (KEPT, "start it again")
    return error(f"{table}: {what}{f' ({path})' if path else ''}. {kept} {way_out}, then {again}", kind=kind)


@contextlib.contextmanager
def told_of(table: str, call: str = "") -> Iterator[None]:
    """A context that raises the errors of ``in_words`` in place of the store's own OSErrors, where there are such.

    call: the function of the package that the user has called, when that is not a query or a job. It is idempotent.
    """
    try:
        yield
    except OSError as failed:
        words = in_words(table, failed.errno, failed.filename, call)
        if words is None:
            raise
        raise words from failed
