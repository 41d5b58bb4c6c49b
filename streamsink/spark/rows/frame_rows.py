"""The rows of one micro-batch, as a DataFrame, and how they become staged files. Runs on the driver."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch, Committable, StagedFile
from streamsink.protocol.decision import Checkpoint, Verdict
from streamsink.protocol.journal import Group
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.same_query import QueryComparison
from streamsink.protocol.sink import Writing
from streamsink.sinks.paimon.writing import TableWriting
from streamsink.spark.gateway import plan, planned_files, running
from streamsink.spark.gateway.collecting import Collecting
from streamsink.spark.rows import file_rows, run_rows, write_ways
from streamsink.spark.rows.kept_columns import stored
from streamsink.spark.rows.position_check import PositionCheck
from streamsink.spark.rows.position_columns import recorded
from streamsink.spark.runs import Run
from streamsink.spark.sizes import DRIVER, SPARK
from streamsink.storage.file_io import FileIO
from streamsink.storage.stores import Store
from streamsink.table.write.fit import check_once


class FrameRows(BatchRows):
    """The rows of one DataFrame."""

    def __init__(self, df: DataFrame, run: Run, options: SinkOptions, store: Store, file_io: FileIO):
        self._df = df
        self._run = run
        self._options = options
        self._store = store
        self._path = run.to.to.path  # for messages
        self._io = file_io
        self.way = DRIVER
        self._ahead: Collecting | None = None

    def write(self, checkpoint: Checkpoint, group: Group) -> Sequence[Any]:
        decision = checkpoint.decision
        with write_ways.given(self._df, checkpoint.batch, self._options, self._run.sizes) as given:
            write = functools.partial(self._write, checkpoint, given, group)
            explained = functools.partial(file_rows.explained, self._path, self._options, write, decision.same)
            written, self.way = explained() if decision.seen_files else write()
        if decision.verdict is Verdict.FILTER:
            self._run.sizes.forecast.begin(0)  # a part of a batch says nothing of a whole one
        return written

    def computing(self, batch: Batch) -> AbstractContextManager[None]:
        """Only a batch that is known to be small is computed ahead: it is collected anyhow, unless it is refused."""
        is_small = write_ways.is_known_small(batch, self._options, self._run.sizes)
        return self._collecting(self._compared(batch, self._df).carried()) if is_small else nullcontext()

    @contextmanager
    def _collecting(self, rows: DataFrame) -> Iterator[None]:
        with Collecting(rows) as self._ahead:
            yield
        self._ahead = None

    def staged(self, files: Sequence[StagedFile]) -> None:
        """Remember how large the rows were. It helps to choose the way in which the next batch is written."""
        self._run.sizes.add(self.way, sum(f.rows for f in files), sum(f.size for f in files))

    def described(self, batch: Batch) -> Batch:
        return plan.with_own_rows(batch, self._df)

    def same_as(self, other: BatchRows) -> bool:
        return isinstance(other, FrameRows) and running.same_rows(self._df, other._df)

    def read_over(self) -> None:
        run_rows.read(self._df)

    def count(self) -> int:
        return run_rows.count(self._df, self._path)

    def compared(self, published: Committable | None) -> QueryComparison:
        return run_rows.compared(stored(self._df, self._path, self._options), published, self._path)

    def check_read(self, checkpoint: Checkpoint) -> None:
        planned_files.check(checkpoint.batch, checkpoint.decision.seen_files, self._path, self._options)

    def looked_at_again(self, batch: Batch) -> Batch:
        return running.looked_at_again(batch)

    def _write(self, checkpoint: Checkpoint, given: write_ways.Given, group: Group) -> tuple[Sequence[Any], str]:
        """What the writers hand back, and the way in which the rows were written."""
        rows, ahead = self._new_rows(checkpoint, given.df), self._ahead if given.df is self._df else None
        check = self._compared(checkpoint.batch, rows)
        kept = check.kept

        def writing(is_small: bool = False) -> Writing:
            of = replace(checkpoint, is_small=is_small)
            return self._run.to.writing(of, self._run.fields(kept.schema), ())

        if given.small:
            collecting = ahead if rows is self._df else None
            written = self._write_small(check.carried(), lambda: check.comparing(writing(True)), group, collecting)
            if written is not None:
                return check.settle(written), DRIVER
        fitted, told = writing(), check.told()
        large = self._large(kept, fitted, checkpoint.batch)
        if large.job is not None:
            return large.job.write(told, self._io, check), SPARK
        written, way = write_ways.write_large(told, check.being_told(fitted), self._io, self._store, large)
        return check.settle(written), way

    def _compared(self, batch: Batch, rows: DataFrame) -> PositionCheck:
        """The check of these rows, of which it has those columns that are stored."""
        kept = stored(rows, self._path, self._options)
        check_once(kept.columns, self._path)
        return PositionCheck(self._path, batch, self._options, rows, kept)

    def _write_small(
        self, rows: DataFrame, writing: Callable[[], Writing], group: Group, ahead: Collecting | None = None
    ) -> list[Any] | None:
        """Do what ``write_small`` does. When Spark refuses, the next batches are known no more by what misled here.

        ahead: these rows, on their way already.
        """
        self._ahead = None  # rows come once
        written = write_small(rows, writing, self._io, group, ahead)
        if written is None:
            self._run.sizes.is_misled = True
        return written

    def _large(self, rows: DataFrame, writing: Writing, batch: Batch) -> write_ways.Large:
        """The way to write a batch that is not small.

        Spark's own Parquet writer is a way for the files of one table only.
        """
        if isinstance(writing, TableWriting):
            return write_ways.large(rows, writing.spec, batch, self._options, self._io, sizes=self._run.sizes)
        return write_ways.by_tasks(rows, batch, self._run.sizes)

    def _new_rows(self, checkpoint: Checkpoint, rows: DataFrame) -> DataFrame:
        """Of the rows of the batch those that are to be written: under an overlap, only the new ones.

        New are the rows of new files, or the rows at or after the recorded position of their topic and partition. Rows
        that do not lie in the batch are kept, because what they say of their position is no reason to leave them out:
        they are refused later on.
        """
        if checkpoint.decision.verdict is not Verdict.FILTER:
            return rows
        if checkpoint.decision.seen_files:
            sources, seen = checkpoint.batch.sources, checkpoint.decision.seen_files
            # The protocol knows ``seen_files`` only when the option names the column.
            column = self._options.file_column or ""
            return file_rows.of_new_files(rows, column, sources, seen)
        path, options = self._path, self._options
        old = recorded(path, options.position_columns, checkpoint.decision.below)
        return rows.where(f"NOT {old} OR {PositionCheck(path, checkpoint.batch, options, rows).sql or 'false'}")


def write_small(
    df: DataFrame, writing: Callable[[], Writing], file_io: FileIO, group: Group, ahead: Collecting | None = None
) -> list[Any] | None:
    """Write all rows of the DataFrame into staged files, on the driver.

    The files are durable when ``group`` is flushed.

    writing: called while Spark computes the rows. ahead: the rows, when Spark computes them already.

    Returns what the writer hands back; None when Spark refuses to collect so much, because the estimate was wrong and
    the batch is large. Raises Misuse when a row does not fit.
    """
    try:
        with Collecting(df) if ahead is None else nullcontext(ahead) as collecting:
            writer = writing().open(file_io)
            pieces = collecting.rows()
    except (Py4JError, PySparkException) as refused:
        if "maxResultSize" in str(refused):
            return None
        raise
    try:
        for piece in pieces:
            writer.write(piece)
        return writer.close(group)
    except BaseException:
        writer.abort()
        raise
