"""Micro-batches without Spark: a source, Spark's two logs, and the sink's six calls, in one process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink import events
from streamsink.clock import IdSource
from streamsink.errors import Fenced, Retryable
from streamsink.faults import fault_point
from streamsink.locks.creation import lock_creations
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.admission import Verdict
from streamsink.protocol.committable import Batch
from streamsink.protocol.committer_thread import CommitterThread
from streamsink.protocol.committing import Beside, Step
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.two_phase import Destination, TwoPhaseCommit
from streamsink.sinks.paimon import PaimonCommitter
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog
from streamsink.storage.together import Together
from streamsink.table.adopted import adopt_files
from streamsink.table.creation import to_fields
from streamsink.table.table import Table, create_table, is_table, new_schema, open_table
from streamsink.table.write import TableWriter, WriteSpec, WrittenFile

_MAX_RESTARTS = 20


@dataclass
class Checkpoint:
    """What Spark keeps of a query: its id, the end offset of each planned batch, and how many batches are committed."""

    query: str
    ends: list[int] = field(default_factory=list)
    committed: int = 0


class MicroBatchDriver:
    """One query over a numbered source. ``rows(start, end)`` makes the Arrow batch of those numbers.

    ``beside``: what publishes beside the batches when the options ask for it; a thread unless a test sets something else.
    ``adopts``: rows come as the files of another program, as Spark's own writer leaves them.
    """

    def __init__(self, root: str, schema: pa.Schema, rows: Callable[[int, int], pa.RecordBatch], options: SinkOptions,
                 numeric: bool = True):
        self.root = root
        self.schema = schema
        self.rows = rows
        self.options = options
        self.numeric = numeric
        self.beside: Callable[[Step], Beside] = CommitterThread
        self.adopts = False
        self.events: list[events.Event] = []
        self._ids = IdSource()

    def run(self, file_io: FileIO, checkpoint: Checkpoint, boundaries: Sequence[int]) -> None:
        """Start the query and run every batch up to the last boundary, restarting after intended failures.

        Whatever else is raised (an injected crash among it) ends the run, as a death of the driver would.
        """
        for _ in range(_MAX_RESTARTS):
            try:
                self._run_once(file_io, checkpoint, boundaries)
                return
            except Retryable:
                continue
        raise Fenced(f"{self.root}: restarted {_MAX_RESTARTS} times", kind="testing.restarts")

    def _run_once(self, file_io: FileIO, checkpoint: Checkpoint, boundaries: Sequence[int]) -> None:
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

    def start(self, file_io: FileIO, checkpoint: Checkpoint) -> "DrivenSink":
        """The sink of one start of the query, restored."""
        lock_creations(file_io, self.root, self.options)
        if is_table(file_io, self.root):
            table = open_table(file_io, self.root, for_writing=True)
        else:
            options = self.options
            fresh = new_schema(to_fields(self.schema), options.partition_by, options.table_options)
            table = create_table(file_io, self.root, fresh)
        return DrivenSink(self, file_io, table, checkpoint.query)

    def describe(self, checkpoint: Checkpoint, batch_id: int) -> Batch:
        """The batch as Spark would describe it."""
        start = checkpoint.ends[batch_id - 1] if batch_id else 0
        end = checkpoint.ends[batch_id]
        if self.numeric:
            source = SourceRange({"t": {"0": start}}, {"t": {"0": end}})
        else:
            source = SourceRange({"logOffset": start}, {"logOffset": end})
        return Batch(batch_id, checkpoint.query, self._ids.new_id(), (source,))


class Driven:
    """A sink of one start of the query, restored, until its query ends."""

    def __init__(self, protocol: TwoPhaseCommit, query: str):
        self.protocol = protocol
        try:
            protocol.restore(query, IdSource().new_id)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """The query has ended."""
        self.protocol.close()


class DrivenSink(Driven):
    """What ``TableSink`` is under Spark: the six calls of a micro-batch."""

    def __init__(self, driver: MicroBatchDriver, file_io: FileIO, table: Table, query: str):
        options = driver.options
        self._driver = driver
        self._io = file_io
        self._table = table
        keep = options.on_rollback == ON_ROLLBACK_REPUBLISH
        journal = PendingLog(file_io, driver.root, options.application, options.journal_retain, keep)
        self._committer = PaimonCommitter(table, options)
        to = Destination(driver.root, table.table_id)
        super().__init__(TwoPhaseCommit(to, journal, self._committer, options, driver.events.append, beside=driver.beside), query)

    def batch(self, batch: Batch) -> None:
        """One micro-batch, exactly once."""
        decision = self.protocol.admit(batch)
        if decision.verdict is Verdict.SKIP:
            return
        checkpoint = self.protocol.begin(batch, decision)
        with self._io.together() as group:
            try:
                write = self._adopt if self._driver.adopts else self._write
                written = write(checkpoint.staging, self._rows(batch, decision), group)
                fault_point("write.staged")
                seen = decision.verdict is Verdict.SEEN
                files, payload = self._committer.stage(checkpoint.staging, written, group, seen=seen)
            except BaseException:
                self.protocol.abort(checkpoint, group)
                raise
            self.protocol.pre_commit(checkpoint, files, payload, group)
        self.protocol.commit()

    def _write(self, staging: str, rows: pa.RecordBatch, group: Together) -> list[WrittenFile]:
        options = self._driver.options
        spec = WriteSpec(
            staging, self._table.schema.to_json(), options.target_file_bytes, options.max_open_writers, options.writer_memory_bytes
        )
        writer = TableWriter(self._io, spec)
        try:
            writer.write(rows)
            return writer.close(group)
        except BaseException:
            writer.abort()
            raise

    def _adopt(self, staging: str, rows: pa.RecordBatch, group: Together) -> list[WrittenFile]:
        """Two files in a folder of their own, beside what Spark leaves there; what is adopted is flushed without ``group``."""
        folder = f"{staging}/spark"
        self._io.make_dir(f"{folder}/_temporary")
        half = rows.num_rows // 2
        for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
            for name in (f"part-{number:05}-c000.zstd.parquet", f".part-{number:05}-c000.zstd.parquet.crc"):
                stream = self._io.open_output(f"{folder}/{name}")
                pq.write_table(pa.Table.from_batches([part]), stream)
                stream.close()
        return adopt_files(self._io, folder, self._table.schema, rows.num_rows)

    def _rows(self, batch: Batch, decision) -> pa.RecordBatch:
        source = batch.sources[0]
        start, end = (_number(side) for side in (source.start, source.end))
        if decision.verdict is Verdict.FILTER:
            start = max(start, decision.below["t"]["0"])
        if decision.verdict is Verdict.SEEN:
            end = start
        return self._driver.rows(start, max(start, end))


def _number(position) -> int:
    return position["t"]["0"] if "t" in position else position["logOffset"]
