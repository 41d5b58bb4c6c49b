"""What sinks that keep files below one folder have in common. Driver only.

Paths in a record are relative to the folder: ``StagedFile.staged`` and ``StagedFile.final``.
"""

import os
from collections.abc import Mapping, Sequence
from typing import cast

from streamsink import shell
from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.protocol import ways
from streamsink.protocol.committable import Committable, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group
from streamsink.protocol.sink import Destination
from streamsink.sinks.file_writing import DataFile
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup

# For messages of errors that come before the record.
NOTHING_RECORDED = "Nothing was recorded or published, and nothing is lost: the batch is replayed after a restart"


def open_folder(file_io: FileIO, path: str, visible: str) -> Destination:
    """The folder at ``path`` as a destination; it is made when it is not there. Its identity is in the file ``id``.

    visible: the folder that holds what is visible, as seen from ``path``; it may begin with '../'. Raises Misuse when
    something is visible and the identity is gone: whether this is the destination that records were made for is not
    known then.
    """
    name, above, below = f"{path}/id", path, visible
    while below.startswith("../"):  # a store knows no '..', nor does a disk behind a folder that is gone
        above, below = above.rpartition("/")[0], below[3:]
    if not file_io.exists(name):
        found = f"{visible} is not empty" if file_io.entries(f"{above}/{below}") else _has_records(file_io, path)
        if found:
            raise Misuse(
                f"{path}: the file 'id' is gone, and {found}. Nothing was written. Restore the file "
                f"{shell.restore(name)}. Without a backup: "
                "its text is what the state of any manifest or record of a journal here has as 'table_id', up to a '/' "
                "where there is one. Only if the destination was emptied on purpose, with all that it had, remove the "
                f"folder {path}/{JOURNAL_DIR} instead {shell.discard(f'{path}/{JOURNAL_DIR}')}",
                kind="destination.no-id",
            )
        file_io.make_dir(path)
        new_id = IdSource().new_id()
        file_io.create_if_absent(name, new_id.encode(), new_id)
    return Destination(path, file_io.read(name).decode().strip())


def _has_records(file_io: FileIO, path: str) -> str:
    """What journals below the folder say of a destination that was here, for a message; '' when they say nothing."""
    for entry in file_io.entries(f"{path}/{JOURNAL_DIR}"):
        journal = f"{path}/{JOURNAL_DIR}/{entry.name}"
        if entry.is_dir and any(name.startswith("record-") for name in file_io.names(journal)):
            return f"the journal {journal} has records"
    return ""


def stage_files(
    file_io: FileIO, path: str, checkpoint: Checkpoint, written: Sequence[DataFile], group: Group, *, folder: str
) -> tuple[StagedFile, ...]:
    """The files that a record is to name, for ``OpenSink.stage``; each keeps its name when it gets its place.

    It looks at the files that tasks have handed over (``check_handed_over``), and begins the file
    ``manifest-<number of the record>-<id of the try>`` after all others: it says that the checkpoint is ready for its
    record. That is durable when ``group``, which is one of ``FileIO.flush_group``, is flushed. A batch that failed may
    come again in the same run, while its first try's folder could not be removed: so each try has a name of its own.

    path: of the destination. folder: of the final names, relative to ``path``; '' for the destination itself. Raises
    Corrupt when a file is not as it was written.
    """
    staging, together = checkpoint.staging, cast(FlushGroup, group)
    by_tasks = {file.name: file.size for file in written if file.handed_over}
    check_handed_over(file_io, path, staging, by_tasks)
    check_sources(file_io, path, [f"{staging}/{name}" for name in by_tasks])
    together.write(f"{staging}/manifest-{checkpoint.sequence}-{IdSource().new_id()}", b"")
    together.sync_dir(staging)
    staged = os.path.relpath(staging, path)
    return tuple(
        StagedFile(f"{staged}/{file.name}", os.path.join(folder, file.name), file.size, file.rows) for file in written
    )


def check_handed_over(file_io: FileIO, path: str, staging: str, sizes: Mapping[str, int]) -> None:
    """Check that the driver's own listing of the staging folder has the files that tasks handed over, whole.

    path: of the destination. sizes: in bytes, by name. It takes one listing, however many files there are, and none
    where there are none. Raises Corrupt.
    """
    found = {entry.name: entry.size for entry in file_io.entries(staging)} if sizes else {}
    compare_handed_over(
        path,
        {f"{staging}/{name}": size for name, size in found.items()},
        {f"{staging}/{name}": size for name, size in sizes.items()},
    )


def compare_handed_over(path: str, found: Mapping[str, int | None], sizes: Mapping[str, int]) -> None:
    """Raises Corrupt unless the files are there that tasks handed over, whole.

    path: of the destination. found, sizes: by path, what the driver has found, and what the tasks have said, in bytes.
    """
    wrong = [file for file, size in sizes.items() if found.get(file) != size]
    if wrong:
        size, expected = found.get(wrong[0]), sizes[wrong[0]]
        raise Corrupt(
            f"{path}: tasks handed over {len(sizes)} files, of which {len(wrong)} are not there, or not whole, where "
            f"the driver looks (first: {wrong[0]}, {'missing' if size is None else f'{size} bytes'}, "
            f"expected {expected} bytes): the path is not on a disk that all executors and the driver share, or "
            f"something deletes files there. {NOTHING_RECORDED}. Put the table on a shared disk, HDFS or S3, or keep "
            "cleaners away from its folder 'streamsink'",
            kind="staged.files-gone",
        )


def check_sources(file_io: FileIO, path: str, files: Sequence[str]) -> None:
    """Check that the driver can give these files of tasks their final names: their owner may be another user.

    path: of the destination. Raises Misuse.
    """
    try:
        file_io.check_sources(files)
    except PermissionError as refused:
        raise Misuse(
            f"{path}: files of tasks cannot get their final names: {refused.filename} belongs to another user, and the "
            f"driver's one may not write it ({refused.strerror}). {NOTHING_RECORDED}. Run the executors as the user of "
            "the driver, or with umask 002 and in a folder of a group that both are in (chmod g+ws), and restart the "
            "query",
            kind="storage.denied",
        ) from refused


def files_in_place(file_io: FileIO, path: str, record: Committable) -> tuple[int, int, tuple[str, ...]]:
    """As ``Committer.files_in_place``, of files below this folder."""
    others = [file for file in record.files if not file_io.exists(f"{path}/{file.final}")]
    gone = tuple(file.staged for file in others if not file_io.exists(f"{path}/{file.staged}"))
    return len(record.files) - len(others), len(others) - len(gone), gone


def place_files(file_io: FileIO, path: str, record: Committable, *, keep: bool = True) -> None:
    """Give the files of a record their final names, durably. Idempotent.

    keep: whether the staged ones stay. A store without links then copies each file, HDFS through this process. Raises
    Corrupt when one of them is gone.
    """
    for file in record.files:
        try:
            file_io.place(f"{path}/{file.staged}", f"{path}/{file.final}", keep)
        except FileNotFoundError as gone:
            raise Corrupt(
                f"{path}/{file.final} is gone. Nothing was published. Restore it "
                f"{shell.restore(f'{path}/{file.final}')}. "
                f"{ways.give_up(path, record.application, is_table=False)}",
                kind="pending.files-gone",
            ) from gone
    for folder in sorted({os.path.dirname(f"{path}/{file.final}") for file in record.files}):
        file_io.sync_dir(folder)
