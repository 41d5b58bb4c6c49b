"""Where a lock of each kind is."""

import uuid

from tests.locks import worker
from tests.services import mariadb, postgres

PASSWORDS = {"STREAMSINK_TEST_POSTGRES": postgres.PASSWORD, "STREAMSINK_TEST_MARIADB": mariadb.PASSWORD}
KINDS = ("file", "sqlite", "postgresql", "mariadb", "hive")
SHORT_LEASE_S = 2


class Place:
    """Where a lock of one kind is: its options, its server if it has one, and how long a silent holder keeps it.

    By default no lease ends while a test runs, however slow the machine is; what waits for one to end takes the
    ``short`` one. Only a metastore has a single length for all, ``lease_s``.
    """

    def __init__(self, kind, settings, server, tmp_path, lease_s):
        self.kind = kind
        self.settings = {"lock_lease_ms": 600_000, "lock_acquire_timeout_ms": 240_000, **settings}
        self.short = {**self.settings, "lock_lease_ms": SHORT_LEASE_S * 1000}
        self.server = server
        self.folder = tmp_path
        self.lease_s = lease_s
        self.root = str(tmp_path / f"d{uuid.uuid4().hex[:12]}.db" / "orders")

    def lock(self, clock=None, **settings):
        """A lock object of its own, as another process would have it."""
        return worker.make(self.root, {**self.settings, **settings}, clock)


def place_of(kind, request, tmp_path) -> Place:
    """The place of this kind; its server is started."""
    if kind == "file":
        return Place(kind, {"lock": f"file:{tmp_path}/locks"}, None, tmp_path, 0)
    if kind == "sqlite":
        return Place(kind, {"lock": f"jdbc:sqlite:{tmp_path}/locks.db"}, None, tmp_path, SHORT_LEASE_S)
    if kind == "hive":
        server = request.getfixturevalue("hive_metastore")
        return Place(kind, {"lock": f"hive://127.0.0.1:{server.port}"}, server, tmp_path, server.lock_timeout_s)
    name = "postgres" if kind == "postgresql" else "mariadb"
    user = postgres.USER if kind == "postgresql" else mariadb.USER
    server = request.getfixturevalue(name)
    settings = {"lock": server.jdbc_url, "lock_user": user, "lock_password_env": f"STREAMSINK_TEST_{name.upper()}"}
    return Place(kind, settings, server, tmp_path, SHORT_LEASE_S)
