"""A query that comes under another name than the one under which it has written here. A name is not an identity; the query's id is. Pure."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from streamsink.errors import Misuse
from streamsink.options import SinkOptions, words_of
from streamsink.protocol import ways
from streamsink.protocol.admission.continuity import changes, relate
from streamsink.protocol.admission.opaque_errors import of_another_past
from streamsink.protocol.committable import AppState, Batch, LastOfOther
from streamsink.protocol.positions import SourceRange, all_numeric, follows, numeric_ones, same_ranges
from streamsink.protocol.recorded import Recorded

# As Kafka's source has it in startingOffsets: from the first message that is there.
EARLIEST = -2
_MOST_NAMED = 10
# Through which a query may write: one table, several.
_FORMS = ("streamsink.to_table", "streamsink.to_tables")
# The way on with several tables of which some may have more than is known.
BEHIND_THE_OTHERS = (
    "let the query begin behind what is there (a new checkpoint with startingOffsets; files whose rows are here moved "
    "away), after rows of a batch that only some of its tables have were deleted there"
)


def ahead(
    batch: Batch, last: AppState | None, others: Mapping[str, LastOfOther], application: str
) -> list[tuple[str, LastOfOther]]:
    """The names under which this query has come further than under its own one, with its last record there; the newest one first.

    last: under its own name, ``application``. Sinks that this run of the query has called beside this one are no earlier names, as long as all of
    them begin with batch 0 or have a past: one that joins later is a second sink only if its user says so.
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
    """Whether the query has come further under another name, as the records say that led on from one name to the other; batch ids tell only where none
    did, for they go back with a checkpoint. state: its last one under that name. own: under its own one.
    """
    if own is None:
        return True
    if own.behind and own.behind[0] == name and state.sequence <= own.behind[1]:
        return False
    if state.behind and state.behind[0].partition("@")[0] == application and own.sequence <= state.behind[1]:
        return True
    return state.checkpoint_id > own.checkpoint_id


def may_lead_on(batch: Batch, other: LastOfOther) -> bool:
    """Whether another name may go on from the last record of the first one: the batch is that record's, or the next one, and the first name
    would skip it, or write all of it without a question. Batches between them, which nobody has recorded, or a lost journal, had no rows where
    positions show that.
    """
    state = other.state
    changed = changes(state.recorded, batch.sources)
    if not other.is_published or not other.is_whole or any(change.other_topic for change in changed):
        return False
    if batch.batch_id == state.checkpoint_id:
        return same_ranges(batch.sources, state.sources)
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
    """By which ``accept_as_seen`` says that what a table may lack of this record is to be left out, since its journal is lost."""
    return ways.word(f"{state.record_id}|without its journal")


def look_first(other: LastOfOther, way: str) -> str:
    """Where tables have forgotten what they had. way: the one on if they have nothing that came later; what is said ends with the other case."""
    return (
        f"look into {' and '.join(other.forgotten_by)}, where older snapshots have expired, so whether a batch after "
        f"{other.state.checkpoint_id} was written there cannot be told. If no row of one is there, {way}; if there are "
        "some"
    )


def as_said(other: LastOfOther, options: SinkOptions) -> LastOfOther:
    """Whole, if the user has said so."""
    return replace(
        other, is_whole=other.is_whole or word_without_journal(other.state) in words_of(options.accept_as_seen)
    )


def past_of(own: AppState | None, earlier: AppState) -> AppState:
    """The past of a name that goes on from an earlier one. own: under this name; what the earlier one does not know of it still holds."""
    more = [record for record in own.recorded.topics if not earlier.recorded.of_topic(record.topic)] if own else []
    return replace(earlier, recorded=Recorded.of((*earlier.recorded.topics, *more)))


def refused(
    batch: Batch, found: Sequence[tuple[str, LastOfOther]], *, table: str, options: SinkOptions, word: str
) -> Misuse:
    """word: the token that takes the batch for new. found: the applications under which the query has come further."""
    name, other = found[0]
    plain, last = name.partition("@")[0], other.state.checkpoint_id
    how = f"application='{plain}'"
    of_tables = (
        f"'{name}' is a name of streamsink.to_tables, or of dead_letters: write through it as before"
        if "@" in name
        else ("streamsink.to_tables has a name of its own")
    )
    under = f"under the name '{name}', up to batch {last}"
    if len(found) > 1:
        if found[1][1].state.checkpoint_id == last:  # sinks of one batch function
            how = "application to the one of these names that this sink had"
        under = "under the names " + ", and ".join(
            f"'{name}', up to batch {other.state.checkpoint_id}" for name, other in found
        )
    return Misuse(
        f"{table}: this query ({batch.query}) has written here {under}; now its name is '{options.application}', and "
        f"its batch {batch.batch_id} comes. Under a new name its rows would be written a second time. Nothing was "
        f"written. Set {how} to go on; {of_tables}. {_change_of(batch, name, other)}. To write other rows than the "
        f"sink of that name does, as a second sink in the same batch function, set accept_as_new='{word}' for its "
        f"first start, which writes batch {batch.batch_id} and what comes after it",
        kind="application.renamed",
    )


def of_another_checkpoint(batch: Batch, others: Mapping[str, LastOfOther], adopted: int) -> Mapping[str, LastOfOther]:
    """The names under which the batch before ``adopted`` was written by another checkpoint than the one that comes with that batch now, and
    which may have written what it holds."""
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
    """The name that this application has through ``to_tables``, if the query comes through ``to_table``, or the reverse; and its last record."""
    return next(((name, other) for name, other in others.items() if name.partition("@")[0] == application), None)


def other_form(batch: Batch, name: str, other: LastOfOther, *, table: str, word: str) -> Misuse:
    """Of the first batch of a new checkpoint. name: the one that its application has through the other function."""
    plain = name.partition("@")[0]
    return Misuse(
        f"{table}: application '{plain}' has written here through {_FORMS['@' in name]} up to batch "
        f"{other.state.checkpoint_id}, and batch {batch.batch_id} of a new checkpoint comes through "
        f"{_FORMS['@' not in name]}: if it is the same program, its rows would be written a second time. Nothing was "
        f"written. {same_program(_FORMS['@' in name])}. If it is another program, set another application; or, to "
        f"write batch {batch.batch_id} and what comes after it under this name too, set accept_as_new='{word}'",
        kind="tables.other-protocol",
    )


def same_program(form: str) -> str:
    """How a program goes on that has written through the function ``form``, and comes through the other one."""
    return (
        f"If it is the same one, write through {form} as before; or start it with the checkpoint that it had there "
        "under another application, and its error says how that one goes on behind what is here"
    )


def begins_anew(
    batch: Batch,
    others: Callable[[], Mapping[str, LastOfOther]],
    behind: tuple[str, int] | tuple[()],
    *,
    table: str,
    options: SinkOptions,
    word: str,
) -> Misuse | None:
    """Of a first batch of another checkpoint than the one that ``adopt_from_batch`` means, or than the one whose records were given up; None for any
    other one. behind: as of ``AppState``, of those records. word: takes the batch for new."""
    adopted = options.adopt_from_batch
    if adopted:
        found = of_another_checkpoint(batch, others(), adopted)
        if batch.batch_id != 0 and not found:
            return None
        found = found or of_its_topics(batch, others())
        why, own = (
            f"adopt_from_batch={adopted} says that the rows before batch {adopted} are written",
            f", whose next batch is {adopted}",
        )
    else:
        before = first_that_is_there(behind, others()) if behind and batch.batch_id == 0 else ""
        found = {before: others()[before]} if before else {}
        if not any(_has_read(other, batch) for other in found.values()):
            return None
        why, own = f"what this query had recorded here, behind what it had written as '{before}', was given up", ""
    comes = (
        "batch 0 of a new checkpoint comes"
        if batch.batch_id == 0
        else (
            f"batch {batch.batch_id} that comes is of another checkpoint ({batch.query}) than the one that wrote them"
        )
    )
    ways_on = [f"Start the query with its own checkpoint{own}"]
    lost = [
        _begun_behind(batch, name, found[name])
        or (_behind(batch, name, found[name]) if found[name].is_published else _under_first(name, found[name]))
        for name in sorted(found)
    ]
    once_more = (
        ""
        if adopted or all_numeric(batch.sources)
        else (
            ", and set accept_as_new as this error says when it comes once more, since nothing shows which rows the "
            "source has then"
        )
    )
    ways_on += dict.fromkeys(
        f"where that is lost, {way}{once_more}" for way in lost or [_behind_what_nobody_knows(batch)]
    )
    ways_on += (
        ["to write all that the source has, leave adopt_from_batch out"] if adopted and batch.batch_id == 0 else []
    )
    return Misuse(
        f"{table}: {why}, and {comes}: rows would be written a second time. Nothing was written. "
        f"{'; or, '.join(ways_on)}; or, to write all rows of this batch and of what comes after it, set "
        f"accept_as_new='{word}'",
        kind="checkpoint.begins-anew",
    )


def names_before(behind: tuple[str, int] | tuple[()], others: Mapping[str, LastOfOther]) -> Iterator[tuple[str, int]]:
    """The names that a query had one before another, each with the record from which the later one goes on. behind: as of ``AppState``."""
    seen = set()
    while behind and behind[0] not in seen:
        yield behind
        seen.add(behind[0])
        behind = others[behind[0]].state.behind if behind[0] in others else ()


def first_that_is_there(behind: tuple[str, int] | tuple[()], others: Mapping[str, LastOfOther]) -> str:
    """The last of the names before of which the table says something, or a mark; '' where there is none."""
    known = ((name, others[name]) for name, _ in names_before(behind, others) if name in others)
    return next((name for name, other in known if other.is_published or other.said is not None), "")


def _has_read(other: LastOfOther, batch: Batch) -> bool:
    """Whether something that the batch holds is written under that name, as far as the table says it; or positions do not tell."""
    there = other.state if other.is_published else other.said
    return there is not None and (
        not all_numeric(batch.sources) or not there.recorded or bool(relate(there.recorded, batch.sources).overlap)
    )


def _begun_behind(batch: Batch, name: str, other: LastOfOther) -> str:
    """The way on where the new checkpoint reads nothing that is recorded under that name; '' where it may."""
    recorded = other.state.recorded
    if (
        batch.batch_id
        or not (other.is_published and other.is_whole and all_numeric(batch.sources))
        or changes(recorded, batch.sources)
    ):
        return ""
    relation = relate(recorded, batch.sources)
    if relation.overlap or not of_its_topics(batch, {name: other}):
        return ""
    between = (
        f" (what lies between them in {', '.join(relation.gap[:_MOST_NAMED])} is left out)" if relation.gap else ""
    )
    return f"leave adopt_from_batch out: this checkpoint begins behind what was '{name}' before{between}"


def _under_first(name: str, other: LastOfOther) -> str:
    """The way on where something of the first name waits, which a checkpoint that begins behind it would leave out."""
    return (
        f"for what was '{name}' before set application='{name.partition('@')[0]}' and leave adopt_from_batch out: "
        f"batch {other.state.checkpoint_id} is recorded under that name and not published, or was rolled back, and a "
        "start under it settles that"
    )


def _behind_what_nobody_knows(batch: Batch) -> str:
    is_of_topics = all_numeric(batch.sources)
    where = (
        "with startingOffsets behind the last message that is written"
        if is_of_topics
        else "whose source has only what is not written yet"
    )
    return f"leave adopt_from_batch out and start a new checkpoint {where}: no name has recorded it here, so look into what was written"


def _behind(batch: Batch, name: str, other: LastOfOther) -> str:
    """The way on with a new checkpoint behind what is written under that name."""
    if other.forgotten_by:
        return f"leave adopt_from_batch out and {BEHIND_THE_OTHERS}: {' and '.join(other.forgotten_by)} may have batches after {other.state.checkpoint_id}"
    topics = {record.topic: record.next for record in other.state.recorded.topics}
    is_plain = all(
        record.next == topics[record.topic] for record in other.state.recorded.topics
    )  # else two sources have read one topic
    if not all_numeric(batch.sources) or not topics or not is_plain:
        return "leave adopt_from_batch out and start a new checkpoint whose source has only what is not written yet"
    lacks = (
        ""
        if other.is_whole
        else f" (what a table may lack of batch {other.state.checkpoint_id} is left out: its journal is lost)"
    )
    offsets: dict[str, dict[str, int]] = {}
    for source in batch.sources:
        for topic, parts in source.end.items():
            known = {part for at in (source.newest or {}, source.end) for part in at.get(topic, ())}
            offsets.setdefault(topic, {}).update(dict.fromkeys({*parts, *known}, EARLIEST))
    anew = {change.topic for change in changes(other.state.recorded, batch.sources) if change.other_topic}
    for topic in topics.keys() - anew:
        offsets.setdefault(topic, {}).update(topics[topic])
    return (
        f"leave adopt_from_batch out and start a new checkpoint, for what was '{name}' before with startingOffsets="
        f"{json.dumps(offsets, sort_keys=True)!r}{lacks}"
    )


def starting_at(sources: Sequence[SourceRange]) -> str:
    """The option ``startingOffsets`` with which a new checkpoint begins where this batch does; one for each source where they begin apart."""
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


def _without_journal(batch: Batch, name: str, other: LastOfOther) -> str:
    last, whole = other.state.checkpoint_id, replace(other, is_whole=True)
    if may_lead_on(batch, whole):
        without = f"set adopt_from_batch={last + 1} and accept_as_seen='{word_without_journal(other.state)}' for its first start under the new one"
    else:
        without = _behind(batch, name, whole)
    if other.forgotten_by and may_lead_on(batch, whole):
        without = f"{look_first(other, without)}, {_behind(batch, name, whole)}"
    return (
        "To change the name, restore the journal's folder and first start the query once more under the first one: "
        f"batch {last} is in one of the tables, and only that journal, which is lost or older, could tell whether it "
        f"is in all of them. Or, to go on without what a table may lack of it, {without}"
    )


def _change_of(batch: Batch, name: str, other: LastOfOther) -> str:
    """How the name may be changed."""
    last = other.state.checkpoint_id
    if may_lead_on(batch, other):
        return f"To change the name, set adopt_from_batch={last + 1} for its first start under the new one"
    once_more = "To change the name, first start the query once more under the first one: "
    if not other.is_published:
        return f"{once_more}batch {last} is recorded and not published yet"
    if not other.is_whole:
        return _without_journal(batch, name, other)
    if other.state.replaying and not all_numeric(batch.sources):
        how = "The name cannot be changed: what an earlier checkpoint has read is filtered by it"
    else:
        how = f"{once_more}batch {batch.batch_id} does not follow what is recorded there"
    return f"{how}. Where it cannot be started under that name any more, since its journal or a table is lost, {_behind(batch, name, other)}"
