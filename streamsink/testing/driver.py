"""Micro-batches without Spark: a numbered source and Spark's two logs, in one process.

The steps of a batch are those of production (``protocol/run/micro_batch.py``).
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink import events
from streamsink.clock import IdSource
from streamsink.errors import Fenced, Retryable
from streamsink.faults import fault_point
from streamsink.format.types import DataField
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch, Committable
from streamsink.protocol.decision import Checkpoint, Decision, Verdict
from streamsink.protocol.journal import Group
from streamsink.protocol.positions import SourceFile, SourceRange
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.run.micro_batch import QueryRun
from streamsink.protocol.run.publish_thread import Background, PublishThread, Step
from streamsink.protocol.run.two_phase import TwoPhaseCommit
from streamsink.protocol.same_query import QueryComparison, QueryFingerprint
from streamsink.protocol.sink import OpenSink, Sink, Writing
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.storage.file_io import FileIO
from streamsink.table.creation import fields_of
from streamsink.table.routed.rules import ROUTE
from streamsink.table.write.adopted import adopt_files
from streamsink.table.write.spec import WrittenFile

_MAX_RESTARTS = 20
_ONE_QUERY = QueryFingerprint(
    sources="a numbered source", plan="all rows", dates="", schema="", spark="", comparable=True
)


@dataclass
class SparkCheckpoint:
    """What Spark keeps of a query.

    query: its id. ends: the end offset of each planned batch. committed: the number of committed batches.
    """

    query: str
    ends: list[int] = field(default_factory=list)
    committed: int = 0


class MicroBatchDriver:
    """One query over a numbered source. ``rows(start, end)`` returns the Arrow batch of those numbers.

    numeric: whether positions are offsets of a Kafka topic; otherwise they are those of another kind of source.

    A test may set these attributes before a start:

    ``background``: what publishes beside the batches when the options ask for it; by default a thread.
    ``adopts``: whether rows come as the files of another program, as Spark's own writer leaves them.
    ``cluster``, ``topic_id``: the ids that the source has now. Another value is another cluster or a recreated topic.
    ``earliest``, ``newest``: what a broker says of its offsets, or None.
    ``job_rows``: the first number and the end (exclusive) of the rows of a bounded job, whose batch has no source.
    ``compared``: the result of comparing these rows with those that the run has published.
    ``run_id``: Spark's id of the next start; empty where it is not known.
    ``is_small``: whether the driver is said to write few rows.
    ``place``: the digest of the checkpoint's place.
    ``other_sinks``: the names of sinks that the same start of the query has called beside this one.
    ``fingerprint``: what the query is said to be; the same for all drivers by default.
    ``tells_files``: whether each number is a file of a source that is not numeric.
    ``first_file``: files with smaller numbers are gone.
    ``modified``: the times of files that were written again, by number.
    ``folder``: the folder of the files.
    """

    def __init__(
        self,
        root: str,
        schema: pa.Schema,
        rows: Callable[[int, int], pa.RecordBatch],
        options: SinkOptions,
        numeric: bool = True,
    ):
        self.root = root
        self.schema = schema
        self.rows = rows
        self.options = options
        self.numeric = numeric
        self.background: Callable[[Step], Background] = PublishThread
        self.adopts = False
        self.cluster, self.topic_id = "memory-cluster", "memory-topic"
        self.earliest: int | None = None
        self.newest: int | None = None
        self.job_rows = (0, 0)
        self.compared = QueryComparison((), ())
        self.tells_files = False
        self.first_file = 0
        self.other_sinks: frozenset[str] = frozenset()
        self.run_id = ""
        self.is_small = False
        self.place = "folder"
        self.modified: dict[int, int] = {}
        self.folder = "memory:/in"
        self.fingerprint: QueryFingerprint | None = _ONE_QUERY
        self.events: list[events.Event] = []
        self._ids = IdSource()

    def run(self, file_io: FileIO, checkpoint: SparkCheckpoint, boundaries: Sequence[int]) -> None:
        """Start the query and run every batch up to the last boundary, and restart it after intended failures.

        boundaries: the end of each batch. Any other error (an injected crash, for instance) ends the run, as a death of
        the driver would, and is raised.
        """
        for _ in range(_MAX_RESTARTS):
            try:
                self._run_once(file_io, checkpoint, boundaries)
                return
            except Retryable:
                continue
        raise Fenced(f"{self.root}: restarted {_MAX_RESTARTS} times", kind="testing.restarts")

    def _run_once(self, file_io: FileIO, checkpoint: SparkCheckpoint, boundaries: Sequence[int]) -> None:
        sink = self.start(file_io, checkpoint)
        try:
            for batch_id in range(checkpoint.committed, len(boundaries)):
                if len(checkpoint.ends) == batch_id:
                    checkpoint.ends.append(boundaries[batch_id])  # Spark's offset log: durable before the batch runs
                sink.batch(self.describe(checkpoint, batch_id))
                fault_point("batch.end")
                checkpoint.committed = batch_id + 1  # Spark's commit log
        finally:
            sink.close()

    def destination(self) -> Sink:
        """The sink that the query writes to."""
        return PaimonTable(self.root)

    def start(self, file_io: FileIO, checkpoint: SparkCheckpoint) -> "Driven":
        """Return the sink of one start of the query, restored."""
        batch = Batch(checkpoint.committed, checkpoint.query, "")
        return self.driven(
            file_io,
            self.destination().open(file_io, self.options, batch, lambda: columns(self.schema), self.events.append),
            batch.query,
        )

    def driven(self, file_io: FileIO, opened: OpenSink, query: str) -> "Driven":
        """The query over an opened sink."""
        return Driven(self, file_io, opened, query)

    def describe(self, checkpoint: SparkCheckpoint, batch_id: int) -> Batch:
        """The batch as Spark would describe it."""
        start = checkpoint.ends[batch_id - 1] if batch_id else self.first_file
        end = checkpoint.ends[batch_id]
        if self.numeric:
            source = self.identified(SourceRange({"t": {"0": start}}, {"t": {"0": end}}))
        else:
            files = tuple(self.file(number) for number in range(start, end)) if self.tells_files else None
            source = SourceRange({"logOffset": start}, {"logOffset": end}, self._digest(files), files=files)
        return Batch(
            batch_id,
            checkpoint.query,
            self._ids.new_id(),
            (source,),
            fingerprint=self.fingerprint,
            place=self.place,
            other_sinks=self.other_sinks,
        )

    def file(self, number: int) -> SourceFile:
        """The file that holds this number's row."""
        return SourceFile(f"{self.folder}/{number:05}", self.modified.get(number, 0))

    def _digest(self, files: Sequence[SourceFile] | None) -> str:
        return hashlib.sha256(repr(files).encode()).hexdigest()[:32] if files is not None else ""

    def identified(self, source: SourceRange) -> SourceRange:
        """The source with what a broker would say of it now."""
        if not source.numeric:
            return source
        earliest, newest = (None if at is None else {"t": {"0": at}} for at in (self.earliest, self.newest))
        return replace(source, cluster=self.cluster, topic_ids={"t": self.topic_id}, earliest=earliest, newest=newest)


class DrivenRows(BatchRows):
    """The rows of a numbered source, whose topic may be replaced while they are written."""

    def __init__(self, driver: MicroBatchDriver, file_io: FileIO):
        self._driver = driver
        self._io = file_io

    def count(self) -> int:
        first, end = self._driver.job_rows
        return end - first

    def compared(self, published: Committable | None) -> QueryComparison:
        return self._driver.compared

    def looked_at_again(self, batch: Batch) -> Batch:
        return replace(batch, sources=tuple(self._driver.identified(source) for source in batch.sources))


class Driven:
    """The sink of one start of the query, restored, until the query ends.

    It does what ``BatchFunction`` does under Spark.
    """

    def __init__(self, driver: MicroBatchDriver, file_io: FileIO, opened: OpenSink, query: str):
        self._driver = driver
        self._io = file_io
        self.opened = opened
        self.run = QueryRun.start(
            opened, query, driver.options, driver.events.append, background=driver.background, run=driver.run_id
        )

    @property
    def protocol(self) -> TwoPhaseCommit:
        """The steps of the protocol, for tests that take them one by one."""
        return self.run.protocol

    def batch(self, batch: Batch) -> None:
        """Write one micro-batch, exactly once."""
        self.run.micro_batch(batch, self.rows())

    def rows(self) -> BatchRows:
        """The rows of a batch, which can write themselves into files."""
        return NumberedRows(self._driver, self._io, self.opened)

    def close(self) -> None:
        """Publish what is pending and release the application, because the query has ended."""
        self.run.close()


class NumberedRows(DrivenRows):
    """The rows of a numbered source, all of one kind."""

    def __init__(self, driver: MicroBatchDriver, file_io: FileIO, opened: OpenSink):
        super().__init__(driver, file_io)
        self._opened = opened

    def write(self, checkpoint: Checkpoint, group: Group) -> list[WrittenFile]:
        checkpoint = replace(checkpoint, is_small=self._driver.is_small)
        rows = self._rows(checkpoint.batch, checkpoint.decision)
        if self._driver.adopts:
            return self._adopt(checkpoint.staging, rows)
        return written(self._opened.writing(checkpoint, columns(self._driver.schema), ()), self._io, rows, group)

    def _adopt(self, staging: str, rows: pa.RecordBatch) -> list[WrittenFile]:
        """Write two files in a folder of their own, beside what Spark leaves there, and adopt them.

        Adopted files are flushed at once.
        """
        folder = f"{staging}/spark"
        self._io.make_dir(f"{folder}/_temporary")
        half = rows.num_rows // 2
        for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
            for name in (f"part-{number:05}-c000.zstd.parquet", f".part-{number:05}-c000.zstd.parquet.crc"):
                stream = self._io.open_output(f"{folder}/{name}")
                pq.write_table(pa.Table.from_batches([part]), stream)
                stream.close()
        opened: Any = self._opened  # only a Paimon table, which has ``table``, adopts files
        return adopt_files(self._io, folder, opened.table.latest_schema(), rows.num_rows)

    def _rows(self, batch: Batch, decision: Decision) -> pa.RecordBatch:
        if not batch.sources:
            return self._driver.rows(*self._driver.job_rows)
        source = batch.sources[0]
        start, end = (number_of(side) for side in (source.start, source.end))
        if decision.seen_files:
            new = [number for number in range(start, end) if self._driver.file(number).path not in decision.seen_files]
            return pa.concat_batches([self._driver.rows(number, number + 1) for number in new])
        if decision.verdict is Verdict.FILTER:
            start = max(start, decision.below["t"]["0"])
        return self._driver.rows(start, max(start, end))


@functools.lru_cache(maxsize=16)
def columns(schema: pa.Schema) -> tuple[DataField, ...]:
    """The columns of rows without their route; the same object for the same schema."""
    return tuple(field for field in fields_of(schema) if field.name != ROUTE)


def written(writing: Writing, file_io: FileIO, rows: pa.RecordBatch, group: Group) -> list[Any]:
    """What one writer of all rows hands back."""
    writer = writing.open(file_io)
    try:
        writer.write(rows)
        return writer.close(group)
    except BaseException:
        writer.abort()
        raise


def number_of(position: Any) -> int:
    """The number at which a source stands, from either kind of position."""
    return position["t"]["0"] if "t" in position else position["logOffset"]
