"""Partition values that Python's own dates and datetimes cannot hold: Spark has them, and Paimon has them, so they are partitions."""

import datetime

import pyarrow as pa
import pytest

import streamsink
from tests.compat.arrow_writer import ArrowSink

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_BEFORE, _AFTER = -_EPOCH - 400, datetime.date.max.toordinal() - _EPOCH + 400  # days, in the years -1 and 10001
_DAY_MICROS = 86_400_000_000


@pytest.mark.parametrize(
    "kind, stored, unit", [(pa.date32(), pa.int32(), 1), (pa.timestamp("us"), pa.int64(), _DAY_MICROS)], ids=["DATE", "TIMESTAMP"]
)
def test_a_partition_of_the_year_minus_one_or_ten_thousand_and_one_is_written_and_read(tmp_path, kind, stored, unit):
    """Each value has its folder, the rows come back as they were, and the table is whole."""
    values = [_BEFORE * unit, _AFTER * unit, 0, _BEFORE * unit]
    rows = pa.table({"id": pa.array(range(4), pa.int64()), "at": pa.array(values, stored).cast(kind)})
    path = str(tmp_path / "orders")
    streamsink.create_table(path, rows.schema, ["at"])
    with ArrowSink(path) as sink:
        sink.write(rows)
        sink.write(rows)
    found = streamsink.read_arrow(path)
    assert sorted(zip(found["id"].to_pylist(), found["at"].cast(stored).to_pylist())) == sorted(2 * list(enumerate(values)))
    assert len(list((tmp_path / "orders").glob("at=*"))) == 3
    assert streamsink.verify(path).ok
