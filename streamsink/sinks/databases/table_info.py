"""What a database says of a table, and whether rows with certain columns can be written into it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamsink.errors import Misuse


@dataclass(frozen=True)
class Column:
    """A column of a table.

    type: as the database writes it, for messages. base: the name of the type alone, in small letters. size: what its
    kind of type has: most characters of a text, most bytes of a binary, digits of a number, digits behind the point of
    a second; None where there is no limit. scale: digits of a number behind the point. exact: two values are equal only
    when they are the same (not so in a collation that ignores case). optional: a row may leave it out. computed: the
    database gives it its value. unsigned: it holds no negative numbers. whole: it holds all of Unicode. bytes: most
    bytes of a text, where they are limited. first_year, last_year: of a date or a time that it holds. regular, odd:
    where the database reads texts, such as JSON, regular expressions: of texts that look right, and of those among them
    that may be wrong all the same; '' for none.
    """

    name: str
    type: str
    base: str
    nullable: bool
    size: int | None = None
    scale: int = 0
    exact: bool = True
    optional: bool = False
    computed: bool = False
    unsigned: bool = False
    whole: bool = True
    bytes: int | None = None
    first_year: int = 1
    last_year: int = 9999
    regular: str = ""
    odd: str = ""


@dataclass(frozen=True)
class TableInfo:
    """A table.

    unique: the columns of each unique index that covers all rows. other_unique: there are unique indexes of another
    kind as well, such as of a part of the rows. ruled: constraints or triggers may refuse rows that fit its columns.
    wrong: why rows cannot be written here exactly once; '' when they can. largest_row: in bytes; None for no limit.
    hides_rows: there may be rows that this user does not see, and deletes none of, without an error. encoding: of the
    database, where it may lack letters; '' where it has all.
    """

    name: str
    columns: tuple[Column, ...]
    unique: tuple[frozenset[str], ...] = ()
    other_unique: bool = False
    ruled: bool = False
    wrong: str = ""
    largest_row: int | None = None
    hides_rows: bool = False
    encoding: str = ""

    def column(self, name: str) -> Column | None:
        """The column of exactly this name."""
        return next((column for column in self.columns if column.name == name), None)


def check_names(info: TableInfo, names: Sequence[str], path: str) -> None:
    """Raises Misuse when rows with columns of these names do not fit into the table."""
    known = {column.name: column for column in info.columns}
    missing = [name for name in names if name not in known]
    if missing:
        raise misfit(
            path,
            f"the rows have the columns {said(missing)}, which the table does not have; its columns are {said(known)}",
            "Add them to the table, or leave them out of the rows (names are compared letter by letter)",
        )
    computed = [name for name in names if known[name].computed]
    if computed:
        raise misfit(path, f"the database computes the columns {said(computed)} itself", "Leave them out of the rows")
    needed = [column.name for column in info.columns if not (column.optional or column.name in names)]
    if needed:
        raise misfit(
            path,
            f"the rows lack the columns {said(needed)}, which the table needs: they are NOT NULL and have no default",
            "Give the rows these columns, or the columns of the table a default",
        )


def check_keys(info: TableInfo, keys: Sequence[str], *, others_matter: bool, path: str) -> None:
    """Raises Misuse unless rows can be replaced by these keys. others_matter: no other unique index may be there."""
    if frozenset(keys) not in info.unique:
        found = "; ".join(said(sorted(columns)) for columns in info.unique) or "none"
        raise misfit(
            path,
            f"no unique index has the columns {said(keys)} alone, all rows, and is checked at once; unique "
            f"indexes found: {found}",
            "Make them the primary key, or create a unique index of them",
        )
    if others_matter and (info.other_unique or len(set(info.unique)) > 1):
        raise misfit(
            path,
            "the table has unique indexes besides that of the keys, and this database would replace a row that "
            "has an equal value there, although its key is another one",
            "Drop the other unique indexes",
        )


def misfit(path: str, found: str, remedy: str) -> Misuse:
    """The error for rows and a table that do not go together. found: what is so. remedy: what to do."""
    return Misuse(f"{path}: {found}. Nothing was written. {remedy}", kind="database.columns")


def said(names: Collection[str]) -> str:
    """Names in a message."""
    return ", ".join(f"'{name}'" for name in names)


def digits_of(of: pa.DataType) -> int:
    """How many digits the largest number of an Arrow type of integers has."""
    return len(str(2 ** (of.bit_width - 1)))
