"""What happens to a batch and to a start of a query.

The steps of a batch are told in this order: BatchAdmitted, CheckpointBegun, BatchWritten, CheckpointRecorded,
CheckpointPublished (perhaps by another thread, after later batches), and BatchReturned or BatchFailed when the call for
the batch ends.
"""

import logging
from dataclasses import dataclass
from typing import Any

from streamsink.events.event import Event


@dataclass(frozen=True)
class Claimed(Event):
    """This writer owns the application from ``epoch`` on."""

    epoch: int


@dataclass(frozen=True)
class Restored(Event):
    """A restart has gone through the journal: the checkpoints that it published, the orphan files that it removed.

    restore_ms: with the claim.
    """

    took = "restore_ms"

    published_checkpoints: tuple[int, ...]
    orphans_removed: tuple[str, ...]
    restore_ms: float = 0.0


@dataclass(frozen=True)
class BatchAdmitted(Event):
    """It is decided what a batch is. verdict: 'new', 'filter', 'seen' or 'skip', as ``Verdict``.

    admit_ms: since the call for the batch was the only one under way. watermark_ms, planned_ms: as of ``Batch``, in
    milliseconds since the epoch. query: id of the Spark checkpoint; run: id of this start of the query. sources: a
    ``SourceRange`` of ``protocol/positions.py`` for each source, with the offsets or the files of the batch.
    """

    level = logging.DEBUG
    took = "admit_ms"
    unsaid = ("table", "application", "sources")

    checkpoint_id: int
    verdict: str
    watermark_ms: int | None
    planned_ms: int
    query: str
    run: str
    admit_ms: float
    sources: tuple[Any, ...] = ()


@dataclass(frozen=True)
class BatchSkipped(Event):
    """A replayed batch changed nothing. reason: the check that recognised it."""

    checkpoint_id: int
    reason: str


@dataclass(frozen=True)
class BatchFiltered(Event):
    """A batch overlaps what is published; only rows beyond the recorded positions are written.

    offsets, files: how many offsets and files of the batch are left out.
    """

    checkpoint_id: int
    offsets: int = 0
    files: int = 0


@dataclass(frozen=True)
class CheckpointBegun(Event):
    """The checkpoint has its number in the journal, and rows are about to be written.

    wait_ms: with the wait for room where too many checkpoints are pending.
    """

    level = logging.DEBUG
    took = "wait_ms"

    checkpoint_id: int
    sequence: int
    wait_ms: float


@dataclass(frozen=True)
class BatchWritten(Event):
    """The files of a checkpoint are in staging. way: how they were written: 'driver', 'spark' or 'tasks'."""

    took = "write_ms"

    checkpoint_id: int
    rows: int
    files: int
    bytes: int
    write_ms: float
    way: str


@dataclass(frozen=True)
class CheckpointRecorded(Event):
    """The pre-commit is durable: the checkpoint will be published, whatever happens. sequence: number of its record.

    record_ms: since the files were staged, with flushing them.
    """

    level = logging.DEBUG
    took = "record_ms"

    checkpoint_id: int
    sequence: int
    record_ms: float


@dataclass(frozen=True)
class CheckpointPublished(Event):
    """A snapshot made the checkpoint visible, with all of its group, of which it is the last.

    checkpoints: how many there are in the group. rows, files, bytes: of the whole snapshot. pending: checkpoints that
    are recorded and not published yet. commit_ms: the time since the batch of the group's first checkpoint began.
    publish_ms: of publishing alone. Both are 0 where a restart publishes. The thread that publishes emits it, which
    under 'async' is not the thread of the batch.
    """

    took = "publish_ms"

    checkpoint_id: int
    snapshot_id: int
    rows: int
    files: int
    pending: int
    attempts: int
    commit_ms: float
    checkpoints: int = 1
    bytes: int = 0
    publish_ms: float = 0.0


@dataclass(frozen=True)
class PublishingFailed(Event):
    """Publishing has ended with an error, and nothing more is published in this run. What is pending is safe.

    error: the name of its class. kind: as in docs/ERRORS.md; empty for an error that is not of this library.
    """

    level = logging.WARNING

    error: str
    kind: str
    pending: int


@dataclass(frozen=True)
class BatchReturned(Event):
    """The call for a batch has returned: what was to be done with it is done, or durable. batch_ms: of the call."""

    level = logging.DEBUG
    took = "batch_ms"

    checkpoint_id: int
    batch_ms: float


@dataclass(frozen=True)
class BatchFailed(Event):
    """The call for a batch has raised an error, which ends the query unless the program tries the batch again.

    error, kind: as of ``PublishingFailed``. batch_ms: of the call.
    """

    level = logging.WARNING
    took = "batch_ms"

    checkpoint_id: int
    error: str
    kind: str
    batch_ms: float


@dataclass(frozen=True)
class ColumnsChanged(Event):
    """The columns that the query writes are known, or are others than in its last batch: (name, type) in their order.

    The types are as Paimon spells them. Of several tables each has those of these columns that it takes.
    """

    level = logging.DEBUG
    unsaid = ("table", "application", "columns")

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunEnded(Event):
    """No batch of this start of the query will come: it has ended, or the interpreter exits, or a bounded job is done.

    run: id of the start. What was pending is published, unless that failed, or a thread of the run still publishes it.
    Where nobody waits for the query, this is told some seconds after its end.
    """

    level = logging.DEBUG

    run: str
