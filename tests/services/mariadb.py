"""MariaDB: the machine's own, otherwise Debian's packages, unpacked into the cache;
nothing is installed into the system."""

import os
import shutil
from pathlib import Path

from tests.services.ports import LOOPBACK
from tests.services.server import Database, ServerError, made_once, run
from tools.common import SetupError, run_retrying

USER, PASSWORD, DATABASE = "sink", "mariadb-of-the-tests", "locks"
PACKAGES = ["mariadb-server-core", "liburing2", "libaio1", "libnuma1"]
# Commits are written at once and not flushed: that survives a kill, and the tests cut no power.
SMALL = [
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-doublewrite=0",
]
SMALL += ["--performance-schema=OFF", "--aria-pagecache-buffer-size=8M", "--key-buffer-size=1M"]
# There is one statement a line, as the server's --init-file wants it.
INIT = f"""CREATE DATABASE IF NOT EXISTS {DATABASE};
CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;
"""


def _unpack(root: Path) -> None:
    """Unpack Debian's packages below a folder of ours."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ServerError("no mariadbd is installed, and its packages are fetched on Debian and its children only")
    (root / "debs").mkdir(parents=True)
    # Only root may update the lists; the lists that are there may do as well.
    update = "apt-get -o DPkg::Lock::Timeout=300 update -qq; " if os.geteuid() == 0 else ""
    # They are downloaded into the working directory.
    download = f'{update}cd "$1" && shift && apt-get download -qq "$@"'
    try:
        run_retrying(["sh", "-c", download, "sh", root / "debs", *PACKAGES], "downloading MariaDB")
    except SetupError as why:
        raise ServerError(str(why)) from why
    for package in sorted((root / "debs").glob("*.deb")):
        run(f"unpacking {package.name}", ["dpkg-deb", "-x", package, root])
    shutil.rmtree(root / "debs")


class MariaDb(Database):
    """One server on the loopback interface, with a user that has a password."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._root: Path | None = None

    @property
    def jdbc_url(self) -> str:
        """The address in the form by which Paimon's writers know this protocol."""
        return f"jdbc:mysql://{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self):
        if not self._installed():
            self._root = made_once("mariadb", _unpack)
        if not (self.data_dir / "data").exists():
            shutil.copytree(made_once(f"mariadb-data-{os.geteuid()}", self._bootstrap), self.data_dir / "data")
        (self.data_dir / "init.sql").write_text(INIT)

    def command(self):
        socket = os.path.relpath(self.data_dir / "s.sock", self.data_dir / "data")  # A socket's path may not be long.
        return [
            *self._program(),
            f"--datadir={self.data_dir / 'data'}",
            f"--socket={socket}",
            f"--pid-file={self.data_dir / 'pid'}",
            f"--bind-address={LOOPBACK}",
            f"--port={self.port}",
            "--skip-name-resolve",
            f"--init-file={self.data_dir / 'init.sql'}",
        ]

    def environment(self):
        env = dict(os.environ)
        if self._root:
            libraries = next((self._root / "usr" / "lib").rglob("liburing.so.2*")).parent
            env["LD_LIBRARY_PATH"] = f"{libraries}:{env.get('LD_LIBRARY_PATH', '')}"
        return env

    def connect(self):
        import pymysql

        try:
            return pymysql.connect(
                host=LOOPBACK,
                port=self.port,
                user=USER,
                password=PASSWORD,
                database=DATABASE,
                autocommit=True,
                connect_timeout=60,
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

    def _bootstrap(self, folder: Path) -> None:
        """Make the system tables, which take a second."""
        folder.mkdir(parents=True)
        names = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
        script = "create database mysql;\nuse mysql;\nset @auth_root_socket=NULL;\n"
        script += "".join((self._share() / name).read_text() for name in names)
        command = [*self._program(), "--bootstrap", f"--datadir={folder}", "--log-warnings=0"]
        run("making MariaDB's system tables", command, input=script, env=self.environment())
