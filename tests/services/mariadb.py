"""MariaDB: the machine's own, else Debian's packages, unpacked into the cache; nothing is installed into the system."""
import os
import shutil
import subprocess
from pathlib import Path

from tests.services.ports import LOOPBACK
from tests.services.server import Server, ServerError
from tools.common import SetupError, cache_dir, locked, run_retrying

USER, PASSWORD, DATABASE = "sink", "mariadb-of-the-tests", "locks"
PACKAGES = ["mariadb-server-core", "liburing2", "libaio1", "libnuma1"]
BOOTSTRAP_TIMEOUT_S = 120
# commits are written, not flushed, at once: that survives a kill, and the tests cut no power
SMALL = ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=2", "--innodb-doublewrite=0"]
SMALL += ["--performance-schema=OFF", "--aria-pagecache-buffer-size=8M", "--key-buffer-size=1M"]
# one statement a line, as the server's --init-file wants it
INIT = f"""CREATE DATABASE IF NOT EXISTS {DATABASE};
CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO '{USER}'@'%';
"""


def _unpacked() -> Path:
    """The root folder of the unpacked packages."""
    root = cache_dir() / "mariadb"
    with locked(cache_dir() / "mariadb.lock"):
        if not root.exists():
            if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
                raise ServerError("no mariadbd is installed, and its packages are fetched on Debian and its children only")
            scratch = root.with_name("mariadb.tmp")
            shutil.rmtree(scratch, ignore_errors=True)
            (scratch / "debs").mkdir(parents=True)
            if os.geteuid() == 0:
                subprocess.run(["apt-get", "-o", "DPkg::Lock::Timeout=300", "update", "-qq"], stdout=subprocess.DEVNULL)
            # apt-get downloads into the working directory
            run_retrying(["env", "-C", scratch / "debs", "apt-get", "download", "-qq", *PACKAGES], "downloading MariaDB")
            for package in sorted((scratch / "debs").glob("*.deb")):
                run_retrying(["dpkg-deb", "-x", package, scratch], f"unpacking {package.name}")
            shutil.rmtree(scratch / "debs")
            scratch.rename(root)
    return root


class MariaDb(Server):
    """One server on the loopback interface, with a user that has a password."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._root: Path | None = None

    @property
    def jdbc_url(self) -> str:
        """Under the name by which Paimon's writers know this protocol."""
        return f"jdbc:mysql://{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self):
        if not self._installed():
            try:
                self._root = _unpacked()
            except SetupError as why:
                raise ServerError(str(why)) from why
        if not (self.data_dir / "data").exists():
            shutil.copytree(self._bootstrapped(), self.data_dir / "data")
        (self.data_dir / "init.sql").write_text(INIT)

    def command(self):
        socket = os.path.relpath(self.data_dir / "s.sock", self.data_dir / "data")  # a socket's path may not be long
        return [
            *self._program(), f"--datadir={self.data_dir / 'data'}", f"--socket={socket}", f"--pid-file={self.data_dir / 'pid'}",
            f"--bind-address={LOOPBACK}", f"--port={self.port}", "--skip-name-resolve", f"--init-file={self.data_dir / 'init.sql'}",
        ]

    def environment(self):
        env = dict(os.environ)
        if self._root:
            libraries = next((self._root / "usr" / "lib").rglob("liburing.so.2*")).parent
            env["LD_LIBRARY_PATH"] = f"{libraries}:{env.get('LD_LIBRARY_PATH', '')}"
        return env

    def answers(self):
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def connect(self):
        """A connection of PyMySQL that commits by itself. Raises: OSError when the server does not serve."""
        import pymysql

        try:
            return pymysql.connect(
                host=LOOPBACK, port=self.port, user=USER, password=PASSWORD, database=DATABASE, autocommit=True, connect_timeout=5
            )
        except pymysql.err.MySQLError as refused:
            raise OSError(str(refused)) from refused

    def _installed(self) -> str | None:
        return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

    def _share(self) -> Path:
        return (self._root or Path("/")) / "usr" / "share" / "mysql"

    def _program(self) -> list[str]:
        share = self._share()
        program = str(self._root / "usr" / "sbin" / "mariadbd") if self._root else self._installed()
        plugins = (self._root or Path("/")) / "usr" / "lib" / "mysql" / "plugin"
        command = [program, "--no-defaults", f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"]
        command += [f"--plugin-dir={plugins}", *SMALL]
        return [*command, "--user=root"] if os.geteuid() == 0 else command

    def _bootstrapped(self) -> Path:
        """The system tables take a second: made once, then copied."""
        template = cache_dir() / f"mariadb-data-{os.geteuid()}"
        with locked(template.with_suffix(".lock")):
            if not template.exists():
                scratch = template.with_name(template.name + ".tmp")
                shutil.rmtree(scratch, ignore_errors=True)
                scratch.mkdir(parents=True)
                names = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
                script = "create database mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n"
                script += "".join((self._share() / name).read_text() for name in names)
                command = [*self._program(), "--bootstrap", f"--datadir={scratch}", "--log-warnings=0"]
                done = subprocess.run(
                    command, input=script, capture_output=True, text=True, timeout=BOOTSTRAP_TIMEOUT_S, env=self.environment()
                )
                if done.returncode:
                    raise ServerError(f"making MariaDB's system tables: {done.stdout[-2000:]}{done.stderr[-2000:]}")
                scratch.rename(template)
        return template
