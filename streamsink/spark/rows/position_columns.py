"""SQL conditions on the position columns: which rows lie in the positions of their batch, and which are recorded.

Runs on the driver.

Positions are looked up in arrays that are constants of the plan. They have one element per partition, so that neither
the planning nor the work for a row grows with the number of partitions. Where there are several topics, a name finds
its place in them by its CRC-32, which Python and Spark compute alike, and a second array keeps names apart that would
share a place (hash and displace). Nothing here raises an error in a task, whatever a column holds: a value that is no
position gives null, and null is no match.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamsink.spark.types import quoted
from streamsink.table.write.position_ranges import Dense, PositionRanges, check_numbers, layers

# Slots per name. With so many, nearly every set of names finds its places at once.
_ROOM = 2
# How many numbers of slots are tried before names that find no slot are put into arrays of their own.
_TRIES = 8
# The place of a topic's first partition and the number of its partitions are one integer in the plan; this is the
# number of bits of the second. See MOST_PARTITIONS.
_SIZE_BITS = 21
_SEPARATOR = "\x01"


def outside(ranges: PositionRanges) -> str:
    """A condition that is true for rows that do not lie in the ranges, and false for all others."""
    topic, partition, offset = (quoted(name) for name in ranges.columns)
    number = f"TRY_CAST({offset} AS BIGINT)"
    inside = []
    for layer in layers(ranges.sources):
        for known, place, dense in _places(layer, (0, 0), topic, partition):
            start, end = (_array((value[side] for value in dense.values), "BIGINT") for side in (0, 1))
            inside.append(f"({known} AND {number} >= get({start}, {place}) AND {number} < get({end}, {place}))")
    return f"NOT coalesce({' OR '.join(inside) or 'false'}, false)"


def recorded(table: str, columns: Sequence[str], below: Mapping[str, Mapping[str, int]]) -> str:
    """A condition that is true for rows that are recorded already, and false for all others.

    These are the rows before the next new offset of their topic and partition. columns: the columns of topic, partition
    and offset. below: by topic and partition, the next new offset. Raises Misuse as ``check_numbers`` does.
    """
    topic, partition, offset = (quoted(name) for name in columns)
    numbered = {name: {int(part): first for part, first in parts.items()} for name, parts in below.items()}
    check_numbers(table, numbered)
    before = [
        f"({known} AND TRY_CAST({offset} AS BIGINT) < get({_array(dense.values, 'BIGINT')}, {place}))"
        for known, place, dense in _places(numbered, 0, topic, partition)
    ]
    return f"coalesce({' OR '.join(before) or 'false'}, false)"


def _places(
    by_topic: Mapping[str, Mapping[int, object]], missing: object, topic: str, partition: str
) -> Iterable[tuple[str, str, Dense]]:
    """Yield (condition that a row's topic and partition may be in the arrays, index of the partition in them, what they
    hold).

    missing: the value for numbers that are no partition. There is one such triple, for one topic or many, except where
    names cannot be kept apart.
    """
    number = f"TRY_CAST({partition} AS INT)"
    rest = {name: parts for name, parts in by_topic.items() if parts}
    while rest:
        hashed = _Hashed.of(list(rest))
        dense = Dense.of({name: rest.pop(name) for name in hashed.slots}, missing)
        if len(hashed.slots) == 1:
            [name] = hashed.slots
            yield f"{topic} = {_text(name)}", number, dense
            continue
        slot = hashed.slot_of(topic)
        packed = {slot: dense.topics[name] for name, slot in hashed.slots.items()}
        found = _array(
            (packed[i][0] << _SIZE_BITS | packed[i][1] if i in packed else 0 for i in range(hashed.room)), "BIGINT"
        )
        size, base = (
            f"(get({found}, {slot}) & {(1 << _SIZE_BITS) - 1})",
            f"shiftright(get({found}, {slot}), {_SIZE_BITS})",
        )
        known = f"get({hashed.names()}, {slot}) = {topic} AND {number} >= 0 AND {number} < {size}"
        yield known, f"TRY_CAST({base} + CAST({number} AS BIGINT) AS INT)", dense


@dataclass(frozen=True)
class _Hashed:
    """Names in slots of their own.

    room: the number of slots. shifts: selected by one part of a name's code, and added to the other part.
    """

    room: int
    shifts: tuple[int, ...]
    slots: Mapping[str, int]

    @classmethod
    def of(cls, names: Sequence[str]) -> "_Hashed":
        """A table of all names, or of as many as could be kept apart; of at least one."""
        first = _ROOM * len(names)
        tried = []
        for room in range(first, first + _TRIES):
            tried.append(_displace(names, room))
            if len(tried[-1].slots) == len(names):
                break
        return max(tried, key=lambda hashed: len(hashed.slots))

    def slot_of(self, topic: str) -> str:
        """SQL of the slot in which this name would be."""
        code = f"crc32(CAST({topic} AS BINARY))"
        shift = f"get({_array(self.shifts, 'BIGINT')}, CAST({code} % {len(self.shifts)} AS INT))"
        return f"CAST(({code} DIV {len(self.shifts)} + {shift}) % {self.room} AS INT)"

    def names(self) -> str:
        """SQL of the names by slot."""
        named = {slot: name for name, slot in self.slots.items()}
        return _array((named.get(slot, "") for slot in range(self.room)), "STRING")


def _displace(names: Sequence[str], room: int) -> _Hashed:
    """Move the names of each bucket together until all of them fall on free slots, the largest buckets first."""
    count = len(names)
    buckets: dict[int, list[str]] = {}
    for name in names:
        buckets.setdefault(zlib.crc32(name.encode()) % count, []).append(name)
    shifts, taken = [0] * count, set[int]()
    slots: dict[str, int] = {}
    for number, bucket in sorted(buckets.items(), key=lambda item: -len(item[1])):
        places: dict[int, str] = {}
        for name in bucket:
            # Two names of one code are never kept apart.
            places.setdefault(zlib.crc32(name.encode()) // count % room, name)
        shift = next((s for s in range(room) if not any((place + s) % room in taken for place in places)), None)
        if shift is not None:
            shifts[number] = shift
            found = {name: (place + shift) % room for place, name in places.items()}
            slots.update(found)
            taken.update(found.values())
    return _Hashed(room, tuple(shifts), slots)


def _array(values: Iterable[Any], kind: str) -> str:
    """A constant array, parsed and analysed as one text. It becomes an array once, when the plan is optimised."""
    parts = f"split({_text(_SEPARATOR.join(map(str, values)))}, {_text(_SEPARATOR)})"
    return parts if kind == "STRING" else f"CAST({parts} AS ARRAY<{kind}>)"


def _text(value: str) -> str:
    """A text as its bytes, in which no quote and no escape has a meaning."""
    return f"CAST(X'{value.encode().hex()}' AS STRING)"
