"""Opens the table, or the store, that a function of this package is called with."""

import getpass
import os
import socket
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from streamsink.options import SinkOptions, refuse

if TYPE_CHECKING:
    from streamsink.storage.file_io import FileIO
    from streamsink.table.table import Table

Path = str | os.PathLike[str]
T = TypeVar("T")


def on_store(path: Path, name: str, given: SinkOptions, do: "Callable[[FileIO, str], T]") -> T:
    """Call ``do`` with the store of the path, under the table's lock, and the path as the store knows it.

    name: of the function that the user has called, for messages.
    """
    from streamsink.locks.locked_file_io import under_lock
    from streamsink.storage.store_failures import told_of
    from streamsink.storage.stores import Store, table_path

    root = table_path(path)
    with told_of(root, name):
        return do(under_lock(Store(root, given.store_options, given.flush).open(), root, given), root)


def on_table(path: Path, name: str, given: SinkOptions, do: "Callable[[Table], T]") -> T:
    """Call ``do`` with the open table. As ``on_store``."""
    from streamsink.table.table import open_table

    return on_store(path, name, given, lambda file_io, root: do(open_table(file_io, root, for_writing=True)))


def millis_before(path: Path, older_than: datetime | None) -> float | None:
    """Milliseconds since 1970 of the option ``older_than``. Raises Misuse where it is no instant.

    One without a time zone is none: its caller may mean UTC, and this machine's zone would delete hours too much.
    """
    if older_than is None:
        return None
    if not isinstance(older_than, datetime) or older_than.utcoffset() is None:
        what = "a datetime with its time zone, such as datetime(2026, 11, 1, tzinfo=timezone.utc)"
        refuse(os.fspath(path), "older_than", older_than, f"{what}. Nothing was deleted")
    return older_than.timestamp() * 1000


def who(by: str | None) -> str:
    """Who wants something done: as given, else the user of this process and its machine, as far as they are known."""
    if by is not None:
        return by
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
