"""A query that comes under another name than the one under which it has written here: may the new name go on? Pure.

A name does not identify a query; the query's id does. The errors are in ``renamed_errors.py``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.admission.continuity import changes, relate
from streamsink.protocol.admission.opaque_errors import of_another_past, planned_apart
from streamsink.protocol.committable import AppState, Batch, LastOfOther
from streamsink.protocol.positions import SourceRange, all_numeric, follows, numeric_ones, same_ranges
from streamsink.protocol.recorded import Recorded

# In the startingOffsets of Kafka's source: from the first message that is there.
EARLIEST = -2
# The way on with several tables some of which may have more than is known.
BEHIND_THE_OTHERS = (
    "let the query begin behind what is there (a new checkpoint with startingOffsets; files whose rows are here moved "
    "away), after rows of a batch that only some of its tables have were deleted there"
)


def ahead(
    batch: Batch, last: AppState | None, others: Mapping[str, LastOfOther], application: str
) -> list[tuple[str, LastOfOther]]:
    """The names under which this query has come further than under its own, each with its last record, newest first.

    last: the state under its own name, ``application``. Sinks that this run of the query has called beside this one are
    not earlier names, as long as all of them begin with batch 0 or have a past: a sink that joins later is a second
    sink only if the user says so.
    """
    joins = last is None and batch.batch_id != 0
    own = last if last is not None and last.query == batch.query else None
    found = [
        (name not in batch.other_sinks, other.state.checkpoint_id, not other.is_published, name)
        for name, other in others.items()
        if other.state.query == batch.query
        and _is_further(name, other.state, application, own)
        and (joins or name not in batch.other_sinks)
    ]
    return [(name, others[name]) for *_, name in sorted(found, reverse=True)]


def _is_further(name: str, state: AppState, application: str, own: AppState | None) -> bool:
    """Whether the query has come further under another name than under its own.

    The records that led on from one name to the other say so. Batch ids tell only where no record led on, because they
    go back with a checkpoint. state: the last one under the other name. own: the last one under its own name.
    """
    if own is None:
        return True
    if own.behind and own.behind[0] == name and state.sequence <= own.behind[1]:
        return False
    if state.behind and state.behind[0].partition("@")[0] == application and own.sequence <= state.behind[1]:
        return True
    return state.checkpoint_id > own.checkpoint_id


def may_lead_on(batch: Batch, other: LastOfOther) -> bool:
    """Whether another name may go on from the last record of the first one.

    It may when the batch is that record's, or the next one, so that the first name would skip it, or write all of it
    without a question. Batches between them that nobody has recorded, or that only a lost journal knew, had no rows
    where positions show that.
    """
    state = other.state
    changed = changes(state.recorded, batch.sources)
    if not other.is_published or not other.is_whole or any(change.other_topic for change in changed):
        return False
    if batch.batch_id == state.checkpoint_id:
        apart = planned_apart(state.planned_ms, batch.planned_ms, batch.sources)
        return same_ranges(batch.sources, state.sources) and not apart
    if batch.batch_id < state.checkpoint_id or changed:
        return False
    if all_numeric(batch.sources) and state.recorded:
        relation = relate(state.recorded, batch.sources)
        return not (relation.overlap or relation.gap or relation.unread)
    is_next = (
        batch.batch_id == state.checkpoint_id + 1 and not state.replaying and follows(state.sources, batch.sources)
    )
    return is_next and not of_another_past(state, batch)


def word_without_journal(state: AppState) -> str:
    """The word by which ``accept_as_seen`` says to leave out what a table may lack of this record.

    It is for a record whose journal is lost.
    """
    return ways.word(f"{state.record_id}|without its journal")


def look_first(other: LastOfOther, way: str) -> str:
    """What to do first where tables have forgotten what they had.

    way: the way on if they have nothing that came later. The text ends where the way on for the other case is to
    follow.
    """
    return (
        f"look into {' and '.join(other.forgotten_by)}, where older snapshots have expired, so whether a batch after "
        f"{other.state.checkpoint_id} was written there cannot be told. If no row of one is there, {way}; if there are "
        "some"
    )


def as_said(other: LastOfOther, options: SinkOptions) -> LastOfOther:
    """The record taken for whole, if the user has said so."""
    return replace(
        other, is_whole=other.is_whole or word_without_journal(other.state) in words_of(options.accept_as_seen)
    )


def past_of(own: AppState | None, earlier: AppState) -> AppState:
    """The past of a name that goes on from an earlier one.

    own: the state under this name; what the earlier name does not know of it still holds.
    """
    more = [record for record in own.recorded.topics if not earlier.recorded.of_topic(record.topic)] if own else []
    return replace(earlier, recorded=Recorded.of((*earlier.recorded.topics, *more)))


def of_another_checkpoint(batch: Batch, others: Mapping[str, LastOfOther], adopted: int) -> Mapping[str, LastOfOther]:
    """The names under which another checkpoint than this batch's wrote the batch before ``adopted``.

    Only names under which rows of this batch may have been written.
    """
    return {
        name: other
        for name, other in others.items()
        if other.state.checkpoint_id + 1 == adopted
        and other.state.query != batch.query
        and all_numeric(other.state.sources) == all_numeric(batch.sources)
        and (
            batch.batch_id == 0 or not all_numeric(batch.sources) or relate(other.state.recorded, batch.sources).overlap
        )
    }


def of_its_topics(batch: Batch, others: Mapping[str, LastOfOther]) -> Mapping[str, LastOfOther]:
    """The names under which topics of the batch were written, up to whatever batch."""
    read = {topic for _, source in numeric_ones(batch.sources) for topic in source.end}
    return {
        name: other
        for name, other in others.items()
        if any(record.topic in read for record in other.state.recorded.topics)
    }


def of_the_other_form(application: str, others: Mapping[str, LastOfOther]) -> tuple[str, LastOfOther] | None:
    """The name that this application has through the other one of ``to_table`` and ``to_tables``, and its last record.

    None when it has not written through the other function.
    """
    return next(((name, other) for name, other in others.items() if name.partition("@")[0] == application), None)


def same_program(form: str) -> str:
    """How a program goes on that has written through the function ``form`` and comes through the other one now."""
    return (
        f"If it is the same one, write through {form} as before; or start it with the checkpoint that it had there "
        "under another application, and its error says how that one goes on behind what is here"
    )


def names_before(behind: tuple[str, int] | tuple[()], others: Mapping[str, LastOfOther]) -> Iterator[tuple[str, int]]:
    """Yield the names that a query had before, the latest first, each with its record from which the next name goes on.

    behind: as in ``AppState``.
    """
    seen = set()
    while behind and behind[0] not in seen:
        yield behind
        seen.add(behind[0])
        behind = others[behind[0]].state.behind if behind[0] in others else ()


def first_that_is_there(behind: tuple[str, int] | tuple[()], others: Mapping[str, LastOfOther]) -> str:
    """The latest earlier name of which the table, or a mark, says something; '' where there is none."""
    known = ((name, others[name]) for name, _ in names_before(behind, others) if name in others)
    return next((name for name, other in known if other.is_published or other.said is not None), "")


def starting_at(sources: Sequence[SourceRange]) -> str:
    """The option ``startingOffsets`` with which a new checkpoint begins where this batch does.

    One for each source where the sources begin at different offsets of one topic.
    """
    begins = [
        {
            topic: {
                part: EARLIEST if source.first(topic, part) is None else source.first(topic, part) for part in parts
            }
            for topic, parts in source.end.items()
        }
        for source in sources
    ]
    together = {topic: parts for each in begins for topic, parts in each.items()}
    if all(together[topic] == parts for each in begins for topic, parts in each.items()):
        return f"startingOffsets={json.dumps(together, sort_keys=True)!r}"
    return " and ".join(
        f"startingOffsets={json.dumps(each, sort_keys=True)!r} for its source {source.key(place)!r}"
        for place, (source, each) in enumerate(zip(sources, begins))
    )
