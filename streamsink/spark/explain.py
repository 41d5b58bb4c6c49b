"""Failures of the store in words that say what to do. DRIVER."""

import errno
import os
import re

from streamsink.errors import Misuse, Retryable, StreamsinkError

_KINDS = {
    errno.ENOSPC: ("storage.full", "the disk is full", "Free space or give the table another disk"),
    errno.EDQUOT: ("storage.full", "the disk quota is used up", "Raise the quota"),
    errno.EROFS: ("storage.read-only", "the file system is read-only", "Mount it writable"),
    errno.EACCES: ("storage.denied", "permission is denied", "Give the driver's and executors' user write access"),
    errno.EPERM: ("storage.denied", "the operation is not permitted", "Give the driver's and executors' user write access"),
}
# What Java's own files, and Hadoop's over them, fail with; a denied permission may be that of the source.
_JAVA = re.compile(r"java\.io\.\w*Exception|java\.nio\.file\.\w*Exception|FSError")
_OF_JAVA = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def explain(table: str, failed: Exception) -> Exception:
    """The same failure as an error that names the table and the way out, or the failure itself when it is another one.

    A task's failure reaches the driver as text only: Python's with the errno, Java's with the system's words for it.
    """
    if isinstance(failed, StreamsinkError):
        return failed
    code = failed.errno if isinstance(failed, OSError) else _code_in(str(failed))
    if code not in _KINDS:
        return failed
    kind, what, way_out = _KINDS[code]
    where = f" ({failed.filename})" if isinstance(failed, OSError) and failed.filename else ""
    error = Retryable if kind == "storage.full" else Misuse  # room may come back by itself
    return error(
        f"{table}: {what}{where}. What is published stays as it is, and nothing is lost: what is recorded of this batch is published "
        f"after a restart, else it is replayed. {way_out}, then restart the query",
        kind=kind,
    )


def _code_in(text: str) -> int | None:
    for code in _KINDS:
        python = f"OSError: [Errno {code}]" in text or f"PermissionError: [Errno {code}]" in text
        if python or code in _OF_JAVA and _JAVA.search(text) and os.strerror(code) in text:
            return code
    return None
