"""Source positions of a batch: is it a replay, an overlap, a continuation or a gap?

A source's position is what Spark's offset log says. Kafka's is numeric for each topic and partition
(``{"topic": {"0": 42}}``: the next offset), so two positions of different checkpoints compare. Every other source's is
opaque: it means something only inside its own checkpoint, and is compared for equality there, together with
``fingerprint``, a digest of what the source itself logged for the batch (the names of its files, for instance).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# {"topic": {"0": next offset}} of every Kafka source, merged
Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class SourceRange:
    """One source's share of a batch: ``start`` inclusive, ``end`` exclusive, both JSON values of Spark's offset log.

    source: the name that the query gives its source; empty where sources are known by their place, which is the index.
    """

    start: object
    end: object
    fingerprint: str = ""
    source: str = field(default="", compare=False)

    @property
    def numeric(self) -> bool:
        """Whether positions of different checkpoints compare."""
        return _is_offsets(self.end) and (self.start is None or _is_offsets(self.start))

    def to_json(self) -> dict:
        named = {"source": self.source} if self.source else {}
        return {"start": self.start, "end": self.end, "fingerprint": self.fingerprint, **named}

    @classmethod
    def from_json(cls, value: Mapping) -> "SourceRange":
        return cls(value["start"], value["end"], value["fingerprint"], value.get("source", ""))


def _is_offsets(value) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(parts, Mapping) and _are_offsets(parts) for parts in value.values())
    )


def _are_offsets(parts: Mapping) -> bool:
    return all(p.isdigit() and isinstance(o, int) and not isinstance(o, bool) for p, o in parts.items())


def same_ranges(one: tuple[SourceRange, ...], other: tuple[SourceRange, ...]) -> bool:
    """Whether two batches read the same. A source that was known by its place may have got a name since."""
    if _is_named(one) == _is_named(other):
        return one == other
    return _in_any_order((r.start, r.end, r.fingerprint) for r in one) == _in_any_order((r.start, r.end, r.fingerprint) for r in other)


def follows(last: tuple[SourceRange, ...], batch: tuple[SourceRange, ...]) -> bool:
    """Whether each source of ``batch`` starts where ``last`` ended. Named sources may come and go, and stand in any order."""
    if _is_named(last) and _is_named(batch):
        ends = {r.source: r.end for r in last}
        return all(r.start == ends[r.source] for r in batch if r.source in ends)
    starts, ends = [r.start for r in batch], [r.end for r in last]
    return starts == ends or _is_named(last) != _is_named(batch) and _in_any_order(starts) == _in_any_order(ends)


def _is_named(ranges: tuple[SourceRange, ...]) -> bool:
    return any(r.source for r in ranges)


def _in_any_order(values: Iterable) -> list[str]:
    return sorted(json.dumps(value, sort_keys=True) for value in values)


def all_numeric(ranges: tuple[SourceRange, ...]) -> bool:
    """Whether the whole batch compares with batches of other checkpoints."""
    return bool(ranges) and all(r.numeric for r in ranges)


def offsets(ranges: tuple[SourceRange, ...], side: str) -> dict[str, dict[str, int]]:
    """The ``start`` or ``end`` of all sources as one map. Sources that read one topic twice keep the lower position."""
    merged: dict[str, dict[str, int]] = {}
    for source in ranges:
        for topic, parts in (getattr(source, side) or {}).items():
            known = merged.setdefault(topic, {})
            for part, offset in parts.items():
                known[part] = min(offset, known.get(part, offset))
    return merged


def high_water(recorded: Offsets, end: Offsets) -> dict[str, dict[str, int]]:
    """Recorded positions moved forward to ``end``; never back, and a partition once recorded stays."""
    merged = {topic: dict(parts) for topic, parts in recorded.items()}
    for topic, parts in end.items():
        known = merged.setdefault(topic, {})
        for part, offset in parts.items():
            known[part] = max(offset, known.get(part, offset))
    return merged


@dataclass(frozen=True)
class Relation:
    """How a batch's range stands to what is recorded. Counts of partitions (``topic:partition`` names)."""

    overlap: tuple[str, ...]
    gap: tuple[str, ...]


def relate(recorded: Offsets, ranges: tuple[SourceRange, ...]) -> Relation:
    """Compare a numeric batch with recorded positions, partition by partition.

    A partition that is new to the record continues by definition. An unknown start (None) of a known partition is
    taken as 0: then everything recorded overlaps, and nothing can be lost by it.
    """
    start, end = offsets(ranges, "start"), offsets(ranges, "end")
    overlap, gap = [], []
    for topic, parts in end.items():
        for part, last in parts.items():
            known = recorded.get(topic, {}).get(part)
            if known is None:
                continue
            first = start.get(topic, {}).get(part, 0)
            if first > known:
                gap.append(f"{topic}:{part}")
            elif first < known and last > first:
                overlap.append(f"{topic}:{part}")
    return Relation(tuple(sorted(overlap)), tuple(sorted(gap)))
