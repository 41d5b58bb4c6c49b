"""Events that the steps of a checkpoint emit, as frozen values. Logs, metrics, traces and tests listen to them.

No event carries a row value: names, paths, offsets, counts and milliseconds only.
"""

from streamsink.events.event import Event, Listener, log
from streamsink.events.listeners import ListenerFailed, Listeners, Steps, error_of, to_log
from streamsink.events.no_callback import NoCallback
from streamsink.events.of_batches import (
    BatchAdmitted,
    BatchFailed,
    BatchFiltered,
    BatchReturned,
    BatchSkipped,
    BatchWritten,
    CheckpointBegun,
    CheckpointPublished,
    CheckpointRecorded,
    Claimed,
    ColumnsChanged,
    PublishingFailed,
    Restored,
    RunEnded,
)
from streamsink.events.of_destinations import (
    Compacted,
    DestinationBehind,
    Maintained,
    OffsetsCommitted,
    OffsetsNotCommitted,
    RolledBackRepublished,
    RowsDeadLettered,
    SmallFiles,
    SnapshotReplaced,
    TableNotRegistered,
    TablePublished,
    TableRegistered,
    TransactionGivenUp,
    TransactionNearsTimeout,
)
from streamsink.events.of_spark import SparkProgress, SparkQueryEnded, SparkQueryStarted

__all__ = [
    "BatchAdmitted",
    "BatchFailed",
    "BatchFiltered",
    "BatchReturned",
    "BatchSkipped",
    "BatchWritten",
    "CheckpointBegun",
    "CheckpointPublished",
    "CheckpointRecorded",
    "Claimed",
    "ColumnsChanged",
    "Compacted",
    "DestinationBehind",
    "Event",
    "Listener",
    "ListenerFailed",
    "Listeners",
    "Maintained",
    "NoCallback",
    "OffsetsCommitted",
    "OffsetsNotCommitted",
    "PublishingFailed",
    "Restored",
    "RolledBackRepublished",
    "RowsDeadLettered",
    "RunEnded",
    "SmallFiles",
    "SnapshotReplaced",
    "SparkProgress",
    "SparkQueryEnded",
    "SparkQueryStarted",
    "Steps",
    "TableNotRegistered",
    "TablePublished",
    "TableRegistered",
    "TransactionGivenUp",
    "TransactionNearsTimeout",
    "error_of",
    "log",
    "to_log",
]
