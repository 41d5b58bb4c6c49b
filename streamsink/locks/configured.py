"""Makes the lock that the options name."""

import os
from urllib.parse import urlsplit

from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse
from streamsink.locks.lock import Lock, LockTerms
from streamsink.options import LockOptions

DEFAULT_CATALOG_KEY = "jdbc"  # Paimon's default of the option catalog-key
DEFAULT_HIVE_PORT = 9083


def lock_of(root: str, options: LockOptions, clock: Clock | None = None) -> Lock:
    """The lock of the table at ``root``; ``Lock.empty()`` if none is configured. No server is contacted yet.

    Raises: Misuse for an option ``lock`` that names no kind of lock, for a path without the names of database and
    table, and for a driver that is not installed.
    """
    url = options.lock
    if not url:
        return Lock.empty()
    terms = LockTerms(options.lock_id or _lock_id(root), options.lock_lease_ms, options.lock_acquire_timeout_ms)
    if url == "file" or url.startswith("file:"):
        return _file(root, url, terms, clock)
    if url.startswith("jdbc:"):
        from streamsink.locks import jdbc, sql_dialects

        dialect, address = sql_dialects.parse(url, options.lock_user)
        return jdbc.JdbcLock(dialect, address, _password(root, options.lock_password_env), terms, clock=clock)
    parts = urlsplit(url)
    if parts.scheme in ("hive", "thrift") and parts.hostname:
        if parts.query or parts.username is not None:
            raise Misuse(
                f"{root}: option 'lock': {parts.scheme}://{parts.hostname} has a user or parameters, which a lock does "
                f"not heed; expected {parts.scheme}://host:port",
                kind="lock.url",
            )
        from streamsink.locks.hive import HiveLock

        return HiveLock(parts.hostname, parts.port or DEFAULT_HIVE_PORT, terms, clock=clock)
    raise Misuse(
        f"{root}: option 'lock' is of the kind '{url.partition(':')[0]}', expected 'file', 'file:/folder', "
        "'jdbc:postgresql://host:port/database' (or mysql, mariadb, sqlite) or 'hive://host:port'",
        kind="lock.url",
    )


def _lock_id(root: str) -> str:
    folder, table = os.path.split(root.rstrip("/"))
    database = os.path.basename(folder)
    if not database.endswith(".db") or not table:
        raise Misuse(
            f"{root}: a lock needs the names of database and table, and the path is not "
            "<warehouse>/<database>.db/<table>: give lock_id='<catalog-key>.<database>.<table>'",
            kind="lock.id",
        )
    return f"{DEFAULT_CATALOG_KEY}.{database.removesuffix('.db')}.{table}"


def _file(root: str, url: str, terms: LockTerms, clock: Clock | None) -> Lock:
    from streamsink.locks.file_lock import FileLock
    from streamsink.storage.calls import PosixCalls
    from streamsink.storage.file_io import FileIO

    folder = os.path.join(root, "streamsink") if url == "file" else urlsplit(url).path
    if not os.path.isabs(folder):
        raise Misuse(
            f"{root}: option 'lock' is '{url}', expected 'file' for a table on a local disk, "
            "'file:/folder' when all writers of the table are on this host, else a lock that every host reaches",
            kind="lock.url",
        )
    path = os.path.join(folder, f"{terms.lock_id}.lock".replace("/", "_"))
    return FileLock(FileIO(PosixCalls(), IdSource().new_id, flush=False), path, terms, clock)


def _password(root: str, variable: str | None) -> str | None:
    if variable is None:
        return None
    if variable not in os.environ:
        raise Misuse(
            f"{root}: lock_password_env names the environment variable {variable}, which is not set",
            kind="lock.password",
        )
    return os.environ[variable]
