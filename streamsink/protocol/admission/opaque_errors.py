"""Errors for a batch whose source has no positions that compare, and whose files do not tell what is recorded. Pure."""

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.positions import SourceRange
from streamsink.protocol.ways import CALLED_FOR_EVERY_BATCH

_BY_FILES = " start a new checkpoint: files whose rows are here are known, and the others are written."


def of_another_past(last: AppState, batch: Batch) -> list[str]:
    """The sources that read something else in the batch before this one than the recorded state ``last`` says of it.

    Their positions are numbers that count the source's own steps, so they agree in two checkpoints that went on in
    different ways. Their logs tell, or else when the batch was planned. Empty where the record is by earlier code,
    which does not tell, or where the checkpoint does not tell, since its log of files may be deleted.
    """
    before = batch.before() if last.journal_id else None
    read = {source.key(place): source.fingerprint for place, source in enumerate(last.sources) if not source.numeric}
    told = {source.key(place): source for place, source in enumerate(before or ()) if source.files is not None}
    by_log = [
        key for key, source in told.items() if source.fingerprint and read.get(key, "") not in ("", source.fingerprint)
    ]
    return by_log or [key for key in planned_apart(last.planned_ms, batch.before_ms, batch.sources) if key not in told]


def planned_apart(recorded_ms: int, planned_ms: int, sources: tuple[SourceRange, ...]) -> list[str]:
    """The sources of which a recorded batch may have read something else than the checkpoint's batch of its number.

    recorded_ms, planned_ms: when the one and the other were planned, 0 where that is not known. A replay has the time
    of its first run, so other times are those of two plans: of two checkpoints, or of one whose offset log lost the
    batch. Where a log tells the files, it tells what both read; and a position that is no mere count of steps, such as
    the version of a table, has one meaning in all checkpoints of its source.
    """
    if 0 in (recorded_ms, planned_ms) or recorded_ms == planned_ms:
        return []
    return [source.key(place) for place, source in enumerate(sources) if source.is_counted and source.files is None]


def other_past(batch: Batch, others: list[str], ways: str, *, table: str, by_files: bool) -> Misuse:
    """The error for a batch that follows another batch of its checkpoint than the recorded one.

    others: the sources that read something else there. ways: the ways on. by_files: whether the files whose rows are in
    the table are known.
    """
    before, anew = batch.batch_id - 1, f" Or{_BY_FILES}" if by_files else ""
    return Misuse(
        f"{table}: batch {batch.batch_id} follows batch {before} of checkpoint {batch.query}, which is not the batch "
        f"{before} that is published here: its source {' and '.join(map(repr, others))} read something else or, where "
        "no log tells, it was planned at another time. Table and checkpoint have one past and went on in different "
        "ways, as when one of them was restored from a backup. Rows that only this checkpoint has read are not here, "
        "and it may read rows again that are. Nothing was written. Restore the checkpoint that has written this table."
        f"{anew} To go on without the rows that are not here,{ways}",
        kind="checkpoint.other-past",
    )


def not_told(
    batch: Batch,
    last: AppState,
    options: SinkOptions,
    ways: str,
    *,
    table: str,
    is_next: bool,
    begin: str | None,
    by_files: bool,
) -> Misuse:
    """The error for a batch of which nobody can tell whether its rows are in the table. last: the recorded state.

    ways: the ways on. is_next: the batch follows the last recorded one. begin: the startingOffsets of its Kafka sources
    for a new checkpoint; None when it has none. by_files: whether the files whose rows are in the table are known.
    """
    beside = (
        f" Of its Kafka sources a new checkpoint with startingOffsets={begin} reads only what is not here."
        if begin is not None
        else ""
    )
    if batch.query != last.query:
        return Misuse(
            f"{table}: application '{options.application}' has published up to batch {last.checkpoint_id} of another "
            f"checkpoint ({last.query}), and this one ({batch.query}) begins with batch {batch.batch_id}: the "
            "checkpoint was deleted, or this is another query. Its source has no positions that compare, so whether "
            f"its rows are here already cannot be told. Nothing was written.{beside} If this is another query, give "
            f"it a name of its own (application=...); else{ways}",
            kind="checkpoint.replaced",
        )
    if batch.batch_id <= last.checkpoint_id:
        return Misuse(
            f"{table}: batch {batch.batch_id} goes backwards: batch {last.checkpoint_id} of this checkpoint is "
            "published, and this one has other source positions than when that id was published or, where they only "
            "count and no log tells more, was planned at another time: the checkpoint was restored from an older copy. "
            f"Nothing was written.{beside} To go on,{ways}",
            kind="batch.backwards",
        )
    if is_next:
        return Misuse(
            f"{table}: batch {batch.batch_id} is of a checkpoint that took the place of another one, or was restored "
            "from an older copy, when rows of its source were published already: it may be a part of the replay that "
            "began then. Its source has no positions that compare, so whether its rows are here already cannot be "
            f"told. Nothing was written. To go on,{ways}",
            kind="batch.in-replay",
        )
    anew = f" To have their rows written,{_BY_FILES}" if by_files else ""
    return Misuse(
        f"{table}: batch {batch.batch_id} does not follow batch {last.checkpoint_id}, the last one published here "
        f"(expected batch {last.checkpoint_id + 1} starting at the positions where that one ended): batches are "
        f"missing or were written elsewhere. Nothing was written. {CALLED_FOR_EVERY_BATCH}.{beside}{anew} To go on "
        f"without the rows of the batches that are missing,{ways}",
        kind="batch.gap",
    )
