"""The function that ``foreachBatch`` calls: one micro-batch, one checkpoint. DRIVER.

Follow a batch through ``__call__``: restore, admit, write, pre-commit, commit up to it, forget, emit.
"""

import threading
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink import events
from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse
from streamsink.faults import fault_point
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.admission import Decision, Verdict
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT, check_application
from streamsink.protocol.two_phase import Checkpoint, Destination, TwoPhaseCommit
from streamsink.sinks.paimon import PaimonCommitter
from streamsink.spark import gateway, write_ways
from streamsink.spark.explain import explain
from streamsink.spark.schema import to_fields
from streamsink.spark.tasks import TableWriting
from streamsink.storage.file_io import FileIO
from streamsink.storage.local import local_file_io
from streamsink.storage.pending_log import PendingLog
from streamsink.table.fit import fit
from streamsink.table.table import Table, create_table, is_table, new_schema, open_table
from streamsink.table.write import WriteSpec

# Drivers of this process by (table, application): a query that has ended gives its hold back when another one comes.
_RUNS: dict[tuple[str, str], "Run"] = {}
# Why a run of a query failed, for the supervisor: Spark hands on only the text of a Python error.
FAILURES: dict[str, Exception] = {}
_MOST_FAILURES = 16
_LOCK = threading.Lock()


def release(query: str) -> None:
    """A query of this process has ended: give back the applications that it held."""
    with _LOCK:
        for key, run in list(_RUNS.items()):
            if run.query == query:
                run.protocol.close()
                del _RUNS[key]


class Run:
    """One start of one query: the open table and the protocol's state. Replaced when the query restarts."""

    def __init__(self, table: Table, protocol: TwoPhaseCommit, committer: PaimonCommitter, batch: Batch):
        self.table = table
        self.protocol = protocol
        self.committer = committer
        self.id = batch.run
        self.query = batch.query
        self.sizes = write_ways.Sizes()


class TableSink:
    """What ``streamsink.to_table`` returns: pass it to ``foreachBatch``. Not for two queries at once."""

    def __init__(self, path: str, options: SinkOptions, listener: Callable[[events.Event], None]):
        check_application(path, options.application)
        self.path = path
        self.options = options
        self.rows_published = 0
        self._listener = listener
        self._io: FileIO = local_file_io(options.flush)
        self._run: Run | None = None
        self._clock = Clock()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Publish the batch exactly once. Raises errors of ``streamsink.errors``; the query then fails.

        Idempotent: a batch that is published already changes nothing. After a crash at any instruction the next call
        of a restarted query settles what was pending first.
        """
        run_id = gateway.run_id(df)
        try:
            self._commit_batch(df, gateway.describe(df, batch_id, self.path))
        except Exception as failed:  # outermost edge: remembered for the supervisor, then on its way to Spark
            while len(FAILURES) >= _MOST_FAILURES:
                FAILURES.pop(next(iter(FAILURES)))
            FAILURES[run_id] = explain(self.path, failed)
            if FAILURES[run_id] is failed:
                raise
            raise FAILURES[run_id] from failed
        fault_point("batch.end")

    def write_job(self, df: DataFrame, batch: Batch) -> int:
        """A bounded job's one batch; the rows it published."""
        before = self.rows_published
        self._commit_batch(df, batch)
        return self.rows_published - before

    def _commit_batch(self, df: DataFrame, batch: Batch) -> None:
        started = self._clock.monotonic_ms()
        run = self._restored(df, batch)
        decision = run.protocol.admit(batch)
        if decision.verdict is Verdict.SKIP:
            self._emit(events.BatchSkipped, checkpoint_id=batch.batch_id, reason=decision.reason)
            return
        checkpoint = run.protocol.begin(batch, decision)
        try:
            files, payload = self._write(run, df, checkpoint)
        except BaseException:
            run.protocol.abort(checkpoint)
            raise
        run.protocol.pre_commit(checkpoint, files, payload)
        run.protocol.commit_up_to_checkpoint(batch.batch_id, lambda: self._clock.monotonic_ms() - started)
        run.protocol.forget(checkpoint)
        self.rows_published += sum(file.rows for file in files)

    def close(self) -> None:
        """Give the application back to other queries of this or another driver. The query must have ended."""
        if self._run is not None:
            self._run.protocol.close()
            self._run = None

    # -- parts -----------------------------------------------------------------------------------------------------

    def _restored(self, df: DataFrame, batch: Batch) -> Run:
        """The run of this start of the query; at its first batch everything an earlier run left is settled."""
        if self._run is not None and self._run.id == batch.run:
            return self._run
        with _LOCK:
            self._release_ended(df, batch)
            table, journal, committer = self._open(df, batch)
            to = Destination(self.path, table.table_id)
            protocol = TwoPhaseCommit(to, journal, committer, self.options, self._listener)
            run = Run(table, protocol, committer, batch)
            try:
                protocol.restore(batch.query, IdSource().new_id)
            except BaseException:
                protocol.close()
                raise
            self._run = run
            _RUNS[(self.path, self.options.application)] = run
        return run

    def _release_ended(self, df: DataFrame, batch: Batch) -> None:
        """A query of this process that has ended, or an earlier start of this one, no longer holds the application."""
        earlier = _RUNS.get((self.path, self.options.application))
        if earlier is None:
            return
        if earlier.query == batch.query or not gateway.is_active(df.sparkSession, earlier.query):
            earlier.protocol.close()

    def _open(self, df: DataFrame, batch: Batch) -> tuple[Table, PendingLog, PaimonCommitter]:
        """What this run writes to."""
        table = self._open_or_create(df, batch)
        keep = self.options.on_rollback == ON_ROLLBACK_REPUBLISH
        journal = PendingLog(self._io, self.path, self.options.application, self.options.journal_retain, keep)
        return table, journal, PaimonCommitter(table, self.options)

    def _open_or_create(self, df: DataFrame, batch: Batch) -> Table:
        if is_table(self._io, self.path) or not self.options.create:
            return open_table(self._io, self.path, for_writing=True)
        fresh = batch.batch_id in (0, END_OF_INPUT, self.options.adopt_from_batch)
        if not fresh:
            raise Misuse(
                f"{self.path}: there is no table, but the query's checkpoint is past: its next batch is {batch.batch_id}. "
                "The table was dropped, or the query wrote elsewhere before. Nothing was written. Restore the table; or "
                "start a new checkpoint; or, for a query that moves to streamsink, set "
                f"adopt_from_batch={batch.batch_id}",
                kind="table.gone",
            )
        fields = to_fields(self._stored(df).schema)
        schema = new_schema(fields, self.options.partition_by, self.options.table_options)
        return create_table(self._io, self.path, schema)

    def _write(self, run: Run, df: DataFrame, checkpoint: Checkpoint):
        """Rows to staged files and their manifest: what the pre-commit will name."""
        begun = self._clock.monotonic_ms()
        way = write_ways.choose(df, checkpoint.batch, self.options, run.sizes)
        files, payload = self._stage(run, df, checkpoint, way)
        rows_written, size = sum(f.rows for f in files), sum(f.size for f in files)
        if rows_written:
            run.sizes.bytes_per_row = size / rows_written
        self._emit(
            events.BatchWritten, checkpoint_id=checkpoint.batch.batch_id, rows=rows_written, files=len(files), bytes=size,
            write_ms=self._clock.monotonic_ms() - begun, way=way,
        )
        return files, payload

    def _stage(self, run: Run, df: DataFrame, checkpoint: Checkpoint, way: str):
        """Files and payload of the record."""
        written = []
        if checkpoint.decision.verdict is not Verdict.SEEN:
            rows = self._stored(self._new_rows(df, checkpoint.decision, checkpoint.batch))
            schema, options = fit(run.table, to_fields(rows.schema), self.options), self.options
            spec = WriteSpec(
                checkpoint.staging, schema.to_json(), options.target_file_bytes, options.max_open_writers,
                options.writer_memory_bytes,
            )
            written = write_ways.write(rows, way, TableWriting(spec), self._io, options.flush)
            fault_point("write.flushed")
        return run.committer.stage(checkpoint.staging, written, seen=checkpoint.decision.verdict is Verdict.SEEN)

    def _new_rows(self, df: DataFrame, decision: Decision, batch: Batch) -> DataFrame:
        """Under an overlap: only rows at or after the recorded position of their topic and partition."""
        if decision.verdict is not Verdict.FILTER:
            return df
        self._emit(events.BatchFiltered, checkpoint_id=batch.batch_id)
        topic, partition, offset = (F.col(f"`{name}`") for name in self.options.position_columns)
        seen = F.lit(False)
        for name, parts in decision.below.items():
            for part, first_new in parts.items():
                here = (topic == F.lit(name)) & (partition == F.lit(int(part)))
                seen = seen | (here & (offset < F.lit(first_new)))
        return df.where(~F.coalesce(seen, F.lit(False)))

    def _stored(self, df: DataFrame) -> DataFrame:
        """Without the position columns, unless the table is to keep them."""
        missing = [name for name in self.options.position_columns if name not in df.columns]
        if missing:
            raise Misuse(
                f"{self.path}: position_columns names {', '.join(missing)}, which the data does not have; it has "
                f"{', '.join(df.columns)}",
                kind="option.position-columns",
            )
        return df if self.options.store_position_columns else df.drop(*self.options.position_columns)

    def _emit(self, kind: type, **fields) -> None:
        self._listener(kind(self.path, self.options.application, **fields))
