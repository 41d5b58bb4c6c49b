"""pypaimon and Java read tables that we write, row for row."""

import datetime
import glob
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

import streamsink
from tests.compat.arrow_writer import ArrowSink
from tests.compat.rows import (
    NANOS,
    NESTED,
    PRIMITIVES,
    assert_same,
    columns,
    from_arrow,
    matching,
    project,
    random_rows,
    to_arrow,
)

pytestmark = [pytest.mark.compat, pytest.mark.spark]

SHAPES = {
    "primitives": PRIMITIVES,
    "nanoseconds": f"{PRIMITIVES}, {NANOS}",
    "nested": f"i INT, {NESTED}",
    "all": f"{PRIMITIVES}, {NANOS}, {NESTED}",
}


def write(path, fields, rows, commits=3, **options):
    step = -(-len(rows) // commits)
    with ArrowSink(path, **options) as sink:
        for at in range(0, len(rows), step):
            sink.write(to_arrow(rows[at : at + step], fields), fields)


@pytest.mark.in_turn("types that are read row for row", 4)
@pytest.mark.parametrize("partition", [None, "i"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_type_is_read_row_for_row(java, pypaimon, path, rng, shape, partition):
    """After three commits of random rows with nulls everywhere Java, pypaimon and read_arrow see exactly these rows."""
    fields = columns(SHAPES[shape])
    rows = random_rows(rng, fields, 60)
    streamsink.create_table(path, SHAPES[shape], [partition] if partition else [])
    write(path, fields, rows)
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)


FAR = [None, -62_135_596_800_000_000_000, -11_676_096_000_000_000_000, -1_000_000_000, 253_402_300_799_000_000_000]


@pytest.mark.parametrize("nanoseconds", [False, True], ids=["", "with-nanoseconds"])
def test_years_1_to_9999_are_read(java, pypaimon, path, nanoseconds):
    """This holds even in a file that has INT96 timestamps,
    where a reader that takes them as nanoseconds would wrap around."""
    ddl = "id INT, ts0 TIMESTAMP(0), ts3 TIMESTAMP(3), ts6 TIMESTAMP(6), lt6 TIMESTAMP_LTZ(6), r ROW<x TIMESTAMP(3)>"
    ddl += ", ts9 TIMESTAMP(9)" if nanoseconds else ""
    rows = [(i, *[nanos] * 4, (nanos,), *([i] if nanoseconds else [])) for i, nanos in enumerate(FAR)]
    streamsink.create_table(path, ddl)
    write(path, columns(ddl), rows)
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    if not nanoseconds:  # pypaimon wraps the one inside of the row.
        assert_same(from_arrow(pypaimon.read(path)), rows)


# column -> a value in the middle of its kind, as Java takes it and as pypaimon takes it
MIDDLE = {
    "b": (True, True),
    "t": (0, 0),
    "s": (0, 0),
    "i": (6, 6),
    "l": (7, 7),
    "f": (1.5, 1.5),
    "d": (-2.25, -2.25),
    "c": ("abc", "abc"),
    "v": ("a", "a"),
    "st": ("\u00e9t\u00e9", "\u00e9t\u00e9"),
    "d1": (Decimal("0.00"), Decimal("0.00")),
    "d2": (Decimal("0.0000"), Decimal("0.0000")),
    "d3": (Decimal("0E-10"), Decimal("0E-10")),
    "dt": (19724, datetime.date(2024, 1, 2)),
    "ts3": (0, datetime.datetime(1970, 1, 1)),
    "ts6": (1_704_164_645_123_456_000, datetime.datetime(2024, 1, 2, 3, 4, 5, 123456)),
}
FUNCTIONS = ["equal", "greater_than", "less_or_equal", "is_null", "is_not_null"]
_IN_TURN = pytest.mark.in_turn("filters", 1)


# A partition for each value makes many files, and every reader opens each of them for every filter.
# So the gate tries two functions of a column, by the seed.
@pytest.mark.parametrize("functions", [2, pytest.param(len(FUNCTIONS), marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "partition, nanoseconds",
    [
        pytest.param(None, True, marks=_IN_TURN),
        pytest.param("i", False, marks=_IN_TURN),
        pytest.param(None, False, marks=pytest.mark.soak),
        pytest.param("i", True, marks=pytest.mark.soak),
    ],
)
def test_filters_on_every_kind_of_column_give_the_same_rows(
    java, pypaimon, path, rng, partition, nanoseconds, functions
):
    """Filters are pushed into manifests and files; statistics that are no bounds would lose rows here."""
    fields = columns(f"{PRIMITIVES}, {NANOS}" if nanoseconds else PRIMITIVES)
    rows = random_rows(rng, fields, 60)
    streamsink.create_table(path, fields, [partition] if partition else [])
    write(path, fields, rows, commits=6)
    for column, (physical, plain) in MIDDLE.items():
        for function in rng.sample(FUNCTIONS, functions):
            unary = function.startswith("is_")
            wanted = matching(rows, fields, [(function, column, physical)])
            names = list(dict.fromkeys(["st", column, "l"]))
            found = java.read(path, [(function, column, None if unary else physical)], names)
            assert_same(found, project(wanted, fields, names))
            found = pypaimon.read(path, [(function, column, None if unary else plain)], names)
            assert_same(from_arrow(found), project(wanted, fields, names))


CONSTANT = {
    "BOOLEAN": True,
    "TINYINT": -7,
    "SMALLINT": 300,
    "INT": 70_000,
    "BIGINT": 2**40,
    "FLOAT": 1.5,
    "DOUBLE": -0.1,
    "CHAR(5)": "abc",
    "VARCHAR(9)": "",
    "STRING": "\u00e9t\u00e9" * 9,
    "BINARY(3)": b"abc",
    "BYTES": b"\x00\xff",
    "DECIMAL(5, 2)": Decimal("-1.20"),
    "DECIMAL(18, 4)": Decimal("0.0000"),
    "DECIMAL(19, 4)": Decimal("1.0000"),
    "DECIMAL(38, 10)": Decimal("0E-10"),
    "DECIMAL(38, 0)": Decimal(-1),
    "DATE": 19724,
    "TIME(3)": 1,
    "TIMESTAMP(0)": 0,
    "TIMESTAMP(3)": 1_000_000,
    "TIMESTAMP(6)": 1000,
    "TIMESTAMP(9)": 7,
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": -1_000_000,
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": -1000,
    "TIMESTAMP(9) WITH LOCAL TIME ZONE": -7,
}


# Two values need none, and Java writes none of long decimals.
WITHOUT_DICTIONARY = ("BOOLEAN", "DECIMAL(19, 4)", "DECIMAL(38, 10)", "DECIMAL(38, 0)")


@pytest.mark.in_turn("values that repeat", 4)
@pytest.mark.parametrize("kind", CONSTANT)
def test_a_value_that_repeats_is_found_by_java_s_filter(java, path, kind):
    """A repeating column has a dictionary in a file that is not small, which Java's filters look into."""
    fields = columns(f"id INT, c {kind}")
    rows = [(i, CONSTANT[kind]) for i in range(4_200)] + [(4_200, None)]
    streamsink.create_table(path, fields)
    write(path, fields, rows, commits=1)
    found = pq.read_metadata(glob.glob(f"{path}/bucket-0/*.parquet")[0]).row_group(0).column(1)
    assert found.has_dictionary_page == (kind not in WITHOUT_DICTIONARY)
    for function in ("equal", "greater_or_equal", "less_or_equal", "not_equal", "less_than", "greater_than"):
        where = [(function, "c", CONSTANT[kind]), ("greater_than", "id", 4_190)]
        assert_same(java.read(path, where), matching(rows, fields, where))
    assert_same(java.read(path, [("is_null", "c", None)]), rows[-1:])


def test_only_nanoseconds_are_int96(java, path, rng):
    """As in Java's files, other timestamps are INT64 of their own unit,
    and every column's type in the file is Java's."""
    fields = columns(f"{PRIMITIVES}, {NANOS}, {NESTED.replace(', at ARRAY<TIMESTAMP(6)>', '')}")
    rows = random_rows(rng, fields, 10)
    streamsink.create_table(path, fields)
    write(path, fields, rows, commits=1)
    java.create(path + "_java", fields)
    java.append(path + "_java", rows)
    ours, theirs = (pq.ParquetFile(glob.glob(f"{p}/bucket-0/*.parquet")[0]).schema for p in (path, path + "_java"))
    for mine, java_s in zip(ours, theirs):
        assert (mine.path, mine.physical_type, str(mine.logical_type)) == (
            java_s.path,
            java_s.physical_type,
            str(java_s.logical_type),
        )
