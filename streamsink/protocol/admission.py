"""Admission of a micro-batch: is it new, a replay, an overlap, or a gap? A pure decision, taken before any byte is written."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.committable import AppState, Batch
from streamsink.protocol.ids import END_OF_INPUT
from streamsink.protocol.positions import all_numeric, follows, high_water, offsets, relate, same_ranges


class Verdict(Enum):
    """NEW: write all rows. FILTER: write the rows beyond ``below``. SEEN: record it without rows. SKIP: change nothing."""

    NEW = "new"
    FILTER = "filter"
    SEEN = "seen"
    SKIP = "skip"


@dataclass(frozen=True)
class Decision:
    """What to do with a batch. ``below``: next new offset of each topic and partition (FILTER only)."""

    verdict: Verdict
    reason: str
    generation: int = 0
    recorded: Mapping = field(default_factory=dict)
    below: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class Past:
    """What is known of the application.

    earlier(query, checkpoint id): that checkpoint of the same query in the journal, or None.
    others(): the last record of each other application that has written here.
    run_published(run id): whether a bounded job's run is published; None when that cannot be told.
    """

    table: str
    table_id: str
    last: AppState | None
    earlier: Callable[[str, int], AppState | None]
    run_published: Callable[[str], bool | None]
    others: Callable[[], Mapping[str, AppState]] = dict


def admit(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    """Decide. Raises Misuse that says what happened, what was found and expected, and which two options go on."""
    if batch.batch_id == END_OF_INPUT:
        return _admit_job(batch, past, options)
    last = past.last
    if last is None:
        return _admit_first(batch, past, options)
    if batch.query == last.query:
        replay = _replay_of(batch, past)
        if replay:
            return Decision(Verdict.SKIP, replay)
    generation = _generation(batch, last)
    accepted = _accepted(batch, past, options, generation)
    if accepted:
        return accepted
    if all_numeric(batch.sources) and last.recorded:
        return _admit_numeric(batch, past, options, generation)
    return _admit_opaque(batch, past, options, generation)


def token(batch: Batch, past: Past) -> str:
    """The word that an option must repeat to accept exactly this accident and no later one."""
    last = past.last.record_id if past.last else ""
    text = "|".join((past.table_id, batch.query, str(batch.batch_id), last))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _generation(batch: Batch, last: AppState) -> int:
    if batch.query != last.query:
        return 0
    return last.generation + (1 if batch.batch_id <= last.checkpoint_id else 0)


def _recorded(batch: Batch, last: AppState | None) -> dict:
    known = last.recorded if last else {}
    end = offsets(batch.sources, "end") if all_numeric(batch.sources) else {}
    return high_water(known, end)


def _admit_job(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    """A bounded job: its run id is its identity, and it has one checkpoint."""
    last_run = past.last.query if past.last and past.last.checkpoint_id == END_OF_INPUT else None
    published = last_run == batch.query or past.run_published(batch.query)
    if published:
        return Decision(Verdict.SKIP, "this run is published already")
    accepted = _accepted(batch, past, options, 0)
    if accepted:
        return accepted
    if published is None:
        raise Misuse(
            f"{past.table}: whether run '{batch.query}' of application '{options.application}' is published cannot be told: the journal was "
            "removed or is an older copy, and the snapshots that could say so have expired. Nothing was written. Look whether "
            f"its rows are in the table, and{_ways_on(batch, past)}",
            kind="run.undecidable",
        )
    return Decision(Verdict.NEW, "a bounded job", 0, past.last.recorded if past.last else {})


def _admit_first(batch: Batch, past: Past, options: SinkOptions) -> Decision:
    if batch.batch_id != 0:
        _check_not_renamed(batch, past, options)
    if batch.batch_id == 0 or options.adopt_from_batch == batch.batch_id:
        return Decision(Verdict.NEW, "first batch of this application", 0, _recorded(batch, None))
    raise Misuse(
        f"{past.table}: the first batch that this table sees from application '{options.application}' is "
        f"{batch.batch_id}, expected 0: the table was dropped, recreated or emptied under this query's checkpoint, or "
        "the query wrote elsewhere before. Nothing was written. If it moves to streamsink with a checkpoint of its own "
        f"past, set adopt_from_batch={batch.batch_id}; if rows are missing here, start a new checkpoint.",
        kind="gap.first-batch",
    )


def _check_not_renamed(batch: Batch, past: Past, options: SinkOptions) -> None:
    """Raises Misuse when this query has written here before, under another name. A name is not an identity; the query's id is.

    Two sinks of one query under two names both begin with its batch 0. One that takes over the next batch after everything is
    published under the other name (``adopt_from_batch``) leaves nothing behind.
    """
    for name, last in sorted(past.others().items()):
        if last.query != batch.query:
            continue
        following = last.checkpoint_id + 1
        if options.adopt_from_batch == batch.batch_id == following:
            continue
        plain = name.partition("@")[0]
        how = f"application='{plain}'" + (" and streamsink.to_tables, or dead_letters, as before" if "@" in name else "")
        raise Misuse(
            f"{past.table}: this query ({batch.query}) has written here under the name '{name}', up to batch {last.checkpoint_id}; now its "
            f"name is '{options.application}', and its batch {batch.batch_id} comes. Under a new name its rows would be written a second "
            f"time. Nothing was written. Set {how} to go on; dead_letters and streamsink.to_tables use a name of their own. To change the "
            f"name, let the query publish everything under the first name, stop it, and set adopt_from_batch={following} for its first "
            "start under the new one",
            kind="application.renamed",
        )


def _replay_of(batch: Batch, past: Past) -> str | None:
    """Why a batch of the same checkpoint is a replay: same id and same source positions, or None."""
    last = past.last
    if batch.batch_id == last.checkpoint_id:
        return "the last published batch, same source positions" if same_ranges(batch.sources, last.sources) else None
    if batch.batch_id < last.checkpoint_id:
        known = past.earlier(batch.query, batch.batch_id)
        if known and same_ranges(known.sources, batch.sources) and known.generation == last.generation:
            return "an earlier published batch, same source positions"
    return None


def _accepted(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision | None:
    word = token(batch, past)
    if options.accept_as_new == word:
        return Decision(Verdict.NEW, "accepted as new", generation, _recorded(batch, past.last))
    if options.accept_as_seen == word:
        return Decision(Verdict.SEEN, "accepted as seen", generation, _recorded(batch, past.last))
    return None


def _admit_numeric(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision:
    last = past.last
    relation = relate(last.recorded, batch.sources)
    if relation.gap:
        raise Misuse(
            f"{past.table}: batch {batch.batch_id} leaves a gap in {', '.join(relation.gap)}: it starts after the "
            "positions that this table records, so messages between would be missing. Nothing was written. Start a new "
            f"checkpoint at streamsink.starting_offsets(...), or{_ways_on(batch, past)}",
            kind="positions.gap",
        )
    recorded = _recorded(batch, last)
    if not relation.overlap:
        return Decision(Verdict.NEW, "continues the recorded positions", generation, recorded)
    if options.position_columns:
        return Decision(Verdict.FILTER, "overlaps the recorded positions", generation, recorded, last.recorded)
    raise Misuse(
        f"{past.table}: batch {batch.batch_id} overlaps what is published already in {', '.join(relation.overlap)}: "
        "a checkpoint was deleted, restored from an older copy, or runs twice. Nothing was written. Name the columns "
        "that carry topic, partition and offset in the option position_columns and only new rows will be written, or "
        f"start a new checkpoint at streamsink.starting_offsets(...), or{_ways_on(batch, past)}",
        kind="positions.overlap",
    )


def _admit_opaque(batch: Batch, past: Past, options: SinkOptions, generation: int) -> Decision:
    last = past.last
    if batch.query != last.query:
        raise Misuse(
            f"{past.table}: application '{options.application}' has published up to batch {last.checkpoint_id} of another "
            f"checkpoint ({last.query}), and this one ({batch.query}) begins with batch {batch.batch_id}: the "
            "checkpoint was deleted, or this is another query. Its source has no positions that compare, so whether "
            "its rows are here already cannot be told. Nothing was written. If this is another query, give it a name "
            f"of its own (application=...); else{_ways_on(batch, past)}",
            kind="checkpoint.replaced",
        )
    if batch.batch_id <= last.checkpoint_id:
        raise Misuse(
            f"{past.table}: batch {batch.batch_id} goes backwards: batch {last.checkpoint_id} of this checkpoint is "
            "published, and this one has other source positions than when that id was published: the checkpoint was "
            f"restored from an older copy. Nothing was written. To go on,{_ways_on(batch, past)}",
            kind="batch.backwards",
        )
    if batch.batch_id == last.checkpoint_id + 1 and follows(last.sources, batch.sources):
        return Decision(Verdict.NEW, "the next batch", generation, _recorded(batch, last))
    raise Misuse(
        f"{past.table}: batch {batch.batch_id} does not follow batch {last.checkpoint_id}, the last one published here "
        f"(expected batch {last.checkpoint_id + 1} starting at the positions where that one ended): batches are "
        f"missing or were written elsewhere. Nothing was written. To go on,{_ways_on(batch, past)}",
        kind="batch.gap",
    )


def _ways_on(batch: Batch, past: Past) -> str:
    word = token(batch, past)
    return (
        f" choose for this one batch: accept_as_new='{word}' writes all its rows, accept_as_seen='{word}' records it "
        "without writing any."
    )
