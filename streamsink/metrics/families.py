"""Every metric: its name, what it means, whom users know it from, and of which event's fields it is made.

docs/METRICS.md is made from this table. Names are those of Paimon and Flink where they have one, in snake case and with
units. A time is in seconds, a size in bytes. A counter's name ends with ``_total`` where it is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamsink import events
from streamsink.events import Event

PREFIX = "streamsink_"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# Of a query and its table: the labels of nearly all metrics.
OF_QUERY = ("table", "application")
# Of a query by Spark's name of it: the labels of Spark's own numbers.
OF_SPARK_QUERY = ("query",)
# Upper bounds in seconds, the last one before infinity.
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

# The value of an event for a metric; None when it says nothing of it.
Feed = Callable[[Any], "float | None"]


@dataclass(frozen=True)
class Metric:
    """One metric. name: without the prefix, and without ``_total``. group: the heading under which the page has it.

    feeds: by kind of event, its value. A counter is raised by it, a gauge is set to it, a histogram observes it. Empty
    where ``listener.py`` computes it. labels: their names; by: the values of those behind ``table`` and
    ``application``, from the event; of all of them where it has not these two.
    """

    name: str
    kind: str
    help: str
    group: str
    known_as: str = ""
    feeds: Mapping[type[Event], Feed] = field(default_factory=dict)
    labels: tuple[str, ...] = OF_QUERY
    by: Callable[[Any], tuple[str, ...]] = lambda event: ()

    @property
    def full_name(self) -> str:
        """As Prometheus has it."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == COUNTER else ''}"


def _of(name: str, scale: float = 1.0) -> Feed:
    """The value of that field."""
    return lambda event: getattr(event, name) * scale


def _of_new(name: str) -> Feed:
    """The value of that field, unless it was there before and was counted then."""
    return lambda event: 0.0 if event.again else getattr(event, name)


def _length(name: str) -> Feed:
    return lambda event: float(len(getattr(event, name)))


def _seconds(name: str) -> Feed:
    return _of(name, 0.001)


def _one(event: Any) -> float:
    return 1.0


def _publishing_alone(event: events.CheckpointPublished) -> float | None:
    """None where a restart has published, which does not measure it."""
    return event.publish_ms / 1000 if event.publish_ms else None


def _with_its_batch(event: events.CheckpointPublished) -> float | None:
    return event.commit_ms / 1000 if event.commit_ms else None


def _snapshot(event: events.CheckpointPublished) -> float | None:
    return float(event.snapshot_id) if event.snapshot_id > 0 else None


def _step(event: Event) -> tuple[str, ...]:
    return (STEPS[type(event)],)


# The step that an event ends, as the label ``step`` has it.
STEPS: Mapping[type[Event], str] = {
    events.BatchAdmitted: "admit",
    events.CheckpointBegun: "wait",
    events.BatchWritten: "write",
    events.CheckpointRecorded: "record",
    events.CheckpointPublished: "publish",
}

_PUBLISHED, _COMPACTED = events.CheckpointPublished, events.Compacted

_COMMITS = "Commits, as Paimon counts them"
OF_COMMITS = (
    Metric("last_commit_duration_seconds", GAUGE, "Time of the last commit of a checkpoint.", _COMMITS,
           "Paimon lastCommitDuration", {_PUBLISHED: _publishing_alone}),
    Metric("commit_duration_seconds", HISTOGRAM, "Times of commits of checkpoints.", _COMMITS,
           "Paimon commitDuration", {_PUBLISHED: _publishing_alone}),
    Metric("last_commit_attempts", GAUGE, "Tries that the last commit took.", _COMMITS,
           "Paimon lastCommitAttempts", {_PUBLISHED: _of("attempts")}),
    Metric("last_table_files_added", GAUGE, "Data files that the last commit added, of a checkpoint or a compaction.",
           _COMMITS, "Paimon lastTableFilesAdded", {_PUBLISHED: _of("files"), _COMPACTED: _of("files_after")}),
    Metric("last_table_files_appended", GAUGE, "Data files that the last checkpoint added.", _COMMITS,
           "Paimon lastTableFilesAppended", {_PUBLISHED: _of("files")}),
    Metric("last_table_files_deleted", GAUGE, "Data files that the last round of compaction took out.", _COMMITS,
           "Paimon lastTableFilesDeleted", {_PUBLISHED: lambda event: 0.0, _COMPACTED: _of("files_before")}),
    Metric("last_table_files_commit_compacted", GAUGE, "Data files that the last round of compaction changed.",
           _COMMITS, "Paimon lastTableFilesCommitCompacted",
           {_COMPACTED: lambda event: float(event.files_before + event.files_after)}),
    Metric("last_generated_snapshots", GAUGE, "Snapshots of the last publishing, or of the last round of compaction.",
           _COMMITS, "Paimon lastGeneratedSnapshots",
           {_PUBLISHED: lambda event: float(event.snapshot_id > 0), _COMPACTED: _of("snapshots")}),
    Metric("last_delta_records_appended", GAUGE, "Rows that the last checkpoint, or group of them, added.", _COMMITS,
           "Paimon lastDeltaRecordsAppended", {_PUBLISHED: _of("rows")}),
    Metric("last_committed_snapshot_id", GAUGE, "The snapshot of the last checkpoint.", _COMMITS,
           "Paimon lastCommittedSnapshotId", {_PUBLISHED: _snapshot}),
)

_SINK = "The sink, as Flink counts it"
OF_THE_SINK = (
    Metric("num_records_out", COUNTER, "Rows that were made visible.", _SINK,
           "Flink and Paimon numRecordsOut, Flink numRecordsSend", {_PUBLISHED: _of("rows")}),
    Metric("num_bytes_out", COUNTER, "Bytes of the data files that were made visible.", _SINK,
           "Flink and Paimon numBytesOut, Flink numBytesSend", {_PUBLISHED: _of("bytes")}),
    Metric("num_files_out", COUNTER, "Data files that were made visible.", _SINK, "", {_PUBLISHED: _of("files")}),
    Metric("num_records_out_errors", COUNTER, "Rows that did not fit, and are visible in the dead-letter table.", _SINK,
           "Flink numRecordsOutErrors, numRecordsSendErrors", {events.RowsDeadLettered: _of_new("rows")}),
    Metric("current_send_time_seconds", GAUGE, "Time in which the rows of the last batch were written.", _SINK,
           "Flink currentSendTime", {events.BatchWritten: _seconds("write_ms")}),
    Metric("committables", COUNTER, "Checkpoints that were recorded: from the record on it will be published.",
           _SINK, "Flink totalCommittables", {events.CheckpointRecorded: _one}),
    Metric("successful_committables", COUNTER, "Checkpoints that were published.", _SINK,
           "Flink successfulCommittables", {_PUBLISHED: _of("checkpoints")}),
    Metric("retried_committables", COUNTER, "Tries of commits behind the first one.", _SINK,
           "Flink retriedCommittables", {_PUBLISHED: lambda event: float(max(event.attempts - 1, 0))}),
    Metric("failed_committables", COUNTER, "Publishings that ended with an error, and with it the run.", _SINK,
           "Flink failedCommittables", {events.PublishingFailed: _one}),
    Metric("already_committed_committables", COUNTER, "Replayed batches that changed nothing (replays skipped).", _SINK,
           "Flink alreadyCommittedCommittables", {events.BatchSkipped: _one}),
    Metric("pending_committables", GAUGE, "Checkpoints that are recorded and not published.", _SINK,
           "Flink pendingCommittables"),
    Metric("last_checkpoint_duration_seconds", GAUGE, "From the first row of a batch to its snapshot.", _SINK,
           "Flink lastCheckpointDuration", {_PUBLISHED: _with_its_batch}),
    Metric("back_pressured_time_seconds", COUNTER, "Time in which batches waited because too many were pending.", _SINK,
           "Flink backPressuredTimeMsPerSecond, as its rate", {events.CheckpointBegun: _seconds("wait_ms")}),
    Metric("pending_records", GAUGE, "Messages of Kafka behind the last batch, as the broker said as it began.", _SINK,
           "Flink pendingRecords, Kafka records-lag"),
    Metric("watermark_lag_seconds", GAUGE, "Age of the watermark of the last batch.", _SINK, "Flink watermarkLag"),
    Metric("current_watermark_timestamp_seconds", GAUGE, "The watermark of the last batch, in seconds since 1970.",
           _SINK, "Flink currentInputWatermark",
           {events.BatchAdmitted: lambda event: None if event.watermark_ms is None else event.watermark_ms / 1000}),
)

_PROTOCOL = "Batches and their steps"
OF_BATCHES = (
    Metric("batches", COUNTER, "Batches by what they were: new, filter, seen or skip.", _PROTOCOL, "",
           {events.BatchAdmitted: _one}, (*OF_QUERY, "verdict"), lambda event: (event.verdict,)),
    Metric("batch_duration_seconds", HISTOGRAM, "Times of the calls of the sink, of those with an error as well.",
           _PROTOCOL, "", {events.BatchReturned: _seconds("batch_ms"), events.BatchFailed: _seconds("batch_ms")}),
    Metric("step_duration_seconds", HISTOGRAM, "Times of the steps: admit, wait, write, record, publish.", _PROTOCOL,
           "", {events.BatchAdmitted: _seconds("admit_ms"), events.CheckpointBegun: _seconds("wait_ms"),
                events.BatchWritten: _seconds("write_ms"), events.CheckpointRecorded: _seconds("record_ms"),
                _PUBLISHED: _publishing_alone}, (*OF_QUERY, "step"), _step),
    Metric("last_batch_id", GAUGE, "The last batch that was admitted.", _PROTOCOL, "",
           {events.BatchAdmitted: _of("checkpoint_id")}),
    Metric("last_published_batch_id", GAUGE, "The last batch that is visible.", _PROTOCOL, "",
           {_PUBLISHED: _of("checkpoint_id")}),
    Metric("last_batch_rows", GAUGE, "Rows that the last batch wrote.", _PROTOCOL, "",
           {events.BatchWritten: _of("rows")}),
    Metric("last_publish_timestamp_seconds", GAUGE, "When something became visible last, in seconds since 1970.",
           _PROTOCOL),
    Metric("last_publish_age_seconds", GAUGE, "Time since something became visible, or since the start.", _PROTOCOL),
    Metric("oldest_pending_age_seconds", GAUGE, "Age of the oldest record that is not published; 0 without one.",
           _PROTOCOL),
    Metric("visible_delay_seconds", HISTOGRAM, "From Spark's plan of a batch until its rows are visible.", _PROTOCOL),
    Metric("batches_filtered", COUNTER, "Batches that overlapped what is published.", _PROTOCOL, "",
           {events.BatchFiltered: _one}),
    Metric("offsets_filtered", COUNTER, "Offsets of such batches that were left out.", _PROTOCOL, "",
           {events.BatchFiltered: _of("offsets")}),
    Metric("files_filtered", COUNTER, "Source files of such batches that were left out.", _PROTOCOL, "",
           {events.BatchFiltered: _of("files")}),
    Metric("batch_failures", COUNTER, "Calls of the sink that ended with an error.", _PROTOCOL,
           "Flink numberOfFailedCheckpoints", {events.BatchFailed: _one}),
    Metric("batch_failures_by_kind", COUNTER, "The same by class and kind of the error (docs/ERRORS.md).", _PROTOCOL,
           "", {events.BatchFailed: _one}, (*OF_QUERY, "error", "kind"), lambda event: (event.error, event.kind)),
    Metric("fenced", COUNTER, "Starts of the query that a newer one has ended.", _PROTOCOL),
)

_STARTS = "Starts, and accidents"
OF_STARTS = (
    Metric("epoch", GAUGE, "The number of the query's start, counted in its journal.", _STARTS,
           "Flink numRestarts, as its change", {events.Claimed: _of("epoch")}),
    Metric("starts", COUNTER, "Starts of the query in this process.", _STARTS, "", {events.Claimed: _one}),
    Metric("last_restore_duration_seconds", GAUGE, "Time in which the last start settled what was left.", _STARTS,
           "", {events.Restored: _seconds("restore_ms")}),
    Metric("restored_committables", COUNTER, "Checkpoints of earlier starts that a start published.", _STARTS, "",
           {events.Restored: _length("published_checkpoints")}),
    Metric("orphans_removed", COUNTER, "Files that a start removed because no record names them.", _STARTS, "",
           {events.Restored: _length("orphans_removed")}),
    Metric("checkpoints_republished", COUNTER, "Checkpoints that a rollback had removed, published again.", _STARTS, "",
           {events.RolledBackRepublished: _length("checkpoints")}),
    Metric("snapshots_replaced", COUNTER, "Snapshots of this query that another writer's rename has replaced.", _STARTS,
           "", {events.SnapshotReplaced: _one}),
    Metric("offsets_not_committed", COUNTER, "Tries to tell the consumer group its offsets that failed.", _STARTS, "",
           {events.OffsetsNotCommitted: _one}),
    Metric("destination_pending", GAUGE, "Records that a destination of a fan-out lacks.", _STARTS, "",
           {events.DestinationBehind: _of("pending")}, (*OF_QUERY, "destination"), lambda event: (event.destination,)),
    Metric("iceberg_metadata_behind", GAUGE, "1 while the Iceberg metadata of the table cannot follow its commits.",
           _STARTS, "", {events.IcebergMetadataBehind: lambda event: float(event.failures > 0)}),
    Metric("transactions_near_timeout", COUNTER, "Warnings that a transaction may be aborted soon.", _STARTS, "",
           {events.TransactionNearsTimeout: _one}),
    Metric("records_given_up", COUNTER, "Rows of transactions that were given up behind their timeout.", _STARTS, "",
           {events.TransactionGivenUp: _of("rows")}),
    Metric("listener_errors", COUNTER, "Errors of listeners, which end no batch.", _STARTS, "",
           {events.ListenerFailed: _one}),
)

_TABLES = "Each table of several, and dead letters"
OF_TABLES = (
    Metric("table_records_out", COUNTER, "Rows that were made visible in this one of several tables.", _TABLES, "",
           {events.TablePublished: _of_new("rows")}),
    Metric("table_files_out", COUNTER, "Data files that were made visible in this one of several tables.", _TABLES, "",
           {events.TablePublished: _of_new("files")}),
    Metric("table_last_snapshot_id", GAUGE, "The last snapshot of this query in this one of several tables.", _TABLES,
           "", {events.TablePublished: _of("snapshot_id")}),
    Metric("dead_letters", COUNTER, "Dead letters by the table that they were meant for.", _TABLES, "",
           {events.RowsDeadLettered: _of_new("rows")}, (*OF_QUERY, "target"), lambda event: (event.target,)),
)

_BESIDE = "Compaction and maintenance beside the query"
OF_WORK_BESIDE = (
    Metric("small_files", GAUGE, "Files that compaction may join, at its last look.", _BESIDE,
           "Paimon avgLevel0FileCount", {events.SmallFiles: _of("files")}),
    Metric("small_files_bytes", GAUGE, "Their size.", _BESIDE, "", {events.SmallFiles: _of("bytes")}),
    Metric("small_files_partitions", GAUGE, "Partitions in which they are.", _BESIDE, "",
           {events.SmallFiles: _of("partitions")}),
    Metric("compaction_completed", COUNTER, "Rounds of compaction that changed something.", _BESIDE,
           "Paimon compactionCompletedCount", {_COMPACTED: lambda event: float(event.snapshots > 0)}),
    Metric("last_compaction_input_file_size_bytes", GAUGE, "Size of what the last round read.", _BESIDE,
           "Paimon lastCompactionInputFileSize", {_COMPACTED: _of("bytes_before")}),
    Metric("last_compaction_output_file_size_bytes", GAUGE, "Size of what the last round wrote.", _BESIDE,
           "Paimon lastCompactionOutputFileSize", {_COMPACTED: _of("bytes_after")}),
    Metric("compaction_files_in", COUNTER, "Files that compaction has replaced.", _BESIDE, "",
           {_COMPACTED: _of("files_before")}),
    Metric("compaction_files_out", COUNTER, "Files that replace them.", _BESIDE, "", {_COMPACTED: _of("files_after")}),
    Metric("compaction_bytes_in", COUNTER, "Bytes that compaction has read.", _BESIDE, "",
           {_COMPACTED: _of("bytes_before")}),
    Metric("compaction_time_seconds", COUNTER, "Time of rounds of compaction, with their pauses.", _BESIDE,
           "Paimon avgCompactionTime, as a quotient", {_COMPACTED: _seconds("elapsed_ms")}),
    Metric("compaction_conflicts", COUNTER, "Commits of compaction that another writer came before.", _BESIDE, "",
           {_COMPACTED: _of("conflicts")}),
    Metric("compaction_bytes_lost", COUNTER, "Bytes that were written in vain because of that.", _BESIDE, "",
           {_COMPACTED: _of("bytes_lost")}),
    Metric("maintenance_runs", COUNTER, "Runs of maintenance that changed something.", _BESIDE, "",
           {events.Maintained: _one}),
    Metric("maintenance_time_seconds", COUNTER, "Time of such runs.", _BESIDE, "",
           {events.Maintained: _seconds("elapsed_ms")}),
    Metric("snapshots_expired", COUNTER, "Snapshots that expired.", _BESIDE, "",
           {events.Maintained: _length("snapshots")}),
    Metric("tags_created", COUNTER, "Tags that were made.", _BESIDE, "", {events.Maintained: _length("tags_made")}),
    Metric("tags_expired", COUNTER, "Tags that expired.", _BESIDE, "", {events.Maintained: _length("tags_expired")}),
    Metric("partitions_expired", COUNTER, "Partitions that were dropped.", _BESIDE, "",
           {events.Maintained: _length("partitions")}),
)

_SPARK, _OF_SPARK, _PROGRESS = "Spark's own progress", OF_SPARK_QUERY, events.SparkProgress


def _query(event: Any) -> tuple[str, ...]:
    """The name of the Spark query, or else its id."""
    return (event.application,)


OF_SPARK = (
    Metric("spark_input_rows", COUNTER, "Rows that Spark has read.", _SPARK, "Spark numInputRows",
           {_PROGRESS: _of("input_rows")}, _OF_SPARK, _query),
    Metric("spark_input_rows_per_second", GAUGE, "Rows that arrive.", _SPARK, "Spark inputRowsPerSecond",
           {_PROGRESS: _of("input_rows_per_second")}, _OF_SPARK, _query),
    Metric("spark_processed_rows_per_second", GAUGE, "Rows that are worked on.", _SPARK, "Spark processedRowsPerSecond",
           {_PROGRESS: _of("processed_rows_per_second")}, _OF_SPARK, _query),
    Metric("spark_batch_duration_seconds", GAUGE, "Times of the last trigger, by phase.", _SPARK, "Spark durationMs",
           labels=("query", "phase")),
    Metric("spark_batch_id", GAUGE, "The last batch that has a progress.", _SPARK, "Spark batchId",
           {_PROGRESS: _of("batch_id")}, _OF_SPARK, _query),
    Metric("spark_offsets_behind_latest", GAUGE, "Offsets behind the newest: avg, max or min of partitions.", _SPARK,
           "Spark avgOffsetsBehindLatest and others", labels=("query", "source", "of")),
    Metric("spark_state_rows", GAUGE, "Rows of the state of stateful operators.", _SPARK, "Spark numRowsTotal",
           {_PROGRESS: _of("state_rows")}, _OF_SPARK, _query),
    Metric("spark_state_memory_bytes", GAUGE, "Memory of that state.", _SPARK, "Spark memoryUsedBytes",
           {_PROGRESS: _of("state_bytes")}, _OF_SPARK, _query),
    Metric("spark_watermark_timestamp_seconds", GAUGE, "The watermark, in seconds since 1970.", _SPARK,
           "Spark eventTime.watermark",
           {_PROGRESS: lambda event: None if event.watermark_ms is None else event.watermark_ms / 1000},
           _OF_SPARK, _query),
    Metric("spark_queries_started", COUNTER, "Starts of Spark queries.", _SPARK, "", {events.SparkQueryStarted: _one},
           _OF_SPARK, _query),
    Metric("spark_queries_ended", COUNTER, "Ends of Spark queries; with_error: 'true' or 'false'.", _SPARK, "",
           {events.SparkQueryEnded: _one}, ("query", "with_error"),
           lambda event: (event.application, str(event.with_error).lower())),
)

_SELF = "The registry itself"
OF_ITSELF = (
    Metric("info", GAUGE, "1 for each start of a query: which Spark query writes here.", _SELF, "",
           {events.BatchAdmitted: _one}, (*OF_QUERY, "query"), lambda event: (event.query,)),
    Metric("series_folded", COUNTER, "Values that went to the labels '(other)', because too many series were there.",
           _SELF, "", labels=()),
    Metric("exporter_errors", COUNTER, "Errors of exporters, which end no batch.", _SELF, "", labels=("exporter",)),
)

METRICS = (
    *OF_COMMITS, *OF_THE_SINK, *OF_BATCHES, *OF_STARTS, *OF_TABLES, *OF_WORK_BESIDE, *OF_SPARK, *OF_ITSELF,
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
