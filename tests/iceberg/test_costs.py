"""What a micro-batch costs in a catalog that is a database: counted, so that it does not come back unnoticed."""

import os
from collections import Counter

import pyarrow as pa
import pytest
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy import event
from sqlalchemy.engine import Engine

from streamsink.sinks.iceberg.file_io import DurableFileIO
from tests.iceberg.test_tables import Query


@pytest.fixture
def calls(monkeypatch):
    """How often was called what costs: statements by their first word, files and copies of metadata, flushes."""
    counts = Counter()

    def counted(owner, name: str, what: str) -> None:
        called = getattr(owner, name)

        def counting(*args, **kwargs):
            counts[what] += 1
            return called(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    def statement(connection, cursor, text, *_) -> None:
        counts[text.split()[0]] += 1

    counted(FromInputFile, "table_metadata", "metadata read")
    counted(Snapshot, "__deepcopy__", "snapshot copied")
    counted(DurableFileIO, "new_output", "file written")
    counted(DurableFileIO, "new_input", "file read")
    counted(os, "fsync", "flush")
    event.listen(Engine, "before_cursor_execute", statement)
    yield counts
    event.remove(Engine, "before_cursor_execute", statement)


def _of_each_batch(query: Query, calls: Counter, *batches: pa.Table) -> list[Counter]:
    """What was called from the rows of one batch to those of the next one."""
    marks = []

    def mark() -> None:
        marks.append(Counter(calls))
        query.meanwhile = mark

    query.meanwhile = mark
    query.run(*batches)
    return [after - before for before, after in zip(marks, marks[1:])]


def test_a_micro_batch_reads_no_metadata_again(calls, tmp_path):
    """One statement looks whether the table is as it was left, and one exchanges its metadata. Written are a manifest,
    the list of all manifests, and the metadata. What waits for the disk: the record's files and folders, its name, and
    the commit's files and folder, of which all but the names are flushed at once."""
    costs = _of_each_batch(Query(tmp_path), calls, *(pa.table({"id": [number]}) for number in range(8)))
    assert costs[2:] == [{"SELECT": 1, "UPDATE": 1, "file written": 3, "flush": 13}] * 5


def test_what_others_have_committed_is_read_once(calls, tmp_path):
    """A commit of theirs costs a look its question, and pyiceberg's own look one more, and the file."""
    query = Query(tmp_path)
    query.run(pa.table({"id": [0]}))
    rival = query.table()
    costs = []

    def first() -> None:
        rival.refresh().append(pa.table({"id": [100]}))
        costs.append(Counter(calls))
        query.meanwhile = lambda: costs.append(Counter(calls))

    def begin() -> None:
        query.meanwhile = first  # under the second batch: what the first one has left is not that of the table any more

    query.meanwhile = begin
    query.run(*(pa.table({"id": [number]}) for number in (1, 2, 3)))
    found = costs[1] - costs[0]
    assert found["metadata read"] == 1 and found["snapshot copied"] == 0 and found["UPDATE"] == 2
    assert sorted(row["id"] for row in query.found()) == [0, 1, 2, 3, 100]


def test_the_list_that_is_remembered_is_the_one_that_was_written(tmp_path):
    """Each manifest has the sequence number of its snapshot, also behind merges, and each file that of its own."""
    query = Query(tmp_path)
    merging = {"commit.manifest.min-count-to-merge": "3"}
    query.run(*(pa.table({"id": [number]}) for number in range(8)), table_options=merging)
    table = query.table()
    order = {each.snapshot_id: each.sequence_number for each in table.metadata.snapshots}
    for snapshot in table.metadata.snapshots:
        clear_manifest_cache()  # it would show each manifest as the first list has it
        manifests = snapshot.manifests(table.io)
        for manifest in manifests:
            assert manifest.sequence_number == order[manifest.added_snapshot_id]
            entries = manifest.fetch_manifest_entry(table.io)
            assert all(entry.sequence_number == order[entry.snapshot_id] for entry in entries)
            assert manifest.min_sequence_number == min(entry.sequence_number for entry in entries)
    assert len(table.current_snapshot().manifests(table.io)) < 8
    assert sorted(row["id"] for row in query.found()) == list(range(8))
