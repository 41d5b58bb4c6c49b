"""A database of each kind on its real server, and what a reader sees in it."""

import sqlite3
import uuid
from collections.abc import Sequence
from pathlib import Path

from streamsink.databases import DatabaseSink
from tests.services import mariadb, postgres

PASSWORDS = {"STREAMSINK_TEST_POSTGRES": postgres.PASSWORD, "STREAMSINK_TEST_MARIADB": mariadb.PASSWORD}
SERVERS = ("postgresql", "mariadb")
KINDS = ("sqlite", *SERVERS)
TABLE = "rows of 'us'"


class Place:
    """A schema of its own. server: None for SQLite. port: of the server, or of a relay before it."""

    def __init__(self, kind, server, tmp_path):
        self.kind, self.server = kind, server
        self.port = server.port if server else 0
        self.schema = "" if kind == "sqlite" else f's"`% {uuid.uuid4().hex[:12]}'
        self.file = str(tmp_path / f"{uuid.uuid4().hex}.db")
        self.mark = "?" if kind == "sqlite" else "%s"
        self.make()

    @property
    def url(self) -> str:
        if self.kind == "sqlite":
            return f"sqlite:{self.file}"
        name = postgres.DATABASE if self.kind == "postgresql" else mariadb.DATABASE
        return f"{self.kind}://127.0.0.1:{self.port}/{name}"

    def sink(self, journal: str, **options) -> DatabaseSink:
        of = {"table": TABLE, "create_table": True, "journal": journal, "schema": self.schema, **options}
        if self.server:
            of["user"] = postgres.USER if self.kind == "postgresql" else mariadb.USER
            of["password_env"] = f"STREAMSINK_TEST_{self.kind.upper().removesuffix('QL')}"
        return DatabaseSink(self.url, **of)

    def connect(self):
        """A connection that commits by itself."""
        if not self.server:
            return sqlite3.connect(self.file, isolation_level=None)
        connection = self.server.connect()
        with connection.cursor() as cursor:
            cursor.execute(f"{'SET search_path =' if self.kind == 'postgresql' else 'USE'} {self._quoted(self.schema)}")
        return connection

    def ask(self, text: str, *parameters, write: bool = False) -> Sequence[tuple]:
        """Execute a statement in the schema, in which double quotes are around names and '?' marks a parameter."""
        text = text.replace('"', "`") if self.kind == "mariadb" else text
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(text.replace("?", self.mark) if parameters else text, parameters or ())
            return [] if write else list(cursor.fetchall())
        finally:
            connection.close()

    def count(self, table: str) -> int:
        """How many rows a table of whatever name has."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(f"SELECT count(*) FROM {self._quoted(table)}")
            return cursor.fetchone()[0]
        finally:
            connection.close()

    def _quoted(self, name: str) -> str:
        mark = "`" if self.kind == "mariadb" else '"'
        return mark + name.replace(mark, 2 * mark) + mark

    def do(self, text: str, *parameters) -> None:
        self.ask(text, *parameters, write=True)

    def ids(self) -> list[int]:
        """The ids that a reader sees, sorted; none where there is no table yet."""
        return [row[0] for row in self.ask(f'SELECT id FROM "{TABLE}" ORDER BY id')] if self.has(TABLE) else []

    def has(self, table: str) -> bool:
        if not self.server:
            return bool(self.ask("SELECT 1 FROM sqlite_master WHERE name = ?", table))
        ask = "SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?"
        return bool(self.ask(ask, self.schema, table))

    def make(self) -> None:
        if self.server:
            with self.server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(self._create())

    def _create(self) -> str:
        return f"CREATE SCHEMA {self._quoted(self.schema)}{' CHARACTER SET utf8mb4' if self.kind == 'mariadb' else ''}"

    def drop(self) -> None:
        """Drop all, and create an empty schema in its place."""
        if not self.server:
            for end in ("", "-journal"):
                Path(self.file + end).unlink(missing_ok=True)
            return
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA {self._quoted(self.schema)}{' CASCADE' if self.kind == 'postgresql' else ''}")
            cursor.execute(self._create())


def place_of(kind, request, tmp_path) -> Place:
    """The place of this kind; its server is started."""
    server = {"postgresql": "postgres", "mariadb": "mariadb"}.get(kind)
    return Place(kind, request.getfixturevalue(server) if server else None, tmp_path)
