"""What differs between databases: the driver, how it connects, its SQL, and what its errors mean.

Statements are made of fixed text and of names that are quoted by ``quoted``; values are parameters, never text.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.sinks.databases.address import Address
from streamsink.sinks.databases.bulk.prepared import Prepared
from streamsink.sinks.databases.bulk.staging_tables import StagingTables
from streamsink.sinks.databases.table_info import Column, TableInfo

CONNECT_TIMEOUT_S = 10
# So long a statement waits for a lock that another transaction holds.
LOCK_TIMEOUT_S = 30
# So long a transaction may stand still before the server ends it, where it can: a driver that sleeps in one would
# hold up its successor.
IDLE_TIMEOUT_S = 60
# Said of an error that means so.
NO_WRITES = "which means that it takes no writes: it is a replica, or set to read only. Name the one that takes them"
# The tables of ours.
CHECKPOINTS, IDENTITY, BRANCHES = "streamsink_checkpoints", "streamsink_identity", "streamsink_branches"


class Dialect(ABC):
    """One database system.

    module: the Python driver. remedy: how to install it. mark: stands for a parameter. begin: the statement that opens
    a transaction; None if the driver opens it. for_update: locks the rows that a SELECT finds. insert_absent: what
    stands before and after an INSERT that does nothing where the key is there. longest_name: in bytes, or letters.
    counts_bytes: which of both.
    others_matter: replacing by key looks at every unique index. has_nan: numbers may be NaN or infinite.
    has_zero_byte: texts may have a zero byte. repeats: a statement may replace the same row twice, in order.
    prepared: transactions that outlive their connection; None where there are none. staging: tables that others fill;
    None where one connection writes at a time.
    """

    module: str
    remedy: str
    mark = "%s"
    begin: str | None = None
    for_update = " FOR UPDATE"
    insert_absent = ("INSERT INTO", " ON CONFLICT DO NOTHING")
    longest_name = 64
    counts_bytes = False
    others_matter = False
    has_nan = False
    has_zero_byte = True
    repeats = True
    prepared: Prepared | None = None
    staging: StagingTables | None = None

    def driver(self) -> ModuleType:
        """The driver's module. Raises Misuse if it is not installed."""
        try:
            return importlib.import_module(self.module)
        except ImportError as missing:
            raise Misuse(
                f"a sink for this database needs the Python module '{self.module}' on the driver, which is not there: "
                f"{self.remedy}. Nothing was written",
                kind="database.driver",
            ) from missing

    # -- connections -----------------------------------------------------------------------------------------------

    @abstractmethod
    def connect(self, address: Address) -> Any:
        """A DB-API connection in which nothing is committed by itself. Raises the driver's errors."""

    def close(self, connection: Any) -> None:
        """Close a connection; what is not committed is rolled back. Raises the driver's errors."""
        connection.close()

    @abstractmethod
    def is_passing(self, error: Exception) -> bool:
        """Whether the same may succeed later: the server is away, or another transaction was in the way."""

    @abstractmethod
    def is_quick(self, error: Exception) -> bool:
        """Whether trying again at once may help: the connection was lost, or the transaction was chosen to give way."""

    def is_forbidden(self, error: Exception) -> bool:
        """Whether the user lacks a right."""
        return False

    @abstractmethod
    def told(self, error: Exception) -> str:
        """What the database says, without any value of a row: a code, and names of columns and constraints."""

    # -- names -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def quoted(self, *names: str) -> str:
        """A name as it stands in a statement, with the schema before it if there are two. '%' is doubled if need be."""

    def check_name(self, name: str, what: str) -> None:
        """Raises Misuse for a name that the database would cut off or refuse."""
        length = len(name.encode()) if self.counts_bytes else len(name)
        if not name or "\0" in name or length > self.longest_name:
            raise Misuse(
                f"{what} is {name!r}: expected 1 to {self.longest_name} {'bytes' if self.counts_bytes else 'letters'} "
                "without a zero byte. Nothing was written. Give it another name",
                kind="database.name",
            )

    # -- tables ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def our_tables(self, schema: str) -> dict[str, str]:
        """The statements that create the tables of ours when they are absent, by name.

        That of the branches is among them where transactions can be prepared.
        """

    @abstractmethod
    def schema(self, run: "Run", wanted: str) -> str:
        """The schema that is meant. wanted: '' for the default one."""

    @abstractmethod
    def exists(self, run: "Run", schema: str, table: str) -> bool:
        """Whether the schema has a table of exactly this name."""

    def other_spelling(self, run: "Run", schema: str, table: str) -> str:
        """The name of a table that is there, and which the database takes for the same one although its letters are in
        another case; '' where it has none.
        """
        return ""

    @abstractmethod
    def describe(self, run: "Run", schema: str, table: str) -> TableInfo:
        """What the database says of a table that exists."""

    def has_letters(self, run: "Run", letters: str) -> bool:
        """Whether the database, whose encoding lacks some, can keep all of these. The transaction is over if not."""
        return True

    def reads(self, run: "Run", column: Column, texts: Sequence[str]) -> bool:
        """Whether the database can read these texts as values of a column. The transaction is over if not."""
        return True

    @abstractmethod
    def expected(self, column: Column, of: pa.DataType) -> str:
        """'' when all values of an Arrow type fit into the column, else the types of columns that hold them.

        What depends on the single value, such as the length of a text, is looked at by ``values.py``.
        """

    @abstractmethod
    def type_for(self, of: pa.DataType, is_key: bool) -> str:
        """The type of a column that is created for an Arrow type; '' where there is none."""

    # -- rows ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def insert(self, run: "Run", into: str, rows: pa.Table) -> None:
        """Insert rows. into: the quoted table."""

    @abstractmethod
    def upsert(self, run: "Run", into: str, rows: pa.Table, keys: Sequence[str]) -> None:
        """Insert rows, and replace those that have the same keys. No two rows are of the same key."""

    @abstractmethod
    def delete(self, run: "Run", into: str, keys: pa.Table) -> None:
        """Delete the rows with these keys, as far as they are there."""

    def check_at_once(self, run: "Run") -> None:
        """Check now what is otherwise checked when the transaction is committed."""


class Run:
    """Runs statements in the open transaction of a connection."""

    def __init__(self, connection: Any):
        self.connection = connection

    def __call__(self, text: str, *parameters: Any) -> Any:
        """Execute one statement, in which the dialect's ``mark`` stands for a parameter, and return its cursor."""
        cursor = self.connection.cursor()
        # Also without parameters a tuple: so that '%%' stands for '%' in every statement.
        cursor.execute(text, parameters)
        return cursor

    def many(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each of these rows of parameters."""
        self.connection.cursor().executemany(text, rows)
