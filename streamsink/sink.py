"""Sinks of your own: what their authors import, and the function that makes one of them a batch function. See docs/WRITING_A_SINK.md."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamsink.clock import IdSource
from streamsink.events import Event, to_log
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch, Committable, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.pending import PendingStore
from streamsink.protocol.sink import (
    Committer,
    Destination,
    History,
    OpenSink,
    Published,
    Sink,
    Writing,
    check_supported,
)
from streamsink.storage.file_io import FileIO
from streamsink.storage.pending_log import PendingLog
from streamsink.storage.together import Together

if TYPE_CHECKING:
    from streamsink.spark.foreach_batch import BatchFunction

__all__ = [
    "AppState", "Batch", "Checkpoint", "Committable", "Committer", "Destination", "FileIO", "History", "IdSource", "LastOfOther", "OpenSink",
    "PendingLog", "PendingStore", "Published", "Sink", "StagedFile", "Together", "Writing", "to_sink",
]


def to_sink(sink: Sink, listener: Callable[[Event], None] | None = None, **options: Any) -> "BatchFunction":
    """A function for ``foreachBatch`` that publishes every micro-batch exactly once into a destination of your own.

    listener: called with each event of ``streamsink.events``; the default logs them. options: see ``SinkOptions``, without those that only
    tables have. Raises Misuse for an option that does not exist, has a wrong value, or means nothing to the sink.
    """
    from streamsink.spark.foreach_batch import BatchFunction
    from streamsink.spark.spark_sink import SparkSink

    given = SinkOptions.of(sink.path, options)
    check_supported(sink, options)
    return BatchFunction(SparkSink(sink, given), listener or to_log)
