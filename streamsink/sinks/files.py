"""What sinks that keep files below one folder have in common. Driver only.

Paths in a record are relative to the folder: ``StagedFile.staged`` and ``StagedFile.final``.
"""

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.protocol.committable import Committable
from streamsink.protocol.sink import Destination
from streamsink.storage.file_io import FileIO


def open_folder(file_io: FileIO, path: str, visible: str) -> Destination:
    """The folder at ``path`` as a destination; it is made when it is not there. Its identity is in the file ``id``.

    visible: the folder below it that holds what is visible. Raises Misuse when something is visible and the identity is
    gone: whether this is the destination that records were made for is not known then.
    """
    name = f"{path}/id"
    if not file_io.exists(name):
        if file_io.entries(f"{path}/{visible}"):
            raise Misuse(
                f"{path}: the file 'id' is gone, and {visible} is not empty. Nothing was written. Restore the file",
                kind="destination.no-id",
            )
        file_io.make_dir(path)
        new_id = IdSource().new_id()
        file_io.create_if_absent(name, new_id.encode(), new_id)
    return Destination(path, file_io.read(name).decode())


def files_in_place(file_io: FileIO, path: str, record: Committable) -> tuple[int, int, tuple[str, ...]]:
    """As ``Committer.files_in_place``, of files below this folder."""
    final = [file for file in record.files if file_io.exists(f"{path}/{file.final}")]
    others = [file for file in record.files if file not in final]
    gone = tuple(file.staged for file in others if not file_io.exists(f"{path}/{file.staged}"))
    return len(final), len(others) - len(gone), gone


def place_files(file_io: FileIO, path: str, record: Committable) -> None:
    """Give the files of a record their final names, durably. The staged ones stay. Idempotent.

    Raises Corrupt when one of them is gone.
    """
    for file in record.files:
        try:
            file_io.place(f"{path}/{file.staged}", f"{path}/{file.final}", True)
        except FileNotFoundError as gone:
            raise Corrupt(
                f"{path}/{file.final} is gone. Nothing was published. Restore it", kind="pending.files-gone"
            ) from gone
    for folder in sorted({file.final.rpartition("/")[0] for file in record.files}):
        file_io.sync_dir(f"{path}/{folder}")
