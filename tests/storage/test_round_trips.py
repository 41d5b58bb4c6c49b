"""What a micro-batch asks of a distant store, counted: requests, and round trips that it waits for, one after another.

docs/design/0015-object-stores.md says what each of them is for.
"""

import pyarrow as pa

from streamsink.clock import IdSource
from streamsink.options import SinkOptions
from streamsink.protocol.run.publish_thread import Background
from streamsink.storage.s3 import S3FileIO
from streamsink.testing.driver import MicroBatchDriver, SparkCheckpoint
from tests.protocol.query import QUERY
from tests.storage.tracing_s3 import TracingS3Calls

ROOT = "s3://bucket/shop.db/orders"
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
BATCHES = 6
# A run's first batches: the rest of a run costs what the later ones do, but for a merge of manifests now and then.
FIRST = 2


class _WhenAsked(Background):
    """What is done beside the batches, done between them, so that it is counted apart."""

    def __init__(self, step):
        self.step = step

    def wake(self):
        """Nothing is done in the batch."""

    hurry = wake

    def stop(self, timeout_ms):
        return True


def _rows(start: int, end: int) -> pa.RecordBatch:
    parts = [f"day-{number // 40}" for number in range(start, end)]
    return pa.RecordBatch.from_pydict({"id": list(range(start, end)), "part": parts}, schema=SCHEMA)


class Run:
    """A query that writes ten rows a batch, which the driver knows to be few."""

    def __init__(self, small: bool = True, **options):
        self.calls = TracingS3Calls()
        self.driver = self.driver_of(**options)
        self.driver.is_small = small
        self.beside: list[_WhenAsked] = []
        self.driver.background = self._background
        self.checkpoint = SparkCheckpoint(QUERY, [10 * (number + 1) for number in range(BATCHES)])
        self.start()

    def driver_of(self, **options) -> MicroBatchDriver:
        return MicroBatchDriver(ROOT, SCHEMA, _rows, SinkOptions.of(ROOT, options))

    def _background(self, step):
        self.beside.append(_WhenAsked(step))
        return self.beside[-1]

    def start(self):
        self.sink = self.driver.start(S3FileIO(self.calls, IdSource().new_id, ROOT), self.checkpoint)

    def batch(self, number: int):
        """(requests of the batch, requests of what is done beside the next one)."""
        self.calls.take()
        self.sink.batch(self.driver.describe(self.checkpoint, number))
        batch = self.calls.take()
        self.beside[-1].step(False) if self.beside else None
        return batch, self.calls.take()

    def later_batches(self):
        return [self.batch(number) for number in range(BATCHES)][FIRST:]


LOOK = ["GET owner", "GET schema", "GET snapshot", "HEAD manifest", "HEAD owner", "HEAD schema", "HEAD snapshot"]
ANNOUNCED = ["PUT at"]
WRITTEN = ["PUT data", "PUT manifest", "PUT manifest-list", "PUT manifest-list"]
RECORDED = ["HEAD owner", "HEAD snapshot", "PUT at", "PUT record"]
PUBLISHED = ["PUT snapshot"]
AFTERWARDS = [["GET snapshot"], ["PUT LATEST"], ["PUT done"], ["DELETE at"]]


def test_a_small_batch_waits_for_three_round_trips_once_its_rows_are_there():
    """The look comes before; the record and the snapshot each need what was before them.

    Where the next batch's files will be is announced together with the record.
    """
    for batch, beside in Run().later_batches():
        assert batch.round_trips() == [LOOK, WRITTEN, RECORDED, PUBLISHED]
        assert beside.round_trips() == AFTERWARDS


def test_a_partition_is_announced_by_the_writer_when_it_is_new():
    """Then its staging folder has two announcements, and is listed to be deleted."""
    found = Run(partition_by=("part",)).later_batches()
    is_new = [ANNOUNCED in batch.round_trips() for batch, _ in found]
    assert is_new == [False, False, True, False]  # the fifth batch begins the second partition
    for (batch, beside), new in zip(found, is_new):
        more = [ANNOUNCED] if new else []
        assert batch.round_trips() == [LOOK, *more, WRITTEN, RECORDED, PUBLISHED]
        assert (beside.round_trips() == AFTERWARDS) == (not new)


def test_a_small_batch_makes_twenty_requests_of_which_nine_are_dear():
    """No copy, and no listing."""
    for batch, beside in Run().later_batches():
        every = batch.kinds + beside.kinds
        assert sum(every.values()) <= 20 and batch.dear + beside.dear <= 9
        assert not every["COPY"] and not every["LIST"]


def test_a_batch_of_tasks_asks_who_owns_the_application_before_its_record():
    """It may have left much behind, which a successor deletes at once where it is not ready for a record."""
    for batch, _ in Run(small=False).later_batches():
        asked = ["GET owner", "HEAD owner"]
        assert batch.round_trips() == [LOOK, WRITTEN, asked, RECORDED, PUBLISHED]


def test_a_batch_that_publishes_beside_the_next_one_waits_for_two_round_trips():
    """The rows, and the record."""
    for batch, _ in Run(publish="async").later_batches():
        assert batch.round_trips() == [LOOK, ["PUT data", "PUT manifest"], ["PUT at", "PUT record"]]


def test_where_a_second_copy_is_kept_for_rollbacks_files_are_copied():
    """With on_rollback='republish' a rollback that deletes the files of the table leaves the staged ones."""
    for batch, _ in Run(on_rollback="republish").later_batches():
        assert batch.kinds["COPY"] == 2


def test_what_is_forgotten_and_merged_now_and_then_costs_little():
    """Over a hundred batches: old records are deleted together, and manifests that are merged are read at once."""
    run = Run(journal_retain=2)
    run.checkpoint.ends[:] = [10 * (number + 1) for number in range(100)]
    found = [run.batch(number) for number in range(100)][FIRST:]
    trips = [len(batch.round_trips()) for batch, _ in found]
    requests = [len(batch.requests) + len(beside.requests) for batch, beside in found]
    assert sorted(set(trips)) == [4, 5] and trips.count(5) <= 4  # a merge reads manifests
    assert sum(requests) / len(requests) < 22 and sorted(requests)[len(requests) // 2] == 20
