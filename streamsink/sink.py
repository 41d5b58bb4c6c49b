"""Sinks of your own: what their authors import, and the function that turns such a sink into a batch function.

See docs/WRITING_A_SINK.md.
"""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from streamsink.clock import IdSource
from streamsink.events import Event, to_log
from streamsink.journal.file_journal import JOURNAL_DIR, FileJournal
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
from streamsink.sinks.file_writing import DataFile, FileWriting
from streamsink.sinks.files import check_handed_over, files_in_place, open_folder, place_files, stage_files
from streamsink.sinks.manifest_log import ManifestLog
from streamsink.sinks.paimon.past.history_of import newest_in
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup

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
    "FileIO",
    "FileWriting",
    "Group",
    "History",
    "IdSource",
    "KnownRun",
    "LastOfOther",
    "ManifestLog",
    "Mark",
    "OpenSink",
    "FileJournal",
    "Journal",
    "Published",
    "Sink",
    "SinkOptions",
    "StagedFile",
    "FlushGroup",
    "Where",
    "Writing",
    "check_handed_over",
    "files_in_place",
    "last_of_others",
    "open_folder",
    "place_files",
    "stage_files",
    "to_sink",
]


def last_of_others(
    file_io: FileIO, path: str, application: str, names: Iterable[str], published: Callable[[str], AppState | None]
) -> dict[str, LastOfOther]:
    """Return what ``Committer.others`` is to return for a destination at this path whose journals lie below it.

    names: the applications that the destination knows. Applications that have a journal are found in addition to these.
    published: returns what the destination says of one application; None when it says nothing.

    A journal that cannot be read raises nothing here, because it is not the journal of this application.
    """
    journals = (entry.name for entry in file_io.entries(os.path.join(path, JOURNAL_DIR)) if entry.is_dir)
    found = {}
    for name in sorted({*names, *journals} - {application}):
        state = published(name)
        said = LastOfOther(state, True, said=state) if state is not None else None
        last = newest_in(FileJournal(file_io, path, name, 2), said, lambda record: False)
        if last is not None:
            found[name] = last
    return found


def to_sink(sink: Sink, listener: Callable[[Event], None] | None = None, **options: Any) -> "BatchFunction":
    """Return a batch function that publishes every micro-batch exactly once into a destination of your own.

    sink: the destination. listener: called with each event of ``streamsink.events``; the default logs them. options:
    see ``SinkOptions``, without those that only tables have.

    Pass the function to ``foreachBatch``. Raises Misuse for an option that does not exist, has a wrong value, or means
    nothing to the sink.
    """
    from streamsink.spark.query.foreach_batch import BatchFunction
    from streamsink.spark.query.spark_sink import SparkSink

    given = SinkOptions.of(sink.path, options)
    check_supported(sink, options)
    return BatchFunction(SparkSink(sink, given), listener or to_log)
