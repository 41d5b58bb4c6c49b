"""Where a database is: its URL, without any password."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from streamsink.errors import Misuse

SYSTEMS = ("postgresql", "mysql", "mariadb", "sqlite")
_PORTS = {"postgresql": 5432, "mysql": 3306}
_SECRETS = ("password", "passwd", "sslpassword")
# What stands before the '?' of a URL of PostgreSQL; and all that may stand behind it for MariaDB and MySQL.
_BEFORE = ("host", "port", "dbname")
_OF_MYSQL = ("ssl_ca", "ssl_cert", "ssl_key")


@dataclass(frozen=True)
class Address:
    """Where a database is, and who asks it.

    place: the URL up to its '?', for messages. password_env: the name of the environment variable of the driver that
    holds the password; '' for none. parameters: those after the '?', for the driver of the database.
    """

    system: str
    place: str
    host: str = ""
    port: int | None = None
    database: str = ""
    user: str = ""
    password_env: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    def table(self, schema: str, name: str) -> tuple[str, ...]:
        """What a table of the database is, however the file and its name are spelled, as far as that can be seen here.

        Two sinks of one table have the same.
        """
        if self.system == "sqlite":  # where letters of ASCII that differ in case alone are the same
            return "sqlite", os.path.realpath(self.database), _small(schema or "main"), _small(name)
        system = "mysql" if self.system == "mariadb" else self.system
        return system, self.host.lower(), str(self.port or _PORTS[system]), self.database, schema, name

    def password(self) -> str | None:
        """The password, which is read when it is needed and kept nowhere. Raises Misuse when it is not there."""
        if not self.password_env:
            return None
        if self.password_env not in os.environ:
            raise Misuse(
                f"{self.place}: the environment variable {self.password_env}, which password_env names, is not set on "
                "the driver. Nothing was written. Set it",
                kind="database.password",
            )
        return os.environ[self.password_env]


def parse(url: str, user: str = "", password_env: str = "") -> Address:
    """The address of '<system>://host:port/database?...', or of 'sqlite:<absolute path>'; 'jdbc:' may stand before it.

    Raises Misuse, which never shows a password.
    """
    text = url.removeprefix("jdbc:")
    system, _, rest = text.partition(":")
    place = text.partition("?")[0]
    if system not in SYSTEMS:
        raise Misuse(
            f"a database sink knows no database of the kind '{system.partition('@')[0][:20]}'. Nothing was written. "
            "Give it postgresql://host/database, mysql://host/database, mariadb://host/database or "
            "sqlite:/absolute/path",
            kind="database.url",
        )
    if system == "sqlite":
        path, _, asked = rest.partition("?")
        _check_parameters(place, [name for name, _ in parse_qsl(asked, keep_blank_values=True)], "none")
        path = path.removeprefix("//")
        if not path.startswith("/"):
            raise Misuse(
                f"{place}: expected sqlite: and the absolute path of a file. Nothing was written. A database in memory "
                "is gone with its driver, and a relative path is another file in another folder",
                kind="database.url",
            )
        return Address(system, f"sqlite:{path}", database=path)
    parts = urlsplit(text)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.username is not None or "@" in parts.netloc or any(name.lower() in _SECRETS for name in parameters):
        raise Misuse(
            f"a {system} URL of a database sink holds a user or a password. Nothing was written. Name the user in "
            "'user', and in 'password_env' the environment variable that holds the password",
            kind="database.url",
        )
    database, port = unquote(parts.path.lstrip("/")), _port(parts.netloc, place)
    if not database or (not parts.hostname and system != "postgresql"):
        raise Misuse(f"{place}: expected {system}://host:port/database. Nothing was written", kind="database.url")
    given = parameters.pop("user", "")
    user = user or given
    if system == "postgresql":
        wrong = [name for name, value in parameters.items() if not value or name in _BEFORE]
        _check_parameters(place, wrong, "host, port and database before the '?', and there what psycopg takes besides")
    else:
        wrong = [name for name, value in parameters.items() if not value or name not in _OF_MYSQL]
        _check_parameters(place, wrong, f"no others than {', '.join(_OF_MYSQL)}")
    return Address(system, place, parts.hostname or "", port, database, user, password_env, parameters)


def _small(name: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _check_parameters(place: str, wrong: Sequence[str], expected: str) -> None:
    """Raises Misuse when there are parameters that would not be heeded: without one that asks for TLS there is none."""
    if wrong:
        raise Misuse(
            f"{place}: the URL has the parameter {', '.join(wrong)} behind its '?', expected {expected}. Nothing was "
            "written. Correct the URL",
            kind="database.url",
        )


def _port(netloc: str, place: str) -> int | None:
    port = netloc.rpartition("]")[2].partition(":")[2]
    if port and not port.isdecimal():
        raise Misuse(f"{place}: '{port}' is no port. Nothing was written. Give a number", kind="database.url")
    return int(port) if port else None
