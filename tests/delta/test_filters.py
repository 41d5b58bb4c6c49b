"""Rows that deltalake's own reader finds by filters of pyarrow, which leave out files by the statistics in the log."""

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamsink.sinks.lake_tables.parquet_file import LakeFile
from tests.delta.test_rows import stats, world_of

UTC = datetime.timezone.utc
VALUES = {
    "double": (pa.float64(), [-0.0, 0.1, 1.5, 5e-324, -1e308, None]),
    "float": (pa.float32(), [-0.0, 0.10000000149011612, 3.4028234663852886e38, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["", "a" * 40, "\U0001f600", "a\0b", "x" * 10_000, None]),
    "money": (pa.decimal128(9, 2), [Decimal("-0.01"), Decimal("9999999.99"), None]),
    "day": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(1582, 10, 10), datetime.date(9999, 12, 31), None]),
    "at": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(1, 1, 1, tzinfo=UTC), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), None],
    ),
    "wall": (pa.timestamp("us"), [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), None]),
}


@pytest.mark.parametrize("name", VALUES)
def test_deltalake_finds_each_value_by_a_filter(tmp_path, name):
    """It takes a bound that the log does not give for one that no value is within: there was none of booleans, no
    greatest number, and none of the last millisecond of all."""
    kind, values = VALUES[name]
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    world = world_of(tmp_path, [{"id": at, "v": value} for at, value in enumerate([*values, *values])], schema)
    world.run(len(values), 2 * len(values))
    for at, value in enumerate(values[:-1]):
        found = world.table().to_pyarrow_table(filters=[("v", "=", value)]).column("id").to_pylist()
        assert sorted(found) == [at, at + len(values)], value
    assert world.table().to_pyarrow_table(filters=[("id", "<", 2)]).num_rows == 2


def test_deltalake_finds_rows_within_a_row(tmp_path):
    """By their parts, and where there is none. Without statistics of the parts it compares the whole with nothing."""
    deep = pa.struct([("b", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.string()), ("deep", deep)]))])
    rows = [
        {"id": 0, "s": {"a": "x", "deep": {"b": 1}}},
        {"id": 1, "s": None},
        {"id": 2, "s": {"a": None, "deep": None}},
    ]
    world = world_of(tmp_path, rows, schema)
    world.run(3)
    of, found = pc.field("s"), world.table().to_pyarrow_dataset()
    for condition, expected in (
        (of.is_null(), [1]),
        (of.is_valid(), [0, 2]),
        (pc.field("s", "a") == "x", [0]),
        (pc.field("s", "deep", "b") == 1, [0]),
        (pc.field("s", "a").is_null(), [1, 2]),
    ):
        assert found.to_table(filter=condition).column("id").to_pylist() == expected, condition


def test_arrays_and_maps_count_as_one_column_each(tmp_path):
    """Of 32 columns there are bounds. A map counted twice, so the last of them had none: no filter found its rows."""
    inner = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.int64()), ("d", pa.int64())])))])
    first = [("id", pa.int64()), ("map", pa.map_(pa.string(), pa.int64())), ("inner", inner)]
    schema = pa.schema([*first, *((f"c{number}", pa.int64()) for number in range(40))])
    row = {"id": 0, "map": [("a", 1)], "inner": {"a": 1, "b": [{"c": 1, "d": 2}]}}
    world = world_of(tmp_path, [row | {f"c{number}": number for number in range(40)}], schema)
    world.run(1)
    (said,) = stats(world)
    assert [name for name in said["maxValues"] if name[0] == "c"] == [f"c{number}" for number in range(32 - 4)]
    for number in range(40):
        assert world.table().to_pyarrow_table(filters=[(f"c{number}", "=", number)]).num_rows == 1, number


@pytest.mark.parametrize(
    "odd, bounds", [(math.nan, ("minValues",)), (math.inf, ("minValues",)), (-math.inf, ("maxValues",))]
)
def test_numbers_that_are_none_take_a_bound_away(tmp_path, odd, bounds):
    """A bound in the log is one for all readers: for Spark NaN is the greatest of all, and JSON has no infinite one."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64())])
    world = world_of(tmp_path, [{"id": 0, "v": 1.5}, {"id": 1, "v": odd}], schema)
    world.run(2)
    (said,) = stats(world)
    assert {name for name in ("minValues", "maxValues") if "v" in said[name]} == set(bounds)


def test_a_file_that_an_earlier_release_has_written_may_hold_a_nan():
    """Its description does not say it."""
    told = LakeFile("part-0.parquet", 1, 1, b"", b"", nans=(2,)).to_json()
    assert LakeFile.from_json(told).nans == (2,)
    del told["nans"]
    assert LakeFile.from_json(told).nans is None
