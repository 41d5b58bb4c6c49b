"""Source positions of a batch: what each source says of the batch, and what the broker says of the source.

A source's position is what Spark's offset log says. Kafka's is numeric for each topic and partition (``{"topic": {"0":
42}}``: the next offset), so two positions of different checkpoints compare. Every other source's is opaque: it means
something only inside its own checkpoint, and is compared for equality there, together with ``fingerprint``, a digest of
what the source itself logged for the batch (the names of its files, for instance).

The name of a topic does not identify it. A Kafka position is a position in one partition of the topic with one id in
the cluster with one id, read by one source of the query. An id that the broker does not tell is '', which agrees with
every id. A state of very many topics keeps their ids shortened.
"""

import base64
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

# By topic and partition, the next offset: {"topic": {"0": 42}}.
Offsets = Mapping[str, Mapping[str, int]]

# A shortened id has this many characters of the id, a character that no id has, and this many of the id's digest.
_BEGINNING, _SHORT, _DIGEST = 3, "~", 7
# So many ids are shortened once, and not in each batch.
_MOST_SHORTENED = 8_192
# The names of these partitions are compared as a whole.
_NUMBERS = tuple(map(str, range(10_000)))
_NUMBER_SET = frozenset(_NUMBERS)
# The partitions of a topic that has one.
_ONE = {"0"}
# The keys of a position that counts the steps of its source.
_STEPS = {"logOffset"}


@dataclass(frozen=True)
class SourceFile:
    """A file of a file source, as the source's own log names it. modified_ms: milliseconds since the epoch."""

    path: str
    modified_ms: int


@dataclass(frozen=True)
class SourceRange:
    """One source's share of a batch. start: inclusive. end: exclusive. Both are JSON values of Spark's offset log.

    name: the source's name, where the query gives it one.
    cluster, topic_ids: what the broker says of the cluster and of the topics, by topic name; what it does not say is
    missing.
    earliest, newest: the broker's first and next offsets when the batch was described; None when the broker was not
    asked or did not answer. They are never recorded.
    files: what a file source reads for the batch, empty when it has nothing for it; None for any other source.

    Two ranges are equal when they cover the same positions. Whether their ids agree is for ``same_id`` to say.
    """

    start: Any
    end: Any
    fingerprint: str = ""
    name: str = field(default="", compare=False)
    cluster: str = field(default="", compare=False)
    topic_ids: Mapping[str, str] = field(default_factory=dict, compare=False)
    earliest: Offsets | None = field(default=None, compare=False, repr=False)
    newest: Offsets | None = field(default=None, compare=False, repr=False)
    files: tuple[SourceFile, ...] | None = field(default=None, compare=False, repr=False)

    @functools.cached_property
    def numeric(self) -> bool:
        """Whether positions of this source compare with positions of another checkpoint."""
        return _is_offsets(self.end) and (self.start in (None, {}) or _is_offsets(self.start))

    @property
    def is_counted(self) -> bool:
        """Whether its position is the number of a step of the source, of which only a log in the checkpoint says more.

        So it is with files. The same number may be another step in a checkpoint that went on in another way.
        """
        return isinstance(self.end, Mapping) and set(self.end) == _STEPS

    def key(self, place: int) -> str:
        """The source's identity in the record: its name, or else its place in the query."""
        return self.name or str(place)

    def topic_id(self, topic: str) -> str:
        """The id of a topic; '' when it is not known."""
        return self.topic_ids.get(topic, "")

    def first(self, topic: str, part: str) -> int | None:
        """The offset at which the batch begins in this partition.

        None when Spark does not say: then the batch begins at the partition's beginning.
        """
        return (self.start or {}).get(topic, {}).get(part)

    def ends(self) -> Iterator[tuple[str, str, int]]:
        """(topic, partition, the offset before which the batch ends there), of a numeric source; else nothing."""
        if self.numeric:
            yield from ((topic, part, end) for topic, parts in self.end.items() for part, end in parts.items())

    def told(self, **said: Any) -> "SourceRange":
        """The same positions with more that is said of them. said: by field."""
        made = replace(self, **said)
        made.__dict__["numeric"] = self.numeric  # it takes a while to find out, with thousands of partitions
        return made

    def to_json(self, short: bool = False) -> dict[str, Any]:
        """The range as a state has it: what was read, and of which cluster and topics.

        short: with shortened ids of topics.
        """
        if not self.numeric:
            named = {"name": self.name} if self.name else {}
            return {"start": self.start, "end": self.end, "fingerprint": self.fingerprint, **named}
        topics = sorted({*self.end, *(self.start or {})})
        value: dict[str, Any] = {"topics": [self._topic_json(topic, short) for topic in topics]}
        if self.start is None:
            value["start"] = None
        said = {"fingerprint": self.fingerprint, "name": self.name, "cluster": self.cluster}
        return value | {key: text for key, text in said.items() if text}

    def _topic_json(self, topic: str, short: bool) -> list[Any]:
        """A topic as an array: [name, id, end, how much was read of it, where partitions began that have no end].

        An array, and not an object with names, because a state has many of them.
        """
        end, start = self.end.get(topic), (self.start or {}).get(topic)
        topic_id = self.topic_ids.get(topic, "")
        if end is not None and start is not None and end.keys() == start.keys() == _ONE:
            return [topic, shortened(topic_id) if short else topic_id, [end["0"]], [end["0"] - start["0"]]]
        value: list[Any] = [topic, shortened(topic_id) if short else topic_id, None if end is None else pack(end), None]
        if start is not None and end is not None and start.keys() <= end.keys():
            value[3] = pack({part: end[part] - first for part, first in start.items()})
        elif start is not None:
            value[3] = pack({part: (end or {})[part] - first for part, first in start.items() if part in (end or {})})
            gone = {part: first for part, first in start.items() if part not in (end or {})}
            value += [pack(gone)] if gone else []
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SourceRange":
        """Read what ``to_json`` made, and what the code of commit cde7565 made: positions without ids."""
        if "topics" not in value:
            return cls(value["start"], value["end"], value["fingerprint"], name=value.get("name", ""))
        start: dict[str, dict[str, int]] = {}
        end: dict[str, dict[str, int]] = {}
        ids = {}
        for topic, topic_id, ended, read, *gone in value["topics"]:
            if topic_id:
                ids[topic] = topic_id
            if ended is not None:
                end[topic] = unpack(ended)
            if read is not None:
                start[topic] = {part: end[topic][part] - count for part, count in unpack(read).items()}
                start[topic].update(*map(unpack, gone))
        return cls(
            None if "start" in value else start,
            end,
            value.get("fingerprint", ""),
            name=value.get("name", ""),
            cluster=value.get("cluster", ""),
            topic_ids=ids,
        )


def same_id(one: str, other: str) -> bool:
    """Whether two ids may be the same: they are equal, or one is not known, or one is the other one shortened."""
    if one == other:
        return True
    if _SHORT in one or _SHORT in other:
        one, other = shortened(one), shortened(other)
    return not one or not other or one == other


@functools.lru_cache(maxsize=_MOST_SHORTENED)
def shortened(topic_id: str) -> str:
    """The beginning of a topic's id, by which a reader knows it, and 42 bits of its digest.

    An id that is short already stays as it is.
    """
    if len(topic_id) <= _BEGINNING + len(_SHORT) + _DIGEST:
        return topic_id
    digest = base64.urlsafe_b64encode(hashlib.sha256(topic_id.encode()).digest()).decode()
    return topic_id[:_BEGINNING] + _SHORT + digest[:_DIGEST]


def same_ranges(one: tuple[SourceRange, ...], other: tuple[SourceRange, ...]) -> bool:
    """Whether two batches read the same.

    Named sources may stand in any order. A source that was known by its place may have got a name.
    """
    if one == other or not (_is_named(one) or _is_named(other)):
        return one == other
    names = _is_named(one) and _is_named(other)
    return _in_any_order(one, names) == _in_any_order(other, names)


def follows(last: tuple[SourceRange, ...], batch: tuple[SourceRange, ...]) -> bool:
    """Whether each source of ``batch`` starts where ``last`` ended.

    Named sources may come and go, and stand in any order.
    """
    if _is_named(last) and _is_named(batch):
        ends = {source.name: source.end for source in last}
        return all(source.start == ends[source.name] for source in batch if source.name in ends)
    begun, ended = [_text(source.start) for source in batch], [_text(source.end) for source in last]
    return begun == ended or _is_named(last) != _is_named(batch) and sorted(begun) == sorted(ended)


def _is_named(ranges: tuple[SourceRange, ...]) -> bool:
    return any(source.name for source in ranges)


def _in_any_order(ranges: tuple[SourceRange, ...], names: bool) -> list[str]:
    return sorted(
        _text([source.name if names else "", source.start, source.end, source.fingerprint]) for source in ranges
    )


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def all_numeric(ranges: tuple[SourceRange, ...]) -> bool:
    """Whether the whole batch compares with batches of other checkpoints."""
    return bool(ranges) and all(r.numeric for r in ranges)


def numeric_ones(ranges: tuple[SourceRange, ...]) -> Iterator[tuple[int, SourceRange]]:
    """The sources whose positions compare, each with its place in the query. Other sources may stand beside them."""
    return ((place, source) for place, source in enumerate(ranges) if source.numeric)


def _is_offsets(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    if not all(issubclass(kind, Mapping) for kind in set(map(type, value.values()))):
        return False
    if any(kind is not int for kind in set(map(type, chain.from_iterable(p.values() for p in value.values())))):
        return False
    names = set().union(*value.values())
    return names <= _NUMBER_SET or all(map(_is_number, names))


def _is_number(part: str) -> bool:
    """Whether this is a partition as Spark writes it: '0', '17'."""
    return part.isascii() and part.isdecimal() and (part == "0" or part[0] != "0")


# A packed array may have this many empty places, and one more for each partition that it names.
_FREE_PLACES = 8


def pack(parts: Mapping[str, int]) -> list[Any] | dict[str, Any]:
    """``{"0": 5, "2": 7}`` as the array ``[5, null, 7]``.

    It stays an object where most places of the array would be empty.
    """
    if parts.keys() == _ONE:
        return [*parts.values()]
    if len(parts) <= len(_NUMBERS):
        packed = list(map(parts.get, _NUMBERS[: len(parts)]))
        if None not in packed:
            return packed
    size = max((int(part) for part in parts), default=-1) + 1
    if size > 2 * len(parts) + _FREE_PLACES:
        return dict(parts)
    return [parts.get(str(part)) for part in range(size)]


def unpack(packed: list[Any] | Mapping[str, Any]) -> dict[str, int]:
    """The inverse of ``pack``."""
    if isinstance(packed, Mapping):
        return dict(packed)
    if len(packed) <= len(_NUMBERS) and None not in packed:
        return dict(zip(_NUMBERS, packed))
    return {str(part): number for part, number in enumerate(packed) if number is not None}


def row_ranges(sources: tuple[SourceRange, ...]) -> tuple[dict[str, dict[int, tuple[int, int]]], ...]:
    """{topic: {partition: (start, end)}} of each source; empty unless all sources have numeric positions.

    Where Spark does not say a start, it is taken as 0: a row of the partition lies before the end then.
    """
    if not all_numeric(sources):
        return ()
    return tuple(
        {
            topic: {int(part): (source.first(topic, part) or 0, end) for part, end in parts.items()}
            for topic, parts in source.end.items()
        }
        for source in sources
    )
