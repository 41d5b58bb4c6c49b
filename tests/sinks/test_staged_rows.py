"""Sinks whose rows wait in the journal's staging folder until their checkpoint is committed."""

import json
from dataclasses import dataclass

import pyarrow as pa
import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.options import SinkOptions
from streamsink.sink import PendingTransaction, StagedRowsSink, TransactionContext
from streamsink.sinks.transactions.staged_rows import path_of
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA, check_sink
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.memory import MemoryCalls


@dataclass(frozen=True)
class WholeCheckpoints(StagedRowsSink):
    """Each checkpoint becomes one file of JSON lines, which is created when it is absent."""

    path: str
    journal: str

    def commit_checkpoint(self, checkpoint):
        for first in checkpoint.transactions[:1]:
            rows = [
                row for each in checkpoint.transactions for part in self.read_rows(each) for row in part.to_pylist()
            ]
            data = "".join(json.dumps(row) + "\n" for row in rows).encode()
            # The rows are the same in each try, so a name that is taken has them.
            first.context.file_io.create_if_absent(f"{self.path}/{checkpoint.record_id}.jsonl", data)
            first.context.file_io.sync_dir(self.path)


def rows_of(file_io, root: str) -> list[int]:
    names = [name for name in file_io.names(f"{root}/rows") if name.endswith(".jsonl") and not name.startswith(".")]
    lines = [line for name in names for line in file_io.read(f"{root}/rows/{name}").decode().splitlines()]
    return [json.loads(line)["id"] for line in lines]


@pytest.mark.in_turn("shown sinks in the suite of all sinks", 2)
def test_a_sink_of_staged_rows_passes():
    """Some of the calls are tried, in every way: most of them are those of any sink in Flink's form."""
    assert check_sink(lambda root: WholeCheckpoints(f"{root}/rows", journal=root), rows_of, every=7) > 50


def _staged(*batches: pa.RecordBatch) -> tuple[WholeCheckpoints, PendingTransaction]:
    """A transaction of these rows that is pre-committed, as a committer gets it."""
    sink, file_io = WholeCheckpoints("/rows", "/journal"), FileIO(MemoryCalls(), IdSource().new_id)
    file_io.make_dir("/journal/staging")
    context = TransactionContext("1-a", "app", 1, "/journal/staging", file_io)
    written = sink.begin_transaction(context)
    for batch in batches:
        sink.invoke(written, batch, context)
    sink.pre_commit(written, context)
    read_back = sink.decode(sink.encode(written))
    return sink, PendingTransaction(read_back, context, 0, sum(batch.num_rows for batch in batches))


def test_rows_come_back_in_order_with_their_types():
    """Of several batches, with nulls, and with values at the ends of their types."""
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("of", pa.list_(pa.decimal128(38, 2))),
            ("t", pa.string()),
        ]
    )
    first = pa.RecordBatch.from_pylist([{"id": 2**63 - 1, "at": 0, "of": [None, 1], "t": "\0 'x'"}, {}], schema=schema)
    second = pa.RecordBatch.from_pylist([{"id": n} for n in range(1000)], schema=schema)
    sink, pending = _staged(first, second)
    assert pa.Table.from_batches(sink.read_rows(pending)) == pa.Table.from_batches([first, second])


@pytest.mark.parametrize("what", ["gone", "shorter", "other"])
def test_rows_that_are_not_there_any_more_are_no_empty_checkpoint(what):
    """The error names the file; nothing is committed without the rows."""
    sink, pending = _staged(pa.RecordBatch.from_pydict({"id": [1, 2, 3]}))
    file_io, path = pending.context.file_io, path_of(pending.context)
    data = file_io.read(path)
    file_io.delete(path)
    if what != "gone":
        file_io.write(path, data[:-1] if what == "shorter" else bytes(len(data)))
    with pytest.raises(Corrupt, match="1-a.arrow"):
        list(sink.read_rows(pending))


def test_what_was_not_recorded_is_deleted():
    """While it is written, and later by its name; twice does no harm."""
    sink, pending = _staged(pa.RecordBatch.from_pydict({"id": [1]}))
    file_io = pending.context.file_io
    open_still = sink.begin_transaction(pending.context)
    sink.recover_and_abort(pending.context)
    sink.invoke(open_still, pa.RecordBatch.from_pydict({"id": [1]}), pending.context)
    sink.abort(open_still, pending.context)
    sink.abort(open_still, pending.context)
    sink.recover_and_abort(pending.context)
    assert file_io.names(pending.context.folder) == []


@dataclass(frozen=True)
class Choosy(WholeCheckpoints):
    """Takes only rows with even numbers, and only numbers."""

    def check_columns(self, columns, session):
        if columns.names != ["id", "version"]:
            raise Misuse(f"{self.path}: expected id and version", kind="test.columns")
        session["asked"] = session.get("asked", 0) + 1

    def check_transactions(self, transactions, session):
        ids = [n for each in transactions for part in self.read_rows(each) for n in part["id"].to_pylist()]
        assert len(ids) == sum(each.rows for each in transactions) and session["asked"] == 1
        if any(n % 2 for n in ids):
            raise Misuse(f"{self.path}: odd numbers", kind="test.odd")


def test_what_a_sink_refuses_before_the_record_is_not_recorded():
    """Rows are refused by their columns and by their values, and the query goes on when they are mended. Columns are
    looked at once in a start, as long as they do not change."""
    calls, step = MemoryCalls(), 1

    class Driver(MicroBatchDriver):
        def destination(self):
            return Choosy("/lake/rows", "/lake")

    def driver(schema=SCHEMA):
        return Driver("/lake", schema, lambda start, end: _rows(start, end, step), SinkOptions.of("/lake", {}))

    checkpoint, file_io = SparkCheckpoint("00000000-0000-0000-0000-000000000001"), FileIO(calls, IdSource().new_id)
    with pytest.raises(Misuse, match="expected id"):
        driver(pa.schema([("other", pa.int64())])).run(file_io, checkpoint, (3,))
    for _ in range(2):
        with pytest.raises(Misuse, match="odd"):
            driver().run(file_io, checkpoint, (3, 5))
    journal = "/lake/streamsink/streamsink"
    assert (
        file_io.names(journal)
        and file_io.names(f"{journal}/staging") == []
        and not any("record" in name for name in file_io.names(journal))
    )
    step = 2
    driver().run(file_io, checkpoint, (3, 5))
    assert sorted(rows_of(file_io, "/lake")) == [0, 2, 4, 6, 8]


def _rows(start: int, end: int, step: int) -> pa.RecordBatch:
    numbers = [step * n for n in range(start, end)]
    return pa.RecordBatch.from_pydict({"id": numbers, "version": numbers}, schema=SCHEMA)
