"""The function that ``foreachBatch`` calls: one micro-batch is one checkpoint. Runs on the driver.

It asks Spark what the batch is, and finds or starts the run. The order of the steps of a batch is in
``protocol/run/micro_batch.py``. What the function writes to is a ``SparkSink``.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame

from streamsink import events
from streamsink.errors import Misuse
from streamsink.faults import fault_point
from streamsink.protocol.admission.query_rules import check_query
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.run.micro_batch import QueryRun
from streamsink.protocol.run.publish_thread import PublishThread
from streamsink.spark import runs
from streamsink.spark.gateway import running
from streamsink.spark.gateway.plan import QueryOfRun, described_job, is_of_a_batch
from streamsink.spark.query.batch_call import remembered, told
from streamsink.spark.query.compacting import compact_beside
from streamsink.spark.query.ended import let_go_at_end
from streamsink.spark.query.offsets_group import tell_group
from streamsink.spark.query.spark_sink import SparkSink
from streamsink.spark.rows.kept_columns import check_positions
from streamsink.spark.runs import Run


class BatchFunction:
    """What ``streamsink.to_table`` and ``streamsink.to_tables`` return: pass it to ``foreachBatch``.

    Do not use one object for two queries at the same time.
    """

    def __init__(self, sink: SparkSink, listener: Callable[[events.Event], None]):
        self.sink = sink
        self.path = sink.path
        self.options = sink.options
        self._listener = events.Listeners(listener)
        self._run: Run | None = None
        self._query = QueryOfRun()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Publish the batch exactly once, or record it so that it will be published, as the options say.

        Raises errors of ``streamsink.errors``; the query then fails. An error of publishing beside the batches is
        raised by the next batch.

        Idempotent: a batch of an earlier run that is published already changes nothing. After a crash at any
        instruction, the first call of the restarted query settles what was pending before it does anything else. In one
        run a batch comes once: a second call for the same batch raises Misuse.
        """
        running.check_not_connect(df, self.path)
        run_id = running.run_id(df)
        of = (self.path, self.options.application)
        with (
            told(of, batch_id, self._listener),
            remembered(of, batch_id, functools.partial(running.start_id, df, run_id)),
        ):
            running.check_batch_id(df, batch_id, self.path)
            batch = running.describe(df, batch_id, self.path, run_id, self._is_first)
            # with the names of other sinks that the batch function has called in this start of the query
            batch = replace(batch, other_sinks=runs.other_sinks(*of, batch.run))
            batch = self._query.described(batch, df, running.execution(batch.run))
            self._micro_batch(df, batch)
        runs.forget((batch.run, *of), batch_id)
        fault_point("batch.end")

    def write_job(self, df: DataFrame, batch: Batch) -> int:
        """Write the one batch of a bounded job. It is published when this returns.

        Returns the number of rows that were published. Raises as ``__call__`` does; Misuse for rows of a micro-batch.
        """
        running.check_not_connect(df, self.path)
        if is_of_a_batch(df):
            raise Misuse(
                f"{self.path}: run '{batch.query}' is to write rows of a micro-batch of a streaming query. A run is "
                "known by its id alone, and a new checkpoint gives the same batch ids again to other rows. Nothing "
                "was written. In a batch function use the sink that streamsink.to_table returns, which knows what "
                "the query has read",
                kind="run.of-a-batch",
            )
        with told((self.path, self.options.application), batch.batch_id, self._listener):
            run, rows = self._micro_batch(df, described_job(batch, df))
            run.started.commit_up_to_checkpoint(batch.batch_id)
        return rows

    def _micro_batch(self, df: DataFrame, batch: Batch) -> tuple[Run, int]:
        """The run, and the number of rows that were written, which is 0 for a replay."""
        self.sink.check(df)
        run = self._restored(df, batch)
        return run, run.started.micro_batch(batch, self.sink.rows(df, run))

    def close(self) -> None:
        """Publish what is pending, and release the application to other queries. The query must have ended.

        Raises what publishing raises. What could not be published is safe in the journal; the next start publishes it.
        """
        run, self._run = self._run, None
        if run is not None:
            run.close()

    def _is_first(self, run_id: str) -> bool:
        """Whether no batch of this start of the query has gone through this sink, or another object of it."""
        known = self._run
        if known is None or known.id != run_id:
            with runs.LOCK:
                known = runs.of(self.path, self.options.application)
        return known is None or known.id != run_id or not known.started.has_returned

    def _restored(self, df: DataFrame, batch: Batch) -> Run:
        """The run of this start of the query.

        At its first batch, everything that an earlier run left behind is settled.
        """
        if self._run is not None and self._run.id == batch.run:
            return self._run
        check_query(batch, self.path, self.options)  # before a table is created
        with runs.LOCK:
            known = runs.of(self.path, self.options.application)
            if known is not None and known.id == batch.run and batch.batch_id != END_OF_INPUT:
                self._run = self._joined(known)  # this run began with another object of the same sink
                return self._run
            runs.close_ended(self.path, self.options.application, batch.query)
            check_positions(df, self.path, self.options)
            has_ended = functools.partial(running.has_ended, df.sparkSession, batch.query)
            opened = self.sink.open(df, batch, self._listener)
            started = QueryRun.start(
                opened,
                batch.query,
                self.options,
                self._listener,
                background=functools.partial(PublishThread, has_ended=has_ended),
                run=batch.run if batch.batch_id != END_OF_INPUT else "",
            )
            self._run = Run(self.sink, opened, started, batch, has_ended)
            runs.add(self.path, self.options.application, self._run)
            if batch.batch_id != END_OF_INPUT:  # a bounded job is closed by its call
                let_go_at_end(self._run)
                tell_group(self._run)
                compact_beside(self._run, df.sparkSession)
        return self._run

    def _joined(self, known: Run) -> Run:
        if not self.sink.does_as(known.sink):
            raise Misuse(
                f"{self.path}: another sink of this table and of application '{self.options.application}' is used in "
                "this run of the query with other options. Nothing of this call was written. Leave the first sink as "
                "it is, and give each other one a name of its own (application='...'); one sink object for all rows "
                "is right from the next batch on",
                kind="application.two-sinks",
            )
        return known
