"""A record is a promise to publish. What could make that impossible is looked at before there is one. Driver only.

Names are not too long for the store; the folders of the final names are there, and files of staging can be adopted into them; the
files that tasks handed over are there, with their sizes; none is too large to be adopted; the schema of each is the table's.
Room cannot be promised: without it publishing fails, and goes on when there is some.
"""

import errno
import os
from collections.abc import Sequence

from streamsink.errors import Misuse
from streamsink.storage.together import Together
from streamsink.table.table import Table
from streamsink.table.write import WrittenFile

_NOTHING = "Nothing was recorded or published, and nothing is lost: the batch is replayed after a restart"
# What a folder may be refused with, and what is to be done.
_REFUSED = {
    errno.EXDEV: (
        "partition.elsewhere", "it is on another file system or mount than the table's staging folder, and a file has no name on two",
        "Move its files onto the table's file system (unmount it, or replace the link by a folder), or mount the whole table there",
    ),
    errno.ENOTDIR: ("partition.not-a-folder", "something else than a folder has this name", "Move that away"),
    errno.EACCES: ("storage.denied", "permission is denied", "Give the driver's user write access"),
    errno.EPERM: ("storage.denied", "the operation is not permitted", "Give the driver's user write access"),
    errno.EROFS: ("storage.read-only", "the file system is read-only", "Mount it writable"),
    errno.ENAMETOOLONG: ("partition.name-too-long", "the store takes no name as long as this", "Filter such rows in the query"),
}
_REFUSED[errno.EEXIST] = _REFUSED[errno.ENOTDIR]


def check(table: Table, staging: str, written: Sequence[WrittenFile], group: Together) -> None:
    """Raises Misuse, which names the table and the way on; OSError when the store fails. What is made is durable with ``group``."""
    limits = table.file_io.name_limits(table.root)
    for file in written:
        exceeded = limits.exceeded_by(table.layout.within(file.final))
        if exceeded is not None:
            raise _refused(table, errno.ENAMETOOLONG, f"{exceeded[0]} bytes of a data file's final name, of which it takes {exceeded[1]}")
    folders = {os.path.dirname(table.layout.within(file.final)) for file in written}
    for folder in sorted({table.layout.manifest_dir, *folders} if written else ()):
        try:
            table.file_io.begin_names(folder, staging, group)
        except OSError as failed:
            if failed.errno not in _REFUSED:
                raise
            raise _refused(table, failed.errno, failed.filename or folder) from failed


def _refused(table: Table, code: int, where: str) -> Misuse:
    kind, what, way_on = _REFUSED[code]
    return Misuse(f"{table.root}: files cannot get their final names: {where}: {what}. {_NOTHING}. {way_on}, and restart the query", kind=kind)
