"""A sink as a batch function writes to it: its store, and how the rows of a DataFrame become its files.

Runs on the driver.
"""

from collections.abc import Callable

from pyspark import serializers
from pyspark.sql import DataFrame

from streamsink import events
from streamsink.errors import Misuse
from streamsink.format.arrow_types import check_arrow
from streamsink.options import SinkOptions
from streamsink.protocol.committable import Batch
from streamsink.protocol.ids import check_application
from streamsink.protocol.run.batch_rows import BatchRows
from streamsink.protocol.sink import OpenSink, Sink
from streamsink.sinks.transactions.function import TwoPhaseCommitFunction
from streamsink.spark.rows.frame_rows import FrameRows
from streamsink.spark.rows.kept_columns import fields_of
from streamsink.spark.runs import Run
from streamsink.storage.stores import Store, journal_place


class SparkSink:
    """A sink with the options of one query. Used by one thread at a time."""

    def __init__(self, sink: Sink, options: SinkOptions):
        """Opens the store. Raises Misuse when the option ``application`` is no name that an application can have, or
        pyarrow is too old."""
        check_application(sink.path, options.application)
        check_arrow(sink.path)
        _check_travels(sink)
        self.path = sink.path
        self.options = options
        self._sink = sink
        self._store = Store(
            journal_place(sink.journal) if sink.journal else sink.path, options.store_options, options.flush
        )
        self.io = self._store.open()

    @property
    def destination(self) -> Sink:
        """What the query has given."""
        return self._sink

    def does_as(self, other: "SparkSink") -> bool:
        """Whether both do the same with their rows, so that they count as one sink.

        other: a sink of the same path and application.
        """
        return (type(self), self._sink, self.options) == (type(other), other._sink, other.options)

    def check(self, df: DataFrame) -> None:
        """Raises Misuse when rows with these columns can never be written. Called for each batch, before all else."""

    def open(self, df: DataFrame, batch: Batch, emit: Callable[[events.Event], None]) -> OpenSink:
        """Open the destination for one start of a query.

        batch: the first batch of the start. emit: takes events. Raises Misuse before anything is written.
        """
        return self._sink.open(self.io, self.options, batch, fields_of(df, self.path, self.options), emit)

    def rows(self, df: DataFrame, run: Run) -> BatchRows:
        """The rows of one batch, which can write themselves into files."""
        return FrameRows(df, run, self.options, self._store, self.io)


def _check_travels(sink: Sink) -> None:
    """Raises Misuse for a sink whose methods executors call and that cannot be sent to them.

    Otherwise that would be found when the first large batch comes.
    """
    if not isinstance(sink, TwoPhaseCommitFunction):
        return
    try:
        serializers.CloudPickleSerializer().dumps(sink)  # type: ignore[no-untyped-call]
    except serializers.pickle.PickleError as failed:  # type: ignore[attr-defined]
        raise Misuse(
            f"{sink.path}: {type(sink).__name__} cannot be sent to executors, where its methods write rows of large "
            f"batches ({failed}). Nothing was written. Let it hold no connection, lock or open file: open them in "
            "begin_transaction, keep them in 'session' on the driver, or leave them out by __getstate__",
            kind="sink.not-sendable",
        ) from failed
