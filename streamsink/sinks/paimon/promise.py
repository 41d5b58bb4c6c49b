"""A record is a promise to publish, so what could make that impossible is checked before there is one. Driver only.

- No name is too long for the store.
- The folders of the final names exist, and staged files can get names in them.
- The files that tasks handed over exist, with their sizes, and the driver's user can give them names.
- No file is too large to get its final name.
- The schema with which each file was written is among those of the table.

Room on the store cannot be promised: without it publishing fails, and goes on when there is some.
"""

import errno
import functools
import os
from collections.abc import Iterable, Sequence

from streamsink.errors import Misuse
from streamsink.sinks.files import NOTHING_RECORDED, check_handed_over, check_sources, compare_handed_over
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.reading import Questions
from streamsink.table.table import Table
from streamsink.table.write.spec import WrittenFile

# By the error with which the store refuses a folder: kind, what is wrong, and what to do.
_REFUSED = {
    errno.EXDEV: (
        "partition.elsewhere",
        "it is on another file system or mount than the table's staging folder, and a file has no name on two",
        "Move its files onto the table's file system (unmount it, or replace the link by a folder), or mount the whole "
        "table there",
    ),
    errno.ENOTDIR: ("partition.not-a-folder", "something else than a folder has this name", "Move that away"),
    errno.EACCES: ("storage.denied", "permission is denied", "Give the driver's user write access"),
    errno.EPERM: ("storage.denied", "the operation is not permitted", "Give the driver's user write access"),
    errno.EROFS: ("storage.read-only", "the file system is read-only", "Mount it writable"),
    errno.ENAMETOOLONG: (
        "partition.name-too-long",
        "the store takes no name as long as this",
        "Filter such rows in the query",
    ),
}
# So many files of a folder are listed: on S3 one listing costs as much as twelve questions, and a tenth of the time.
_LISTED = 10
_REFUSED[errno.EEXIST] = _REFUSED[errno.ENOTDIR]


def check(table: Table, staging: str, written: Sequence[WrittenFile], group: FlushGroup) -> None:
    """Raise an error when a record of these files could not be published.

    staging: folder of the files. What is made here is durable when ``group`` is flushed. Raises Misuse, which names the
    table and the way on; Corrupt when files or a schema are gone; OSError when the store fails.
    """
    see(table.file_io, table.root, staging, written)
    _check_sizes(table, written)
    _check_schemas(table, written)
    limits = table.file_io.name_limits(table.root)
    for file in written:
        exceeded = limits.exceeded_by(table.layout.within(file.final))
        if exceeded is not None:
            raise _refused(
                table,
                errno.ENAMETOOLONG,
                f"{exceeded[0]} bytes of a data file's final name, of which it takes {exceeded[1]}",
            )
    folders = {os.path.dirname(table.layout.within(file.final)) for file in written}
    for folder in sorted({table.layout.manifest_dir, *folders} if written else ()):
        try:
            table.file_io.begin_names(folder, staging, group)
        except OSError as failed:
            if failed.errno not in _REFUSED or failed.errno == errno.EROFS and table.file_io.is_distant:
                raise  # a NameNode in safe mode leaves it
            raise _refused(table, failed.errno, failed.filename or folder) from failed


def see(file_io: FileIO, root: str, staging: str, written: Sequence[WrittenFile]) -> None:
    """Check the files that tasks handed over, as ``check_handed_over`` does; the driver's own need no check.

    Those that have their final names are in many folders. Where a folder has many of them, they are listed.
    """
    sizes = {file.staged: file.meta.file_size for file in written if file.handed_over}
    staged = {os.path.basename(path): size for path, size in sizes.items() if os.path.dirname(path) == staging}
    check_handed_over(file_io, root, staging, staged)
    check_sources(file_io, root, [f"{staging}/{name}" for name in staged])
    if len(staged) < len(sizes):
        compare_handed_over(root, _found(file_io, sizes), sizes)


def _found(file_io: FileIO, paths: Iterable[str]) -> dict[str, int | None]:
    """The sizes of these files by path; None, or nothing, for one that is not there."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(os.path.dirname(path), []).append(os.path.basename(path))
    found: dict[str, int | None] = {}

    def look(folder: str, names: Sequence[str]) -> None:
        sizes = file_io.sizes_beginning(folder, os.path.commonprefix(names))
        found.update((f"{folder}/{name}", size) for name, size in sizes.items())

    file_io.at_once([functools.partial(look, *each) for each in folders.items() if len(each[1]) >= _LISTED])
    few = [f"{folder}/{name}" for folder, names in folders.items() if len(names) < _LISTED for name in names]
    with file_io.asking(Questions(size=tuple(few))):
        found.update((path, file_io.size(path)) for path in few)
    return found


def _check_sizes(table: Table, written: Sequence[WrittenFile]) -> None:
    for file in written:
        has_its_name = file.staged == table.layout.within(file.final)
        most = table.file_io.largest_written if has_its_name else table.file_io.largest_file
        if most is not None and file.meta.file_size > most:
            raise Misuse(
                f"{table.root}: a data file has {file.meta.file_size} bytes, and this store gives a file of at most "
                f"{most} bytes its final name. {NOTHING_RECORDED}. Make the batches smaller (maxOffsetsPerTrigger, "
                "maxFilesPerTrigger), or the rows, of which few make so large a file",
                kind="file.too-large",
            )


def _check_schemas(table: Table, written: Sequence[WrittenFile]) -> None:
    """Raises Corrupt when the file of a schema is gone with which a file was written: readers need it."""
    for schema_id in {file.meta.schema_id for file in written} - {table.known_schema.id}:
        table.schemas.load(schema_id)


def _refused(table: Table, code: int, where: str) -> Misuse:
    kind, what, way_on = _REFUSED[code]
    return Misuse(
        f"{table.root}: files cannot get their final names: {where}: {what}. {NOTHING_RECORDED}. {way_on}, and restart "
        "the query",
        kind=kind,
    )
