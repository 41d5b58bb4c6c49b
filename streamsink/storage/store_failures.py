"""Failures of the store that people can resolve, as errors that name the table and say what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator

from streamsink.errors import Misuse, Retryable, StreamsinkError

# Linux has these for keys; other systems have no name for them.
EKEYEXPIRED, EKEYREJECTED, ENOKEY = 127, 129, 126
_WRITE_ACCESS = "Give the driver's and executors' user write access"
# Without the right to list, S3 denies what does not exist.
_S3_ACCESS = (
    "Give the owner of the keys s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload below the "
    "table's path, and s3:ListBucket and s3:ListBucketMultipartUploads on the bucket"
)
# What to do at a store that has something else to see to than a disk, by the beginning of its paths and the kind.
_OF_STORE = {
    "s3": (
        ("storage.denied", _S3_ACCESS),
        (
            "storage.unreachable",
            "See that the store, its endpoint and the network to it are right (s3.endpoint in store_options: http or "
            "https, host and port)",
        ),
    ),
    "hdfs": (
        (
            "storage.unreachable",
            "See that the store, its endpoint and the network to it are right (host and port as clients of the cluster "
            "have them, in fs.defaultFS or dfs.namenode.rpc-address, and not those of the NameNode's web pages)",
        ),
        (
            "storage.read-only",
            "See why the NameNode is in safe mode (hdfs dfsadmin -safemode get); behind its own start it leaves it "
            "when enough DataNodes have joined",
        ),
    ),
    "postgresql": (
        (
            "storage.unreachable",
            "See that host, port, database and user of the journal's address are right, that its password is in "
            "store_options={'password': ...}, PGPASSWORD or PGPASSFILE, and that the server takes connections from "
            "here",
        ),
        ("storage.denied", "Let the user of the journal's address create and change the table streamsink_files"),
    ),
    "sqlite": (
        (
            "storage.unreachable",
            "See that the folder of the journal's file is there, and give the driver's and executors' user write "
            "access to it and to the file",
        ),
    ),
}
KINDS = {
    errno.ENOSPC: ("storage.full", "the disk is full", "Free space or give the table another disk"),
    errno.EDQUOT: ("storage.full", "the disk quota is used up", "Raise the quota"),
    errno.EROFS: ("storage.read-only", "the file system is read-only", "Mount it writable"),
    errno.EACCES: ("storage.denied", "permission is denied", _WRITE_ACCESS),
    errno.EPERM: ("storage.denied", "the operation is not permitted", _WRITE_ACCESS),
    errno.EMFILE: (
        "storage.open-files",
        "the process may not open more files",
        "Raise its limit (ulimit -n, systemd: LimitNOFILE), or let a task keep fewer files open (max_open_writers)",
    ),
    errno.ENOTSUP: (
        "storage.unfit",
        "the file system cannot do what a table needs",
        "Put the table on one with hard links and locks of files (ext4, xfs, NFS 4; not FAT, nor an object store that "
        "is mounted as a folder), or give the URL of the store itself (s3://, hdfs://)",
    ),
    errno.EBUSY: ("storage.busy", "the store refuses requests for now", "See what else asks the store that much"),
    errno.ETIMEDOUT: (
        "storage.unreachable",
        "the store does not answer",
        "See that the store, its endpoint and the network to it are right",
    ),
    EKEYEXPIRED: (
        "store.credentials-expired",
        "the keys for the store have expired",
        "Give new keys in store_options (s3.access-key, s3.secret-key, s3.session-token), or none there: those of the "
        "environment, of AWS's files or of a role are taken then, and renewed",
    ),
    EKEYREJECTED: (
        "store.credentials-rejected",
        "the store does not know the keys",
        "Give keys that it knows in store_options (s3.access-key, s3.secret-key, s3.session-token), or none there: "
        "those of the environment, of AWS's files or of a role are taken then, and renewed",
    ),
    ENOKEY: (
        "store.credentials-not-fetched",
        "no keys for the store could be fetched",
        "See that what gives them works (credential_process, a role, a token's file)",
    ),
}
# These may be over by themselves, so a restart may go on.
_PASSING = ("storage.full", "storage.busy", "storage.unreachable", "store.credentials-not-fetched")
KEPT = (
    "What is published stays as it is, and nothing is lost: what is recorded of this batch is published after a "
    "restart, else it is replayed."
)
_KEPT_BY_CALLS = "What is published stays as it is, and what this call has done already stays done."


def in_words(
    table: str, code: int | None, path: str | None = None, call: str = "", said: str = "", *, command: str = ""
) -> StreamsinkError | None:
    """The error for this errno, or None if it is none of these failures.

    path: where it happened. call, command: as of ``told_of``. said: what the store has said, if that is more than the
    errno.
    """
    if code not in KINDS:
        return None
    kind, what, way_out = KINDS[code]
    places = (path or "", table)  # the journal of a destination lies elsewhere
    store = next((each for place in places for each in _OF_STORE if place.startswith(each)), "")
    way_out = dict(_OF_STORE.get(store, ())).get(kind, way_out)
    # On HDFS only the NameNode's safe mode makes a file system read-only.
    error = Retryable if kind in _PASSING or (store == "hdfs" and kind == "storage.read-only") else Misuse
    kept, again = KEPT, "start it again"
    if call or command:
        kept, again = _KEPT_BY_CALLS, f"call {'streamsink ' + command if command else 'streamsink.' + call} again"
    more = f": {said}" if said and code is not None and said != os.strerror(code) else ""
    return error(f"{table}: {what}{more}{f' ({path})' if path else ''}. {kept} {way_out}, then {again}", kind=kind)


@contextlib.contextmanager
def told_of(table: str, call: str = "", *, command: str = "") -> Iterator[None]:
    """A context that raises the errors of ``in_words`` in place of the store's own OSErrors, where there are such.

    call: the function of the package that the user has called, when that is not a query or a job. command: likewise of
    the command line. It is idempotent.
    """
    try:
        yield
    except OSError as failed:
        words = in_words(table, failed.errno, failed.filename, call, failed.strerror or "", command=command)
        if words is None:
            raise
        raise words from failed
