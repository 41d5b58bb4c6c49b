"""The helpers for sinks of files: a second sink of them passes the suite, and what a task or a manifest says is looked
at."""

import errno
import json

import pytest

from streamsink.clock import IdSource
from streamsink.errors import Corrupt, Fenced
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch, Committable
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.sink import (
    AppState,
    DataFile,
    FileJournal,
    FileWriting,
    ManifestLog,
    StagedFile,
    place_files,
    stage_files,
)
from streamsink.storage.file_io import FileIO
from streamsink.testing.conformance import SCHEMA, check_sink
from streamsink.testing.crashing import CrashingCalls
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from streamsink.testing.faults import InjectedCrash
from streamsink.testing.memory import MemoryCalls
from tests.advice.following import follows, told
from tests.sinks.lake import Lake, rows
from tests.sinks.shown import plain_files, rows_of, shown
from tests.storage.back_ends import back_end

STAGING = "/lake/streamsink/app/staging/1"


class JsonLines(FileWriting):
    """A row a line."""

    suffix = ".jsonl"

    def to_bytes(self, rows):
        return "".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()).encode()


def _json_lines(path):
    """A sink whose files have their final names in the folder itself."""

    class Opened(shown().OpenPlainFiles):
        def writing(self, checkpoint, fields, positions):
            return JsonLines(checkpoint.staging)

        def stage(self, checkpoint, written, group):
            return stage_files(self._io, self.to.path, checkpoint, written, group, folder=""), {}

    class Sink(shown().PlainFiles):
        def open(self, file_io, options, batch, fields, emit):
            return Opened(file_io, super().open(file_io, options, batch, fields, emit).to, options)

    return Sink(path)


def _lines_of(file_io, root):
    """The ids in the lines of the files that manifests name."""
    found = []
    for application in file_io.names(f"{root}/commits"):
        folder = f"{root}/commits/{application}"
        for name in (name for name in file_io.names(folder) if name.endswith(".json")):
            for path in json.loads(file_io.read(f"{folder}/{name}"))["files"]:
                assert "/" not in path and path.endswith(".jsonl")
                found += [json.loads(line)["id"] for line in file_io.read(f"{root}/{path}").splitlines()]
    return found


def test_a_sink_of_another_format_passes():
    """It shares all but the format and the folder with the sink of the docs, so some of the calls are tried."""
    assert check_sink(_json_lines, _lines_of, every=13) > 100


class _Store:
    """A store in memory with the staging folder of a checkpoint."""

    def __init__(self):
        self.calls = MemoryCalls()
        self.io = FileIO(self.calls, IdSource().new_id)
        self.io.make_dir(STAGING)

    def task(self, *ends):
        """What the driver is told of a task that writes batches with these ends."""
        writing, first = JsonLines(STAGING), 0
        writer = writing.open(self.io)
        for end in ends:
            writer.write(rows(first, end))
            first = end
        with self.io.flush_group() as group:
            texts = [writing.encode(file) for file in writer.close(group)]
            group.flush()
        return [writing.decode(text) for text in texts]

    def stage(self, written):
        checkpoint = Checkpoint(Batch(0, "query", ""), Decision(Verdict.NEW, ""), 1, STAGING, 0.0)
        with self.io.flush_group() as group:
            staged = stage_files(self.io, "/lake", checkpoint, written, group, folder="data")
            group.flush()
        return staged


def test_a_task_writes_one_durable_file():
    """It outlives the power of all machines as soon as the task has ended; the driver is told that a task wrote it."""
    store = _Store()
    (file,) = store.task(2, 2, 5)
    store.calls.power_failure()
    assert store.io.read(f"{STAGING}/{file.name}").count(b"\n") == file.rows == 5
    assert file == DataFile(file.name, store.io.size(f"{STAGING}/{file.name}"), 5, handed_over=True)
    assert store.stage([file]) == (
        StagedFile(f"streamsink/app/staging/1/{file.name}", f"data/{file.name}", file.size, 5),
    )
    ready, rows_of_task = sorted(store.io.names(STAGING))
    assert ready.startswith("manifest-1-") and rows_of_task == file.name


def test_a_task_without_rows_writes_no_file():
    """Its checkpoint is ready for a record all the same."""
    store = _Store()
    assert store.task(0) == [] and store.stage([]) == ()
    (ready,) = store.io.names(STAGING)
    assert ready.startswith("manifest-1-")


def test_an_attempt_that_is_given_up_leaves_nothing():
    """It may be told so more than once."""
    store = _Store()
    writer = JsonLines(STAGING).open(store.io)
    writer.write(rows(0, 3))
    with store.io.flush_group() as group:
        writer.close(group)
    for _ in range(2):
        writer.abort()
        assert store.io.names(STAGING) == []


def test_what_cannot_be_deleted_does_not_hide_why_the_attempt_was_given_up(caplog):
    """The error of the store is in the log: Spark shows the one that has ended the task."""

    def stuck(path):
        raise OSError(errno.EACCES, "may not be deleted", path)

    store = _Store()
    writer = JsonLines(STAGING).open(store.io)
    writer.write(rows(0, 3))
    with store.io.flush_group() as group:
        writer.close(group)
    store.io.delete = stuck
    writer.abort()
    assert "may not be deleted" in caplog.text


def test_a_batch_comes_again_where_its_folder_could_not_be_removed():
    """The flush failed, and the program gives the rows again in the same run, with the first try's files beside."""

    def broken(*_):
        raise OSError(errno.EIO, "broken")

    lake = Lake()
    io, lake.checkpoint.ends = lake.io(), [3]
    driver = MicroBatchDriver("/lake", SCHEMA, rows, SinkOptions.of("/lake", {}))
    driver.destination = lambda: plain_files("/lake")
    sink, batch = driver.start(io, lake.checkpoint), driver.describe(lake.checkpoint, 0)
    io.delete_tree, io.at_once = broken, broken
    with pytest.raises(OSError, match="broken"):
        sink.batch(batch)
    del io.delete_tree, io.at_once
    sink.batch(batch)
    sink.close()
    assert rows_of(io, "/lake") == [0, 1, 2]
    lake.run((3, 5))
    assert rows_of(lake.io(), "/lake") == list(range(5))


@pytest.mark.parametrize("left", [None, b"{"], ids=["gone", "cut"])
def test_a_file_that_is_not_as_its_task_has_written_it_gets_no_record(left):
    """The checkpoint does not become ready either."""
    store = _Store()
    whole, broken = *store.task(3), *store.task(4)
    store.io.delete(f"{STAGING}/{broken.name}")
    if left is not None:
        store.io.write(f"{STAGING}/{broken.name}", left)
    with pytest.raises(Corrupt) as refused:
        store.stage([whole, broken])
    assert refused.value.kind == "staged.files-gone"
    assert "2 files, of which 1 are not there" in str(refused.value) and f"{STAGING}/{broken.name}" in str(
        refused.value
    )
    assert not [name for name in store.io.names(STAGING) if name.startswith("manifest-")]


def test_a_record_whose_files_are_gone_is_not_published():
    """The message names the file."""
    store = _Store()
    with pytest.raises(Corrupt) as refused:
        place_files(store.io, "/lake", _record("first", (StagedFile("gone", "data/gone", 1, 1),)))
    assert refused.value.kind == "pending.files-gone" and "/lake/data/gone" in str(refused.value)


def _record(record_id, files=()):
    return Committable(AppState("query", 1, 1, 0, 1, record_id, "table", ()), "app", None, files, {})


def test_who_creates_a_manifest_first_has_published():
    """A record may be published again by the same name, and no other record has that number then."""
    store = _Store()
    log, first, second = ManifestLog(store.io, "/lake/commits"), _record("first"), _record("second")
    assert not log.is_published(first, 0) and not log.has(first) and log.applications() == []
    log.create(first, {"files": []})
    log.create(first, {"files": []})
    assert log.is_published(first, 0) and log.has(first) and log.newest("app") == first.state
    assert log.applications() == ["app"] and not log.has(second)
    with pytest.raises(Fenced) as refused:
        log.create(second, {"files": []})
    assert refused.value.kind == "writer.fenced" and log.newest("app") == first.state


def test_a_manifest_that_is_found_outlives_the_power():
    """Its driver died before the name was durable; whoever finds it marks the record, and does not look again."""
    store = _Store()
    log, record = ManifestLog(store.io, "/lake/commits"), _record("first")
    calls = CrashingCalls(store.calls)
    calls.before_call = lambda: setattr(calls, "dead", "link" in calls.log)
    mortal = ManifestLog(FileIO(calls, IdSource().new_id), "/lake/commits")
    with pytest.raises(InjectedCrash):
        mortal.create(record, {"files": []})
    assert log.has(record) and log.sweep([]) == []
    (left,) = log.sweep([record])
    assert left.endswith(".tmp")
    store.calls.power_failure()
    assert log.newest("app") == record.state


@follows("destination.manifest-corrupt")
@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"{}", b'{"state": {}}', b'{"state": []}'])
def test_a_damaged_manifest_is_restored(damaged):
    """Nothing goes on over a manifest that nobody can read, and all of it when the file is back."""
    lake = Lake()
    lake.run((3, 5))
    path = f"/lake/commits/streamsink/{2:010}.json"
    whole = lake.io().read(path)
    lake.io().replace(path, damaged, "damage")
    said = told("destination.manifest-corrupt", lambda: lake.run((3, 5, 8)))
    assert said.says("Restore the file from a backup").find(r"^(\S+) is damaged") == path
    lake.io().replace(path, whole, "restored")
    lake.run((3, 5, 8))
    assert rows_of(lake.io(), "/lake") == list(range(8))


@follows("destination.history-changed")
def test_a_record_over_another_one_is_published_by_the_restart():
    """The manifest before it was not there for a moment, as when the folder is restored while the query runs."""
    lake = Lake()
    lake.run((3,))
    lake.record((3, 5))
    io, path = lake.io(), f"/lake/commits/streamsink/{1:010}.json"
    first, record = io.read(path), FileJournal(io, "/lake", "streamsink", 2).load(2)
    io.delete(path)
    publish = shown().PlainCommitter(io, "/lake").publish
    told("destination.history-changed", lambda: publish(record, expect=1, restored=False, fence=lambda: None)).says(
        "'streamsink'", "it is record 0, expected 1", "The restart of the query"
    )
    assert rows_of(io, "/lake") == []
    io.write(path, first)
    lake.run((3, 5))
    assert rows_of(io, "/lake") == list(range(5))


@pytest.mark.parametrize("kind", ["local", "hdfs", "s3"])
def test_the_sink_of_the_docs_writes_on_each_store(kind, request):
    """The folders of manifests and files are made when their first name is given, also where another start did it."""
    made = back_end(kind, request)
    root, checkpoint = f"{made.root}/lake", SparkCheckpoint("query")
    for ends in ((3,), (3, 5)):
        driver = MicroBatchDriver(root, SCHEMA, rows, SinkOptions.of(root, {}))
        driver.destination = lambda: plain_files(root)
        driver.run(made.io(), checkpoint, ends)
    assert rows_of(made.io(), root) == list(range(5))
