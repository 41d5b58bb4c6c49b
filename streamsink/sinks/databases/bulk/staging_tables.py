"""Staging tables: what one connection fills, and another one moves into the table that is meant.

Statements, as texts. Names of tables and columns that are given are quoted already. A staging table has some columns of
the table that is meant, with their types and collations, and none of its indexes, constraints, triggers and defaults:
whatever these refuse is refused when the rows are moved.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

# So long it is waited for who uses a table that is to be dropped: a later start drops it as well.
_DROP_TIMEOUT_S = 1


class StagingTables(ABC):
    """One database system.

    drops_with_rows: a table can be dropped in the transaction that moves its rows. find: the names of those tables of a
    schema (a parameter) whose names begin (a parameter) so, given the length of that (a parameter, the second one).
    impatient: lets a connection wait but shortly for who uses a table.
    """

    drops_with_rows: bool
    find: str
    impatient: str

    @abstractmethod
    def create(self, table: str, into: str, names: Sequence[str]) -> str:
        """Make a table with these columns of the table ``into``."""

    @abstractmethod
    def grants(self, schema: str, into: str, user: str) -> str:
        """The statements that give a user what is needed, for messages. schema: not quoted. user: as CURRENT_USER."""

    @abstractmethod
    def upsert(self, into: str, table: str, names: Sequence[str], keys: Sequence[str]) -> str:
        """Move rows, which replace those with the same keys. No two are of the same key."""

    @abstractmethod
    def delete(self, into: str, table: str, keys: Sequence[str]) -> str:
        """Delete the rows with the keys that the table has."""

    def insert(self, into: str, table: str, names: Sequence[str]) -> str:
        """Move rows."""
        of = ", ".join(names)
        return f"INSERT INTO {into} ({of}) SELECT {of} FROM {table}"

    def drop(self, tables: Sequence[str]) -> str:
        """Drop tables, as far as they are there."""
        return f"DROP TABLE IF EXISTS {', '.join(tables)}"


class PostgreSqlStaging(StagingTables):
    """Unlogged tables: nobody needs them behind a crash of the server, which ends who would move their rows as well."""

    drops_with_rows = True
    find = (
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND left(c.relname::text, %s) = %s AND c.relkind = 'r' ORDER BY c.relname"
    )
    impatient = f"SET LOCAL lock_timeout = '{_DROP_TIMEOUT_S}s'"

    def create(self, table: str, into: str, names: Sequence[str]) -> str:
        return f"CREATE UNLOGGED TABLE {table} AS SELECT {', '.join(names)} FROM {into} WITH NO DATA"

    def grants(self, schema: str, into: str, user: str) -> str:
        to = f'TO "{_twice(user, chr(34))}"'
        return f'GRANT CREATE ON SCHEMA "{_twice(schema, chr(34))}" {to}; GRANT SELECT ON {into} {to}'

    def upsert(self, into: str, table: str, names: Sequence[str], keys: Sequence[str]) -> str:
        return f"{self.insert(into, table, names)} {conflict(names, keys)}"

    def delete(self, into: str, table: str, keys: Sequence[str]) -> str:
        same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        return f"DELETE FROM {into} t USING {table} s WHERE {same}"


class MySqlStaging(StagingTables):
    """Tables of InnoDB. Making and dropping a table commits, so another connection does both."""

    drops_with_rows = False
    find = (
        "SELECT TABLE_NAME FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = %s AND LEFT(TABLE_NAME, %s) = %s AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME"
    )
    impatient = f"SET SESSION lock_wait_timeout = {_DROP_TIMEOUT_S}"

    def create(self, table: str, into: str, names: Sequence[str]) -> str:
        return f"CREATE TABLE {table} ENGINE=InnoDB AS SELECT {', '.join(names)} FROM {into} LIMIT 0"

    def grants(self, schema: str, into: str, user: str) -> str:
        name, _, host = user.rpartition("@")
        # In the name of the schema these two stand for other letters.
        of = _twice(schema, "`").replace("_", r"\_").replace("%", r"\%")
        to = f"'{_twice(name, chr(39))}'@'{_twice(host, chr(39))}'"
        return f"GRANT CREATE, DROP, INSERT, SELECT ON `{of}`.* TO {to}"

    def upsert(self, into: str, table: str, names: Sequence[str], keys: Sequence[str]) -> str:
        others = [name for name in names if name not in keys]
        # A row with nothing but its keys stays as it is.
        change = ", ".join(f"{name} = VALUES({name})" for name in others) or f"{keys[0]} = {into}.{keys[0]}"
        return f"{self.insert(into, table, names)} ON DUPLICATE KEY UPDATE {change}"

    def delete(self, into: str, table: str, keys: Sequence[str]) -> str:
        same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        return f"DELETE t FROM {into} AS t INNER JOIN {table} AS s ON {same}"


def conflict(names: Sequence[str], keys: Sequence[str]) -> str:
    """What PostgreSQL is told of rows whose keys are there. names: of all columns of the rows."""
    others = [name for name in names if name not in keys]
    change = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others) if others else "NOTHING"
    return f"ON CONFLICT ({', '.join(keys)}) DO {change}"


def _twice(name: str, mark: str) -> str:
    return name.replace(mark, 2 * mark)
