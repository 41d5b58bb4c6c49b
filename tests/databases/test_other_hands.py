"""What other hands do to a table, or how a server is reached: no row is left out, doubled, or put elsewhere by that."""

import contextlib
import datetime
import uuid

import psycopg
import pyarrow as pa
import pymysql
import pytest

from streamsink.databases import DatabaseSink
from streamsink.sinks.databases import mysql, postgresql
from streamsink.sinks.databases.link import Link
from streamsink.storage.stores import Store
from streamsink.testing.faults import InjectedCrash
from tests.advice.following import follows, told
from tests.databases.accidents import World, write
from tests.databases.places import TABLE, place_of
from tests.databases.test_refused import refused, rows_of
from tests.services import mariadb, postgres

KEYED = {"table": "odd", "mode": "upsert", "keys": ["id"]}
# What is done to a table with the key ``id`` while a record waits, the kind of the error, its words, and the way back.
CHANGES = {
    "mariadb": [
        (
            "ALTER TABLE odd DROP PRIMARY KEY",
            "database.columns",
            "no unique index",
            "ALTER TABLE odd ADD PRIMARY KEY (id)",
        ),
        (
            "CREATE UNIQUE INDEX u ON odd (word)",
            "database.columns",
            "Drop the other unique indexes",
            "DROP INDEX u ON odd",
        ),
        ("ALTER TABLE odd ENGINE=MyISAM", "database.table", "no transactions", "ALTER TABLE odd ENGINE=InnoDB"),
    ],
    "postgresql": [("ALTER TABLE odd SET UNLOGGED", "database.table", "unlogged", "ALTER TABLE odd SET LOGGED")],
    "sqlite": [
        (
            "ALTER TABLE odd RENAME TO o; CREATE VIEW odd AS SELECT * FROM o",
            "database.table",
            "no ordinary table",
            "DROP VIEW odd; ALTER TABLE o RENAME TO odd",
        )
    ],
}


@follows("database.columns", "database.table")
def test_a_table_that_is_changed_while_a_record_waits(place, monkeypatch):
    """The record of an earlier start is committed only when its rows still fit. Formerly MariaDB added rows whose keys
    were there, when it had lost the index of the keys, and replaced other rows when it had got another index."""
    told("database.table", lambda: write(place, rows_of(), create_table=False)).says("Create it")
    told("database.columns", lambda: write(place, rows_of(), mode="upsert", keys=["no"])).says("Correct it")
    world = World(place, monkeypatch, **KEYED)
    place.do("CREATE TABLE odd (id bigint NOT NULL PRIMARY KEY, word varchar(40))")
    ends = [3]
    world.start(ends=ends)
    for change, error, words, back in CHANGES[place.kind]:
        with monkeypatch.context() as patch:
            patch.setattr(DatabaseSink, "_commit", _dies)
            with pytest.raises(InjectedCrash):
                world.start(ends=[*ends, ends[-1] + 2])
        for text in change.split("; "):
            place.do(text)
        said = told(error, lambda: world.start(ends=[*ends, ends[-1] + 2]))
        said.says(words, "are in the journal already", "change the table")
        assert [row[0] for row in place.ask("SELECT id FROM odd ORDER BY id")] == list(range(ends[-1]))
        for text in back.split("; "):
            place.do(text)
        ends.append(ends[-1] + 2)
        world.start(ends=ends)
        assert [row[0] for row in place.ask("SELECT id FROM odd ORDER BY id")] == list(range(ends[-1]))


@pytest.mark.in_turn("renamed tables of databases", 2)
@follows("database.renamed", "journal.other-destination")
@pytest.mark.parametrize("republish", [False, True])
def test_a_table_that_is_renamed_while_the_query_is_stopped(place, monkeypatch, republish):
    """What is remembered stands under its name of before: formerly its rows were taken for lost, and the sink wrote
    them once more when it was to write again what is missing."""
    world = World(place, monkeypatch, options={"on_rollback": "republish"} if republish else {})
    world.start(ends=(3, 5))
    renamed = f'ALTER TABLE "{TABLE}" RENAME TO odd'
    place.do(renamed)
    world.of_sink = {"table": "odd"}
    said = told("journal.other-destination", lambda: world.start(ends=(3, 5, 9)))
    world.of_sink["name"] = said.find(r"another destination, (.*?)\. Nothing was written")
    statement = told("database.renamed", lambda: world.start(ends=(3, 5, 9))).find(r"execute (UPDATE .*?); and start")
    with contextlib.closing(place.connect()) as connection:
        connection.cursor().execute(statement)
    world.start(ends=(3, 5, 9))
    assert [row[0] for row in place.ask("SELECT id FROM odd ORDER BY id")] == list(range(9))


def _dies(*_):
    raise InjectedCrash("before the commit")


@follows("database.rows-refused")
@pytest.mark.parametrize("by_key", [False, True], ids=["insert", "upsert"])
def test_a_constraint_that_leaves_rows_out_by_itself(tmp_path, by_key):
    """SQLite's constraints may say ON CONFLICT IGNORE or REPLACE: a row was left out, or took another one's place, and
    nobody was told."""
    place = place_of("sqlite", None, tmp_path)
    place.do(
        "CREATE TABLE odd (id INTEGER PRIMARY KEY ON CONFLICT IGNORE, u INTEGER UNIQUE ON CONFLICT REPLACE, "
        "v TEXT NOT NULL ON CONFLICT IGNORE)"
    )
    options = KEYED if by_key else {"table": "odd"}
    columns = {"u": pa.array([7, 8]), "v": pa.array(["a", "b"])}
    store = write(place, rows_of(**columns), **options)
    same_u = pa.RecordBatch.from_pydict({"id": [3], "u": [7], "v": ["c"]})
    for _ in range(2):
        told("database.rows-refused", lambda: write(place, rows_of(**columns), same_u, journal=store, **options)).says(
            "Mend the rows"
        )
        assert place.ask("SELECT id, u FROM odd ORDER BY id") == [(1, 7), (2, 8)]
    mended = pa.RecordBatch.from_pydict({"id": [3], "u": [9], "v": ["c"]})
    write(place, rows_of(**columns), mended, journal=store, **options)
    assert place.ask("SELECT id, u FROM odd ORDER BY id") == [(1, 7), (2, 8), (3, 9)]


FAR = {
    "date": pa.array([(67_560 - 1970) * 365], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([2_070_000_000_000 * 1_000_000], pa.int64()).cast(pa.timestamp("us")),
}


@pytest.mark.in_turn("times far away in databases", 2)
@follows("database.values")
@pytest.mark.parametrize("of", FAR)
def test_a_time_tens_of_thousands_of_years_away(place, of):
    """A day of 2035 in milliseconds that are taken for seconds: of its year Arrow keeps 16 bits, which are one of ours.
    So it was recorded, and could not be written by any start."""
    near = {"date": datetime.date(9999, 12, 31), "timestamp": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)}[of]
    good, far = (
        pa.RecordBatch.from_pydict({"id": [1], "v": pa.array([near], FAR[of].type)}),
        pa.RecordBatch.from_pydict({"id": [2], "v": FAR[of]}),
    )
    refused(place, "database.values", far, check_rows_up_to=0).says("outside of the years 1 to 9999", "Mend the rows")
    write(place, good)
    assert place.ids() == [1]


def test_a_few_long_rows_among_many_short_ones(request, tmp_path):
    """They stand in one statement with others of their length, which the server refused as too large: it ended the
    connection, and the query was told again and again to look whether the database is there."""
    place = place_of("mariadb", request, tmp_path)
    texts = ["x" * 6_500_000] * 3 + ["y"] * 87
    batch = pa.RecordBatch.from_pydict({"id": pa.array(range(90), pa.int64()), "v": texts})
    write(place, batch)
    assert place.ids() == list(range(90))


def test_nothing_is_prepared(request, tmp_path):
    """A pooler in transaction mode hands a transaction to any connection of the server, where another client's
    statement may have the name of ours: rows went into that client's table."""
    place = place_of("postgresql", request, tmp_path)
    place.do("CREATE TABLE odd (id bigint PRIMARY KEY, v bigint)")
    place.do(
        "CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.v = (SELECT count(*) FROM pg_prepared_statements); RETURN NEW; END $$"
    )
    place.do("CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION t()")
    batches = [pa.RecordBatch.from_pydict({"id": [n], "v": [9]}) for n in range(8)]
    write(place, *batches, **KEYED)
    assert place.ask("SELECT DISTINCT v FROM odd") == [(0,)]


def test_a_pooler_is_told_nothing_that_outlives_a_transaction(request, tmp_path, monkeypatch):
    """It gives the next transaction any session of the server, with other settings, and this session to anybody. Here a
    session looks as it does behind PgBouncer, whose number of it is its own."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 0)
    place = place_of("postgresql", request, tmp_path)
    place.do("CREATE TABLE odd (id bigint, v text)")
    place.do(
        "CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"NEW.v = concat_ws(' ', {SHOWN}); RETURN NEW; END $$"
    )
    place.do("CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION t()")
    session, connect = [], postgresql.PostgreSql._connected
    monkeypatch.setattr(
        postgresql.PostgreSql, "_connected", lambda *given: session.append(connect(*given)) or session[-1]
    )
    of_role = ("synchronous_commit = off", "statement_timeout = '9s'", "default_transaction_isolation = 'serializable'")
    ask = f"SELECT {SHOWN}"
    try:
        for setting in of_role:
            place.do(f"ALTER ROLE {postgres.USER} SET {setting}")
        with monkeypatch.context() as patch:
            patch.setattr(Link, "close", lambda link: None)  # the session stays, as it does with the pooler
            write(place, rows_of(), table="odd")
        assert place.ask("SELECT DISTINCT v FROM odd") == [("on 0 30s 1min UTC read committed",)]
        assert session[-1].execute(ask).fetchone()[:3] == ("off", "9s", "0")
        assert "read committed" not in session[-1].execute("SHOW default_transaction_isolation").fetchone()
    finally:
        place.do(f"ALTER ROLE {postgres.USER} RESET ALL")


@follows("database.unavailable")
def test_a_server_that_takes_no_writes(request, tmp_path):
    """A replica, or one that an operator has set so. Formerly the message spoke of locks."""
    place = place_of("postgresql", request, tmp_path)
    try:
        place.do(f"ALTER ROLE {postgres.USER} SET default_transaction_read_only = on")
        told("database.unavailable", lambda: write(place, rows_of())).says("a replica, or set to read only")
    finally:
        with place.connect() as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER ROLE {postgres.USER} RESET ALL")
    write(place, rows_of())
    assert "a replica" in mysql.MySql().told(pymysql.err.OperationalError(1290, "--read-only"))


SETTINGS = (
    *("synchronous_commit", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"),
    *("timezone", "transaction_isolation"),
)
SHOWN = ", ".join(f"current_setting('{name}')" for name in SETTINGS)


def test_nothing_is_prepared_for_a_journal(request, tmp_path):
    """As in a table."""
    port = place_of("postgresql", request, tmp_path).port
    root = f"postgresql://{postgres.USER}@{postgres.LOOPBACK}:{port}/{postgres.DATABASE}"
    io = Store(root, {"password": postgres.PASSWORD}).open()
    for number in range(8):
        io.exists(f"{root}/{number}")
    calls = io._calls if hasattr(io, "_calls") else io.calls
    assert calls._connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


@follows("database.table")
def test_rows_that_a_policy_hides_cannot_be_deleted(request, tmp_path, monkeypatch):
    """PostgreSQL deletes none of them, and says so to nobody."""
    place = place_of("postgresql", request, tmp_path)
    place.do("CREATE TABLE odd (id bigint PRIMARY KEY)")
    place.do("ALTER TABLE odd ENABLE ROW LEVEL SECURITY")
    place.do("CREATE POLICY adds ON odd FOR INSERT WITH CHECK (true)")
    place.do("CREATE POLICY sees ON odd FOR SELECT USING (true)")
    place.do("CREATE POLICY changes ON odd FOR UPDATE USING (true)")
    options = {**KEYED, "delete_column": "gone"}
    batches = [pa.RecordBatch.from_pydict({"id": [1], "gone": [gone]}) for gone in (False, True)]
    with _Poor(place, monkeypatch) as user:
        user.grant("DELETE ON odd")
        told("database.table", lambda: write(place, *batches, **options)).says("BYPASSRLS")
        place.do(f"ALTER ROLE {user.name} BYPASSRLS")
        write(place, *batches, **options)
        assert place.count("odd") == 0


class _Poor:
    """The sinks of a place are those of a user with few rights. A context manager."""

    def __init__(self, place, monkeypatch):
        self.place, self.name = place, f"u{uuid.uuid4().hex[:12]}"
        self.host = "@'%'" if place.kind == "mariadb" else ""
        monkeypatch.setenv("OF_THE_TEST", "of-the-tests")
        of = {"schema": place.schema, "user": self.name, "password_env": "OF_THE_TEST"}
        monkeypatch.setattr(
            place, "sink", lambda journal, **given: DatabaseSink(place.url, journal=journal, **of, **given)
        )

    def __enter__(self):
        password = "IDENTIFIED BY" if self.host else "PASSWORD"
        self._do(f"CREATE USER {self.name}{self.host} {password} 'of-the-tests'")
        schema = self.place._quoted(self.place.schema)
        if self.host:
            self.grant(f"SELECT, INSERT, UPDATE, CREATE ON {schema}.*")
            self.grant(f"SELECT ON {mariadb.DATABASE}.*")  # to which it connects
        else:
            self.grant(f"USAGE, CREATE ON SCHEMA {schema}")
            self.grant("SELECT, INSERT, UPDATE ON odd")
        return self

    def _do(self, text: str) -> None:
        with contextlib.closing(self.place.connect()) as connection:
            connection.cursor().execute(text)

    def grant(self, rights: str) -> None:
        self._do(f"GRANT {rights} TO {self.name}{self.host}")

    def __exit__(self, *_):
        if not self.host:
            self._do(f"DROP OWNED BY {self.name}")
        self._do(f"DROP USER {self.name}{self.host}")


@follows("database.refused")
def test_a_right_is_missing_when_a_record_is_committed(served, monkeypatch):
    """The message speaks of rights, and no more of a table that is to take the rows."""
    key = "id bigint NOT NULL PRIMARY KEY"
    served.do(f"CREATE TABLE odd ({key})")
    options = {**KEYED, "delete_column": "gone", "check_rows_up_to": 0}
    batches = [pa.RecordBatch.from_pydict({"id": [1], "gone": [gone]}) for gone in (False, True)]
    with _Poor(served, monkeypatch) as user:
        store = write(served, batches[0], **options)
        said = told("database.refused", lambda: write(served, *batches, journal=store, **options))
        said.says("it is in the journal", "the rights of the user")
        schema = served._quoted(served.schema)
        user.grant(f"DELETE ON {schema}.odd")
        told("restore.restarting", lambda: write(served, *batches, journal=store, **options))
        assert served.count("odd") == 0


def test_a_user_who_may_make_no_temporary_table(request, tmp_path, monkeypatch):
    """Where REVOKE ALL ON DATABASE has taken that from all, few rows were written, and many were not by any start."""
    place = place_of("postgresql", request, tmp_path)
    place.do("CREATE TABLE odd (id bigint NOT NULL PRIMARY KEY)")
    monkeypatch.setattr(postgresql, "_FEW_ROWS", 0)
    options = {**KEYED, "delete_column": "gone"}
    place.do(f"REVOKE TEMPORARY ON DATABASE {postgres.DATABASE} FROM PUBLIC")
    try:
        with _Poor(place, monkeypatch) as user:
            user.grant("DELETE ON odd")
            both = [pa.RecordBatch.from_pydict({"id": [1, 2], "gone": [gone, False]}) for gone in (False, True)]
            write(place, *both, **options)
        assert place.ask("SELECT id FROM odd") == [(2,)]
    finally:
        place.do(f"GRANT TEMPORARY ON DATABASE {postgres.DATABASE} TO PUBLIC")


SPELLED = ("0A0B0C0D-0000-0000-0000-00000000000F", "{0a0b0c0d-0000-0000-0000-00000000000f}")


@pytest.mark.parametrize("few", [1000, 0], ids=["few", "many"])
def test_a_uuid_that_is_spelled_in_two_ways(request, tmp_path, monkeypatch, few):
    """It is one key: what comes last counts. Formerly a row that was to be deleted stayed, and many rows could not be
    written by any start."""
    monkeypatch.setattr(postgresql, "_FEW_ROWS", few)
    place = place_of("postgresql", request, tmp_path)
    place.do("CREATE TABLE odd (id uuid PRIMARY KEY, v text)")
    options = {**KEYED, "delete_column": "gone"}
    both = {"id": list(SPELLED), "v": ["first", "last"]}
    store = write(place, pa.RecordBatch.from_pydict({**both, "gone": [False, True]}), **options)
    assert place.count("odd") == 0
    batches = [pa.RecordBatch.from_pydict({**both, "gone": gone}) for gone in ([False, True], [False, False])]
    write(place, *batches, journal=store, **options)
    assert place.ask("SELECT id::text, v FROM odd") == [(SPELLED[0].lower(), "last")]


@follows("database.url")
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("postgresql://host/database?port=5433", "postgresql://host:5433/database"),
        ("postgresql:///database?host=one,two", "postgresql://one,two/database"),
        ("postgresql://host/database?dbname=other", "postgresql://host/other"),
        ("jdbc:mysql://host/database?sslMode=VERIFY_CA&ssl_ca=/ca.pem", "mysql://host/database?ssl_ca=/ca.pem"),
        ("postgresql://host/database?sslmode=", "postgresql://host/database?sslmode=require"),
        ("mariadb://host/database?ssl_ca", "mariadb://host/database?ssl_ca=/ca.pem"),
        ("sqlite:/tmp/database?mode=ro", "sqlite:/tmp/database"),
    ],
)
def test_a_parameter_that_would_not_be_heeded(wrong, right):
    """It led to another server than the one that was meant, or to a connection without TLS."""
    told("database.url", lambda: DatabaseSink(wrong, "t")).says("Correct the URL", "Nothing was written")
    assert DatabaseSink(right, "t", user="u")
