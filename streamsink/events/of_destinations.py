"""What happens to destinations: to their tables, to what others do there, and to what is done beside the batches."""

import logging
from dataclasses import dataclass

from streamsink.events.event import Event


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
class SmallFiles(Event):
    """Compaction beside the query has looked at a table, and this is what it may join. path: of that table.

    partitions: in how many of them there is something to join.
    """

    level = logging.DEBUG

    path: str
    partitions: int
    files: int
    bytes: int


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
    """One of several tables has its part of a checkpoint; ``CheckpointPublished`` follows when all of them have.

    again: whether it had it before this start, which publishes the rest. Then it was told before, as a rule.
    """

    checkpoint_id: int
    snapshot_id: int
    rows: int
    files: int
    again: bool = False


@dataclass(frozen=True)
class RowsDeadLettered(Event):
    """Rows that did not fit are visible in the dead-letter table.

    target: the name of the table that they were meant for; '' when no rule covers it. again: as of ``TablePublished``.
    """

    checkpoint_id: int
    target: str
    rows: int
    again: bool = False


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
class IcebergMetadataBehind(Event):
    """The Iceberg metadata of a table could not be made behind a commit, or has caught up. The log has a warning of it.

    failures: 1 for the first failure, of which it is told, and 0 when it has caught up. why: the error.
    """

    level = logging.DEBUG

    failures: int
    why: str


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
