"""Rows that a database refuses: before they are recorded where that can be known, else when they are written."""

import contextlib
import random

import psycopg
import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.databases import DatabaseSink
from streamsink.storage.file_io import FileIO
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.databases.accidents import World, write
from tests.databases.places import place_of
from tests.databases.test_refused import SECRET, refused, rows_of
from tests.services import postgres


@follows("database.rows-refused")
def test_rows_that_the_database_refuses_are_found_before_the_record(place):
    """Batches that are small are tried: here one has a key twice. No row's value is shown."""
    place.do("CREATE TABLE odd (id bigint NOT NULL PRIMARY KEY, v varchar(30), CHECK (v <> 'x'))")
    twice = pa.RecordBatch.from_pydict({"id": [1, 1], "v": [SECRET, SECRET]})
    refused(place, "database.rows-refused", twice, table="odd").says("Mend the rows", "recorded or written")
    checked = pa.RecordBatch.from_pydict({"id": [7654321], "v": ["x"]})
    assert "7654321" not in refused(place, "database.rows-refused", checked, table="odd").message
    write(place, rows_of(v=pa.array(["a", "b"])), table="odd")
    assert place.count("odd") == 2


READ_BY_THE_SERVER = {
    "mariadb": [
        ("(id bigint, v varchar(9)) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (2))", "a", "b"),
        ("(id bigint, v json)", "{}", ""),
    ],
    "postgresql": [
        (
            "(id bigint, v text) PARTITION BY RANGE (id); CREATE TABLE p PARTITION OF odd FOR VALUES FROM (1) TO (2)",
            "a",
            "b",
        ),
        ("(id bigint, v uuid)", "00000000-0000-0000-0000-000000000001", "1"),
        ("(id bigint, v json)", "{}", ""),
        ("(id bigint, v jsonb)", "{}", ""),
    ],
}


def test_rows_that_only_the_server_can_read_are_tried(served):
    """Rows without a partition, and texts that are no JSON or no UUID, also behind the first batch of a start."""
    for made, good, bad in READ_BY_THE_SERVER[served.kind]:
        served.drop()
        served.do(f"CREATE TABLE odd {made}")
        batches = [pa.RecordBatch.from_pydict({"id": [n], "v": [v]}) for n, v in ((1, good), (2, bad))]
        is_asked = served.kind == "postgresql" and "text" not in made
        kind = "database.values" if is_asked else "database.rows-refused"
        refused(served, kind, *batches, table="odd").says("recorded or written")
        assert served.count("odd") == 1


NOT_READ = [
    ("jsonb", f'{{"a": "{SECRET}\\u0000"}}'),
    ("jsonb", f'["{SECRET}\\ud83d"]'),
    ("jsonb", SECRET),
    ("json", f'{{"{SECRET}": 1'),
    ("uuid", f"{SECRET}-0000-0000-0000-000000000001"),
]


@pytest.mark.parametrize(("kind", "odd"), NOT_READ)
def test_a_text_that_the_server_cannot_read_is_found_in_a_large_batch(request, tmp_path, kind, odd):
    """It was recorded, and each start failed with it until the column was one of texts. What looks right is not sent,
    and what does not is taken where it is right."""
    place = place_of("postgresql", request, tmp_path)
    place.do(f"CREATE TABLE odd (id bigint, v {kind})")
    good = (
        ["{B0EEBC99-9C0B4EF8-BB6D6BB9-BD380A11}"]
        if kind == "uuid"
        else ["1", ' {"a": "\\u00e9\\ud83d\\ude00"}\n', "[]"]
    )
    rows = [pa.RecordBatch.from_pydict({"id": range(len(v)), "v": v}) for v in (good, [*good * 900, odd], good * 900)]
    said = refused(place, "database.values", *rows[:2], table="odd", check_rows_up_to=0)
    said.says("column 'v'", f"cannot read as {kind}", "change the column to one of texts")
    write(place, rows[0], rows[2], table="odd", check_rows_up_to=0)
    assert place.count("odd") == rows[0].num_rows + rows[2].num_rows


LONG = random.Random(1).randbytes(8_000).hex()  # compressed it is longer than what an index takes
COMPUTED = {
    "mariadb": [
        ("CREATE TABLE odd (id bigint, v varchar(9), g tinyint AS (v) STORED)", "1", "1000"),
        ("CREATE TABLE odd (id bigint, v varchar(9), g tinyint DEFAULT (v))", "1", "1000"),
    ],
    "postgresql": [
        ("CREATE TABLE odd (id bigint, v text); CREATE INDEX i ON odd (v)", "a", LONG),
        ("CREATE TABLE odd (id bigint, v text); CREATE INDEX i ON odd ((v::int))", "1", "x"),
        ("CREATE TABLE odd (id bigint, v text); CREATE INDEX i ON odd (id) WHERE v::int > 3", "1", "x"),
        ("CREATE TABLE odd (id bigint, v text, g int GENERATED ALWAYS AS (v::int) STORED)", "1", "x"),
    ],
    "sqlite": [
        ("CREATE TABLE odd (id bigint, v text); CREATE INDEX i ON odd (json_extract(v, '$.a'))", "{}", "x"),
        ("CREATE TABLE odd (id bigint, v text); CREATE INDEX i ON odd (id) WHERE json_extract(v, '$.a')", "{}", "x"),
        ("CREATE TABLE odd (id bigint, v text, g AS (json_extract(v, '$.a')) STORED)", "{}", "x"),
    ],
}


def test_what_the_server_computes_of_a_row_is_tried(place):
    """Columns and indexes of expressions, and indexes of long texts. Only the first batch of a start was tried where
    the table had no key: a later one was recorded, and no start could write it."""
    for made, good, bad in COMPUTED[place.kind]:
        place.drop()
        for text in made.split("; "):
            place.do(text)
        batches = [pa.RecordBatch.from_pydict({"id": [n], "v": [v]}) for n, v in ((1, good), (2, bad))]
        refused(place, "database.rows-refused", *batches, table="odd").says("recorded or written")
        assert place.count("odd") == 1


def test_a_strict_table_of_sqlite_takes_its_types_alone(request, tmp_path):
    """A text does not go into one of its BLOBs: that is told by the columns, and not by the first row that has one."""
    place = place_of("sqlite", request, tmp_path)
    place.do("CREATE TABLE odd (id INTEGER, v BLOB) STRICT")
    rows = [pa.RecordBatch.from_pydict({"id": [n], "v": pa.array([v], pa.string())}) for n, v in ((1, None), (2, "1"))]
    refused(place, "database.columns", *rows, table="odd").says("column 'v' is BLOB", "expected TEXT")
    place.do("DROP TABLE odd")
    place.do("CREATE TABLE odd (id INTEGER, v ANY) STRICT")
    write(place, *rows, table="odd")
    assert place.ask("SELECT v FROM odd ORDER BY id") == [(None,), ("1",)]


LIMITS = {
    "mariadb": (
        ["SET GLOBAL max_statement_time = 10"],
        ["CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW SET NEW.v = @@max_statement_time"],
        ["SET GLOBAL max_statement_time = 0"],
    ),
    "postgresql": (
        ["ALTER ROLE postgres SET statement_timeout = '10s'", "ALTER ROLE postgres SET transaction_timeout = '10s'"],
        [
            "CREATE FUNCTION t() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "NEW.v = current_setting('statement_timeout')::int "
            "+ coalesce(current_setting('transaction_timeout', true), '0')::int; RETURN NEW; END $$",
            "CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION t()",
        ],
        ["ALTER ROLE postgres RESET ALL"],
    ),
}


def test_a_batch_takes_as_long_as_it_needs(served):
    """Where the server or the user has a limit, a batch that is recorded would be ended there at each start."""
    limits, triggers, no_limits = LIMITS[served.kind]
    served.do("CREATE TABLE odd (id bigint, v double precision)")
    for text in triggers:
        served.do(text)
    try:
        for text in limits:
            with contextlib.suppress(psycopg.errors.UndefinedObject):  # before PostgreSQL 17
                served.do(text)
        write(served, rows_of(v=pa.array([1.0, 1.0])), table="odd")
    finally:
        for text in no_limits:
            served.do(text)
    assert served.ask("SELECT v FROM odd") in ([(0,), (0,)], ((0,), (0,)))


@follows("database.rows-refused")
def test_rows_that_are_refused_after_the_record_wait_for_the_table(place, monkeypatch):
    """Nothing is lost: the message says what stands in the way, and when that is mended the rows are written."""
    place.do("CREATE TABLE odd (id bigint NOT NULL, word varchar(40))")
    world = World(place, monkeypatch, table="odd", check_rows_up_to=0)
    place.do("CREATE TABLE odd (id bigint NOT NULL, word varchar(40), u bigint)")
    place.do("CREATE UNIQUE INDEX in_the_way ON odd (id)")
    place.do("INSERT INTO odd VALUES (5, 'another program', 0)")
    for _ in range(2):
        said = told("database.rows-refused", lambda: world.start())
        said.says("it is in the journal", "Change the table so that it takes the rows", "the rows are in /journal/")
        assert place.count("odd") == 3 + 1
    place.do("DROP INDEX in_the_way" + (" ON odd" if place.kind == "mariadb" else ""))
    world.start()
    found = place.ask("SELECT id FROM odd WHERE u IS NULL ORDER BY id")
    assert [row[0] for row in found] == list(range(12))


def test_a_rule_that_is_dropped_is_no_rule_any_more(request, tmp_path):
    """PostgreSQL says of the table that it has rules until it is vacuumed: so a table that was changed back was
    refused, with a record that waited for it."""
    place = place_of("postgresql", request, tmp_path)
    place.do("CREATE TABLE odd (id bigint, v text)")
    place.do("CREATE RULE r AS ON INSERT TO odd DO INSTEAD NOTHING")
    refused(place, "database.table", rows_of(v=["a", "b"]), table="odd").says("rules of the table")
    place.do("DROP RULE r ON odd")
    assert place.ask("SELECT relhasrules FROM pg_class WHERE oid = 'odd'::regclass") == [(True,)]
    write(place, rows_of(v=["a", "b"]), table="odd")
    assert place.count("odd") == 2


def test_no_value_is_in_an_error_of_a_driver(place):
    """Whatever a database says of a row, only codes and names go on."""
    sink = place.sink("/journal")
    dialect = sink._dialect()
    texts = [f"Duplicate entry '{SECRET}' for key '{SECRET} x' for key 'PRIMARY'"]
    if place.kind == "mariadb":
        error = dialect.driver().err.IntegrityError(1062, texts[0])
        assert dialect.told(error) == "error 1062 ('PRIMARY')"
        assert SECRET not in dialect.told(
            dialect.driver().err.DataError(1292, f"Truncated incorrect value: '{SECRET}'")
        )


@pytest.mark.parametrize(
    ("encoding", "column", "good", "odd", "says"),
    [
        ("LATIN1", "text", "ä", "\N{SNOWMAN}", "letters that the encoding of the database, LATIN1, does not have"),
        ("SQL_ASCII", "varchar(5)", "ää", "ää\N{SNOWMAN}", "a text of 7 bytes, and takes 5"),
        ("LATIN1", "jsonb", '"\\u00e4"', '["\\u20ac"]', "texts that the database cannot read as jsonb"),
    ],
)
def test_a_database_that_has_not_all_letters(request, tmp_path, monkeypatch, encoding, column, good, odd, says):
    """A text that it cannot keep is found before the record, in a large batch too: no change of the table would let it
    in, and each start would fail with the record."""
    place = place_of("postgresql", request, tmp_path)
    name = f"{encoding}{tmp_path.stat().st_ino}".lower()
    place.do(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    sink = DatabaseSink(
        f"postgresql://{postgres.LOOPBACK}:{place.port}/{name}",
        *("t", "/journal"),
        user=postgres.USER,
        password_env="STREAMSINK_TEST_POSTGRES",
        check_rows_up_to=0,
    )
    monkeypatch.setattr(place, "sink", lambda journal: sink)
    batches = [pa.RecordBatch.from_pydict({"id": [n], "v": [text]}) for n, text in ((1, good), (2, odd), (2, good))]
    with psycopg.connect(
        host=postgres.LOOPBACK,
        port=place.port,
        dbname=name,
        user=postgres.USER,
        password=postgres.PASSWORD,
        autocommit=True,
    ) as other:
        other.execute(f"CREATE TABLE t (id bigint, v {column})")
        store = FileIO(MemoryCalls(), IdSource().new_id)
        said = told("database.values", lambda: write(place, *batches[:2], journal=store))
        said.says(says, "column 'v'", "Nothing of this batch was recorded or written")
        write(place, batches[0], batches[2], journal=store)
        assert [row[0] for row in other.execute("SELECT id FROM t ORDER BY id").fetchall()] == [1, 2]
    place.do(f"DROP DATABASE {name} WITH (FORCE)")
