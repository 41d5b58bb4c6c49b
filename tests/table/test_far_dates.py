"""Partition values that Python's own dates and datetimes cannot hold:
Spark has them and Paimon has them, so they are partitions."""

import datetime

import pyarrow as pa
import pytest

import streamsink
from streamsink.errors import Misuse
from tests.compat.arrow_writer import ArrowSink

_EPOCH = datetime.date(1970, 1, 1).toordinal()
# These are days, in the years -1 and 10001.
_BEFORE, _AFTER = -_EPOCH - 400, datetime.date.max.toordinal() - _EPOCH + 400
_DAY_MICROS = 86_400_000_000


@pytest.mark.parametrize(
    "kind, stored, unit",
    [(pa.date32(), pa.int32(), 1), (pa.timestamp("us"), pa.int64(), _DAY_MICROS)],
    ids=["DATE", "TIMESTAMP"],
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
    assert sorted(zip(found["id"].to_pylist(), found["at"].cast(stored).to_pylist())) == sorted(
        2 * list(enumerate(values))
    )
    assert len(list((tmp_path / "orders").glob("at=*"))) == 3
    assert streamsink.verify(path).ok


@pytest.mark.parametrize("kind, unit", [(pa.date32(), 1), (pa.timestamp("us"), _DAY_MICROS)], ids=["DATE", "TIMESTAMP"])
@pytest.mark.parametrize("day", [_BEFORE, _AFTER])
def test_a_year_for_which_java_has_no_folder_of_its_own_is_refused_by_name(tmp_path, kind, unit, day):
    """With partition.legacy-name=false Java gives the years 1 and 10001 one folder,
    and -1 a folder with a slash in its name."""
    stored = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    rows = pa.table({"id": pa.array([1], pa.int64()), "at": pa.array([day * unit], stored).cast(kind)})
    path = str(tmp_path / "orders")
    streamsink.create_table(path, rows.schema, ["at"], {"partition.legacy-name": "false"})
    with ArrowSink(path) as sink, pytest.raises(Misuse, match="'at'.*0 to 9999") as refused:
        sink.write(rows)
    assert refused.value.kind == "path.unsupported-value"
    assert str(day * unit) not in str(refused.value)
    assert streamsink.read_arrow(path).num_rows == 0 and streamsink.verify(path).ok
