"""What a newer writer may have left, what a type cannot hold, and topics that are gone are refused by name."""

import datetime
import json

import pyarrow as pa
import pytest

import streamsink
from streamsink.errors import Corrupt, Misuse
from streamsink.storage.file_io import local_file_io
from streamsink.table.table import open_table
from tests.compat.arrow_writer import ArrowSink


def snapshots(path) -> list[str]:
    return sorted(file.name for file in (path / "snapshot").glob("snapshot-*"))


def test_a_snapshot_of_a_newer_version_is_neither_read_nor_written_on(tmp_path):
    """Its meaning is not known here: the error names it, and nothing is added to the table."""
    path = tmp_path / "orders"
    rows = pa.table({"id": pa.array([1], pa.int64())})
    streamsink.create_table(str(path), rows.schema)
    with ArrowSink(str(path)) as sink:
        sink.write(rows)
    newest = path / "snapshot" / "snapshot-1"
    newest.write_text(json.dumps(json.loads(newest.read_text()) | {"version": 4}))
    with pytest.raises(Corrupt, match="snapshot-1 .*version 4.*newest known is 3") as refused:
        streamsink.read_arrow(str(path))
    assert refused.value.kind == "snapshot.version"
    with pytest.raises(Corrupt) as refused, ArrowSink(str(path)) as sink:
        sink.write(rows)
    assert refused.value.kind == "snapshot.version"
    assert snapshots(path) == ["snapshot-1"] and list(path.rglob("data-*")) == [*path.glob("bucket-0/data-*")]
    assert [finding.kind for finding in streamsink.verify(str(path)).findings][:1] == ["snapshot.version"]


@pytest.mark.parametrize("year", [1582, 2300])
def test_a_timestamp_beyond_nanoseconds_is_refused_with_the_range(tmp_path, year):
    """TIMESTAMP(7..9) is stored in nanoseconds of 64 bits."""
    rows = pa.table({"at": pa.array([datetime.datetime(year, 10, 4)], pa.timestamp("us"))})
    path = str(tmp_path / "orders")
    streamsink.create_table(path, "at TIMESTAMP(9)")
    with ArrowSink(path) as sink, pytest.raises(Misuse, match="'at'.*1677-09-21.*2262-04-11") as refused:
        sink.write(rows, open_table(local_file_io(), path, for_writing=False).latest_schema().fields)
    assert refused.value.kind == "data.cast" and str(year) not in str(refused.value)


def test_starting_offsets_leave_out_topics_that_are_gone(tmp_path):
    """Kafka's source fails on a topic that the broker does not have. A name that is not recorded is a mistake."""
    path = str(tmp_path / "orders")
    rows = pa.table({"id": pa.array([1], pa.int64())})
    streamsink.create_table(path, rows.schema)
    with ArrowSink(path) as sink:
        sink.write(rows)
    recorded = {"arrow": {"0": 1}}
    assert json.loads(streamsink.starting_offsets(path)) == recorded
    assert json.loads(streamsink.starting_offsets(path, partitions={"new": 1}, without=["arrow"])) == {"new": {"0": -2}}
    with pytest.raises(Misuse, match="'arow'.*recorded are arrow") as refused:
        streamsink.starting_offsets(path, without=["arow"])
    assert refused.value.kind == "positions.unknown-topic"
