"""The positions up to which everything is published: one for each partition, as each source of the query reads it."""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamsink.protocol.positions import (
    Offsets,
    SourceRange,
    all_numeric,
    numeric_ones,
    pack,
    same_id,
    shortened,
    unpack,
)

# The source of a record by an earlier version, which did not say which source it belongs to.
UNKNOWN = ""

_identity = operator.attrgetter("source", "topic", "cluster", "topic_id")


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """What one source has read of one topic. next: the first offset of each partition that is not published.

    source: as ``SourceRange.key`` says it. cluster, topic_id: '' when they were not known.
    """

    source: str
    topic: str
    cluster: str
    topic_id: str
    next: Mapping[str, int]

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What tells this record from the others of an application."""
        return _identity(self)

    def agrees(self, source: SourceRange) -> bool:
        """Whether this may be the topic that the source reads under the same name, as far as ids are known."""
        return same_id(self.cluster, source.cluster) and same_id(self.topic_id, source.topic_id(self.topic))

    def to_json(self, short: bool = False) -> dict[str, Any]:
        """The record as a state has it, with a shortened id if ``short``. Ids that are not known are left out."""
        topic_id = shortened(self.topic_id) if short else self.topic_id
        said = {"source": self.source, "cluster": self.cluster, "id": topic_id}
        return {"topic": self.topic, "next": pack(self.next)} | {key: text for key, text in said.items() if text}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "TopicRecord":
        """The inverse of ``to_json``."""
        said = (value.get("source", UNKNOWN), value["topic"], value.get("cluster", ""), value.get("id", ""))
        return cls(*said, unpack(value["next"]))


@dataclass(frozen=True)
class Recorded:
    """The records of all sources and topics, also of topics that the query no longer reads. It is false when empty."""

    topics: tuple[TopicRecord, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.topics)

    @classmethod
    def of(cls, topics: Iterable[TopicRecord]) -> "Recorded":
        """The records in their one order."""
        return cls(tuple(sorted(topics, key=_identity)))

    @functools.cached_property
    def _by_topic(self) -> dict[str, tuple[TopicRecord, ...]]:
        found: dict[str, tuple[TopicRecord, ...]] = {}
        for record in self.topics:
            found[record.topic] = (*found.get(record.topic, ()), record)
        return found

    def of_topic(self, topic: str) -> tuple[TopicRecord, ...]:
        """The records of every topic of this name, whichever source read it and whatever its id is."""
        return self._by_topic.get(topic, ())

    def known(self, place: int, source: SourceRange, topic: str) -> tuple[TopicRecord, ...]:
        """What is recorded of the topic that this source reads: its own record, or else those of other sources.

        Empty for a topic that is new. Several when other sources read it and none of them has this one's name or place.
        """
        named = self.of_topic(topic)
        if len(named) == 1:
            return named if named[0].agrees(source) else ()
        found = [record for record in named if record.agrees(source)]
        exact = [record for record in found if record.topic_id and source.topic_id(topic)]
        found = exact or found
        for key in dict.fromkeys((source.key(place), str(place))):
            own = [record for record in found if record.source == key]
            if own:
                return tuple(own)
        return tuple(found)

    def is_continued_by(self, place: int, source: SourceRange) -> bool:
        """Whether the source begins exactly where the records end, which are all its own, and goes back nowhere.

        Nearly every batch does, of a query with one source. Then there is nothing to look at topic by topic. False also
        where that is not certain.
        """
        if not self._asked or self._asked[0][:2] != (place, id(source)):
            self._asked[:] = [(place, id(source), source, self._continues(source.key(place), source))]
        return self._asked[0][3]

    @functools.cached_property
    def _asked(self) -> list[tuple[int, int, SourceRange, bool]]:
        """The last answer of ``is_continued_by``, if there is one: each batch asks several times."""
        return []

    def _continues(self, key: str, source: SourceRange) -> bool:
        start, end = source.start, source.end
        return (
            source.numeric
            and bool(start)
            and source.newest is None
            and len(end) == len(start)
            and {record.topic: record.next for record in self.topics} == start
            and all(
                record.source == key
                and record.cluster == source.cluster
                and record.topic_id == source.topic_ids.get(record.topic, "")
                for record in self.topics
            )
            and all(
                topic in start and start[topic].keys() == ends.keys() and _is_ahead(ends, start[topic])
                for topic, ends in end.items()
            )
        )

    def without(self, records: Iterable[TopicRecord]) -> "Recorded":
        """The records except these, which are found by their identity."""
        gone = {record.identity for record in records}
        return Recorded(tuple(record for record in self.topics if record.identity not in gone))

    def advanced(self, sources: tuple[SourceRange, ...]) -> "Recorded":
        """The positions moved forward to where the batch ends.

        A position never goes back, and a partition once recorded stays. Sources whose positions do not compare have no
        record.
        """
        return self._with_ends(sources, max)

    def ending_with(self, sources: tuple[SourceRange, ...]) -> "Recorded":
        """The positions at which the batch ends, also where they go back.

        What was read beyond them is then to be read again.
        """
        return self._with_ends(sources, lambda end, before: end)

    def _with_ends(self, sources: tuple[SourceRange, ...], choose: Callable[[int, int], int]) -> "Recorded":
        made: list[TopicRecord] = []
        replaced: set[int] = set()
        compared = list(numeric_ones(sources))
        if len(compared) == 1 and self.is_continued_by(*compared[0]):
            return Recorded.of(_ends(sources).values())
        for place, source in compared:
            for topic in source.end:
                known = self.known(place, source, topic)
                replaced.update(map(id, known))
                made.append(_moved(source.key(place), source, topic, known, choose))
        return Recorded.of((*(record for record in self.topics if id(record) not in replaced), *made))

    # -- in the table's state ----------------------------------------------------------------------------------------

    def to_json(self, sources: tuple[SourceRange, ...], short: bool = False) -> list[Any]:
        """The records as JSON. sources: of the same state; what they say already is not said again.

        short: with shortened ids of topics.
        """
        ends = _ends_of(sources)
        own = dict(zip(map(_identity, self.topics), self.topics))
        follows = all(identity in own and end.keys() <= own[identity].next.keys() for identity, end in ends.items())
        if not follows:
            return [record.to_json(short) for record in self.topics]
        rest = [record.to_json(short) for identity, record in own.items() if identity not in ends]
        ahead = {
            str(number): _ahead_json(end, own[identity].next)
            for number, (identity, end) in enumerate(ends.items())
            if own[identity].next is not end
        }
        return [{"ahead": {number: value for number, value in ahead.items() if value}}, *rest] if ends else rest

    @classmethod
    def from_json(cls, value: list[Any] | Mapping[str, Any], sources: tuple[SourceRange, ...]) -> "Recorded":
        """Read what ``to_json`` made. sources: of the same state.

        It also reads what version 1 had: one position for each partition, the lowest of all sources.
        """
        if isinstance(value, Mapping):
            return _merged_of_old(value, sources)
        made = []
        for each in value:
            if "ahead" in each:
                made += _ends_with(list(_ends(sources).values()), each["ahead"])
            else:
                made.append(TopicRecord.from_json(each))
        return cls.of(made)


def _is_ahead(ends: Mapping[str, int], start: Mapping[str, int]) -> bool:
    """Whether no partition ends before it starts. Both have the same partitions."""
    for part, at in ends.items():
        if at < start[part]:
            return False
    return True


def _moved(
    key: str, source: SourceRange, topic: str, known: tuple[TopicRecord, ...], choose: Callable[[int, int], int]
) -> TopicRecord:
    """The one record of a source's topic after a batch. known: what is recorded of the topic.

    Where several records differ the lowest position counts, because nothing is lost by it. choose: takes the offset
    where the batch ends in a partition and the recorded one, and returns the new one.
    """
    before: Mapping[str, int] = known[0].next if known else {}
    for record in known[1:]:
        before = _lowest(before, record.next)
    end = source.end[topic]
    after = {part: choose(at, before.get(part, at)) for part, at in end.items()}
    cluster = source.cluster or _one(record.cluster for record in known)
    topic_id = source.topic_id(topic) or _one(record.topic_id for record in known)
    # Nearly always these are the positions where the batch ends, which then need not be compared with them again.
    next_ = end if after == end and before.keys() <= end.keys() else {**before, **after}
    return TopicRecord(key, topic, cluster, topic_id, next_)


def _one(ids: Iterable[str]) -> str:
    """The one id that is known; '' for none or several."""
    found = {*ids} - {""}
    return found.pop() if len(found) == 1 else ""


def _lowest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {**one, **{part: min(at, one.get(part, at)) for part, at in other.items()}}


def _ends(sources: tuple[SourceRange, ...]) -> dict[tuple[Any, ...], TopicRecord]:
    """Where the batch ends, as records, in an order that does not depend on whether the ranges were read from JSON."""
    return {identity: TopicRecord(*identity, end) for identity, end in _ends_of(sources).items()}


def _ends_of(sources: tuple[SourceRange, ...]) -> dict[tuple[str, str, str, str], Mapping[str, int]]:
    """The same offsets by the records' identities."""
    return {
        (source.key(place), topic, source.cluster, source.topic_id(topic)): end
        for place, source in numeric_ones(sources)
        for topic, end in sorted(source.end.items())
    }


def _ahead_json(end: Mapping[str, int], recorded: Mapping[str, int]) -> list[Any] | None:
    """[how far the record is ahead of where the batch ends, the partitions that the batch does not have].

    None when the record is exactly where the batch ends.
    """
    if recorded is end or recorded == end:
        return None
    ahead = {part: recorded[part] - at for part, at in end.items()}
    others = {part: at for part, at in recorded.items() if part not in end}
    return [pack(ahead), pack(others)] if others else [pack(ahead)]


def _ends_with(ends: list[TopicRecord], ahead: Mapping[str, list[Any]]) -> list[TopicRecord]:
    """The inverse of ``_ahead_json`` for all topics. ends: where the batch ends, changed in place and returned."""
    for number, (packed, *others) in ahead.items():
        end, by = ends[int(number)], unpack(packed)
        moved = {part: at + by[part] for part, at in end.next.items()}
        moved.update(*map(unpack, others))
        ends[int(number)] = replace(end, next=moved)
    return ends


def _merged_of_old(merged: Offsets, sources: tuple[SourceRange, ...]) -> Recorded:
    """The records of a state of version 1. merged: one position for each partition, the lowest of all sources.

    Each source has read at least what all of them had read, and at least to where its last batch ended.
    """
    ends = _ends(sources).values() if all_numeric(sources) else ()
    made = []
    for end in ends:
        known = merged.get(end.topic, {})
        moved = {part: max(at, known.get(part, at)) for part, at in end.next.items()}
        made.append(replace(end, next={**known, **moved}))
    read = {end.topic for end in ends}
    others = [TopicRecord(UNKNOWN, topic, "", "", dict(parts)) for topic, parts in merged.items() if topic not in read]
    return Recorded.of((*made, *others))
