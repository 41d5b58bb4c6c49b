"""Into databases: exactly once, beside Spark's own writer of JDBC in a batch function, which is at least once."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.data import Sizes
from benchmarks.report import Table, at_least
from benchmarks.sinks import turns
from benchmarks.stores import NO_SERVER
from streamsink.databases import DatabaseSink
from streamsink.sink import to_sink
from tests.services import mariadb, postgres
from tests.services.server import Server

JDBC, BATCHED = "df.write.jdbc", "df.write.jdbc, rewritten statements"
OURS, ASYNC, TWO = "streamsink", 'streamsink, publish="async"', "streamsink, writers=2"
STAGED = 'streamsink, writers=2, writers_by="staged"'
_PASSWORD_ENV = "STREAMSINK_BENCH_DATABASE"


@dataclass(frozen=True)
class _Kind:
    """A database. batched: what a JDBC URL has to have so that many rows become one statement."""

    title: str
    server: Callable[[Path], Any]
    address: str
    user: str
    password: str
    driver: str
    batched: str
    schema: str
    columns: str


_POSTGRESQL = _Kind(
    "PostgreSQL",
    postgres.Postgres,
    f"postgresql://127.0.0.1:{{}}/{postgres.DATABASE}",
    postgres.USER,
    postgres.PASSWORD,
    "org.postgresql.Driver",
    "reWriteBatchedInserts=true",
    "public",
    "id bigint, customer bigint, price double precision, discount double precision, at timestamptz, status text, "
    "city text, note text",
)
_MARIADB = _Kind(
    "MariaDB",
    mariadb.MariaDb,
    f"mariadb://127.0.0.1:{{}}/{mariadb.DATABASE}",
    mariadb.USER,
    mariadb.PASSWORD,
    "com.mysql.cj.jdbc.Driver",
    "rewriteBatchedStatements=true",
    mariadb.DATABASE,
    "id BIGINT, customer BIGINT, price DOUBLE, discount DOUBLE, at DATETIME(6), status TEXT CHARACTER SET utf8mb4, "
    "city TEXT CHARACTER SET utf8mb4, note TEXT CHARACTER SET utf8mb4",
)


def databases(spark, folder: Path, sizes: Sizes) -> list:
    """Each database after the other, on a server of its own."""
    found, harder = [], []
    for kind in (_POSTGRESQL, _MARIADB):
        os.environ[_PASSWORD_ENV] = kind.password
        at = folder / "databases" / kind.title
        try:
            with kind.server(at / "server") as server:
                place = _place(kind, server)
                large, speed, *_ = turns.large(spark, at, place, sizes)
                # A micro-batch is too small for two.
                one = {way: of for way, of in place.ways.items() if way not in (TWO, STAGED)}
                micro, *_ = turns.micro(spark, at, replace(place, ways=one), sizes)
        except NO_SERVER as why:
            found.append(Table(f"Into {kind.title}", ("not measured",), [[str(why)]]))
            continue
        finally:
            del os.environ[_PASSWORD_ENV]
        found += [large, micro]
        for way in (OURS, TWO, STAGED, ASYNC):
            if way not in (TWO, STAGED):  # what it brings depends on the processors that the server has to spare
                what = f"{kind.title}{', async' if way == ASYNC else ''}: rows/s against df.write.jdbc"
                found.append(at_least(what, turns.ratio(speed, way, JDBC), 1.5))
            harder.append([kind.title, way, f"{turns.ratio(speed, way, BATCHED):.2f}x"])
    if harder:
        title = "Large batches against df.write.jdbc with rewritten statements, which is no goal"
        found.append(Table(title, ("database", "sink", "rows/s"), harder))
    return found


def _place(kind: _Kind, server: Server) -> turns.Place:
    url = kind.address.format(server.port)
    jdbc = "jdbc:" + url.replace("mariadb:", "mysql:")

    def with_jdbc(address: str) -> turns.Way:
        login = {"user": kind.user, "password": kind.password, "driver": kind.driver}

        def start(rows: DataFrame, at: Path, table: str) -> DataStreamWriter:
            return rows.writeStream.foreachBatch(lambda df, number: df.write.jdbc(address, table, "append", login))

        return turns.Way(start)

    def ours(publish: str, writers: int = 1, by: str = "auto") -> turns.Way:
        begun = []

        def start(rows: DataFrame, at: Path, table: str) -> DataStreamWriter:
            where = {"schema": kind.schema, "user": kind.user, "password_env": _PASSWORD_ENV}
            where |= {"writers": writers, "writers_by": by}
            destination = DatabaseSink(url, table, journal=str(at / "journal"), **where)
            begun[:] = [to_sink(destination, lambda event: None, application=table, publish=publish)]
            return rows.writeStream.foreachBatch(begun[0])

        return turns.Way(start, lambda: begun[0].close())

    def make(table: str) -> None:
        _ask(server, f"CREATE TABLE {kind.schema}.{table} ({kind.columns})")

    ways = {JDBC: with_jdbc(jdbc), BATCHED: with_jdbc(f"{jdbc}?{kind.batched}")}
    return turns.Place(
        f"Into {kind.title}",
        {**ways, OURS: ours("sync"), TWO: ours("sync", 2), STAGED: ours("sync", 2, "staged"), ASYNC: ours("async")},
        make=make,
        count=lambda table: _ask(server, f"SELECT count(*) FROM {kind.schema}.{table}"),
        shape=lambda rows: rows,
    )


def _ask(server: Any, statement: str) -> int:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] if statement.startswith("SELECT") else 0
