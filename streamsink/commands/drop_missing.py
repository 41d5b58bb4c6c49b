"""``streamsink.drop_missing``: take missing data files out of the table, so that it can be read and written again."""

from dataclasses import dataclass

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.format.manifest import FileKind
from streamsink.format.snapshot import OVERWRITE
from streamsink.locks.locked_file_io import under_lock
from streamsink.options import SinkOptions
from streamsink.storage.file_io import FileIO
from streamsink.table.commit.changes import Changes
from streamsink.table.commit.delta import CommitRequest
from streamsink.table.commit.table_commit import TableCommit
from streamsink.table.commit.tries import Guard
from streamsink.table.history.renamed_folders import check_missing
from streamsink.table.read.scan import data_file_path
from streamsink.table.table import open_table

# The report names at most this many folders.
_NAMED = 5
# A commit user of its own: under the one of an application, this commit would hide later commits of that application.
_USER = "streamsink-drop-missing"


@dataclass(frozen=True)
class Dropped:
    """What was taken out of the table; ``str()`` of it says where the files were.

    files, rows: numbers of what is not in the table any more. snapshot_id: the snapshot from which on that is so; None
    when nothing was missing.
    """

    files: int
    rows: int
    snapshot_id: int | None
    text: str

    def __str__(self) -> str:
        return self.text


def drop_missing(
    file_io: FileIO, path: str, options: SinkOptions | None = None, *, everything: bool = False
) -> Dropped:
    """Publish one snapshot without the data files that do not exist. Their rows were lost together with them.

    everything: do so even if no file at all is there, which may be a disk that is not mounted. Files that lie outside
    of the table (``external_path``) are not looked at. Idempotent. After a crash: done or not done.
    Raises Corrupt when files are there in folders of other names, which an option of the table has changed; Misuse when
    every file is missing and ``everything`` is not set; Conflict when another writer changes the
    same files at that moment.
    """
    options = options or SinkOptions.of(path, {})
    file_io = under_lock(file_io, path, options)
    table = open_table(file_io, path, for_writing=True)
    newest, schema = table.snapshots.latest(), table.latest_schema()
    live = [e for e in table.manifests.entries_of(newest) if e.file.external_path is None] if newest is not None else []
    paths = {entry.identity: data_file_path(table, schema, entry) for entry in live}
    missing = [entry for entry in live if file_io.size(paths[entry.identity]) is None]
    if newest is None or not missing:
        return Dropped(0, 0, None, f"{path}: every data file of the newest snapshot is there: nothing was changed")
    check_missing(table, missing)
    if len(missing) == len(live) and not everything:
        raise Misuse(
            f"{path}: not one of the {len(live)} data files of snapshot {newest.id} is there: a disk that is not "
            "mounted, perhaps. Nothing was changed. If all rows are lost, call it with everything=True",
            kind="drop-missing.everything",
        )
    changes = Changes(tuple(entry.deleting for entry in missing))
    request = CommitRequest(_USER, newest.id + 1, changes, IdSource().new_id(), OVERWRITE)
    done = TableCommit(table, options).commit(request, Guard())
    folders = sorted({paths[entry.identity].rpartition("/")[0] for entry in missing})
    rows = sum(entry.file.row_count for entry in missing if entry.kind is FileKind.ADD)
    more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
    return Dropped(
        len(missing),
        rows,
        done.snapshot_id,
        f"{path}: {len(missing)} data files that were gone, of {rows} rows, are not in the table any more from "
        f"snapshot {done.snapshot_id} on; they were in {', '.join(folders[:_NAMED])}{more}",
    )
