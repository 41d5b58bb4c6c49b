"""Errors for positions that do not continue those of the table, and the ways on in each case. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.protocol.admission import continuity
from streamsink.protocol.admission.continuity import OTHER_CLUSTER, RECREATED, Change, Relation
from streamsink.protocol.admission.renamed import EARLIEST
from streamsink.protocol.committable import Batch
from streamsink.protocol.positions import SourceRange, numeric_ones, same_id
from streamsink.protocol.recorded import Recorded
from streamsink.protocol.ways import CALLED_FOR_EVERY_BATCH

_WHY = {
    OTHER_CLUSTER: "the query reads another cluster, or its address leads to another one now",
    RECREATED: "the topic was deleted and created again",
}
_MOST_NAMED = 10


def changed(
    table: str,
    batch: Batch,
    found: Sequence[Change],
    options: SinkOptions,
    *,
    recorded: Recorded,
    word: str,
    as_new: str,
    is_other: bool,
    said: bool = False,
) -> Misuse:
    """The error for topics whose recorded positions no longer hold. found: the changes, at least one.

    recorded: what is recorded. word: the word that answers for all of these topics. as_new: what ``accept_as_new`` must
    be to say it. is_other: the batch is of another checkpoint than the record. said: as of ``starting_offsets``.
    """
    says = "; ".join(f"topic '{change.topic}': {change.found}" for change in found[:_MOST_NAMED])
    more = f"; and {len(found) - _MOST_NAMED} more topics" if len(found) > _MOST_NAMED else ""
    first = found[0]
    if first.other_topic or not first.lowered:
        why = _WHY.get(first.kind, "the topic was deleted and created again, or has lost messages at its end")
        anew = [change.topic for change in found]
        begin = starting_offsets(table, batch, options, recorded, from_beginning=anew, said=said)
        ways = (
            "Recorded offsets of one topic say nothing of another one. To write everything that the topic holds now, "
            f"start a new checkpoint with startingOffsets={begin} and set accept_as_new='{as_new}', which drops the "
            f"table's record of that topic and of no other; accept_as_seen='{word}' records this batch without writing "
            "any of its rows."
        )
    elif all(change.is_older for change in found):
        why = (
            "the table records less of this topic than that start, so the checkpoint is one from before the topic was "
            "created again"
        )
        ways = (
            "Restore the checkpoint that wrote last, or start a new checkpoint with "
            f"startingOffsets={starting_offsets(table, batch, options, recorded, said=said)}. "
            f"accept_as_seen='{word}' leaves the "
            "record as it is and writes none of this batch's rows."
        )
    else:
        why = (
            "its id is the same, so the cluster has lost messages at the topic's end, or a broker that is behind "
            "answered"
        )
        ways = (
            f"If messages were lost, accept_as_new='{as_new}' takes the table's record of that topic back to there, so "
            f"that what comes after is written; if a broker was behind, accept_as_seen='{word}' leaves the record as "
            "it is and writes none of this batch's rows."
        )
        if is_other and first.kind == continuity.END_BELOW_START:
            ways += (
                " The checkpoint is another one than wrote last: if it is an older one, from before the topic was "
                "created again, restore the one that wrote last, or start a new checkpoint with "
                f"startingOffsets={starting_offsets(table, batch, options, recorded, said=said)}."
            )
    return Misuse(f"{table}: batch {batch.batch_id}: {says}{more}: {why}. Nothing was written. {ways}", kind=first.kind)


def changed_meanwhile(batch: Batch, now: Batch) -> Iterator[str]:
    """Yield the topics that became others while their batch was written. now: the same batch, described again.

    All topics of another cluster are others, whether or not it tells their ids.
    """
    for was, source in zip(batch.sources, now.sources):
        has_moved = not same_id(was.cluster, source.cluster)
        for topic in source.end if has_moved or source.topic_ids != was.topic_ids else ():
            if has_moved or not same_id(was.topic_id(topic), source.topic_id(topic)):
                yield topic


def recreated_meanwhile(
    table: str,
    batches: tuple[Batch, Batch],
    topics: Sequence[str],
    options: SinkOptions,
    *,
    recorded: Recorded,
    word: str | None,
    said: bool = False,
) -> Misuse:
    """The error for topics that became others while a batch of them was written.

    batches: the batch as it was described when it began, and now. topics: at least one. word: what ``accept_as_new``
    must be to drop these topics' records; None when they have none. said: as of ``starting_offsets``.
    """
    batch, now = batches
    if word is None:
        way_on = "startingOffsets='earliest'"
    else:
        begin = starting_offsets(table, now, options, recorded, from_beginning=topics, said=said)
        those = "that topic" if len(topics) == 1 else "these topics"
        way_on = (
            f"startingOffsets={begin} and set accept_as_new='{word}', which drops the table's record of {those} and of "
            "no other"
        )
    more = f" and of {len(topics) - 1} more" if len(topics) > 1 else ""
    what, was, found, why = _found_meanwhile(batches, topics[0])
    return Misuse(
        f"{table}: batch {batch.batch_id}: the {what} of topic '{topics[0]}'{more} was {was} when the batch began, and "
        f"is {found} now: {why}, so that it cannot be told which of the two the rows are of. Nothing was written. To "
        f"write everything that the topic holds now, start a new checkpoint with {way_on}",
        kind="positions.recreated-meanwhile",
    )


def _found_meanwhile(batches: tuple[Batch, Batch], topic: str) -> tuple[str, str, str, str]:
    """What shows that the topic is another one than when the batch began, its values then and now, and why."""
    pairs = [(was, now) for was, now in zip(*(batch.sources for batch in batches)) if topic in now.end]
    for was, now in pairs:
        if not same_id(was.cluster, now.cluster):
            return "cluster", was.cluster, now.cluster, "the address leads to another cluster"
    ids = ((was.topic_id(topic), now.topic_id(topic)) for was, now in pairs)
    was_id, found = next(pair for pair in ids if not same_id(*pair))
    return "id", was_id, found, "the topic was deleted and created again"


def beyond(table: str, batch: Batch, options: SinkOptions, recorded: Recorded, *, said: bool) -> Misuse | None:
    """The error for messages that were gone again before the batch was read; None when there are none.

    said: as of ``starting_offsets``.
    """
    found = list(continuity.beyond(batch.sources))
    if not found:
        return None
    says = "; ".join(
        f"the batch ends at offset {end} of partition {part} of topic '{topic}', and the broker's next offset is {at}"
        for _, topic, part, end, at in found[:_MOST_NAMED]
    )
    counting = {topic for _, topic, *_ in found}
    begin = starting_offsets(table, batch, options, recorded, counting=counting, said=said)
    return Misuse(
        f"{table}: batch {batch.batch_id}: {says}: since Spark planned the batch, the topic was deleted and created "
        "again, or has lost messages at its end, and what comes to these offsets now would never be read. Nothing was "
        f"written. Start a new checkpoint with startingOffsets={begin}; a plain restart helps only when it was a "
        "broker that was behind that had answered",
        kind="positions.newest-below-end",
    )


def gap(table: str, batch: Batch, relation: Relation, begin: str, ways_on: str, *, left_out: str) -> Misuse:
    """The error for messages that no batch has read.

    begin: what ``starting_offsets`` returns. left_out: a sentence about rows that may be missing before the recorded
    positions.
    """
    if relation.gap:
        says = f"leaves a gap in {_names(relation.gap)}: it starts after the positions that this table records"
    else:
        says = (
            f"leaves a gap in {_names(relation.unread)}: the table has no record of this, and the batch does not begin "
            "at the first offset that the broker has"
        )
    return Misuse(
        f"{table}: batch {batch.batch_id} {says}, so messages between would be missing. Nothing was written. "
        f"{CALLED_FOR_EVERY_BATCH}. Then start a new checkpoint with startingOffsets={begin}, or{ways_on}{left_out}",
        kind="positions.gap",
    )


def overlap(
    table: str, batch: Batch, relation: Relation, begin: str, ways_on: str, *, same: str | None, may_filter: bool
) -> Misuse:
    """The error for messages that the table has already, where nothing in the rows tells which they are.

    same: the token for a query that gets more columns; None when the checkpoint is the same. may_filter: whether
    position columns would help.
    """
    columns = f", set accept_as_same='{same}', because the query changes by that," if same else ""
    by_columns = (
        f"Name the columns that carry topic, partition and offset in the option position_columns{columns} and only new "
        "rows will be written, or s"
        if may_filter
        else "S"
    )
    return Misuse(
        f"{table}: batch {batch.batch_id} overlaps what is published already in {_names(relation.overlap)}: a "
        f"checkpoint was deleted, restored from an older copy, or runs twice. Nothing was written. {by_columns}tart a "
        f"new checkpoint with startingOffsets={begin}, or{ways_on}",
        kind="positions.overlap",
    )


def combined(table: str, batch: Batch, relation: Relation, begin: str, ways_on: str) -> Misuse:
    """The error for rows that were made of old and new messages together."""
    return Misuse(
        f"{table}: batch {batch.batch_id} overlaps what is published already in {_names(relation.overlap)}: a "
        "checkpoint was deleted, restored from an older copy, or runs twice; and the batch function has made rows of "
        f"several ({batch.combines}) before it called the sink, so that no row's position tells whether it is new. "
        f"Nothing was written. Start a new checkpoint with startingOffsets={begin}, or{ways_on}",
        kind="positions.combined",
    )


def may_combine(table: str, batch: Batch, relation: Relation, begin: str, ways_on: str, *, same: str) -> Misuse:
    """The error for rows that may have been made of old and new messages together.

    same: what ``accept_as_same`` must be to say that they were not.
    """
    return Misuse(
        f"{table}: batch {batch.batch_id} overlaps what is published already in {_names(relation.overlap)}, and holds "
        "new messages too: a checkpoint was deleted, restored from an older copy, or runs twice; and whether each row "
        f"that the sink is given is of one message cannot be told: {batch.may_combine} hides it. Of a row that was "
        "made of old and new ones no position tells whether it is new. Nothing was written. If each is of one "
        f"message, set accept_as_same='{same}', and only new rows will be written, in this batch and the following "
        f"ones of this replay. Else start a new checkpoint with startingOffsets={begin}, or{ways_on}",
        kind="positions.may-combine",
    )


def ambiguous(table: str, batch: Batch, relation: Relation, begin: str, ways_on: str) -> Misuse:
    """The error for rows of which it matters by which source they were read."""
    return Misuse(
        f"{table}: batch {batch.batch_id} overlaps what is published already in {_names(relation.ambiguous)}, which "
        "several sources of the query read, or have read, up to different positions: a row says where it stood in its "
        "topic, and not which source has read it, so that the new rows cannot be told. Nothing was written. Start a "
        f"new checkpoint with startingOffsets={begin}, or{ways_on}",
        kind="positions.ambiguous",
    )


def starting_offsets(
    table: str,
    batch: Batch,
    options: SinkOptions,
    recorded: Recorded,
    *,
    from_beginning: Iterable[str] = (),
    counting: Iterable[str] = (),
    said: bool = False,
) -> str:
    """The call whose result says where a new checkpoint is to begin, for the option startingOffsets.

    For several sources it is one call each, because Spark wants exactly the partitions of that source.

    from_beginning: topics to be read from their beginning. counting: topics whose partitions are to be counted, besides
    those that have more of them than the record knows. said: the offsets themselves are wanted, because the call would
    not find what is recorded here.
    """
    if said:
        return _literal_offsets(batch, recorded, frozenset(from_beginning))
    arguments = [repr(table)]
    if options.application != SinkOptions.application:
        arguments.append(f"application={options.application!r}")
    begins = {}
    for place, source in numeric_ones(batch.sources):
        anew, more = (set(topics).intersection(source.end) for topics in (from_beginning, counting))
        own = _own_arguments(recorded, (place, source), anew, more, alone=len(batch.sources) == 1)
        begins[place] = (
            f"streamsink.starting_offsets({', '.join(arguments + own)})" if own is not None else "'earliest'"
        )
    return _for_each(batch, begins)


def _literal_offsets(batch: Batch, recorded: Recorded, anew: frozenset[str]) -> str:
    """The same as offsets. anew: topics to be read from their beginning."""
    begins = {}
    for place, source in numeric_ones(batch.sources):
        offsets = {}
        for topic, end in source.end.items():
            known = recorded.known(place, source, topic) if topic not in anew else ()
            offsets[topic] = {
                part: min((record.next[part] for record in known if part in record.next), default=EARLIEST)
                for part in {*end, *(source.newest or {}).get(topic, ())}
            }
        begins[place] = repr(json.dumps(offsets, sort_keys=True))
    return _for_each(batch, begins)


def _for_each(batch: Batch, begins: Mapping[int, str]) -> str:
    """begins: where each source whose positions compare begins, by its place."""
    if len(batch.sources) == 1:
        return begins[0]
    named = ", ".join(f"{begin} for source {batch.sources[place].key(place)}" for place, begin in begins.items())
    others = (
        ""
        if len(begins) == len(batch.sources)
        else "; a source with no positions that compare begins anew with it, which is asked about then"
    )
    return f"{named} (in their order in the query, from 0{others})"


def _own_arguments(
    recorded: Recorded, which: tuple[int, SourceRange], anew: set[str], counting: set[str], *, alone: bool
) -> list[str] | None:
    """The arguments of the call that belong to one source; None where nothing is recorded of it.

    which: the source's place, and the source. anew: topics that begin anew. alone: it is the only source.
    """
    place, source = which
    known = {record.source for record in recorded.topics if record.topic in source.end}
    key = next((key for key in (source.key(place), str(place), *sorted(known)) if key in known), None)
    if key is None:
        return None
    # The table may still record a topic of which the user has said that it is another one now.
    anew = anew | {topic for topic in source.end if not recorded.known(place, source, topic)}
    gone = {record.topic for record in recorded.topics if alone or record.source == key} - source.end.keys()
    # The broker may know partitions that were added after the batch was planned, and a new checkpoint must name every
    # partition.
    parts = {topic: {*source.end[topic], *(source.newest or {}).get(topic, ())} for topic in source.end}
    counted = {
        topic: max(map(int, parts[topic])) + 1
        for topic in sorted(anew | counting | continuity.grown_of(recorded, place, source))
    }
    said = {
        "partitions": counted,
        "from_beginning": sorted(anew),
        "without": sorted(gone),
        "source": None if alone else _as_given(key),
    }
    return [f"{name}={value!r}" for name, value in said.items() if value not in (None, {}, [])]


def _as_given(key: str) -> int | str:
    """A source's place, as a number, or its name."""
    return int(key) if key.isdecimal() else key


def _names(partitions: Sequence[str]) -> str:
    more = f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else ""
    return ", ".join(partitions[:_MOST_NAMED]) + more
