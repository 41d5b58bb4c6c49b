"""What differs between the databases that hold locks: the driver, how it connects, and the SQL for times.

``?`` marks a parameter. The expressions for age and expiry are those of Paimon's writers, so that all writers agree.
"""

import contextlib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from streamsink.errors import Misuse
from streamsink.locks.libpq_login import is_login, is_refused_by, sqlstate_of

# Parameters of libpq behind the '?', beside those that say where the database is; the names of JDBC are others.
_OF_POSTGRESQL = (
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "sslsni", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version", "channel_binding", "require_auth", "gssencmode"),
    *("krbsrvname", "gsslib", "passfile", "service", "connect_timeout", "tcp_user_timeout", "keepalives"),
    *("keepalives_idle", "keepalives_interval", "keepalives_count", "target_session_attrs", "application_name"),
)
_SECRETS = ("password", "passwd", "sslpassword")
CONNECT_TIMEOUT_S = 10
CALL_TIMEOUT_S = 10


@dataclass(frozen=True)
class Address:
    """Where the database is. ``place`` is the URL up to its '?', for messages; ``parameters`` are those after it."""

    place: str
    host: str
    port: int | None
    database: str
    user: str | None
    parameters: Mapping[str, str]


class Dialect(ABC):
    """One database system.

    module: the Python driver. remedy: how to install it. heeded: the parameters that it takes behind the '?' of a URL.
    now, expired, age_s: SQL expressions.
    begin: the statement that opens a transaction; None if the driver opens it.
    """

    module: str
    remedy: str
    heeded: tuple[str, ...] = ()
    # Our rows begin 10 seconds before now, so that no other writer's row of the same second looks like ours.
    now: str
    expired: str
    age_s: str
    for_update = " FOR UPDATE"
    insert_ignore = ("INSERT INTO", " ON CONFLICT DO NOTHING")
    placeholder = "%s"
    begin: str | None = None

    def driver(self) -> ModuleType:
        """The driver's module. Raises: Misuse if it is not installed."""
        try:
            return importlib.import_module(self.module)
        except ImportError as missing:
            raise Misuse(
                f"a lock in this database needs the Python module '{self.module}', which is not there: {self.remedy}",
                kind="lock.driver",
            ) from missing

    @abstractmethod
    def connect(self, address: Address, password: str | None) -> Any:
        """A DB-API connection in which a transaction is open until it is committed. Raises: the driver's errors."""

    @abstractmethod
    def is_refusal(self, error: Exception) -> bool:
        """Whether waiting cannot help: the user, the password or the database is wrong, or a right is missing."""

    def is_deadlock(self, error: Exception) -> bool:
        """Whether the transaction was rolled back because another one was in its way, so that it may be run again."""
        return False

    def sql(self, text: str) -> str:
        """The statement with this driver's parameter marks in place of ``?``."""
        return text.replace("?", self.placeholder)


class PostgreSql(Dialect):
    """PostgreSQL.

    Paimon stores local times without a zone in it, so ``timezone`` in the URL must be its writers' zone.
    """

    module = "psycopg"
    remedy = "pip install 'streamsink[postgresql]'"
    heeded = ("user", "timezone", "options", *_OF_POSTGRESQL)
    now = "CAST(clock_timestamp() AS TIMESTAMP) - INTERVAL '10 seconds'"
    expired = "EXTRACT(EPOCH FROM AGE(clock_timestamp(), acquired_at)) > expire_time_seconds"
    age_s = "CAST(EXTRACT(EPOCH FROM AGE(clock_timestamp(), acquired_at)) AS BIGINT)"

    def connect(self, address: Address, password: str | None) -> Any:
        given = address.parameters
        settings = f"-c statement_timeout={CALL_TIMEOUT_S * 1000} -c timezone={given.get('timezone', 'UTC')}"
        parameters = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "tcp_user_timeout": CALL_TIMEOUT_S * 1000,
            **{name: value for name, value in given.items() if name in _OF_POSTGRESQL},
            "host": address.host,
            "port": address.port or 5432,
            "dbname": address.database,
            "user": address.user,
            "password": password,
            "options": f"{settings} {given.get('options', '')}".strip(),  # of two the later one counts
        }
        psycopg = self.driver()
        try:
            return psycopg.connect(**parameters, prepare_threshold=None)  # a pooler may mix up prepared statements
        except psycopg.OperationalError as failed:  # psycopg knows no code of a connection that was never made
            failed.sqlstate = failed.sqlstate or sqlstate_of(parameters, CONNECT_TIMEOUT_S) or None
            raise

    def is_refusal(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None)
        if isinstance(error, self.driver().ProgrammingError):
            return state != "42P07"  # duplicate table: two writers create the tables at once
        return is_refused_by(state) if state else is_login(str(error))

    def is_deadlock(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in ("40001", "40P01")  # serialization failure, deadlock


class MySql(Dialect):
    """MySQL and MariaDB."""

    module = "pymysql"
    remedy = "pip install 'streamsink[mysql]'"
    heeded = ("user", "ssl_ca", "ssl_cert", "ssl_key")
    now = "NOW() - INTERVAL 10 SECOND"
    expired = "TIMESTAMPDIFF(SECOND, acquired_at, NOW()) > expire_time_seconds"
    age_s = "TIMESTAMPDIFF(SECOND, acquired_at, NOW())"
    insert_ignore = ("INSERT IGNORE INTO", "")

    def connect(self, address: Address, password: str | None) -> Any:
        pymysql = self.driver()
        connection = pymysql.connect(
            host=address.host,
            port=address.port or 3306,
            database=address.database,
            user=address.user,
            password=password or "",
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=CALL_TIMEOUT_S,
            write_timeout=CALL_TIMEOUT_S,
            # With this flag a renewal within the same second counts as an updated row, although it changes nothing.
            client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            **{name: value for name, value in address.parameters.items() if name.startswith("ssl_")},
        )
        connection.query(
            "SET SESSION time_zone = '+00:00'"
        )  # a zone without daylight saving, where no hour comes twice
        return connection

    def is_refusal(self, error: Exception) -> bool:
        denied = (1044, 1045, 1049, 1142, 1698)  # user, password, database or right is wrong or missing
        of_file = isinstance(error, OSError)  # a certificate's; errors of the network are the driver's own
        return (
            of_file
            or isinstance(error, self.driver().err.ProgrammingError)
            or error.args[:1] in [(code,) for code in denied]
        )

    def is_deadlock(self, error: Exception) -> bool:
        return error.args[:1] == (1213,)


class Sqlite(Dialect):
    """SQLite, for writers on one host only: its file locks do not work on network file systems."""

    module = "sqlite3"
    remedy = "take a Python that was built with it"
    now = "datetime('now', '-10 seconds')"
    expired = "strftime('%s', 'now') - strftime('%s', acquired_at) > expire_time_seconds"
    age_s = "strftime('%s', 'now') - strftime('%s', acquired_at)"
    for_update = ""
    placeholder = "?"
    begin = "BEGIN IMMEDIATE"

    def connect(self, address: Address, password: str | None) -> Any:
        sqlite = self.driver()
        connection = sqlite.connect(
            address.database, timeout=CALL_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        # If the database is busy a later connection sets the mode, which then stays.
        with contextlib.suppress(sqlite.OperationalError):
            # A catalog of Paimon leaves a read open, which would otherwise block every writer as long as it lives.
            connection.execute("PRAGMA journal_mode=WAL")
        return connection

    def is_refusal(self, error: Exception) -> bool:
        return any(words in str(error) for words in ("unable to open", "not a database", "readonly"))


_DIALECTS: Mapping[str, Callable[[], Dialect]] = {
    "postgresql": PostgreSql,
    "mysql": MySql,
    "mariadb": MySql,
    "sqlite": Sqlite,
}


def parse(url: str, user: str | None) -> tuple[Dialect, Address]:
    """The dialect and address of 'jdbc:<database>://host:port/name?...'.

    Raises: Misuse, which never shows a password.
    """
    place = url.partition("?")[0]
    system, _, rest = url.removeprefix("jdbc:").partition(":")
    if system not in _DIALECTS:
        raise Misuse(
            f"option 'lock': there is no lock in a database of the kind '{system}'; expected jdbc:postgresql, "
            "jdbc:mysql, jdbc:mariadb or jdbc:sqlite",
            kind="lock.url",
        )
    dialect, parts = _DIALECTS[system](), urlsplit(f"{system}:{rest}")
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.username is not None or any(name.lower() in _SECRETS for name in parameters):
        raise Misuse(
            "option 'lock': the URL holds a user or a password; name the user in 'lock_user', and in "
            "'lock_password_env' the environment variable that holds the password",
            kind="lock.url",
        )
    unheeded = [name for name, value in parameters.items() if not value or name not in dialect.heeded]
    if unheeded:  # without one that asks for TLS there would be none
        raise Misuse(
            f"option 'lock': {place}: the URL has {', '.join(unheeded)} behind its '?', which a lock does not heed; "
            f"expected {'one of ' + ', '.join(dialect.heeded) if dialect.heeded else 'nothing there'}",
            kind="lock.url",
        )
    if system == "sqlite":
        return dialect, Address(place, "", None, rest.partition("?")[0].removeprefix("file:"), None, {})
    database = parts.path.lstrip("/")
    if not parts.hostname or not database:
        raise Misuse(f"option 'lock': {place}: expected jdbc:{system}://host:port/database", kind="lock.url")
    user = user or parameters.get("user")
    return dialect, Address(place, parts.hostname, parts.port, database, user, parameters)
