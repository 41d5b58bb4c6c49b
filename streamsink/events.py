"""Events that the steps of a checkpoint emit, as frozen values. Logs, progress reports and tests listen to them.

No event carries a row value: names, paths, counts and milliseconds only.
"""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar

log = logging.getLogger("streamsink")


def _in_words(line: logging.LogRecord) -> bool:
    """Errors in a log line become their text.

    Who keeps log lines (a test, a collector of errors) would keep the frames of an error with it, and what they hold: a
    connection, whose locks in a database the next start of the query waits for.
    """
    if isinstance(line.args, tuple):
        line.args = tuple(str(each) if isinstance(each, BaseException) else each for each in line.args)
    return True


log.addFilter(_in_words)


@dataclass(frozen=True)
class Event:
    """Base of all events. table: path of the table. application: name of the writing query.

    level: the level of the event's log line.
    """

    level: ClassVar[int] = logging.INFO

    table: str
    application: str


@dataclass(frozen=True)
class Claimed(Event):
    """This writer owns the application from ``epoch`` on."""

    epoch: int


@dataclass(frozen=True)
class Restored(Event):
    """A restart has gone through the journal: the checkpoints that it published, the orphan files that it removed."""

    published_checkpoints: tuple[int, ...]
    orphans_removed: tuple[str, ...]


@dataclass(frozen=True)
class BatchSkipped(Event):
    """A replayed batch changed nothing. reason: the check that recognised it."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True)
class BatchFiltered(Event):
    """A batch overlaps what is published; only rows beyond the recorded positions are written."""

    checkpoint_id: int


@dataclass(frozen=True)
class BatchWritten(Event):
    """The files of a checkpoint are in staging. way: how they were written: 'driver', 'spark' or 'tasks'."""

    checkpoint_id: int
    rows: int
    files: int
    bytes: int
    write_ms: float
    way: str


@dataclass(frozen=True)
class CheckpointPublished(Event):
    """A snapshot made the checkpoint visible, with all of its group, of which it is the last.

    checkpoints: how many there are in the group. rows, files: of the whole snapshot. pending: checkpoints that are
    recorded and not published yet. commit_ms: the time since the batch of the group's first checkpoint began. The
    thread that publishes emits it, which under 'async' is not the thread of the batch.
    """

    checkpoint_id: int
    snapshot_id: int
    rows: int
    files: int
    pending: int
    attempts: int
    commit_ms: float
    checkpoints: int = 1


@dataclass(frozen=True)
class Compacted(Event):
    """Small files of a table have become few, beside the query. path: of that table.

    files_before, bytes_before: what was replaced. files_after, bytes_after: what replaces it. snapshots: how many.
    conflicts, bytes_lost: how often other writers had changed the files meanwhile, and bytes that were written in vain.
    elapsed_ms: with the time that it slept.
    """

    path: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    snapshots: int
    conflicts: int
    bytes_lost: int
    elapsed_ms: float


@dataclass(frozen=True)
class OffsetsCommitted(Event):
    """The consumer group of ``offsets_group`` has the ends of a published checkpoint.

    partitions: how many were told; those that stand where they stood are not told each time.
    """

    level = logging.DEBUG

    checkpoint_id: int
    group: str
    partitions: int


@dataclass(frozen=True)
class OffsetsNotCommitted(Event):
    """The consumer group of ``offsets_group`` could not be told the ends of a published checkpoint.

    Nothing of the query depends on it. why: the broker's error, and who is in the group. retry_ms: when it is tried
    again, with what is published by then; None when this was the last try of the run.
    """

    level = logging.WARNING

    checkpoint_id: int
    group: str
    why: str
    retry_ms: int | None


@dataclass(frozen=True)
class TablePublished(Event):
    """One of several tables has its part of a checkpoint; ``CheckpointPublished`` follows when all of them have."""

    checkpoint_id: int
    snapshot_id: int
    rows: int
    files: int


@dataclass(frozen=True)
class RowsDeadLettered(Event):
    """Rows that did not fit are visible in the dead-letter table.

    target: the name of the table that they were meant for; '' when no rule covers it.
    """

    checkpoint_id: int
    target: str
    rows: int


@dataclass(frozen=True)
class RolledBackRepublished(Event):
    """Batches that a rollback had removed are in the table again, published from the journal."""

    checkpoints: tuple[int, ...]


@dataclass(frozen=True)
class SnapshotReplaced(Event):
    """Another writer's snapshot took the place of one of ours, by a rename that replaces the file.

    checkpoints: those that were lost with it and are published again; none when only the other writer's rows are
    hidden, which ``streamsink.verify`` names.
    """

    level = logging.WARNING

    snapshot_id: int
    checkpoints: tuple[int, ...]


@dataclass(frozen=True)
class Maintained(Event):
    """A table was looked after in the background, and this has changed.

    snapshots: numbers of those that expired. tags_made, tags_expired, consumers: names. partitions: folders of those
    that were dropped. elapsed_ms: what the run took for this table, beside the batches.
    """

    snapshots: tuple[int, ...]
    tags_made: tuple[str, ...]
    tags_expired: tuple[str, ...]
    consumers: tuple[str, ...]
    partitions: tuple[str, ...]
    elapsed_ms: float


@dataclass(frozen=True)
class TableRegistered(Event):
    """A catalog has the table with the columns that it has now. Emitted when that has changed something there.

    path: of the table. catalog: the server. name: of the table there. change: 'registered' or 'updated'.
    """

    path: str
    catalog: str
    name: str
    change: str


@dataclass(frozen=True)
class TableNotRegistered(Event):
    """A catalog does not have the table as it is, and nothing of the query depends on it.

    path, catalog, name: as of ``TableRegistered``. why: the error. failures: in a row; it is told of the first one, and
    of one for another reason. retry_ms: the next try comes with the first publishing after so long; None when there is
    no further one before the columns change or the query starts again, because somebody has to do something.
    """

    level = logging.WARNING

    path: str
    catalog: str
    name: str
    why: str
    failures: int
    retry_ms: int | None


@dataclass(frozen=True)
class DestinationBehind(Event):
    """A destination of a fan-out could not be given what is recorded for it, and the query goes on without it.

    destination: its name. pending: how many records it lacks; 0 when it has caught up. why: the error.
    """

    level = logging.WARNING

    destination: str
    pending: int
    why: str


@dataclass(frozen=True)
class TransactionNearsTimeout(Event):
    """A pre-committed transaction that is still pending may soon be aborted by its destination.

    age_ms: since it began. timeout_ms: after which the destination may abort it.
    """

    level = logging.WARNING

    checkpoint_id: int
    transaction: str
    rows: int
    age_ms: int
    timeout_ms: int


@dataclass(frozen=True)
class TransactionGivenUp(TransactionNearsTimeout):
    """A transaction could not be committed after its timeout, and was given up with its rows, as the sink says."""

    level = logging.ERROR


Listener = Callable[[Event], None]


def to_log(event: Event) -> None:
    """The default listener: write the event as one line to the logger ``streamsink``."""
    fields = asdict(event)
    table, application = fields.pop("table"), fields.pop("application")
    said = " ".join(f"{key}={value}" for key, value in fields.items())
    log.log(event.level, "%s %s application=%s %s", type(event).__name__, table, application, said)
