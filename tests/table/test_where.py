"""Conditions: which rows they keep, by an oracle in plain Python;
which files they skip; and how wrong ones are refused."""

import datetime
import decimal

import pyarrow as pa
import pytest

import streamsink
from streamsink import col
from streamsink.errors import Misuse
from streamsink.format.types import parse_ddl
from streamsink.format.values import from_physical
from streamsink.storage.file_io import local_file_io
from streamsink.table.read.predicate import And, Comparison, Or
from streamsink.table.read.scan import plan
from streamsink.table.table import open_table
from tests.compat.arrow_writer import ArrowSink
from tests.compat.rows import NANOS, PRIMITIVES, assert_same, from_arrow, random_rows, random_value, to_arrow

OPS = ("=", "!=", "<", "<=", ">", ">=")
MODES = ["none", "counts", "truncate(16)", "truncate(2)", "full"]
NAN = float("nan")


def holds(where, row: dict) -> bool | None:
    """Whether the condition holds for a row, as one of SQL's three values; over physical values."""
    if isinstance(where, And):
        parts = [holds(part, row) for part in where.parts]
        return False if False in parts else None if None in parts else True
    if isinstance(where, Or):
        parts = [holds(part, row) for part in where.parts]
        return True if True in parts else None if None in parts else False
    value = row[where.column]
    if where.op in ("is null", "is not null"):
        return (value is None) == (where.op == "is null")
    if value is None:
        return None
    others = [physical for _, physical in where.values]
    if where.op == "in":
        return any(order(value) == order(other) for other in others)
    if where.op == "starts with":
        return value.startswith(others[0])
    a, b = order(value), order(others[0])
    return {"=": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[where.op]


def order(value):
    return (value != value, 0.0 if value != value else value) if isinstance(value, float) else value


def as_given(where):
    """The condition with the values that a user gives, instead of pairs (given, physical)."""
    if isinstance(where, (And, Or)):
        return type(where)(tuple(as_given(part) for part in where.parts))
    return Comparison(where.column, where.op, tuple(given for given, _ in where.values))


def random_condition(rng, fields, rows, depth=2):
    """A condition whose values are the table's own, their neighbours, and others."""
    if depth and rng.random() < 0.4:
        parts = tuple(random_condition(rng, fields, rows, depth - 1) for _ in range(rng.choice([2, 2, 3])))
        return rng.choice([And, Or])(parts)
    index = rng.randrange(len(fields))
    field = fields[index]
    op = rng.choice([*OPS, "in", "starts with", "is null", "is not null"])
    if op in ("is null", "is not null"):
        return Comparison(field.name, op)
    values = []
    while len(values) < (rng.choice([0, 1, 3]) if op == "in" else 1):
        physical = (
            rng.choice(rows)[index] if rng.random() < 0.8 else random_value(rng, field.type.as_nullable(True), 0.0)
        )
        if physical is None:
            physical = random_value(rng, field.type.as_nullable(True), 0.0)
        if isinstance(physical, str) and physical and rng.random() < 0.5:
            physical = rng.choice(
                [physical[:-1], physical[: rng.randrange(1, 20)], physical + "\U0010ffff", physical[:-1] + "b"]
            )
        given = from_physical(physical, field.type)
        if field.type.root == "DATE" and isinstance(given, int):
            continue
        values.append((given, physical))
    if op == "starts with" and not isinstance(values[0][1], str):
        op = "="
    return Comparison(field.name, op, tuple(values))


def ranged_rows(rng, fields, count):
    """The rows of one file. Some columns are all null, some have one value,
    and some have values close together, so that files can be skipped."""
    rows = [list(row) for row in random_rows(rng, fields, count, rng.choice([0.0, 0.3]))]
    for i, field in enumerate(fields):
        shape = rng.random()
        if shape < 0.15 and field.type.nullable:
            values = [None]
        elif shape < 0.6:
            values = [random_value(rng, field.type.as_nullable(False), 0.0) for _ in range(rng.choice([1, 2]))]
        else:
            continue
        if field.type.root in ("FLOAT", "DOUBLE") and rng.random() < 0.3:
            values.append(NAN)
        if field.type.root == "VARCHAR":
            values = [v and (v * 30)[: rng.randrange(12, 22)] for v in values]
        for row in rows:
            row[i] = rng.choice(values)
    return [tuple(row) for row in rows]


def check(path, fields, rows, rng, count):
    """Try random conditions with random columns. Returns how many files they skipped."""
    names = [f.name for f in fields]
    table = open_table(local_file_io(), path, for_writing=False)
    total, skipped = len(plan(table)[1]), 0
    for _ in range(count):
        where = random_condition(rng, fields, rows)
        expected = [row for row in rows if holds(where, dict(zip(names, row)))]
        chosen = rng.sample(names, rng.randrange(1, 4)) if rng.random() < 0.3 else None
        if chosen:
            expected = [tuple(row[names.index(name)] for name in chosen) for row in expected]
        found = streamsink.read_arrow(path, where=as_given(where), columns=chosen)
        assert found.column_names == (chosen or names)
        assert_same(from_arrow(found), expected)
        skipped += total - len(plan(table, where=as_given(where))[1])
    return skipped


@pytest.mark.in_turn("conditions and modes of statistics", 2)
@pytest.mark.parametrize("mode", MODES)
def test_a_condition_keeps_exactly_the_rows_it_holds_for(tmp_path, rng, mode):
    """For every type, nulls, NaN, texts longer than their stats,
    partitions, and stats of every mode it keeps what the oracle says."""
    fields = parse_ddl(f"{PRIMITIVES}, {NANOS}")
    keys = rng.choice([[], ["i"], ["v", "dt"], ["d"], ["ts3", "b"]])
    path = str(tmp_path / "t")
    streamsink.create_table(
        path,
        fields,
        keys,
        options={
            "metadata.stats-mode": mode,
            "metadata.stats-dense-store": rng.choice(["true", "false"]),
            "manifest.merge-min-count": "3",
        },
    )
    rows = []
    with ArrowSink(path) as sink:
        for _ in range(8):
            new = ranged_rows(rng, fields, 4)
            rows += new
            sink.write(to_arrow(new, fields), fields)
    skipped = check(path, fields, rows, rng, 50)
    assert skipped > 0 or mode == "none"


def test_conditions_across_schemas(tmp_path, rng):
    """Columns are added and widened between the files:
    old stats are read in the old types, and a later column is null in old files."""
    narrow = "id INT NOT NULL, p STRING, f FLOAT, c VARCHAR(30), d DECIMAL(5, 2), t TIMESTAMP(4)"
    wide = "id BIGINT NOT NULL, p STRING, f DOUBLE, c VARCHAR(60), d DECIMAL(25, 2), t TIMESTAMP(6)"
    steps = [narrow, f"{narrow}, late INT, more STRING", f"{wide}, late BIGINT, more STRING"]
    path = str(tmp_path / "t")
    streamsink.create_table(path, steps[0], ["p"])
    rows = []
    with ArrowSink(path, add_columns=True, widen_types=True) as sink:
        for ddl in steps:
            fields = parse_ddl(ddl)
            for _ in range(4):
                new = ranged_rows(rng, fields, 4)
                rows += new
                sink.write(to_arrow(new, fields), fields)
    rows = [row + (None,) * (len(fields) - len(row)) for row in rows]
    assert check(path, fields, rows, rng, 80) > 0


def table_of(tmp_path, ddl, batches, keys=(), **options):
    path = str(tmp_path / "t")
    fields = parse_ddl(ddl)
    streamsink.create_table(path, fields, keys, options=options)
    with ArrowSink(path) as sink:
        for rows in batches:
            sink.write(to_arrow(rows, fields), fields)
    return path


def planned(path, where):
    """The numbers of the batches whose files are kept. Each batch is one file with as many rows as its number."""
    return sorted(file.rows for file in plan(open_table(local_file_io(), path, for_writing=False), where=where)[1])


@pytest.mark.parametrize(
    "where, kept",
    [
        (col("n") == 10, [1]),
        (col("n") == 15, []),
        (col("n") != 10, [2, 3]),
        (col("n") < 20, [1]),
        (col("n") <= 20, [1, 2]),
        (col("n") > 21, [3]),
        (col("n") >= 21, [2, 3]),
        (col("n").isin([10, 30]), [1, 3]),
        (col("n").isin([]), []),
        (col("n").is_null(), [3, 4]),
        (col("n").is_not_null(), [1, 2, 3]),
        ((col("n") > 5) & (col("n") < 15), [1]),
        ((col("n") == 10) | (col("n") == 32), [1, 3]),
        (col("n") > 1000, []),
    ],
)
def test_files_are_skipped_by_their_statistics(tmp_path, where, kept):
    """They are skipped exactly at the bounds, not one file more or less."""
    batches = [[(10,)], [(20,), (21,)], [(30,), (None,), (32,)], [(None,)] * 4]
    path = table_of(tmp_path, "n INT", batches)
    assert planned(path, where) == kept


@pytest.mark.parametrize(
    "where, kept",
    [
        (col("s") == "aaaaaaaaaaaaaaaaZ", [1]),
        (col("s") > "aaaaaaaaaaaaaaaa", [1, 2]),
        (col("s") < "aaaaaaaaaaaaaaaab", [1]),
        (col("s").startswith("aaaaaaaaaaaaaaaazz"), [1]),
        (col("s").startswith("b"), [2]),
        (col("s").startswith(""), [1, 2]),
        (col("s").startswith("c"), []),
        (col("s") != "b", [1]),
        (col("s") != "aaaaaaaaaaaaaaaa", [1, 2]),
    ],
)
def test_bounds_of_long_texts_are_bounds_and_no_values(tmp_path, where, kept):
    """The stats keep 16 characters: the greatest value may be greater than any text that begins so."""
    path = table_of(tmp_path, "s STRING", [[("aaaaaaaaaaaaaaaazzz",)], [("b",), ("b",)]])
    assert planned(path, where) == kept


def test_partitions_are_pruned_before_a_manifest_is_opened(tmp_path):
    """The list's partition stats rule a manifest out, so that it may even be missing.
    Entries are ruled out by their own partition."""
    path = table_of(
        tmp_path, "p STRING, n INT", [[("a", 1)], [("b", 1), ("b", 2)], [("a", 1), ("c", 2), ("c", 3)]], ["p"]
    )
    table = open_table(local_file_io(), path, for_writing=False)
    metas = table.manifests.all_of(table.snapshots.latest())
    assert planned(path, col("p") == "b") == [2]  # The partitions of the third manifest include b.
    assert planned(path, (col("p") == "a") & (col("n") > 0)) == [1, 1]
    table.file_io.delete(table.layout.manifest(metas[0].file_name))
    assert planned(path, col("p") == "c") == [2]
    assert streamsink.read_arrow(path, where=col("p") > "b").num_rows == 2


def test_nan_is_the_largest_number_and_equal_to_itself(tmp_path):
    """As in Spark. A file with a NaN has no bounds, so it is never skipped wrongly."""
    path = table_of(tmp_path, "d DOUBLE", [[(1.0,)], [(NAN,), (-0.0,)], [(None,)]])

    def count(where):
        return streamsink.read_arrow(path, where=where).num_rows

    d = col("d")
    assert [count(d > 5.0), count(d >= NAN), count(d == NAN), count(d < NAN), count(d <= NAN), count(d > NAN)] == [
        1,
        1,
        1,
        2,
        3,
        0,
    ]
    assert [count(d == 0), count(d != NAN), count(d != 0.0), count(d.isin([NAN, 1]))] == [1, 2, 2, 2]


@pytest.mark.parametrize(
    "where, message",
    [
        (col("nothing") == 1, "'nothing'; the table has n, s, d, t, z, a"),
        (col("n") == "1", "'n' is INT.*str"),
        (col("n") == None, "'n' is INT.*is_null"),  # noqa: E711
        (col("n") == 2**31, "'n' is INT"),
        (col("n") == True, "'n'"),  # noqa: E711,E712
        (col("n").startswith("x"), "startswith"),
        (col("s") == 1, "'s' is STRING"),
        (col("s") == "\ud800", "'s' is STRING"),
        (col("d") == decimal.Decimal("1.234"), r"'d' is DECIMAL\(5, 2\)"),
        (col("d") == 1.5, "'d'"),
        (col("t") == datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc), "'t'"),
        (col("t") == datetime.date(2024, 1, 1), "'t'"),
        (col("t") == datetime.datetime(2024, 1, 1, 0, 0, 0, 1), "'t'"),
        (col("z") == datetime.datetime(2024, 1, 1), "'z'"),
        (col("a") == 1, r"is_null\(\)"),
        ("n = 1", "where is a str"),
        (5, "where is a int"),
    ],
)
def test_a_wrong_condition_is_refused_by_the_column_s_name(tmp_path, where, message):
    """The refusal comes before a file is read, and the value itself is not in the message."""
    path = table_of(tmp_path, "n INT, s STRING, d DECIMAL(5, 2), t TIMESTAMP(3), z TIMESTAMP_LTZ(3), a ARRAY<INT>", [])
    with pytest.raises(Misuse, match=message):
        streamsink.read_arrow(path, where=where)


def test_wrong_python_is_refused():
    """'and', chained comparisons and columns compared with columns would silently mean something else."""
    with pytest.raises(Misuse, match="& and |"):
        (col("a") == 1) and (col("b") == 2)
    with pytest.raises(Misuse, match="two of them"):
        1 < col("a") < 2  # noqa: B015
    with pytest.raises(Misuse, match="compared with a Column"):
        col("a") == col("b")  # noqa: B015
    with pytest.raises(Misuse, match="found a bool"):
        (col("a") == 1) & True


@pytest.mark.parametrize("columns", [["x"], ["n", "n"], [], "n"])
def test_wrong_columns_are_refused(tmp_path, columns):
    path = table_of(tmp_path, "n INT, s STRING", [])
    with pytest.raises(Misuse, match="columns is .* has n, s"):
        streamsink.read_arrow(path, columns=columns)


def test_columns_alone_and_nested_ones(tmp_path):
    """Only the chosen columns are read, in the given order; nested ones have null tests only."""
    path = table_of(tmp_path, "n INT, a ARRAY<INT>, r ROW<x INT>", [[(1, [2], (3,))], [(4, None, None)]])
    assert streamsink.read_arrow(path, columns=["r", "n"]).to_pylist() == [{"r": {"x": 3}, "n": 1}, {"r": None, "n": 4}]
    assert streamsink.read_arrow(path, where=col("a").is_null(), columns=["n"]).to_pylist() == [{"n": 4}]
    found = streamsink.read_arrow(path, where=col("n") > 9)
    assert found.num_rows == 0 and found.schema.names == ["n", "a", "r"] and found.schema.field("n").type == pa.int32()
