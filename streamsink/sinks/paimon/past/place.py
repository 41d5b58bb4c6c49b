"""The folder below which a query writes several tables, and the name by which these tables know it. Driver only."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamsink.errors import Misuse
from streamsink.journal.file_journal import journal_dir
from streamsink.protocol.committable import AppState
from streamsink.protocol.sink import Committer
from streamsink.storage.file_io import FileIO
from streamsink.table.table import Table, is_table

# In the states of its tables, an application of several tables has this suffix behind its name.
SUFFIX = "@tables"


@dataclass(frozen=True)
class Place:
    """The folder of the tables and the query that writes them.

    root: path of the folder, in which the coordinating journal lies. application: the query's name. journal_id:
    identity of that journal, which the states in the tables repeat as their ``table_id``.
    """

    file_io: FileIO
    root: str
    application: str
    journal_id: str

    @property
    def key(self) -> str:
        """The name under which the tables know the application. No query of one table can have it."""
        return self.application + SUFFIX

    def absolute(self, path: str) -> str:
        """The path of a table, or of a file of the record, which is given relative to ``root``."""
        return os.path.join(self.root, path)


class OpenMember(Protocol):
    """One of the tables, open, with its committer. ``Member`` of ``many_tables.py`` is one."""

    @property
    def table(self) -> Table: ...

    @property
    def committer(self) -> Committer: ...


# (name, path): opens the table with this name at this path, which is relative to the folder; each table once.
OpensMember = Callable[[str, str], OpenMember]
# (): the (name, path) of each table that exists and that the query might write.
Existing = Callable[[], Sequence[tuple[str, str]]]


def identity_path(folder: str, application: str) -> str:
    """The file with the identity of a journal of several tables, which their states repeat as their table's id.

    folder: the one that holds the tables.
    """
    return os.path.join(journal_dir(folder, application), "journal-id")


def open_place(file_io: FileIO, root: str, application: str, new_id: Callable[[], str]) -> Place:
    """The place of the coordinating journal, which gets its identity on the first start.

    new_id: makes that identity. Raises Misuse when ``root`` is itself a table.
    """
    if is_table(file_io, root):
        raise Misuse(
            f"{root}: this is a table; expected the folder that holds the tables, such as 'lake/shop.db'",
            kind="tables.root-is-a-table",
        )
    path = identity_path(root, application)
    if not file_io.exists(path):
        file_io.create_if_absent(path, new_id().encode())
    return Place(file_io, root, application, file_io.read(path).decode())


def folder_of(file_io: FileIO, root: str, application: str, state: AppState) -> str | None:
    """The folder of the tables with the journal to which this state belongs; None when that is lost.

    root: path of one of the tables. state: what that table says of the application.
    """
    for folder in folders_above(root):
        said = identity_path(folder, application)
        if file_io.exists(said) and file_io.read(said).decode() == state.table_id:
            return folder
    return None


def folders_above(root: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest one first."""
    scheme, colon, rest = root.rpartition("://")
    parts = rest.split("/")
    for depth in range(len(parts) - 1, 0, -1):
        yield f"{scheme}{colon}{'/'.join(parts[:depth])}" or "/"
