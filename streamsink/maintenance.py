"""The care of a table, by hand: names and arguments are those of Paimon's procedures. See docs/BRANCHES.md.

Each function takes the table's path first. With ``dry_run=True`` it changes nothing and returns what it would do.
"""

import getpass
import os
import socket
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streamsink.options import SinkOptions

if TYPE_CHECKING:
    from streamsink.table.care.rollback import Rollback

    Path = str | os.PathLike[str]


def rollback_to(
    path: "Path",
    snapshot_id: int | None = None,
    tag: str | None = None,
    timestamp: int | str | datetime | None = None,
    *,
    by: str | None = None,
    dry_run: bool = False,
    options: SinkOptions | None = None,
    **settings: Any,
) -> "Rollback":
    """Give the table the rows that it had as of a snapshot, by a new snapshot. Nothing is deleted, streams go on.

    Exactly one of: snapshot_id; tag; timestamp, which means the newest snapshot not later than that (milliseconds since
    1970, or a time with its zone). by: who wants it, for the record; the user of this process by default. options,
    settings: as the query's, its lock above all. Rows that streams have published since are taken out on purpose, and
    do not come again; what is pending is published behind it. Raises Misuse where there is no such snapshot, Corrupt
    where files of it are gone, and what a commit raises.
    """
    from streamsink.locks.locked_file_io import under_lock
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import Store, table_path
    from streamsink.table.care.rollback import Rollback, plan_rollback, roll_back
    from streamsink.table.care.targets import find
    from streamsink.table.table import open_table

    root = table_path(path)
    given = SinkOptions.of(root, settings, options)
    with told_of(root, "rollback_to"):
        file_io = under_lock(Store(root, given.store_options, given.flush).open(), root, given)
        table = open_table(file_io, root, for_writing=not dry_run)
        target = find(table, snapshot_id, tag, timestamp)
        if dry_run:
            return Rollback(plan_rollback(table, target), None)
        return roll_back(table, target, given, by if by is not None else _who())


def _who() -> str:
    """The user of this process and its machine, as far as they are known."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
