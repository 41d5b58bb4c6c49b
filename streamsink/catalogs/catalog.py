"""What a catalog is to a table, and when the entry under a table's name is the table itself."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass

from streamsink.format.schema import TableSchema

REGISTERED, UPDATED, UNCHANGED = "registered", "updated", ""
_DEFAULT_PORTS = {"hdfs": ":8020"}


@dataclass(frozen=True)
class Named:
    """A table and its name in a catalog.

    root: the table's path as the library spells it. database_location: where the catalog is to put the database if it
    has to create it; '' leaves that to the catalog. external: whether the catalog leaves the files alone when the table
    is dropped there.
    """

    root: str
    database: str
    table: str
    database_location: str = ""
    external: bool = False

    @property
    def location(self) -> str:
        """The table's place as Hadoop's programs write it."""
        return as_location(self.root)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class Entry:
    """What a catalog has under a name. is_paimon: whether it is a table of this format. what: the same in words."""

    is_paimon: bool
    what: str
    location: str


class Catalog(ABC):
    """A catalog's server. Every call connects anew, so nothing is held between two calls. Used by one thread at a time.

    Raises, in each method: Retryable ``catalog.unavailable`` when the catalog does not answer within its time, or says
    that it has failed; Misuse when it refuses.
    """

    where: str
    """The server, for messages."""

    @abstractmethod
    def entry(self, named: Named) -> Entry | None:
        """What the catalog has under this name; None when there is nothing, or no such database."""

    @abstractmethod
    def put(
        self, named: Named, schema: TableSchema, *, dry_run: bool = False, moved_from: str = "", may_create: bool = True
    ) -> str:
        """Let the catalog have the table with these columns: REGISTERED, UPDATED, or UNCHANGED when it has it already.

        dry_run: change nothing, and say what would be done. moved_from: as of ``other_than``; the entry gets the
        table's place. may_create: False leaves it at that where the catalog does not have the table. Idempotent. An
        entry that is another table is left as it is, and raises Misuse ``catalog.other-table``.
        """

    def check_new(self, named: Named, schema: TableSchema) -> None:
        """Raises Misuse for columns that the catalog can never have. By default there are none."""


def as_location(root: str) -> str:
    """The path of a table, or of a folder of tables, as a catalog takes it."""
    return root if "://" in root else f"file:{root}"


def other_than(named: Named, entry: Entry, moved_from: str = "") -> str:
    """What another table the entry is, in words; '' when it is this table.

    moved_from: a location where an entry is this table as well, because the table was there; '' for none.
    """
    if not entry.is_paimon:
        return f"{entry.what} at {entry.location}"
    if not is_one_place(entry.location, named.location) and not (
        moved_from and is_one_place(entry.location, moved_from)
    ):
        return f"a Paimon table at {entry.location}"
    return ""


def is_one_place(location: str, other: str) -> bool:
    """Whether the two locations are one, however they are spelled."""
    return _place(location) == _place(other)


def _place(location: str) -> tuple[str, str]:
    """(store, path) of a location, in one spelling: catalogs write file:/x, file:///x and /x, or s3a: for s3:."""
    scheme, _, rest = location.partition(":") if ":" in location.partition("/")[0] else ("file", "", location)
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    if not rest.startswith("//"):
        return scheme, _path(scheme, rest)
    authority, _, path = rest[2:].partition("/")
    if scheme == "file":
        return scheme, _path(scheme, f"/{path}")
    return f"{scheme}://{authority.removesuffix(_DEFAULT_PORTS.get(scheme, ':'))}", _path(scheme, f"/{path}")


def _path(scheme: str, path: str) -> str:
    return os.path.realpath(path) if scheme == "file" else path.rstrip("/")
