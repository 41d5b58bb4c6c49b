"""Sinks of your own: what their authors import, and the function that turns such a sink into a batch function.

See docs/WRITING_A_SINK.md.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamsink.clock import IdSource
from streamsink.errors import Misuse
from streamsink.events import Event, to_log
from streamsink.journal.file_journal import FileJournal
from streamsink.journal.others import last_of_others
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch, Committable, KnownRun, LastOfOther, StagedFile
from streamsink.protocol.decision import Checkpoint
from streamsink.protocol.journal import Group, Journal, Mark, Where
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
from streamsink.protocol.upkeep import Visible
from streamsink.sinks.directory.file_sink import FileSink
from streamsink.sinks.fan_out.sink import FanOut
from streamsink.sinks.file_writing import DataFile, FileWriting
from streamsink.sinks.files import check_handed_over, files_in_place, open_folder, place_files, stage_files
from streamsink.sinks.manifest_log import ManifestLog
from streamsink.sinks.paimon.opening import PaimonTable
from streamsink.sinks.transactions.function import PendingCheckpoint, PendingTransaction, TransactionContext
from streamsink.sinks.transactions.sink import TwoPhaseCommitSink
from streamsink.sinks.transactions.staged_rows import StagedRows, StagedRowsSink
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.storage.stores import table_path

if TYPE_CHECKING:
    from streamsink.spark.query.foreach_batch import BatchFunction

__all__ = [
    "AppState",
    "Batch",
    "Checkpoint",
    "Committable",
    "Committer",
    "DataFile",
    "Destination",
    "Event",
    "FanOut",
    "FileIO",
    "FileSink",
    "FileWriting",
    "Group",
    "History",
    "IdSource",
    "KnownRun",
    "LastOfOther",
    "ManifestLog",
    "Mark",
    "OpenSink",
    "PaimonTable",
    "FileJournal",
    "Journal",
    "Published",
    "Sink",
    "SinkOptions",
    "StagedFile",
    "FlushGroup",
    "Where",
    "Writing",
    "PendingCheckpoint",
    "PendingTransaction",
    "StagedRows",
    "StagedRowsSink",
    "TransactionContext",
    "TwoPhaseCommitSink",
    "Visible",
    "check_handed_over",
    "files_in_place",
    "last_of_others",
    "open_folder",
    "place_files",
    "stage_files",
    "to_sink",
]


def to_sink(sink: Sink, listener: Callable[[Event], None] | None = None, **options: Any) -> "BatchFunction":
    """Return a batch function that publishes every micro-batch exactly once into a destination of your own.

    sink: the destination. listener: called with each event of ``streamsink.events``; the default logs them. options:
    see ``SinkOptions``, without those that only tables have.

    Pass the function to ``foreachBatch``. Raises Misuse for an option that does not exist, has a wrong value, or means
    nothing to the sink, and for a path that is spelled otherwise than the store's methods take it.
    """
    from streamsink.spark.query.foreach_batch import BatchFunction
    from streamsink.spark.query.spark_sink import SparkSink

    if not sink.journal and sink.path != table_path(sink.path):
        raise Misuse(
            f"{sink.path}: the path of a sink that is a folder is used as it is, and it may be taken for another one, "
            "for instance relative to the folder that a task works in. Nothing was written. Give "
            f"{type(sink).__name__} the path '{table_path(sink.path)}'",
            kind="sink.path",
        )
    given = SinkOptions.of(sink.path, options)
    check_supported(sink, options)
    return BatchFunction(SparkSink(sink, given), listener or to_log)
