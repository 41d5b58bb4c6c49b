"""PostgreSQL for a job: a given server, or one of the job's own; and what its table holds."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from support.report import Outcome

PASSWORD = "STREAMSINK_JOB_PASSWORD"


@dataclass(frozen=True)
class Server:
    """url: postgresql://host:port/database. The password is in ``$STREAMSINK_JOB_PASSWORD``, if there is one."""

    url: str
    user: str

    def outcome(self, given_as: str, expected: int, table: str) -> Outcome:
        """Compare the table with the events 0 to ``expected`` - 1, each of which must be there once."""
        mine = "count(DISTINCT order_id) FILTER (WHERE order_id >= 0 AND order_id < %s)"
        text = psycopg.sql.SQL(f"SELECT count(*), count(DISTINCT order_id), {mine} FROM {{}}")
        with psycopg.connect(self.url, user=self.user or None, password=os.environ.get(PASSWORD)) as connection:
            row = connection.execute(text.format(psycopg.sql.Identifier(table)), [expected]).fetchone()
        return Outcome(given_as, expected, rows=row[0], duplicates=row[0] - row[1], lost=expected - row[2])


@contextlib.contextmanager
def server(url: str | None, user: str, folder: Path) -> Iterator[Server]:
    """The given server; or one whose data are in ``folder``, which ends with the job."""
    if url:
        yield Server(url, user)
        return
    from tests.services import postgres  # from the checkout; PostgreSQL itself is a package of the registry

    folder.mkdir(parents=True, exist_ok=True)
    with postgres.Postgres(folder) as own:
        os.environ[PASSWORD] = postgres.PASSWORD
        yield Server(f"postgresql://{postgres.LOOPBACK}:{own.port}/{postgres.DATABASE}", postgres.USER)
