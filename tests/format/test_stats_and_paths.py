"""Column stats that are bounds, and directory names."""

import datetime
import decimal

import pyarrow as pa
import pytest

from streamsink.errors import Misuse
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.binary_row import EMPTY_ROW, decode_row
from streamsink.format.paths import bucket_dir, java_float_text, partition_path
from streamsink.format.stats import EMPTY_STATS, StatsCollector, partition_stats
from streamsink.format.types import parse_ddl


def stats_of(ddl, *batches, options=None):
    fields = parse_ddl(ddl)
    collector = StatsCollector(fields, options or {})
    for rows in batches:
        collector.update(pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(fields)))
    stats, cols = collector.finish()
    types = [f.type for f in fields if cols is None or f.name in cols]
    return decode_row(stats.min_values, types), decode_row(stats.max_values, types), stats.null_counts, cols


def test_batches_add_up():
    low, high, nulls, cols = stats_of(
        "i INT, s STRING", [{"i": 3, "s": "b"}], [{"i": -1, "s": None}], [], [{"i": None}]
    )
    assert (low, high, nulls, cols) == ((-1, "b"), (3, "b"), (1, 2), None)


def test_nan_and_zero_are_no_trap():
    """A NaN leaves no bounds (Java writes NaN, which readers compare differently); both zeros are inside the bounds."""
    for values in ([1.0, float("nan")], [float("nan"), None]):
        low, high, nulls, _ = stats_of("d DOUBLE", [{"d": v} for v in values], [{"d": 5.0}])
        assert (low, high) == ((None,), (None,)) and nulls == (values.count(None),)
    for zero in (0.0, -0.0):
        low, high, _, _ = stats_of("d DOUBLE, f FLOAT", [{"d": zero, "f": zero}])
        assert [str(v) for v in low + high] == ["-0.0", "-0.0", "0.0", "0.0"]


@pytest.mark.parametrize(
    "text,low,high",
    [
        ("a" * 16, "a" * 16, "a" * 16),
        ("a" * 17, "a" * 16, "a" * 15 + "b"),
        ("a" * 15 + "\U0010ffffz", "a" * 15 + "\U0010ffff", "a" * 14 + "b"),
        ("\U0010ffff" * 17, None, None),
        ("a" * 15 + "\ud7ffz", "a" * 15 + "\ud7ff", "a" * 15 + "\ue000"),
        ("\U0001f600" * 17, "\U0001f600" * 16, "\U0001f600" * 15 + "\U0001f601"),
    ],
)
def test_truncated_strings_stay_bounds(text, low, high):
    found = stats_of("s STRING", [{"s": text}])
    assert found[:2] == ((low,), (high,))


def test_random_bounds_enclose_every_value(rng):
    for _ in range(200):
        texts = [
            "".join(chr(rng.choice([97, 98, 0x7F, 0xD7FF, 0xE000, 0x10FFFF])) for _ in range(rng.randrange(6)))
            for _ in range(5)
        ]
        low, high, _, _ = stats_of(
            "s STRING", [{"s": t} for t in texts], options={"metadata.stats-mode": "truncate(2)"}
        )
        for text in texts:
            assert low[0] is None or low[0].encode() <= text.encode() <= high[0].encode()


def test_modes_and_nested_columns():
    row = {"i": 1, "s": "x", "a": [1]}
    assert stats_of("i INT, s STRING, a ARRAY<INT>", [row])[3] == ("i", "s")
    assert stats_of("i INT, s STRING", [row], options={"metadata.stats-mode": "COUNTS"})[:3] == (
        (None, None),
        (None, None),
        (0, 0),
    )
    assert stats_of("i INT, s STRING", [row], options={"metadata.stats-mode": "none", "fields.s.stats-mode": "full"})[
        3
    ] == ("s",)
    assert stats_of("i INT, s STRING", [row], options={"metadata.stats-keep-first-n-columns": "1"})[3] == ("i",)
    collector = StatsCollector(parse_ddl("i INT"), {"metadata.stats-mode": "none"})
    assert collector.finish() == (EMPTY_STATS, ())
    for bad in (
        {"metadata.stats-mode": "some"},
        {"metadata.stats-mode": "truncate(0)"},
        {"fields.i.stats-mode": ""},
        {"metadata.stats-keep-first-n-columns": "x"},
    ):
        with pytest.raises(Misuse):
            StatsCollector(parse_ddl("i INT"), bad)


def test_batches_of_other_shape_are_refused():
    collector = StatsCollector(parse_ddl("i INT, s STRING"), {})
    for other in (
        pa.record_batch({"i": [1]}),
        pa.record_batch({"s": ["x"], "i": [1]}),
        pa.record_batch({"i": ["x"], "s": ["y"]}),
    ):
        with pytest.raises(Misuse):
            collector.update(other)


def test_stats_of_unpartitioned_manifests_are_empty():
    assert partition_stats({EMPTY_ROW: 1}, []) == EMPTY_STATS


@pytest.mark.parametrize(
    "ddl,value,legacy,name",
    [
        ("dt STRING", "a/b=c%d:e", True, "dt=a%2Fb%3Dc%25d%3Ae"),
        ("dt STRING", "..", True, "dt=.."),
        ("dt STRING", None, True, "dt=__DEFAULT_PARTITION__"),
        ("dt STRING", "", True, "dt=__DEFAULT_PARTITION__"),
        ("dt STRING", " \t", True, "dt=__DEFAULT_PARTITION__"),
        ("dt STRING", "\u00a0", True, "dt=\u00a0"),
        ("d DATE", datetime.date(2024, 1, 2), True, "d=19724"),
        ("d DATE", datetime.date(2024, 1, 2), False, "d=2024-01-02"),
        ("t TIME(3)", 3600000, True, "t=3600000"),
        ("t TIME(3)", 3600000, False, "t=01%3A00%3A00.0"),
        ("t TIMESTAMP(3)", datetime.datetime(2024, 1, 2, 3, 4, 5, 123000), True, "t=2024-01-02T03%3A04%3A05.123"),
        ("t TIMESTAMP(3)", datetime.datetime(2024, 1, 2, 3, 4), True, "t=2024-01-02T03%3A04"),
        ("t TIMESTAMP(3)", datetime.datetime(2024, 1, 2, 3, 4, 5, 123000), False, "t=2024-01-02 03%3A04%3A05.123"),
        ("b BOOLEAN", True, True, "b=true"),
        ("n DECIMAL(5,2)", decimal.Decimal("5.1"), True, "n=5.10"),
        ("f DOUBLE", 1e10, True, "f=1.0E10"),
        ("f FLOAT", 1.5, False, "f=1.5"),
        ("i TINYINT", -3, True, "i=-3"),
    ],
)
def test_partition_directories(ddl, value, legacy, name):
    assert partition_path([value], parse_ddl(ddl), legacy=legacy) == name


def test_directories_of_buckets():
    two = parse_ddl("a STRING, b INT")
    assert partition_path([], []) == "" and bucket_dir("", 0) == "bucket-0"
    assert bucket_dir(partition_path(["x", 1], two), -2) == "a=x/b=1/bucket-postpone"
    for bad in (-1, -3):
        with pytest.raises(Misuse):
            bucket_dir("", bad)
    for ddl, value in (("b BYTES", b"x"), ("i INT", "x"), ("a ARRAY<INT>", [1])):
        with pytest.raises(Misuse):
            partition_path([value], parse_ddl(ddl))
    with pytest.raises(Misuse):
        partition_path([0], parse_ddl("t TIMESTAMP_LTZ(3)"), legacy=False)


@pytest.mark.parametrize(
    "value,single,text",
    [
        (0.001, False, "0.001"),
        (0.00099, False, "9.9E-4"),
        (9999999.0, False, "9999999.0"),
        (1e7, False, "1.0E7"),
        (-0.0, False, "-0.0"),
        (float("inf"), False, "Infinity"),
        (float("nan"), True, "NaN"),
        (0.1, False, "0.1"),
        (0.3333333432674408, True, "0.33333334"),
        (123456.789, False, "123456.789"),
        (100.0, True, "100.0"),
        (3.4028234663852886e38, True, "3.4028235E38"),
        (5e-324, False, "5.0E-324"),
    ],
)
def test_floats_as_java_prints_them(value, single, text):
    assert java_float_text(value, single=single) == text
