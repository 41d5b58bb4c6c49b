"""How a batch's Kafka sources compare with what is recorded: do they continue it, overlap it, or leave a gap? Pure.

Each source of the query is compared with its own record, partition by partition. A topic may also be another one than
the recorded topic of its name, or have lost messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from streamsink.protocol.positions import Offsets, SourceRange, numeric_ones
from streamsink.protocol.recorded import Recorded, TopicRecord

OTHER_CLUSTER = "positions.other-cluster"
RECREATED = "positions.topic-recreated"
END_BELOW_START = "positions.end-below-start"
NEWEST_BELOW_RECORDED = "positions.newest-below-recorded"


@dataclass(frozen=True)
class Change:
    """A topic of which the recorded positions no longer hold. kind: of the error. records: those that are concerned.

    found: what was found, in words. lowered: the positions that are still true, when it is known to be the same topic;
    empty when none of its positions are true.
    is_older: it is the checkpoint that does not hold, because it is of the topic that was there before; all recorded
    positions are true.
    """

    kind: str
    topic: str
    found: str
    records: tuple[TopicRecord, ...] = ()
    lowered: Mapping[str, int] = field(default_factory=dict)
    is_older: bool = False

    @property
    def other_topic(self) -> bool:
        """Whether an id says that it is another topic."""
        return self.kind in (OTHER_CLUSTER, RECREATED)


def changes(recorded: Recorded, sources: tuple[SourceRange, ...]) -> tuple[Change, ...]:
    """Every topic of the batch whose record no longer holds, as its ids or its offsets show."""
    found = []
    for place, source in numeric_ones(sources):
        for topic in () if recorded.is_continued_by(place, source) else source.end:
            known = recorded.known(place, source, topic)
            other = None if known else _other(recorded, sources, place, topic)
            change = other or _shrunk(source, topic, known)
            if change is not None:
                found.append(change)
    return tuple(found)


def reset(recorded: Recorded, changed: tuple[Change, ...]) -> Recorded:
    """The record without what no longer holds."""
    for change in changed:
        recorded = recorded.without(change.records)
        if change.lowered:
            recorded = Recorded.of((*recorded.topics, *(_lowered(record, change.lowered) for record in change.records)))
    return recorded


def _lowered(record: TopicRecord, most: Mapping[str, int]) -> TopicRecord:
    return replace(record, next={part: min(at, most.get(part, at)) for part, at in record.next.items()})


def _other(recorded: Recorded, sources: tuple[SourceRange, ...], place: int, topic: str) -> Change | None:
    """The change of a topic whose name is recorded with other ids only.

    None when each of these ids is what another source of the query reads.
    """
    source = sources[place]
    accused = [
        record
        for record in recorded.of_topic(topic)
        if not any(record.agrees(other) for _, other in numeric_ones(sources) if topic in other.end)
    ]
    if not accused:
        return None
    own = [record for record in accused if record.source in (source.key(place), str(place))] or accused
    record = own[0]
    if record.cluster and source.cluster and record.cluster != source.cluster:
        says = f"it is in cluster {source.cluster}, and the table records positions of cluster {record.cluster}"
        return Change(OTHER_CLUSTER, topic, says, tuple(own))
    says = f"its id is {source.topic_id(topic)}, and the table records positions of the topic with id {record.topic_id}"
    return Change(RECREATED, topic, says, tuple(own))


def _shrunk(source: SourceRange, topic: str, known: tuple[TopicRecord, ...]) -> Change | None:
    """The change of a topic that has fewer messages than were read of it; None when it has not. known: its records."""
    end, newest = source.end[topic], (source.newest or {}).get(topic, {})
    start = (source.start or {}).get(topic, {})
    backwards = {part: at for part, at in end.items() if at < start.get(part, 0)}
    behind = {part: at for part, at in newest.items() if any(at < record.next.get(part, 0) for record in known)}
    if not backwards and not behind:
        return None
    same = bool(known and source.topic_id(topic)) and all(record.topic_id for record in known)
    lowered = {**backwards, **behind} if same else {}
    # A checkpoint that goes on from the record, or from before it, has seen the topic shrink. One that starts behind
    # the record has never read this topic.
    is_older = (
        same
        and not behind
        and all(start[part] > record.next.get(part, start[part]) for part in backwards for record in known)
    )
    if is_older:
        lowered = {part: record.next[part] for part in backwards for record in known}
    if backwards:
        part, at = min(backwards.items(), key=lambda item: int(item[0]))
        says = f"the batch ends at offset {at} of partition {part}, before its start at {source.first(topic, part)}"
        return Change(END_BELOW_START, topic, says, known, lowered, is_older)
    part, at = min(behind.items(), key=lambda item: int(item[0]))
    recorded = max(record.next.get(part, 0) for record in known)
    says = f"the broker's next offset of partition {part} is {at}, and the table records {recorded}"
    return Change(NEWEST_BELOW_RECORDED, topic, says, known, lowered)


def beyond(sources: tuple[SourceRange, ...]) -> Iterator[tuple[int, str, str, int, int]]:
    """Yield (source, topic, partition, end, newest) wherever a batch ends behind the broker's next offset.

    Those messages are gone. Spark planned the batch from an earlier answer of the broker, and it will not read what
    comes to these offsets from now on.
    """
    for place, source in enumerate(sources):
        for topic, parts in (source.newest or {}).items():
            for part, at in sorted(parts.items()):
                end = source.end.get(topic, {}).get(part, 0)
                if at < end:
                    yield place, topic, part, end, at


@dataclass(frozen=True)
class Relation:
    """How a batch's range compares with what is recorded. The lists name partitions, as ``topic:partition``.

    overlap: the batch begins before the recorded position. gap: it begins after it.
    unread: the record does not know the partition, and the batch does not begin at the broker's earliest offset.
    ambiguous: sources that read the partition have different positions, so that its rows alone do not tell which are
    new.
    below: for each topic and partition, the first offset that is new.
    mixed: the batch overlaps, and holds new messages too.
    """

    overlap: tuple[str, ...]
    gap: tuple[str, ...]
    unread: tuple[str, ...]
    ambiguous: tuple[str, ...]
    below: Offsets
    mixed: bool


def relate(recorded: Recorded, sources: tuple[SourceRange, ...]) -> Relation:
    """Compare a batch with what is recorded, as far as its sources have positions that compare.

    An unknown start of a known partition is taken as 0: then everything recorded overlaps, and nothing can be lost by
    it. A batch that ends before its start reads nothing of that partition; ``changes`` finds it.
    """
    overlap, gap, unread = set(), set(), set()
    for topic, part, source, known in _compared(recorded, sources, every=False):
        begun, last = source.first(topic, part), source.end[topic][part]
        first = min(begun or 0, last)
        if not known:
            earliest = (source.earliest or {}).get(topic, {}).get(part, 0)
            if begun is not None and first > earliest:
                unread.add(f"{topic}:{part}")
        elif first > max(known):
            gap.add(f"{topic}:{part}")
        elif first < max(known) and first < last:
            overlap.add(f"{topic}:{part}")
    ambiguous, below, mixed = _below(_compared(recorded, sources, every=True)) if overlap else (set(), {}, False)
    return Relation(
        overlap=tuple(sorted(overlap)),
        gap=tuple(sorted(gap)),
        unread=tuple(sorted(unread)),
        ambiguous=tuple(sorted(ambiguous)),
        below=below,
        mixed=mixed,
    )


def grown_of(recorded: Recorded, place: int, source: SourceRange) -> set[str]:
    """Topics of which the batch or the broker has partitions that the record of this source does not have."""
    found = set()
    for topic in source.end:
        known = {part for record in recorded.known(place, source, topic) for part in record.next}
        if not known.issuperset({*source.end[topic], *(source.newest or {}).get(topic, ())}):
            found.add(topic)
    return found


def _compared(
    recorded: Recorded, sources: tuple[SourceRange, ...], *, every: bool
) -> Iterator[tuple[str, str, SourceRange, set[int]]]:
    """Yield (topic, partition, source, positions that may be recorded of it) for each partition of each source.

    every: also for topics that begin exactly where the record ends, as nearly all do.
    """
    for place, source in numeric_ones(sources):
        if not every and recorded.is_continued_by(place, source):
            continue
        for topic, end in source.end.items():
            known = recorded.known(place, source, topic)
            start = (source.start or {}).get(topic)
            if not every and len(known) == 1 and start == known[0].next and start.keys() == end.keys():
                continue
            for part in end:
                yield topic, part, source, {record.next[part] for record in known if part in record.next}


def _below(compared: Iterable[tuple[str, str, SourceRange, set[int]]]) -> tuple[set[str], Offsets, bool]:
    """(partitions for which no offset is right for every source, the first new offset of the others, is any new).

    compared: as ``_compared`` yields it, with ``every``.
    """
    limits: dict[tuple[str, str], _Limits] = {}
    for topic, part, source, known in compared:
        last = source.end[topic][part]
        first = min(source.first(topic, part) or 0, last)
        limit = limits.setdefault((topic, part), _Limits())
        for position in known or {first}:
            limit.add(first, last, position)
    ambiguous: set[str] = set()
    below: dict[str, dict[str, int]] = {}
    for (topic, part), limit in limits.items():
        if not limit.agree:
            ambiguous.add(f"{topic}:{part}")
        elif limit.below:
            below.setdefault(topic, {})[part] = limit.below
    return ambiguous, below, any(limit.most is not None for limit in limits.values())


@dataclass
class _Limits:
    """Which offsets may be the first new one of a partition, so that comparing with it is right for every source."""

    least: int = 0
    most: int | None = None
    highest: int = 0

    def add(self, first: int, last: int, position: int) -> None:
        """Add a source whose rows from ``first`` to ``last`` (exclusive) are new from ``position`` on."""
        if last <= first:
            return
        # Rows before the position are not new.
        if position > first:
            self.least = max(self.least, min(position, last))
            self.highest = max(self.highest, position)
        # Rows from the position on are new.
        if position < last:
            bound = max(position, first)
            self.most = bound if self.most is None else min(self.most, bound)

    @property
    def agree(self) -> bool:
        """Whether one offset is right for every source."""
        return self.most is None or self.least <= self.most

    @property
    def below(self) -> int:
        """The first new offset; 0 when no row has to be compared."""
        return self.highest if self.most is None else self.least
