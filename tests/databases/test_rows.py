"""What becomes of rows: types and values, names, keys, and changes of rows that are there."""

import datetime
import decimal
import random

import pyarrow as pa
import pytest

from streamsink.errors import Misuse
from streamsink.sinks.databases import mysql, postgresql
from streamsink.sinks.databases.bulk import copy_binary, load_local
from tests.databases.accidents import write
from tests.databases.places import TABLE, place_of

D, UTC = decimal.Decimal, datetime.timezone.utc
HOSTILE = (
    'a"b',
    "a`b",
    "a'b",
    "a\\b",
    "select",
    "a; DROP TABLE x; --",
    "%s",
    "%(a)s",
    "?",
    "100%",
    "ä🎉 ü",
    " a",
    "$1",
    ":a",
    "{a}",
    "A b",
    "VALUES (%s)",
    "streamsink_checkpoints",
)
TYPES = {
    "b": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127]),
    "i16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "f32": (pa.float32(), [1.5, -0.25]),
    "f64": (pa.float64(), [0.1, 1.7976931348623157e308]),
    "n": (pa.decimal128(38, 10), [D("1234567890123456789012345678.0123456789"), D("-0.0000000001")]),
    "s": (pa.string(), ["", "ä 🎉 '\"\\`%s\n\t\r;,"]),
    "y": (pa.binary(), [b"", bytes(range(256))]),
    "d": (pa.date32(), [datetime.date(1600, 1, 1), datetime.date(9999, 12, 31)]),
    "t": (pa.timestamp("us"), [datetime.datetime(1600, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "z": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(1999, 1, 1, 1, 1, 1, 1, UTC), datetime.datetime(2030, 7, 1, tzinfo=UTC)],
    ),
}


def _one(**columns) -> pa.RecordBatch:
    """A batch of one or more rows with a column 'id'."""
    return pa.RecordBatch.from_pydict({"id": pa.array(range(len(next(iter(columns.values())))), pa.int64()), **columns})


def _as_read(value):
    """A value as any of the databases hands it back, made comparable."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, str) and value.endswith("+00:00"):
        return value.removesuffix("+00:00")
    return str(value) if isinstance(value, (datetime.date, D)) else value


def _plain(value):
    return format(value, "f") if isinstance(value, D) else _as_read(value)


@pytest.fixture
def at_once(monkeypatch):
    """However few rows are written as many are, by what the databases have for that."""
    for module in (mysql, postgresql):
        monkeypatch.setattr(module, "_FEW_ROWS", 0)


@pytest.fixture(params=["few", "many"])
def few_or_many(request):
    """Few rows, and as many are written."""
    request.getfixturevalue("at_once") if request.param == "many" else None


@pytest.mark.parametrize("by_key", [False, True], ids=["insert", "upsert"])
def test_values_come_back_as_they_were(place, by_key, few_or_many):
    """The ends of each type, texts that look like SQL, and nulls; in a table that the sink makes."""
    data = {name: pa.array([*values, None], of) for name, (of, values) in TYPES.items()}
    write(place, _one(**data), **({"mode": "upsert", "keys": ["id"]} if by_key else {}))
    names = ", ".join(f'"{name}"' for name in TYPES)
    found = place.ask(f'SELECT {names} FROM "{TABLE}" ORDER BY id')
    expected = [[_plain(column[n].as_py()) for column in data.values()] for n in range(3)]
    assert [[_plain(value) for value in row] for row in found] == expected


def test_hostile_names(place, monkeypatch, rng: random.Random):
    """Of tables and columns, with keys among them, written twice and deleted."""
    others = {"table": "plain", "mode": "insert"}
    fits = [name.replace("🎉", "ü" if place.kind == "mariadb" else "🎉") for name in HOSTILE]
    for few in (1000, 0):
        place.drop()
        for module in (mysql, postgresql):
            monkeypatch.setattr(module, "_FEW_ROWS", few)
        write(place, pa.RecordBatch.from_pydict({name: ["x"] for name in fits}), **others)
        assert place.count("plain") == 1
    for module in (mysql, postgresql):
        monkeypatch.setattr(module, "_FEW_ROWS", rng.choice((0, 1000)))
    for table in rng.sample(fits[:-1], 5):  # the last one is the sink's own
        columns = {name: pa.array(["x", "y"]) for name in fits}
        options = {"table": table, "mode": "upsert", "keys": [fits[0], fits[3]], "delete_column": "gone"}
        both = pa.RecordBatch.from_pydict({**columns, "gone": [False, False]})
        last = pa.RecordBatch.from_pydict({**columns, "gone": [True, False]})
        write(place, both, last, **options)
        assert place.count(table) == 1


def test_instants_are_in_utc_whatever_the_zone_of_the_session(place):
    """Spark hands them over in its own zone."""
    instant = datetime.datetime(2024, 7, 1, 12, tzinfo=UTC)
    zoned = pa.array([instant], pa.timestamp("us", "Europe/Berlin"))
    large = {"s": pa.array(["a"], pa.large_string()), "y": pa.array([b"a"], pa.large_binary())}
    for options in ({}, {"mode": "upsert", "keys": ["id"]}):
        place.drop()
        write(place, _one(z=zoned, **large), **options)
        ((z, s, y),) = place.ask(f'SELECT z, s, y FROM "{TABLE}"')
        at = z.astimezone(UTC) if isinstance(z, datetime.datetime) and z.tzinfo else z
        assert (_as_read(at), s, y) == ("2024-07-01 12:00:00.000000", "a", b"a")


@pytest.mark.parametrize(
    "kind",
    [
        {"mode": "upsert"},
        {"mode": "insert", "keys": ["id"]},
        {"mode": "other"},
        {"order_by": "id"},
        {"table": "streamsink_checkpoints"},
    ],
)
def test_options_that_do_not_go_together_are_refused(place, kind):
    """Before anything is opened."""
    with pytest.raises(Misuse, match="Nothing was written") as refused:
        place.sink("/journal", **kind)
    assert refused.value.kind == "database.options"


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "vague"])
def test_changes_are_as_in_a_dict(place, exact, rng: random.Random):
    """Random changes of few keys; the last one of each counts. Keys that only the database takes for equal as well."""
    key = (
        "varchar(9)"
        if place.kind == "postgresql"
        else "varchar(9) COLLATE NOCASE"
        if place.kind == "sqlite"
        else "varchar(9)"
    )
    exact = exact or place.kind == "postgresql"
    if exact and place.kind == "mariadb":
        key += " COLLATE utf8mb4_nopad_bin"
    elif exact:
        key = "varchar(9)"
    place.do(f"CREATE TABLE changed (k {key} NOT NULL PRIMARY KEY, v bigint)")
    known: dict[str, int] = {}
    batches = []
    for _ in range(4):
        changes = [(rng.choice("abcABC"), rng.randrange(10**6), rng.random() < 0.3) for _ in range(60)]
        for k, v, gone in changes:
            known.pop(k if exact else k.lower(), None) if gone else known.update({k if exact else k.lower(): v})
        batches.append(pa.RecordBatch.from_pydict(dict(zip(("k", "v", "gone"), map(list, zip(*changes))))))
    options = {"table": "changed", "mode": "upsert", "keys": ["k"], "delete_column": "gone"}
    write(place, *batches, **options)
    found = place.ask("SELECT k, v FROM changed")
    assert {(k if exact else k.lower()): v for k, v in found} == known and len(found) == len(known)


def test_many_changes_are_as_in_a_dict(place, rng: random.Random):
    """So many that PostgreSQL gets them by COPY."""
    first = [(n, n, False) for n in range(3000)]
    then = [(rng.randrange(4000), n, rng.random() < 0.4) for n in range(5000)]
    known = {n: n for n in range(3000)}
    for k, v, gone in then:
        known.pop(k, None) if gone else known.update({k: v})
    batches = [
        pa.RecordBatch.from_pydict(dict(zip(("id", "v", "gone"), map(list, zip(*changes)))))
        for changes in (first, then)
    ]
    write(place, *batches, mode="upsert", keys=["id"], delete_column="gone")
    assert dict(place.ask(f'SELECT id, v FROM "{TABLE}"')) == known


def test_the_greatest_value_of_a_column_decides(place):
    """Whatever the order of the rows; of equal ones the last, and null is before all."""
    rows = {"id": [1, 1, 1, 2, 2, 3, 3], "at": [5, 9, 7, 4, 4, None, 0], "v": ["a", "b", "c", "d", "e", "f", "g"]}
    write(place, pa.RecordBatch.from_pydict(rows), mode="upsert", keys=["id"], order_by="at")
    assert list(place.ask(f'SELECT id, v FROM "{TABLE}" ORDER BY id')) == [(1, "b"), (2, "e"), (3, "g")]


def test_values_that_the_database_need_not_read(place, at_once, monkeypatch):
    """All types for which PostgreSQL takes its own form, before and after the year 2000, with nulls in each."""
    encoded = []
    inner = copy_binary._encoded
    monkeypatch.setattr(copy_binary, "_encoded", lambda *of: encoded.append(1) or inner(*of))
    times = {
        "t0": (pa.time32("ms"), [datetime.time(0), datetime.time(23, 59, 59, 999000)]),
        "t1": (
            pa.timestamp("ms"),
            [datetime.datetime(1999, 12, 31, 23, 59, 59, 999000), datetime.datetime(2000, 1, 1)],
        ),
        "t2": (pa.timestamp("s", "UTC"), [datetime.datetime(1969, 1, 1, tzinfo=UTC), datetime.datetime(2000, 1, 1)]),
        "d0": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(2000, 1, 1)]),
    }
    types = {name: of for name, of in {**TYPES, **times}.items() if name != "n"}
    types = {name: of for name, of in types.items() if place.kind == "postgresql" or name != "t0"}
    data = {name: pa.array([None, values[0], values[1], None, values[0]], of) for name, (of, values) in types.items()}
    write(place, _one(**data))
    found = place.ask(f'SELECT {", ".join(types)} FROM "{TABLE}" ORDER BY id')
    expected = [[_plain(column[n].as_py()) for column in data.values()] for n in range(5)]
    assert [[_plain(value) for value in row] for row in found] == expected
    assert bool(encoded) == (place.kind == "postgresql")


NUMBERS = pa.schema([("i16", pa.int16()), ("i32", pa.int32()), ("f32", pa.float32()), ("s", pa.string())])


def test_many_rows_are_what_few_are(place, monkeypatch, rng: random.Random):
    """Random ones, with nulls anywhere, cut out of larger batches, into wider columns than theirs."""
    wide = {"i16": "bigint", "i32": "integer", "f32": "double precision", "s": "varchar(9)"}
    letters = "aä🎉\t\n\\\"',\r N" + ("" if place.kind == "postgresql" else "\0")
    texts = ["", "\\N", "NULL", *("".join(rng.choices(letters, k=rng.randrange(9))) for _ in range(40))]
    values = {
        "i16": range(-9, 9),
        "i32": (-(2**31), 0, 2**31 - 1),
        "f32": (0.5, -1e30, 1e-30, float(2**24 - 1)),
        "s": texts,
    }
    many = {name: [rng.choice([None, *values[name]]) for _ in range(500)] for name in values}
    rows = pa.RecordBatch.from_pydict(many, schema=NUMBERS).slice(100, 300)
    monkeypatch.setattr(copy_binary, "_ROWS_AT_ONCE", 70)
    monkeypatch.setattr(load_local, "_BYTES_AT_ONCE", 100)
    found = []
    for few in (1000, 0):
        for module in (mysql, postgresql):
            monkeypatch.setattr(module, "_FEW_ROWS", few)
        place.drop()
        place.do(f'CREATE TABLE "many" ({", ".join(f"{name} {of}" for name, of in wide.items())})')
        write(place, rows, table="many")
        found.append(place.ask("SELECT * FROM many"))
    expected = sorted(map(repr, zip(*(column.to_pylist() for column in rows.columns))))
    assert [sorted(map(repr, map(tuple, each))) for each in found] == [expected, expected]


def test_rows_that_are_loaded_are_all_there_as_they_are(request, tmp_path, at_once, monkeypatch):
    """LOAD DATA leaves out a row, or cuts a value off, with a warning: then the rows are written by statements, which
    have errors.
    """
    place, loads = place_of("mariadb", request, tmp_path), []
    load = load_local.load
    monkeypatch.setattr(load_local, "load", lambda *of: loads.append(load(*of)) or loads[-1])
    place.do("CREATE TABLE one (id bigint PRIMARY KEY, word varchar(9) CHARACTER SET utf8mb4, CHECK (id < 9))")
    words = {"word": pa.array(["a", "b"])}
    for ids in ([1, 1], [1, 9]):
        with pytest.raises(Misuse) as refused:
            write(place, pa.RecordBatch.from_pydict({"id": ids, **words}), table="one", check_rows_up_to=0)
        assert refused.value.kind == "database.rows-refused" and place.count("one") == 0
        place.do("DELETE FROM streamsink_checkpoints")
    assert loads == [(1, 1), (1, 1)]
    # A text whose spaces do not fit is cut off with a note, as statements do.
    write(place, pa.RecordBatch.from_pydict({"id": [1], "word": ["a" * 9]}), table="one")
    assert loads[2:] == [(1, 0), (1, 0)]


def test_a_server_that_asks_for_a_file_gets_none(request, tmp_path):
    """It may do so in answer to any statement, when a driver lets it."""
    place = place_of("mariadb", request, tmp_path)
    (tmp_path / "secret").write_text("1")
    sink = place.sink("/journal")
    connection = sink._dialect().connect(sink._address())
    place.do("CREATE TABLE one (id bigint)")
    statement = f"LOAD DATA LOCAL INFILE '{tmp_path}/secret' INTO TABLE {sink._dialect().quoted(place.schema, 'one')}"
    with pytest.raises(RuntimeError, match="local_infile option is false"):
        connection.cursor().execute(statement, ())
    connection.close()
    assert place.count("one") == 0
