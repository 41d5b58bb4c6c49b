"""Transactions that outlive their connection, by the statements of each database.

Who prepares one has its promise: whatever dies, it can still be committed or rolled back, by its name, by any
connection of the same user, also when the server was killed and started again.

``run`` executes a statement on a connection that commits by itself. A name has small letters, digits and '-' alone, so
nothing in it has to be quoted.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


class Prepared(ABC):
    """One database system."""

    @abstractmethod
    def refused(self, run: Run, at_once: int) -> str:
        """Why there cannot be so many at once, and what to do; '' if there can. In an open transaction."""

    @abstractmethod
    def begin(self, run: Run, name: str) -> None:
        """Begin the transaction."""

    @abstractmethod
    def prepare(self, run: Run, name: str) -> None:
        """Prepare it. Nothing of it is visible, and it keeps its locks."""

    @abstractmethod
    def commit(self, run: Run, name: str) -> None:
        """Commit a prepared one."""

    @abstractmethod
    def roll_back(self, run: Run, name: str) -> None:
        """Roll back a prepared one."""

    @abstractmethod
    def names(self, run: Run, start: str) -> list[str]:
        """The prepared ones whose names begin so."""

    @abstractmethod
    def is_absent(self, error: Exception) -> bool:
        """Whether committing failed because none of this name can be had: it is gone, or another connection has it."""

    def is_forbidden(self, error: Exception) -> bool:
        """Whether a transaction was not ended because another user has prepared it. By default anybody may end it."""
        return False

    @abstractmethod
    def commits_by_itself(self, connection: Any) -> None:
        """Let each statement of a connection outside of such transactions be one of its own."""


class PostgreSqlPrepared(Prepared):
    """PREPARE TRANSACTION."""

    def refused(self, run: Run, at_once: int) -> str:
        ask = "SELECT setting::int FROM pg_catalog.pg_settings WHERE name = 'max_prepared_transactions'"
        most = int(run(ask).fetchone()[0])
        if most >= at_once:
            return ""
        return (
            f"max_prepared_transactions of the server is {most}, and {at_once} are needed. Set it to at least "
            f"{at_once} in the server's configuration and start the server again"
        )

    def begin(self, run: Run, name: str) -> None:
        run("BEGIN")

    def prepare(self, run: Run, name: str) -> None:
        run(f"PREPARE TRANSACTION '{name}'")

    def commit(self, run: Run, name: str) -> None:
        run(f"COMMIT PREPARED '{name}'")

    def roll_back(self, run: Run, name: str) -> None:
        run(f"ROLLBACK PREPARED '{name}'")

    def names(self, run: Run, start: str) -> list[str]:
        ask = "SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()"
        return sorted(name for (name,) in run(ask) if name.startswith(start))

    def is_absent(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in ("42704", "55000")  # not there; another connection is at it

    def is_forbidden(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == "42501"

    def commits_by_itself(self, connection: Any) -> None:
        connection.autocommit = True


class MySqlPrepared(Prepared):
    """XA of MariaDB and MySQL. A transaction belongs to its connection until that ends, also when it is prepared."""

    def refused(self, run: Run, at_once: int) -> str:
        version = str(run("SELECT VERSION()").fetchone()[0])
        least = (10, 5) if "MariaDB" in version else (8, 0, 30)
        numbers = version.removeprefix("5.5.5-").split("-")[0].split(".")  # some MariaDB say that they are 5.5.5 first
        if tuple(int(number) for number in numbers if number.isdigit()) < least:
            return (
                f"the server is {version}: before MariaDB 10.5 and MySQL 8.0.30 a prepared transaction is lost with "
                "its connection, or with the server. Use a newer one"
            )
        galera = run("SHOW VARIABLES LIKE 'wsrep_on'").fetchone()
        if galera is not None and galera[1] == "ON":
            return "the server belongs to a Galera cluster, which has no XA. Use a server without Galera"
        from pymysql import err

        try:
            run("XA RECOVER")
        except err.MySQLError as refused:
            if refused.args[0] not in _NO_RIGHT:
                raise
            return "the user may not execute XA RECOVER. GRANT XA_RECOVER_ADMIN ON *.* to it"
        return ""

    def begin(self, run: Run, name: str) -> None:
        run("XA START %s", name)

    def prepare(self, run: Run, name: str) -> None:
        run("XA END %s", name)
        run("XA PREPARE %s", name)

    def commit(self, run: Run, name: str) -> None:
        run("XA COMMIT %s", name)

    def roll_back(self, run: Run, name: str) -> None:
        run("XA ROLLBACK %s", name)

    def names(self, run: Run, start: str) -> list[str]:
        found = [row[3] for row in run("XA RECOVER")]
        names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in found]
        return sorted(name for name in names if name.startswith(start))

    def is_absent(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in (1397, 1402)  # XAER_NOTA, XA_RBROLLBACK

    def commits_by_itself(self, connection: Any) -> None:
        connection.autocommit(True)


_NO_RIGHT = (1227, 1401)  # a privilege is missing; how MySQL says the same of XA RECOVER
