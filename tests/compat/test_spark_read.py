"""``streamsink.read`` gives the newest and a given snapshot as a DataFrame,
which is right under evolution, filters and projections."""

import datetime
import glob
import os
import pathlib

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import streamsink
from streamsink.errors import Misuse
from tests.compat.arrow_writer import ArrowSink
from tests.compat.rows import NESTED, PRIMITIVES, assert_same, columns, from_arrow, random_rows, to_arrow

pytestmark = [pytest.mark.compat, pytest.mark.spark]

NO_TIME = PRIMITIVES.replace("ti TIME(3),", "")


def read(spark, path, snapshot_id=None):
    return from_arrow(streamsink.read(spark, path, snapshot_id).toArrow())


def write(path, fields, batches, **options):
    with ArrowSink(path, **options) as sink:
        for rows in batches:
            sink.write(to_arrow(rows, fields), fields)


def test_each_snapshot_is_read_by_its_number(spark, path, rng):
    """Without a number it is the newest, with a number any, and there is a clear error for one that is not there."""
    fields = columns(NO_TIME)
    batches = [random_rows(rng, fields, 10) for _ in range(4)]
    streamsink.create_table(path, fields)
    assert read(spark, path) == []
    assert streamsink.read(spark, path).columns == [f.name for f in fields]
    write(path, fields, batches)
    assert_same(read(spark, path), sum(batches, []))
    for number in range(1, 5):
        assert_same(read(spark, path, number), sum(batches[:number], []))
        assert_same(from_arrow(streamsink.read_arrow(path, number)), sum(batches[:number], []))
    with pytest.raises(Misuse, match="no snapshot 5; there are 1 to 4"):
        streamsink.read(spark, path, 5)


FILTERS = [
    "i > 0",
    "i IS NULL",
    "i IS NOT NULL AND st = ''",
    "st LIKE 'a%'",
    "dt < DATE '2000-01-01'",
    "d3 = 0",
    "d1 >= 0 OR b",
    "ts6 > TIMESTAMP_NTZ '1990-01-01 00:00:00'",
    "lt6 <= TIMESTAMP '2001-01-01 00:00:00Z'",
    "f = 1.5",
    "by IS NULL",
    "NOT (l > 0)",
    "st IN ('', 'abc')",
    "get(a, 0) = 0",
    "r.x > 0",
    "size(m) = 0",
]


@pytest.mark.in_turn("what Spark pushes down", 1)
@pytest.mark.parametrize("partition_by", [[], ["i"], ["dt", "st"]], ids=["plain", "int", "date-text"])
def test_filters_and_projections_give_the_rows_of_a_full_scan(spark, path, rng, partition_by):
    """Whatever Spark pushes down, the rows are those of the same filter over rows held in memory."""
    fields = columns(f"{NO_TIME}, {NESTED}")
    rows = random_rows(rng, fields, 80)
    streamsink.create_table(path, fields, partition_by)
    write(path, fields, [rows[at : at + 20] for at in range(0, 80, 20)])
    frame = streamsink.read(spark, path)
    held = spark.createDataFrame(to_arrow(rows, fields)).cache()
    assert_same(from_arrow(held.toArrow()), rows)
    for text in FILTERS:
        names = ["l", "st", "r", "i", "dt"]
        assert_same(
            from_arrow(frame.where(text).select(names).toArrow()), from_arrow(held.where(text).select(names).toArrow())
        )
    assert frame.count() == 80
    assert frame.agg(F.sum("t")).collect() == held.agg(F.sum("t")).collect()
    held.unpersist()


def test_evolved_files_and_new_ones_are_one_frame(spark, path):
    """Columns are added (in rows, arrays and maps of rows too) and widened; there are filters on such columns, and
    earlier snapshots are read too."""
    old = columns("id INT, r ROW<x INT>, a ARRAY<ROW<k INT>>, m MAP<STRING, ROW<k FLOAT>>, d DECIMAL(5, 2)")
    new = columns(
        "id BIGINT, r ROW<x BIGINT, y STRING>, a ARRAY<ROW<k BIGINT, l DATE>>, m MAP<STRING, ROW<k DOUBLE, l INT>>, "
        "d DECIMAL(30, 2), late STRING"
    )
    streamsink.create_table(path, old)
    rows = [
        [
            (1, (1,), [(1,), None], {"a": (1.5,), "b": None}, None),
            (None, None, None, None, None),
            (2, (None,), [], {}, None),
        ],
        [(2**40, (2**40, "y"), [(2**40, 1)], {"a": (0.1, 1)}, None, "z")],
    ]
    with ArrowSink(path, add_columns=True, widen_types=True) as sink:
        sink.write(to_arrow(rows[0], old), old)
        sink.write(to_arrow(rows[1], new), new)
    first = [
        (1, (1, None), [(1, None), None], {"a": (1.5, None), "b": None}, None, None),
        (None,) * 6,
        (2, (None, None), [], {}, None, None),
    ]
    assert_same(read(spark, path), first + rows[1])
    assert_same(read(spark, path, 1), first)
    assert_same(from_arrow(streamsink.read_arrow(path, 1)), first)
    frame = streamsink.read(spark, path)
    assert sorted(row.id for row in frame.where("id > 1").collect()) == [2, 2**40]
    assert frame.where("late IS NULL").count() == 3
    assert frame.where("r.y = 'y'").count() == 1
    assert [field.nullable for field in frame.schema.fields] == [True] * 6


def test_nanoseconds_are_read_to_the_microsecond(spark, path):
    """Spark has microseconds:
    TIMESTAMP(9) and every timestamp of such a file is cut to them, whatever the session's zone."""
    fields = columns("id INT, n TIMESTAMP(9), z TIMESTAMP_LTZ(9), u TIMESTAMP(3), far TIMESTAMP(6)")
    far = 253_402_300_799_000_000_000
    rows = [
        (1, 1_704_164_645_123_456_789, 1_704_164_645_123_456_789, 1_000_000, far),
        (2, -1, -1, -1_000_000, 0),
        (3,) + (None,) * 4,
    ]
    streamsink.create_table(path, fields)
    write(path, fields, [rows])
    expected = [(i, *[None if v is None else v // 1000 * 1000 for v in row]) for i, *row in rows]
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        for zone in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            assert_same(read(spark, path), expected)
            assert streamsink.read(spark, path).where("n > TIMESTAMP_NTZ '2024-01-02 03:04:05'").count() == 1
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_time_columns_are_refused_by_name(spark, path):
    """Spark's Parquet reader has no TIME: the error names the column and the other way to read."""
    streamsink.create_table(path, "id INT, r ROW<at TIME(3)>")
    with pytest.raises(Misuse, match="column 'at'.*TIME.*read_arrow"):
        streamsink.read(spark, path)
    assert streamsink.read_arrow(path).num_rows == 0


def test_char_and_not_null_columns(spark, path):
    """CHAR(n) is text as it was written, and NOT NULL columns are read."""
    fields = columns("id INT NOT NULL, c CHAR(5) NOT NULL, r ROW<x INT NOT NULL> NOT NULL")
    streamsink.create_table(path, fields)
    data = pa.table({"id": [1], "c": ["ab"], "r": [{"x": 1}]}, schema=to_arrow([], fields).schema)
    with ArrowSink(path) as sink:
        sink.write(data, fields)
    assert read(spark, path) == [(1, "ab", (1,))]


@pytest.mark.parametrize("name", ["a b", "a.b", "a`b", "\u00e9", "select"])
def test_odd_column_names(spark, path, name):
    """These are names with blanks, dots and back quotes, also after an evolution."""
    fields = columns("id INT") + [columns("x STRING")[0].__class__(-1, name, columns("x INT")[0].type)]
    wide = fields[:1] + [fields[1].__class__(-1, name, columns("x BIGINT")[0].type)]
    streamsink.create_table(path, fields)
    with ArrowSink(path, widen_types=True) as sink:
        sink.write(to_arrow([(1, 2)], fields), fields)
        sink.write(to_arrow([(2, 2**40)], wide), wide)
    assert_same(read(spark, path), [(1, 2), (2, 2**40)])


def test_paths_with_odd_characters(spark, tmp_path):
    """Spark reads a path with blanks, globs and percent signs, and partitions with escapes, as they are."""
    path = str(tmp_path / "a b%20[c]{d}*?" / "t,e#x")
    fields = columns("id INT, p STRING")
    rows = [(1, "a/b"), (2, "*"), (3, "{a,b}"), (4, "%41"), (5, "x y"), (6, "[a]"), (7, None)]
    streamsink.create_table(path, fields, ["p"])
    write(path, fields, [rows])
    assert_same(from_arrow(streamsink.read_arrow(path)), rows)
    assert_same(read(spark, path), rows)


def test_dates_of_years_before_1582(spark, path):
    """Proleptic days and instants are read as they were written."""
    fields = columns("d DATE, t TIMESTAMP(6), z TIMESTAMP_LTZ(6)")
    days = (datetime.date(1200, 2, 29) - datetime.date(1970, 1, 1)).days
    rows = [(days, days * 86400 * 10**9, days * 86400 * 10**9)]
    streamsink.create_table(path, fields)
    write(path, fields, [rows])
    assert_same(read(spark, path), rows)


@pytest.mark.in_turn("ways of a NaN", 1)
@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_a_nan_is_found_by_filters(spark, java, path, way):
    """It is greater than every other number, and stands in one file with these. Formerly the bounds in the file left it
    out, and Spark skipped the file."""
    frame = spark.sql(
        "SELECT id, if(id = 1, double('NaN'), double(id)) d, struct(if(id = 2, float('NaN'), float(id)) f) s"
        " FROM range(3)"
    ).coalesce(1)
    streamsink.write(frame, path, "r1", **({} if way == "driver" else {"driver_max_rows": 0, "large_batches": "tasks"}))
    rows = streamsink.read(spark, path)
    for where, expected in {
        "d > 100": [1],
        "d = double('NaN')": [1],
        "d >= 2": [1, 2],
        "s.f > 100": [2],
        "s.f = float('NaN')": [2],
        "d < 1": [0],
    }.items():
        assert sorted(row.id for row in rows.where(where).collect()) == expected, where
    assert [row[0] for row in java.read(path, [("greater_than", "d", 100.0)])] == [1]


FOR_OTHER_FILES = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
}


def test_settings_of_the_session_for_other_files_change_no_value_and_hide_no_row(spark, path):
    """Formerly old dates were shifted by days, and rows of a file that is gone or damaged were missing."""
    fields = columns("id INT, dt DATE, ts TIMESTAMP(6), lt TIMESTAMP_LTZ(6)")
    old = [(n, day, day * 86_400 * 10**9, day * 86_400 * 10**9) for n, day in enumerate((-200_000, -400_000, -700_000))]
    streamsink.create_table(path, fields)
    write(path, fields, [old[:2], old[2:]])
    session = spark.newSession()
    for name, value in FOR_OTHER_FILES.items():
        session.conf.set(name, value)
    assert_same(read(session, path), old)
    frame = streamsink.read(session, path)
    file, *_ = glob.glob(f"{path}/bucket-0/*.parquet")
    data = pathlib.Path(file).read_bytes()
    pathlib.Path(file).write_bytes(data[: len(data) // 2])
    with pytest.raises((PySparkException, Py4JJavaError)):
        frame.collect()
    os.unlink(file)
    with pytest.raises((PySparkException, Py4JJavaError)):
        frame.collect()
