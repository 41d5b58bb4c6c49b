"""Writing that fails: no file stays open or is left, and the error that comes out is the one that ended the writing."""

import errno

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.format.arrow_types import from_arrow_schema
from streamsink.storage.file_io import FileIO
from streamsink.table.table import new_schema
from streamsink.table.write.parquet_output import ParquetOutput
from streamsink.table.write.spec import WriteSpec
from streamsink.table.write.writer import TableWriter
from streamsink.testing.memory import MemoryCalls

ROWS = pa.RecordBatch.from_pydict({"id": list(range(10))}, schema=pa.schema([("id", pa.int64())]))


class _Calls(MemoryCalls):
    """Remembers the files that it has opened. full: no byte can be written; stuck: no file can be deleted."""

    full = stuck = False

    def __init__(self):
        super().__init__()
        self.opened = []

    def open_new(self, path):
        stream = super().open_new(path)
        self.opened.append(stream)
        if self.full:
            stream.write = _no_room
        return stream

    def unlink(self, path):
        if self.stuck:
            raise OSError(errno.EACCES, "may not be deleted", path)
        return super().unlink(path)


def _no_room(_):
    raise OSError(errno.ENOSPC, "no space left")


@pytest.fixture
def calls():
    calls = _Calls()
    calls.mkdir("/staging")
    return calls


def _writer(calls):
    schema = new_schema(from_arrow_schema(ROWS.schema), (), {}).to_json()
    return TableWriter(FileIO(calls, IdSource().new_id), WriteSpec("/staging", schema, 10**9, 7, 10**6))


def test_a_file_whose_parquet_writer_cannot_be_opened_is_closed_and_deleted(calls, monkeypatch):
    """It is no open file of the writer yet."""

    def refused(*_):
        raise pa.ArrowInvalid("no such codec")

    writer = _writer(calls)
    monkeypatch.setattr(ParquetOutput, "__init__", refused)
    with pytest.raises(pa.ArrowInvalid):
        writer.write(ROWS)
        writer.write_buffered()
    assert [stream.closed for stream in calls.opened] == [True]
    writer.abort()
    assert calls.entries("/staging") == []


@pytest.mark.parametrize("stuck", [False, True])
def test_files_that_cannot_be_deleted_do_not_hide_why_the_writer_is_given_up(calls, caplog, stuck):
    """They are closed all the same, and stay for the sweep of their folder."""
    writer = _writer(calls)
    calls.full, calls.stuck = True, stuck
    with pytest.raises(OSError, match="no space left"):
        writer.write(ROWS)
        writer.write_buffered()
    writer.abort()
    assert calls.opened and all(stream.closed for stream in calls.opened)
    assert len(calls.entries("/staging")) == stuck and ("may not be deleted" in caplog.text) == stuck


@pytest.mark.parametrize("way", ["begin", "write_new"])
def test_a_file_that_is_full_and_cannot_be_deleted_says_that_it_is_full(calls, way):
    calls.full = calls.stuck = True
    file_io = FileIO(calls, IdSource().new_id)
    with pytest.raises(OSError, match="no space left"):
        file_io.begin("/staging/x", b"x") if way == "begin" else file_io.mark("/staging/x", b"x")
    assert [stream.closed for stream in calls.opened] == [True]
