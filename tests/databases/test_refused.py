"""What a sink of a database refuses, and what its errors say: each test does what the message tells it to do."""

import contextlib
import math
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.errors import Misuse, Retryable, StreamsinkError
from streamsink.sinks.databases import mysql, postgresql, sqlite
from streamsink.sinks.databases.address import parse
from streamsink.sinks.databases.link import Link
from streamsink.storage.file_io import FileIO
from streamsink.testing.driver import SparkCheckpoint
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.databases.accidents import ENDS, World, write
from tests.databases.places import PASSWORDS, TABLE
from tests.services.lossy import LossyRelay

SECRET = "s3cr3t-value"
WAITS = {
    "mariadb": "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'Waiting for table metadata lock'",
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
}


def rows_of(**columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array([1, 2], pa.int64()), **columns})


def refused(place, kind: str, *batches: pa.RecordBatch, **of_sink):
    """The advice of the error with which writing ends. Nothing is written by then, and nothing is recorded."""
    before = place.ids() if place.has(TABLE) else []
    said = told(kind, lambda: write(place, *batches, **of_sink))
    assert (place.ids() if place.has(TABLE) else []) == before
    assert "Nothing" in said.message and SECRET not in said.message
    return said


@follows("database.options")
def test_options_are_named(place):
    """What is wrong with them is said, and the corrected ones are taken."""
    told("database.options", lambda: place.sink("/journal", mode="upsert")).says("'upsert' needs keys")
    place.sink("/journal", mode="upsert", keys=["id"])


@follows("database.url")
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@host/database",
        f"postgresql://host/database?password={SECRET}",
        f"mysql://:{SECRET}@host/database",
        f"oracle://user:{SECRET}@host/database",
        "mysql://host",
        "postgresql://host:http/database",
        "sqlite:relative.db",
        "sqlite::memory:",
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url, tmp_path):
    """A URL as the message wants it is taken."""
    from streamsink.databases import DatabaseSink

    said = told("database.url", lambda: DatabaseSink(url, "t"))
    assert SECRET not in said.message
    said.says("Nothing was written")
    for right in ("postgresql://host/database", "mysql://host/database", f"sqlite:{tmp_path}/x.db"):
        assert SECRET not in repr(DatabaseSink(right, "t", user="u", password_env="OF_THE_TEST"))


def test_a_journal_is_no_file_of_sqlite_itself(tmp_path):
    """SQLite opens the file of that name, finds a folder, and says 'disk I/O error' when the first row comes."""
    from streamsink.databases import DatabaseSink

    for end in ("-journal", "-wal", "-shm"):
        with pytest.raises(Misuse, match="SQLite's own file"):
            DatabaseSink(f"sqlite:{tmp_path}/rows.db", "t", journal=f"{tmp_path}/rows.db{end}")
    DatabaseSink(f"sqlite:{tmp_path}/rows.db", "t", journal=f"{tmp_path}/rows.db-journals")


@follows("database.password")
def test_a_password_that_is_not_there(served, monkeypatch):
    """The message names the variable, which is then set."""
    name = next(name for name in PASSWORDS if served.kind[:7].upper() in name)
    password = PASSWORDS[name]
    monkeypatch.delenv(name)
    assert refused(served, "database.password", rows_of()).find(r"environment variable (\S+),") == name
    monkeypatch.setenv(name, password)
    write(served, rows_of())


@follows("database.refused")
def test_a_wrong_password_is_not_shown(served, monkeypatch):
    """Neither in the message, nor in what is chained to it."""
    name = next(name for name in PASSWORDS if served.kind[:7].upper() in name)
    monkeypatch.setenv(name, SECRET)
    with pytest.raises(Misuse) as failed:
        write(served, rows_of())
    assert failed.value.__cause__ is None and failed.value.__suppress_context__
    refused(served, "database.refused", rows_of()).says("password_env")
    monkeypatch.setenv(name, PASSWORDS[name])
    write(served, rows_of())


@follows("database.unavailable")
def test_a_server_that_is_away(served):
    """It is a passing failure, and the query goes on when the server is there."""
    served.server.stop()
    try:
        with pytest.raises(Retryable) as failed:
            write(served, rows_of())
    finally:
        served.server.start()

    def run() -> None:
        raise failed.value

    told("database.unavailable", run).says("started again")
    write(served, rows_of())


@follows("database.unavailable")
def test_a_table_that_somebody_changes(served, monkeypatch):
    """Formerly MariaDB let the driver wait for a day, and with several writers for itself: whoever changes the table
    waits for what is prepared, and another writer behind him."""
    monkeypatch.setattr(mysql, "LOCK_TIMEOUT_S", 1)
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 1)
    store = write(served, rows_of())
    holds, changes = served.connect(), served.connect()
    holds.begin() if served.kind == "mariadb" else holds.execute("BEGIN")
    table = f"`{TABLE}`" if served.kind == "mariadb" else f'"{TABLE}"'
    holds.cursor().execute(f"SELECT * FROM {table}")
    changes.cursor().execute("SET lock_wait_timeout = 20" if served.kind == "mariadb" else "SET lock_timeout = '20s'")
    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(changes.cursor().execute, f"ALTER TABLE {table} ADD COLUMN more int")
        while not served.ask(WAITS[served.kind]):
            assert not changed.done()
        told("database.unavailable", lambda: write(served, rows_of(), rows_of(), journal=store)).says("started again")
        holds.rollback() if served.kind == "mariadb" else holds.execute("ROLLBACK")
        changed.result()
    write(served, rows_of(), rows_of(), journal=store)
    assert served.ids() == [1, 1, 2, 2]
    holds.close(), changes.close()


@follows("database.driver")
def test_a_driver_that_is_not_installed(tmp_path, monkeypatch):
    """The message says how to install it."""
    from streamsink.databases import DatabaseSink

    monkeypatch.setattr(sqlite.Sqlite, "module", "no_such_driver")
    sink = DatabaseSink(f"sqlite:{tmp_path}/x.db", "t")
    told("database.driver", lambda: sink.identity({})).says("no_such_driver", "take a Python")
    monkeypatch.undo()
    assert sink.identity({})


@follows("database.name")
@pytest.mark.parametrize("name", ["n" * 1001, "a\0b", ""])
def test_a_name_that_would_be_cut_off(place, name):
    """PostgreSQL would cut a long name off, and take what is left for the name: so of a table, and of a column."""
    told("database.name", lambda: place.sink("/journal", table=name)).says("Give it another name")
    if place.kind == "postgresql":
        told("database.name", lambda: place.sink("/journal", table="ä" * 32)).says("63 bytes")
        place.sink("/journal", table="ä" * 31)
    if "\0" not in name and name:
        refused(place, "database.name", rows_of(**{name: pa.array([1, 2])})).says("a column is")
    write(place, rows_of(), table="n" * 63)


@follows("database.table")
def test_a_table_that_is_not_there(place):
    """It is made by the option that the message gives."""
    said = refused(place, "database.table", rows_of(), create_table=False)
    write(place, rows_of(), create_table=said.option("create_table"))
    assert place.ids() == [1, 2]


WRONG_TABLES = {
    "sqlite": ["CREATE VIEW odd AS SELECT 1 AS id", "CREATE VIRTUAL TABLE odd USING fts5(id)"],
    "postgresql": [
        "CREATE VIEW odd AS SELECT 1::bigint AS id",
        "CREATE UNLOGGED TABLE odd (id bigint)",
        "CREATE MATERIALIZED VIEW odd AS SELECT 1::bigint AS id",
        "CREATE TABLE odd (id bigint); CREATE RULE r AS ON INSERT TO odd DO INSTEAD NOTHING",
        "CREATE TABLE odd (id bigint) PARTITION BY RANGE (id); CREATE TABLE half PARTITION OF odd DEFAULT "
        "PARTITION BY RANGE (id); CREATE UNLOGGED TABLE part PARTITION OF half DEFAULT",
    ],
    "mariadb": ["CREATE VIEW odd AS SELECT 1 AS id", "CREATE TABLE odd (id bigint) ENGINE=MyISAM"],
}


@follows("database.table")
def test_a_table_without_transactions_is_refused(place):
    """So is whatever is not a table, or is emptied by a crash, while what is remembered of it is not."""
    for made in WRONG_TABLES[place.kind]:
        place.drop()
        place.do(made)
        refused(place, "database.table", rows_of(), table="odd").says("Write into another table")
        write(place, rows_of(), table="even")


INTO = {"id": pa.array([1, 2], pa.int64()), "v": pa.array(["a", "b"])}


@follows("database.columns")
@pytest.mark.parametrize(
    ("columns", "rows", "words", "mended"),
    [
        ("id bigint", INTO, ["'v'", "does not have"], "id bigint, v varchar(9)"),
        ("id bigint, v varchar(9), w int NOT NULL", INTO, ["'w'", "NOT NULL"], "id bigint, v varchar(9), w int"),
        ("id bigint, V varchar(9)", INTO, ["'v'", "letter by letter"], "id bigint, v varchar(9)"),
        ("id bigint, v double precision", INTO, ["'v'", "expected"], "id bigint, v varchar(9)"),
        (
            "id bigint, v varchar(9)",
            {**INTO, "v": pa.array([1, 2], pa.int64())},
            ["'v'", "int64"],
            "id bigint, v bigint",
        ),
        ("id bigint, v varchar(9)", {**INTO, "v": pa.array([[1], [2]])}, ["to_json"], None),
    ],
)
def test_columns_that_do_not_fit(place, columns, rows, words, mended):
    """The message names the column, what was found and what was expected; a table that is changed so is taken."""
    if "V varchar" in columns and place.kind == "postgresql":
        columns = columns.replace("V", '"V"')
    for of_table in filter(None, (columns, mended)):
        place.drop()
        place.do(f"CREATE TABLE odd ({of_table})")
        batch = pa.RecordBatch.from_pydict(rows)
        if of_table == columns:
            refused(place, "database.columns", batch, table="odd").says(*words)
        else:
            write(place, batch, table="odd")


NARROW = {
    "sqlite": [("v NUMERIC", pa.array([1, 2], pa.decimal128(16, 2))), ("v INTEGER", pa.array(["1", "2"]))],
    "postgresql": [
        ("v timestamp(3)", pa.array([1, 2], pa.timestamp("us"))),
        ("v numeric(5,2)", pa.array([1, 2], pa.decimal128(6, 2))),
        ("v int", pa.array([1, 2], pa.int64())),
        ("v numeric(30,-3)", pa.array([1, 2], pa.int64())),
        ("v real", pa.array([1, 2], pa.float64())),
        ("v bigint GENERATED ALWAYS AS (id + 1) STORED", pa.array([1, 2], pa.int64())),
    ],
    "mariadb": [
        ("v datetime", pa.array([1, 2], pa.timestamp("us"))),
        ("v decimal(5,2)", pa.array([1, 2], pa.decimal128(6, 2))),
        ("v bigint unsigned", pa.array([1, 2], pa.int64())),
        ("v double(7,2)", pa.array([1.125, 2.0])),
        ("v float(7,0)", pa.array([1.125, 2.0], pa.float32())),
        ("v varchar(9) CHARACTER SET latin1", pa.array(["a", "b"])),
        ("v binary(9)", pa.array([b"a", b"b"])),
        ("v bigint AS (id + 1) STORED", pa.array([1, 2], pa.int64())),
    ],
}


def test_columns_that_would_change_values_in_silence(place):
    """Which would round, cut off, pad, or take no negative number."""
    for column, values in NARROW[place.kind]:
        place.drop()
        place.do(f"CREATE TABLE odd (id bigint, {column})")
        refused(place, "database.columns", rows_of(v=values), table="odd")


@follows("database.columns")
def test_keys_need_a_unique_index(place):
    """Of just these columns. In MariaDB and MySQL no other one may be there: a row that is equal there would be
    replaced, whose key is another one."""
    place.do("CREATE TABLE odd (id bigint NOT NULL, v bigint NOT NULL)")
    options = {"table": "odd", "mode": "upsert", "keys": ["id"]}
    batch = rows_of(v=pa.array([1, 2], pa.int64()))
    refused(place, "database.columns", batch, **options).says("unique index")
    place.do("CREATE UNIQUE INDEX both_of_them ON odd (id, v)")
    refused(place, "database.columns", batch, **options)
    place.do("CREATE UNIQUE INDEX of_the_key ON odd (id)")
    if place.kind == "mariadb":
        refused(place, "database.columns", batch, **options).says("Drop the other unique indexes")
        place.do("DROP INDEX both_of_them ON odd")
    write(place, batch, **options)


VALUES = {
    "v varchar(2) ": (pa.array(["ab", "abc"]), ("sqlite",)),
    "v varchar(2)": (pa.array(["ab", "ab "]), ("sqlite",)),
    "v bigint NOT NULL": (pa.array([1, None], pa.int64()), ()),
    "v double precision": (pa.array([1.0, math.nan]), ("postgresql",)),
    "v real": (pa.array([1.0, math.inf], pa.float32()), ("postgresql",)),
    "v text": (pa.array(["a", "a\0b"]), ("sqlite", "mariadb")),
    "v date": (pa.array([0, 10**7], pa.date32()), ("sqlite",)),
    "v varchar(9)": (pa.Array.from_buffers(pa.string(), 2, pa.array([b"ab", b"\xff\xfe"]).buffers()), ()),
}


@follows("database.values")
def test_values_that_do_not_fit_are_found_before_the_record(place):
    """The message has the column and no value; rows that are mended are written by the same query."""
    for column, (values, but_in) in VALUES.items():
        if place.kind in but_in:
            continue  # this database takes it
        place.drop()
        place.do(f"CREATE TABLE odd (id bigint, {column.strip()})")
        said = refused(place, "database.values", rows_of(v=values), table="odd", check_rows_up_to=0)
        said.says("column 'v'", "Mend the rows")
        write(place, pa.RecordBatch.from_pydict({"id": [1, 2], "v": values.take([0, 0])}), table="odd")


def test_a_dropped_schema_is_another_database(place):
    """Its identity changes, also when the same tables are made again; it does not while it is there."""
    sink = place.sink("/journal")
    first = sink.identity({})
    assert sink.identity({}) == first
    place.drop()
    assert sink.identity({}) != first


def test_a_database_that_has_gone_back_is_noticed(place):
    """What it remembers goes back with its rows: the query stops and writes nothing."""
    store = write(place, rows_of())
    place.do("DELETE FROM streamsink_checkpoints")
    with pytest.raises(StreamsinkError) as stopped:
        write(place, rows_of(), rows_of(), journal=store)
    assert re.search("Nothing was|nothing was", str(stopped.value)), stopped.value
    assert place.ids() == [1, 2]


def test_a_journal_that_is_lost(place, monkeypatch):
    """The database remembers how far the query has come: nothing is written twice, and where the query has lost its
    checkpoint as well it is told so."""
    world = World(place, monkeypatch)
    world.start(ends=ENDS[:3])
    world.io = FileIO(MemoryCalls(), IdSource().new_id)
    with pytest.raises(Misuse, match="overlaps what is published"):
        world.start(checkpoint=SparkCheckpoint("00000000-0000-0000-0000-000000000002"))
    assert place.ids() == list(range(ENDS[2]))
    world.start()
    assert place.ids() == list(range(ENDS[-1]))


def test_a_failover_changes_the_address(served):
    """The database is the same, so the sink is given the name that it had, which the error says."""
    store = write(served, rows_of())
    with LossyRelay(served.port) as relay:
        served.port = relay.port
        more = pa.RecordBatch.from_pydict({"id": pa.array([3], pa.int64())})
        said = told("journal.other-destination", lambda: write(served, rows_of(), more, journal=store))
        before = said.find(r"another destination, (.*?)\. Nothing was written")
        write(served, rows_of(), more, journal=store, name=before)
    assert served.ids() == [1, 2, 3]


def test_two_queries_and_two_tables_in_one_schema(place):
    """Each remembers its own."""
    write(place, rows_of())
    write(place, rows_of(), table="another")
    assert place.ids() == [1, 2] and place.count("another") == 2
    assert len(place.ask("SELECT target FROM streamsink_checkpoints")) == 2


def test_an_error_that_somebody_keeps_locks_no_file(tmp_path):
    """What it has read so far is alive in its traceback; the query is started again in the same process."""
    address, kept = parse(f"sqlite:{tmp_path}/shop.db", "", ""), []
    with contextlib.closing(sqlite3.connect(address.database)) as others:
        others.executescript("CREATE TABLE a (id INTEGER); INSERT INTO a VALUES (1), (2)")

    def work(run):
        kept.append(run("SELECT id FROM a"))
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(Retryable):
        Link(sqlite.Sqlite(), address, "shop").transaction(work, "nothing was read")
    with contextlib.closing(sqlite3.connect(address.database, timeout=0)) as others:
        others.execute("CREATE TABLE b (id INTEGER)")
    assert kept
