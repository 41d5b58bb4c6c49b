"""Errors for a query under another name, or for a checkpoint that begins anew, and the ways on in each case. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission.continuity import changes, relate
from streamsink.protocol.admission.renamed import (
    BEHIND_THE_OTHERS,
    EARLIEST,
    first_that_is_there,
    look_first,
    may_lead_on,
    of_another_checkpoint,
    of_its_topics,
    same_program,
    word_without_journal,
)
from streamsink.protocol.committable import Batch, LastOfOther
from streamsink.protocol.positions import all_numeric

# At most this many partitions are named.
_MOST_NAMED = 10
# The functions through which a query may write: to one table, to several.
_FORMS = ("streamsink.to_table", "streamsink.to_tables")


def refused(
    batch: Batch, found: Sequence[tuple[str, LastOfOther]], *, table: str, options: SinkOptions, word: str
) -> Misuse:
    """The error for a query that comes under a new name.

    found: the names under which it has come further. word: the token that takes the batch for new.
    """
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


def other_form(batch: Batch, name: str, other: LastOfOther, *, table: str, word: str) -> Misuse:
    """The error for the first batch of a new checkpoint when its application has written through the other function.

    name: the one that the application has there.
    """
    plain = name.partition("@")[0]
    return Misuse(
        f"{table}: application '{plain}' has written here through {_FORMS['@' in name]} up to batch "
        f"{other.state.checkpoint_id}, and batch {batch.batch_id} of a new checkpoint comes through "
        f"{_FORMS['@' not in name]}: if it is the same program, its rows would be written a second time. Nothing was "
        f"written. {same_program(_FORMS['@' in name])}. If it is another program, set another application; or, to "
        f"write batch {batch.batch_id} and what comes after it under this name too, set accept_as_new='{word}'",
        kind="tables.other-protocol",
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
    """The error for a first batch that comes from another checkpoint than it should; None for any other batch.

    It should come from the checkpoint that ``adopt_from_batch`` means, or from the one whose records were given up.
    behind: as in ``AppState``, of those records. word: the token that takes the batch for new.
    """
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
    ways_on = [f"Start the query with its own checkpoint{own}", *_where_that_is_lost(batch, found, bool(adopted))]
    if adopted and batch.batch_id == 0:
        ways_on.append("to write all that the source has, leave adopt_from_batch out")
    return Misuse(
        f"{table}: {why}, and {comes}: rows would be written a second time. Nothing was written. "
        f"{'; or, '.join(ways_on)}; or, to write all rows of this batch and of what comes after it, set "
        f"accept_as_new='{word}'",
        kind="checkpoint.begins-anew",
    )


def _where_that_is_lost(batch: Batch, found: Mapping[str, LastOfOther], is_adopted: bool) -> list[str]:
    """The ways on without the query's own checkpoint. found: the names under which its rows may have been written."""
    lost = [
        _begun_behind(batch, name, found[name])
        or (_behind(batch, name, found[name]) if found[name].is_published else _under_first(name, found[name]))
        for name in sorted(found)
    ]
    once_more = (
        ""
        if is_adopted or all_numeric(batch.sources)
        else (
            ", and set accept_as_new as this error says when it comes once more, since nothing shows which rows the "
            "source has then"
        )
    )
    return list(
        dict.fromkeys(f"where that is lost, {way}{once_more}" for way in lost or [_behind_what_nobody_knows(batch)])
    )


def _has_read(other: LastOfOther, batch: Batch) -> bool:
    """Whether rows that the batch holds are published under that name, as far as the table says it.

    True as well where positions do not tell.
    """
    there = other.state if other.is_published else other.said
    return there is not None and (
        not all_numeric(batch.sources) or not there.recorded or bool(relate(there.recorded, batch.sources).overlap)
    )


def _begun_behind(batch: Batch, name: str, other: LastOfOther) -> str:
    """The way on where the new checkpoint reads nothing that is recorded under that name; '' where it may read it."""
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
    """The way on where a record under the first name waits to be published.

    A checkpoint that begins behind that record would leave its rows out.
    """
    return (
        f"for what was '{name}' before set application='{name.partition('@')[0]}' and leave adopt_from_batch out: "
        f"batch {other.state.checkpoint_id} is recorded under that name and not published, or was rolled back, and a "
        "start under it settles that"
    )


def _behind_what_nobody_knows(batch: Batch) -> str:
    """The way on with a new checkpoint where no name has recorded what is written here."""
    is_of_topics = all_numeric(batch.sources)
    where = (
        "with startingOffsets behind the last message that is written"
        if is_of_topics
        else "whose source has only what is not written yet"
    )
    return (
        f"leave adopt_from_batch out and start a new checkpoint {where}: no name has recorded it here, so look into "
        "what was written"
    )


def _behind(batch: Batch, name: str, other: LastOfOther) -> str:
    """The way on with a new checkpoint that begins behind what is written under that name."""
    if other.forgotten_by:
        return (
            f"leave adopt_from_batch out and {BEHIND_THE_OTHERS}: {' and '.join(other.forgotten_by)} may have batches "
            f"after {other.state.checkpoint_id}"
        )
    topics = {record.topic: record.next for record in other.state.recorded.topics}
    # It is not when two sources have read one topic, up to different positions.
    is_plain = all(record.next == topics[record.topic] for record in other.state.recorded.topics)
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


def _without_journal(batch: Batch, name: str, other: LastOfOther) -> str:
    """The sentences that say how the name may be changed where the journal that knew its last record is lost."""
    last, whole = other.state.checkpoint_id, replace(other, is_whole=True)
    if may_lead_on(batch, whole):
        without = (
            f"set adopt_from_batch={last + 1} and accept_as_seen='{word_without_journal(other.state)}' for its first "
            "start under the new one"
        )
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
    """The sentences that say how the name may be changed."""
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
    return (
        f"{how}. Where it cannot be started under that name any more, since its journal or a table is lost, "
        f"{_behind(batch, name, other)}"
    )
