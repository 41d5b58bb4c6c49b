"""The function that ``foreachBatch`` calls: one micro-batch, one checkpoint. DRIVER.

Follow a batch through ``__call__``: restore, admit, write, pre-commit, commit (now, or beside the next batch).
"""

import functools
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamsink import events
from streamsink.clock import Clock, IdSource
from streamsink.errors import Misuse
from streamsink.faults import fault_point
from streamsink.locks.creation import lock_creations
from streamsink.options import ON_ROLLBACK_REPUBLISH, SinkOptions
from streamsink.protocol.admission import Decision, Verdict
from streamsink.protocol.committable import Batch
from streamsink.protocol.committer_thread import CommitterThread
from streamsink.protocol.ids import END_OF_INPUT, check_application
from streamsink.protocol.two_phase import Checkpoint, Destination, TwoPhaseCommit
from streamsink.sinks.paimon import PaimonCommitter
from streamsink.spark import gateway, runs, write_ways
from streamsink.spark.explain import explain
from streamsink.spark.runs import Fitted, Run
from streamsink.spark.schema import to_fields
from streamsink.spark.tasks import TableWriting
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog
from streamsink.storage.stores import Store
from streamsink.storage.together import Together
from streamsink.table.fit import fit
from streamsink.table.table import Table, create_table, is_table, new_schema, open_table
from streamsink.table.write import WriteSpec


class TableSink:
    """What ``streamsink.to_table`` returns: pass it to ``foreachBatch``. Not for two queries at once."""

    def __init__(self, path: str, options: SinkOptions, listener: Callable[[events.Event], None]):
        check_application(path, options.application)
        self.path = path
        self.options = options
        self._listener = listener
        self._store = Store(path, options.store_options, options.flush)
        self._io: FileIO = self._store.open()
        self._run: Run | None = None
        self._clock = Clock()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Publish the batch exactly once, or make it durable so that it will be, as the options say.

        Raises errors of ``streamsink.errors``; the query then fails. An error of publishing beside the batches is raised by the
        next one.

        Idempotent: a batch that is published already changes nothing. After a crash at any instruction the next call
        of a restarted query settles what was pending first.
        """
        run_id = gateway.run_id(df)
        try:
            self._commit_batch(df, gateway.describe(df, batch_id, self.path, run_id))
        except Exception as failed:  # outermost edge: remembered for the supervisor, then on its way to Spark
            cause = runs.remember(run_id, explain(self.path, failed))
            if cause is failed:
                raise
            raise cause from failed
        fault_point("batch.end")

    def write_job(self, df: DataFrame, batch: Batch) -> int:
        """A bounded job's one batch, published when this returns; the rows it published."""
        rows = self._commit_batch(df, batch)
        self._run.protocol.commit_up_to_checkpoint(batch.batch_id)
        return rows

    def _commit_batch(self, df: DataFrame, batch: Batch) -> int:
        """Rows written; 0 for a replay."""
        run = self._restored(df, batch)
        decision = run.protocol.admit(batch)
        if decision.verdict is Verdict.SKIP:
            self._emit(events.BatchSkipped, checkpoint_id=batch.batch_id, reason=decision.reason)
            return 0
        checkpoint = run.protocol.begin(batch, decision)
        with self._io.together() as group:
            try:
                files, payload = self._write(run, df, checkpoint, group)
            except BaseException:
                run.protocol.abort(checkpoint, group)
                raise
            run.protocol.pre_commit(checkpoint, files, payload, group)
        run.protocol.commit()
        return sum(file.rows for file in files)

    def close(self) -> None:
        """Publish what is pending, and give the application back to other queries. The query must have ended.

        Raises as publishing does; what could not be published is safe in the journal and is published at the next start.
        """
        run, self._run = self._run, None
        if run is not None:
            run.protocol.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _restored(self, df: DataFrame, batch: Batch) -> Run:
        """The run of this start of the query; at its first batch everything an earlier run left is settled."""
        if self._run is not None and self._run.id == batch.run:
            return self._run
        with runs.LOCK:
            runs.close_ended(self.path, self.options.application, df.sparkSession, batch.query)
            table, journal, committer = self._open(df, batch)
            protocol = TwoPhaseCommit(
                Destination(self.path, table.table_id), journal, committer, self.options, self._listener,
                beside=functools.partial(CommitterThread, has_ended=lambda: gateway.has_ended(df.sparkSession, batch.query)),
            )
            try:
                protocol.restore(batch.query, IdSource().new_id)
            except BaseException:
                protocol.close()
                raise
            self._run = Run(table, protocol, committer, batch)
            runs.add(self.path, self.options.application, self._run)
        return self._run

    def _open(self, df: DataFrame, batch: Batch) -> tuple[Table, PendingLog, PaimonCommitter]:
        """What this run writes to."""
        lock_creations(self._io, self.path, self.options)
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

    def _write(self, run: Run, df: DataFrame, checkpoint: Checkpoint, group: Together):
        """Rows to staged files and their manifest: what the pre-commit will name, durable with it."""
        begun = self._clock.monotonic_ms()
        small = write_ways.is_small(checkpoint.batch, self.options, run.sizes)
        files, payload, way = self._stage(run, df, checkpoint, small, group)
        rows_written, size = sum(f.rows for f in files), sum(f.size for f in files)
        run.sizes.add(way, rows_written, size)
        self._emit(
            events.BatchWritten, checkpoint_id=checkpoint.batch.batch_id, rows=rows_written, files=len(files), bytes=size,
            write_ms=self._clock.monotonic_ms() - begun, way=way,
        )
        return files, payload

    def _stage(self, run: Run, df: DataFrame, checkpoint: Checkpoint, small: bool, group: Together):
        """Files and payload of the record, and the way in which they were written."""
        written, way = [], write_ways.DRIVER
        seen = checkpoint.decision.verdict is Verdict.SEEN
        if not seen:
            rows = self._stored(self._new_rows(df, checkpoint.decision, checkpoint.batch))
            written, way = self._write_rows(run, rows, checkpoint, small, group)
            fault_point("write.staged")
        return *run.committer.stage(checkpoint.staging, written, group, seen=seen), way

    def _write_rows(self, run: Run, rows: DataFrame, checkpoint: Checkpoint, small: bool, group: Together):
        """What the writers hand back, and the way in which the rows were written."""
        options = self.options

        def writing() -> TableWriting:
            return TableWriting(WriteSpec(
                checkpoint.staging, self._fitted(run, rows).schema_json, options.target_file_bytes, options.max_open_writers,
                options.writer_memory_bytes,
            ))

        written = write_ways.write_small(rows, writing, self._io, group) if small else None
        if written is not None:
            return written, write_ways.DRIVER
        fitted = writing()
        large = write_ways.large(rows, fitted.spec, checkpoint.batch, options, self._io, sizes=run.sizes)
        return write_ways.write_large(rows, fitted, self._io, self._store, large)

    def _fitted(self, run: Run, rows: DataFrame) -> Fitted:
        """What the rows are in the table, whose schema is looked at anew. Raises Misuse when they do not fit."""
        given, known = rows.schema, run.fitted
        if known is None or known.schema is not run.table.schema or known.given != given:
            schema = fit(run.table, to_fields(given), self.options)
            run.fitted = Fitted(given, schema, schema.to_json())
        return run.fitted

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
