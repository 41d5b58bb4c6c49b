"""Which types and options a table with Iceberg metadata may have, and what becomes of their values."""

import datetime
import decimal
import os

import pyarrow as pa
import pytest

from streamsink.errors import Misuse
from tests.iceberg_metadata.mirrored import STORAGE, Query, check, folder_of, iceberg, rows_of


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "shop.db" / "orders")


TYPES = {
    "flag": (pa.bool_(), lambda n: n % 2 == 0),
    "tiny": (pa.int8(), lambda n: n % 100 - 50),
    "small": (pa.int16(), lambda n: -n),
    "whole": (pa.int32(), lambda n: n - 5),
    "large": (pa.int64(), lambda n: n << 40),
    "single": (pa.float32(), lambda n: n / 4),
    "double": (pa.float64(), lambda n: float("nan") if n == 3 else -n / 8),
    "text": (pa.string(), lambda n: None if n % 4 == 1 else "é" * n + "x"),
    "bytes": (pa.binary(), lambda n: bytes([n])),
    "day": (pa.date32(), lambda n: datetime.date(1969, 12, 25) + datetime.timedelta(n)),
    "price": (pa.decimal128(9, 2), lambda n: decimal.Decimal(n - 4) / 4),
    "sum": (pa.decimal128(30, 3), lambda n: decimal.Decimal(-n) * 10**20),
    "at_ms": (pa.timestamp("ms"), lambda n: datetime.datetime(1969, 12, 31, 23, 59, 58, n * 1000)),
    "at": (pa.timestamp("us", tz="UTC"), lambda n: datetime.datetime(2026, 1, 1, 0, 0, n, 7)),
}
KEYS = [name for name in TYPES if name not in ("bytes", "double")]


@pytest.mark.in_turn("types in Iceberg metadata", 3)
@pytest.mark.parametrize("key", [*KEYS, None])
def test_every_type_and_partitions_of_it(path, key):
    """Filters by each column find its rows: bounds and partitions are what Iceberg takes them for."""
    schema = pa.schema([(name, kind) for name, (kind, _) in TYPES.items()])
    query = Query(path, schema, lambda n: [make(n) for _, make in TYPES.values()], partition_by=(key,) if key else ())
    query.write(2)
    check(path)
    found = iceberg(folder_of(path))
    rows = rows_of(found.scan().to_arrow())
    for name in KEYS if key is None else [key]:
        number = list(TYPES).index(name)
        for value in {row[number] for row in rows[::3]}:
            some = found.scan(row_filter=_equal(name, value)).to_arrow()
            assert rows_of(some) == [row for row in rows if row[number] == value], (name, value)


def _equal(name, value):
    from pyiceberg.expressions import EqualTo, IsNull

    if isinstance(value, datetime.datetime):
        value = value.isoformat() + ("" if value.tzinfo is None else "")
    return IsNull(name) if value is None else EqualTo(name, value)


@pytest.mark.parametrize("kind", [pa.time32("ms"), pa.timestamp("ns"), pa.timestamp("s"), pa.list_(pa.time32("ms"))])
def test_a_type_that_iceberg_does_not_have_is_refused_before_anything_is_written(path, kind):
    """It names the column and the option."""
    query = Query(path, pa.schema([("id", pa.int64()), ("t", kind)]), lambda n: (n, None), partition_by=())
    with pytest.raises(Misuse, match=r"'t' has a part of type .*metadata\.iceberg\.storage") as refused:
        query.write()
    assert refused.value.kind == "table.unsupported-column" and not os.path.exists(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({STORAGE: "hive-catalog"}, "hive-catalog"),
        ({STORAGE: "rest-catalog"}, "rest-catalog"),
        ({"metadata.iceberg.format-version": "3"}, "format-version"),
        ({"metadata.iceberg.manifest-compression": "xz"}, "manifest-compression"),
        ({"metadata.iceberg.previous-versions-max": "some"}, "previous-versions-max"),
    ],
)
def test_options_that_are_not_honoured_are_refused_by_name(path, options, said):
    with pytest.raises(Misuse, match=said) as refused:
        Query(path, table_options=options).write()
    assert refused.value.kind == "table.unsupported-option" and not os.path.exists(path)
