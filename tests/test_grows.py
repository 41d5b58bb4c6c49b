"""What grows with the work, counted: a batch of many files, a source of many partitions, a table of many files, and a
driver of many batches. Their times are in ``benchmarks/grows``."""

import gc
import sys
from collections import Counter

import pytest

from benchmarks.grows import batches, files, live, partitions
from streamsink import col
from streamsink.clock import IdSource
from streamsink.errors import Corrupt
from streamsink.format import avro_file
from streamsink.protocol.committable import AppState
from streamsink.protocol.run.publish_thread import Background
from streamsink.storage.calls import PosixCalls
from streamsink.storage.file_io import FileIO, local_file_io
from streamsink.table import application_states
from streamsink.table.read.scan import plan
from streamsink.table.table import open_table
from streamsink.testing import driver
from streamsink.testing.crashing import MeteredCalls
from tests.storage.back_ends import BackEnd
from tests.storage.memory_s3 import MemoryS3Calls
from tests.storage.tracing_s3 import TracingS3Calls


class _AtTheEnd(Background):
    """What is done beside the batches, done by the next publishing or by the stop, so that each count is the same."""

    def __init__(self, step):
        self._step = step

    def wake(self):
        """Nothing is done in a batch."""

    hurry = wake

    def stop(self, timeout_ms):
        self._step(True)
        return True


def _batch(count, root, file_io, monkeypatch, begun=lambda: None):
    """One batch of so many files, after one that made the folders; ``begun`` is called when tasks have handed over."""

    def begin(self, texts, begin=files.Seen.begin):
        begin(self, texts)
        begun()

    monkeypatch.setattr(files.Seen, "begin", begin)
    monkeypatch.setattr(driver, "PublishThread", _AtTheEnd)
    seen = files.batch_of(root, count, file_io)
    monkeypatch.undo()
    assert seen.files == count
    return seen


def test_what_a_file_of_a_batch_costs_does_not_depend_on_their_number(tmp_path, monkeypatch):
    """Bytes that tasks hand over, and calls of the file system: the same for each file more, and few."""
    sent, calls = {}, {}
    for count in (20, 60, 140):
        made, known = MeteredCalls(PosixCalls()), []
        file_io, root = FileIO(made, IdSource().new_id, flush=False), str(tmp_path / f"{count}" / "shop.db" / "orders")
        sent[count] = _batch(count, root, file_io, monkeypatch, lambda of=made, to=known: to.append(len(of.log))).sent
        calls[count] = Counter(made.log[known[-1] :])
    for first, last in ((20, 60), (60, 140)):
        assert (sent[last] - sent[first]) / (last - first) <= files.MOST_BYTES
        assert calls[last] - calls[first] == dict.fromkeys(("size", "link", "unlink"), last - first)


def test_files_of_tasks_on_s3_are_listed_and_not_asked_about_one_by_one(monkeypatch):
    """A folder of ten files takes one request more: its listing, beside the deletions of what announced them."""
    kinds = {}
    for count in (40, 80):
        calls = TracingS3Calls()
        file_io = BackEnd("memory-s3", "s3://bucket", calls).io()
        _batch(count, "s3://bucket/shop.db/orders", file_io, monkeypatch, calls.take)
        kinds[count] = calls.take().kinds
    more = kinds[80] - kinds[40]
    assert more == {"LIST": (80 - 40) // files.TASKS}, f"{kinds}"


def test_a_file_that_a_task_says_to_have_written_on_s3_and_that_is_not_there_is_noticed(monkeypatch):
    """Nothing is recorded then."""
    calls = MemoryS3Calls()
    file_io = BackEnd("memory-s3", "s3://bucket", calls).io()

    def lose():
        newest = [name for name in calls._objects if name.endswith("0007.parquet")]
        calls.unlink(newest[-1])

    with pytest.raises(Corrupt, match="40 files, of which 1 are not there") as refused:
        _batch(40, "s3://bucket/shop.db/orders", file_io, monkeypatch, lose)
    assert refused.value.kind == "staged.files-gone"


def _calls_of_python(run) -> int:
    """How many functions of Python ran; no finalizers of what other tests have left."""
    count = 0

    def see(frame, event, argument):
        nonlocal count
        count += event == "call"

    gc.collect()
    gc.disable()
    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("topics, most", [(1, 6), (0, 60)])
def test_a_partition_costs_a_batch_few_steps(tmp_path, topics, most):
    """Functions of Python that run in four batches, of one topic and of a topic for each partition.

    A partition of the same topic takes no function of its own, except where its offsets are compared.
    """
    ran = {}
    for count in (100, 300):
        source = partitions.Source(topics or count, count)
        root = str(tmp_path / f"{count}" / "shop.db" / "orders")
        ran[count] = _calls_of_python(lambda root=root, source=source: partitions.batches_of(root, source, 4))
    assert (ran[300] - ran[100]) / 200 / 4 <= most


def test_a_state_that_this_run_has_published_is_not_decoded_again(tmp_path, monkeypatch):
    """Neither its text, nor the positions in it, of which there may be thousands."""
    decoded = []
    monkeypatch.setattr(
        application_states,
        "state_of_text",
        lambda text, of=application_states.state_of_text: decoded.append(text) or of(text),
    )
    partitions.batches_of(str(tmp_path / "shop.db" / "orders"), partitions.Source(2, 10), 5)
    assert not decoded


def test_a_state_whose_positions_are_read_later_is_the_same(tmp_path):
    root = str(tmp_path / "shop.db" / "orders")
    partitions.batches_of(root, partitions.Source(3, 30), 2)
    table = open_table(local_file_io(flush=False), root, for_writing=False)
    (said,) = table.states.read(table.snapshots.latest()).by_application.values()
    now, later = AppState.from_json(said), AppState.told(said)
    assert later.record_id == now.record_id and "sources" not in vars(later)
    assert later == now and later.to_json() == said
    with pytest.raises(AttributeError, match="positions"):
        later.positions  # noqa: B018


@pytest.mark.parametrize("batch", [pytest.param(10, id="few"), pytest.param(500, id="many", marks=pytest.mark.soak)])
def test_a_commit_costs_the_same_however_many_files_are_live(tmp_path, batch):
    """The manifests of the table are as many and larger: the same calls, and the same bytes but for longer numbers."""
    costs = {}
    for count in (batch * 4, batch * 40):
        root = str(tmp_path / f"{count}" / "shop.db" / "files")
        live.add(live.make(root), 0, count, count // 4, count // 4)
        costs[count] = live.plain(live.commits(root, count, 5, count))
    few, many = costs.values()
    assert len(few) == len(many) == 5
    assert {tuple(sorted(cost.calls.items())) for cost in few} == {tuple(sorted(cost.calls.items())) for cost in many}
    for of in ("read", "written"):
        assert abs(max(getattr(cost, of) for cost in many) - max(getattr(cost, of) for cost in few)) < 100, of


def test_planning_one_partition_decodes_little_of_a_large_manifest(tmp_path, monkeypatch):
    """Its own block, the first record of each other one, and nothing else; and it finds what a whole plan finds."""
    root, a_day, files_there = str(tmp_path / "shop.db" / "files"), 50, 5_000
    live.add(live.make(root), 0, files_there, a_day, files_there)
    table = open_table(local_file_io(flush=False), root, for_writing=False)
    whole = plan(table)[1]
    decoded = []
    monkeypatch.setattr(avro_file, "_checked", lambda found: decoded.append(1) or found)
    for where, days in (
        (col("day") == "day-000007", ["day-000007"]),
        (col("day").isin(["day-000001", "day-000099"]), ["day-000001", "day-000099"]),
        ((col("day") == "day-000042") & (col("id") >= 0), ["day-000042"]),
        (col("day") == "day-000100", []),
    ):
        decoded.clear()
        found = plan(table, where=where)[1]
        assert found == [file for file in whole if any(f"day={day}/" in file.path for day in days)]
        assert len(found) == a_day * len(days) and len(decoded) <= 1_500 * max(1, len(days))
    decoded.clear()
    plan(table, where=(col("day") == "day-000007") | (col("id") < 0))
    assert len(decoded) >= files_there, "the other side of OR is in no partition that is known"


def test_what_a_driver_holds_does_not_grow(tmp_path):
    """What other tests of this process have left open may come and go meanwhile, but not with every batch."""
    marks = (20, 60)
    early, late = batches.without_spark(tmp_path / "batches", marks).values()
    batches.check_flat(early, late, marks)


@pytest.mark.parametrize(
    "marks, options",
    [
        ((4, 12), {}),
        pytest.param((50, 200), {}, marks=pytest.mark.soak),
        pytest.param((50, 200), {"publish": "async"}, marks=pytest.mark.soak),
        pytest.param((50, 200), {"driver_max_rows": 0, "large_batches": "tasks"}, marks=pytest.mark.soak),
        pytest.param((50, 200), {"driver_max_rows": 0, "large_batches": "spark"}, marks=pytest.mark.soak),
    ],
)
@pytest.mark.slow
def test_what_the_driver_of_a_query_holds_does_not_grow(spark, tmp_path, marks, options):
    """Threads, open files, and objects of the JVM: as many after the last batch as after an early one.

    What other tests of this process have left open may come and go meanwhile, but not with every batch.
    """
    early, late = batches.of_a_query(spark, tmp_path, marks, **options).values()
    batches.check_flat(early, late, marks)
