"""Partition values of every type, special ones too, have one directory each,
inside of the table, where all readers find them."""

import datetime
import os
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import streamsink
from streamsink.format.binary_row import decode_physical
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.compat.arrow_writer import ArrowSink
from tests.compat.rows import assert_same, columns, from_arrow, matching, to_arrow

pytestmark = [pytest.mark.compat, pytest.mark.spark]

STRINGS = [
    None,
    "",
    " ",
    "\t",
    "a/b=c%d:e",
    "../../x",
    "..",
    ".",
    "/etc/passwd",
    "..%2F..",
    ".hidden",
    "_hidden",
    "__DEFAULT_PARTITION__",
    "\u00e9t\u00e9",
    "\U0001f600",
    "a b",
    "a\nb",
    "*?[]{}^\\\"'#",
    "bucket-0",
    "x" * 200,
    "\x7f",
    "null",
    "dt=1",
    "+",
    "&",
    "~",
]
# type -> physical values, and the last one as pypaimon takes it in a filter
TYPES = {
    "BOOLEAN": ([None, True, False], False),
    "TINYINT": ([None, -128, 127], 127),
    "SMALLINT": ([None, -1, 300], 300),
    "INT": ([None, 0, -7, 2**31 - 1], 2**31 - 1),
    "BIGINT": ([None, 0, 2**40], 2**40),
    "FLOAT": ([None, 1.5, -0.25, 16777216.0], 16777216.0),
    "DOUBLE": ([None, 1e10, 0.001, 123456.789], 123456.789),
    "DECIMAL(5, 2)": ([None, Decimal("-0.01"), Decimal("5.10")], Decimal("5.10")),
    "DECIMAL(30, 3)": (
        [None, Decimal("0.000"), Decimal("123456789012345678901.500")],
        Decimal("123456789012345678901.500"),
    ),
    "DATE": ([None, 0, -1, 19724], datetime.date(2024, 1, 2)),
    "TIMESTAMP(3)": ([None, -1_000_000, 1_704_164_645_123_000_000], datetime.datetime(2024, 1, 2, 3, 4, 5, 123000)),
    "TIMESTAMP(6)": ([None, 1_704_164_640_000_000_000, 1_704_164_645_123_456_000], None),
    "TIMESTAMP(9)": ([None, 1, 1_704_164_645_123_456_789], None),
    "TIME(3)": ([None, 0, 3_600_120], None),
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": ([None, 0, 1_704_164_645_123_456_000], None),
    "CHAR(4)": ([None, "a", "abcd"], "abcd"),
    "VARCHAR(9)": ([None, "", "\u00e9"], "\u00e9"),
}


def write(path, fields, rows):
    with ArrowSink(path) as sink:
        for at in range(0, len(rows), 10):
            sink.write(to_arrow(rows[at : at + 10], fields), fields)


def files_below(path):
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]


def test_special_strings_stay_inside_and_are_found_by_all(java, pypaimon, path, tmp_path):
    """These are null, empty, blank, `..`, `/`, escapes and hidden names:
    all readers see each row once, and no file is outside of the table."""
    fields = columns("id INT, p STRING, q STRING")
    rows = [(i, p, STRINGS[-1 - i]) for i, p in enumerate(STRINGS)]
    streamsink.create_table(path, "id INT, p STRING, q STRING", ["p", "q"])
    write(path, fields, rows)
    assert all(name.startswith(path + os.sep) for name in files_below(tmp_path))
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)
    for value in STRINGS:
        where = [("is_null", "p", None)] if value is None else [("equal", "p", value)]
        expected = matching(rows, fields, where)
        assert_same(java.read(path, where), expected)
        assert java.file_count(path, where) == len(expected) == 1
        assert_same(from_arrow(pypaimon.read(path, where)), expected)


# A zoned one without legacy names is refused, see below.
CASES = [(kind, legacy) for kind in TYPES for legacy in ("true", "false") if legacy == "true" or "ZONE" not in kind]


@pytest.mark.in_turn("types of partitions", 5)
@pytest.mark.parametrize("kind,legacy", CASES)
def test_every_partition_type_is_found_by_all(java, pypaimon, path, kind, legacy):
    """Rows of every value and of null are read, unfiltered and by partition.
    A filter opens only the files of its partition."""
    values, plain = TYPES[kind]
    fields = columns(f"id INT, p {kind}, n INT")
    rows = [(i, value, n) for i, value in enumerate(values) for n in range(3)]
    streamsink.create_table(path, fields, ["p"], options={"partition.legacy-name": legacy})
    write(path, fields, rows)
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(java.read(path), rows)
    where = [("equal", "p", values[-1])]
    assert_same(java.read(path, where), matching(rows, fields, where))
    null = [("is_null", "p", None)]
    assert_same(java.read(path, null), matching(rows, fields, null))
    if kind == "TIMESTAMP(9)":
        return  # pypaimon looks for a directory of whole microseconds.
    assert_same(from_arrow(pypaimon.read(path)), rows)
    assert_same(from_arrow(pypaimon.read(path, null)), matching(rows, fields, null))
    if plain is not None:
        assert_same(from_arrow(pypaimon.read(path, [("equal", "p", plain)])), matching(rows, fields, where))


def test_zoned_partitions_without_legacy_names_are_refused(path):
    """Their directory would depend on the reader's time zone, so they are refused before there is a table."""
    fields = columns("id INT, p TIMESTAMP(3) WITH LOCAL TIME ZONE")
    with pytest.raises(streamsink.errors.Misuse, match="'p'"):
        streamsink.create_table(path, fields, ["p"], options={"partition.legacy-name": "false"})
    assert not Path(path).exists()


def test_random_partitions_of_three_columns(java, pypaimon, path, rng):
    """With random values of three partition columns the partitions in the manifests are exactly those of the rows."""
    fields = columns("id INT, a STRING, b INT, c DATE")
    rows = [(i, rng.choice(STRINGS), rng.choice([None, 0, 7]), rng.choice([None, -1, 19724])) for i in range(60)]
    streamsink.create_table(path, fields, ["c", "a", "b"])
    write(path, fields, rows)
    table = open_table(local_file_io(), path, for_writing=False)
    types = [f.type for f in table.latest_schema().partition_fields]
    found = {decode_physical(e.partition, types) for e in table.manifests.entries_of(table.snapshots.latest())}
    assert found == {(c, a, b) for _, a, b, c in rows}
    assert_same(java.read(path), rows)
    assert_same(from_arrow(pypaimon.read(path)), rows)


@pytest.mark.parametrize("name", ["a/b", "..", "a=b", "\u00e9 t\u00e9", "%41"])
def test_odd_column_names_stay_inside(java, path, tmp_path, name):
    """A partition column's name is escaped as its values are."""
    streamsink.create_table(path, pa.schema([("id", pa.int32()), (name, pa.string())]), [name])
    data = pa.table({"id": pa.array([1], pa.int32()), name: ["../x"]})
    with ArrowSink(path) as sink:
        sink.write(data)
    assert all(file.startswith(path + os.sep) for file in files_below(tmp_path))
    assert_same(java.read(path), [(1, "../x")])
    assert_same(from_arrow(streamsink.read_arrow(path)), [(1, "../x")])
