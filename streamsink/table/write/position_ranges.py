"""Checks by their position columns whether rows lie in the positions that their batch covers. Executor and driver.

When a checkpoint is lost, a row whose topic, partition and offset are not those of a message of its batch can neither
be recognised nor be told from a new one. Such rows come from an outer join (nulls), another order of the columns, an
upper-cased topic, or a constant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsink.errors import Misuse

# {topic: {partition: (start, end)}} of one source: its offsets from ``start`` to before ``end``.
Ranges = Mapping[str, Mapping[int, tuple[int, int]]]
# Partitions are looked up in arrays that are as long as their highest number.
MOST_PARTITIONS = 1 << 20


@dataclass(frozen=True)
class Dense:
    """Values of all partitions in one list, in which those of a topic stand together, ordered by partition number.

    topics: maps the topic's name to (index of its partition 0, number of its partitions).
    """

    topics: Mapping[str, tuple[int, int]]
    values: Sequence[Any]

    @classmethod
    def of(cls, by_topic: Mapping[str, Mapping[int, object]], missing: object) -> "Dense":
        """missing: the value for numbers that are no partition. The numbers must be small, see ``check_numbers``."""
        topics: dict[str, tuple[int, int]] = {}
        values: list[Any] = []
        for topic, parts in sorted(by_topic.items()):
            size = 1 + max(parts, default=-1)
            topics[topic] = (len(values), size)
            values += (parts.get(part, missing) for part in range(size))
        return cls(topics, values)


def check_numbers(table: str, by_topic: Mapping[str, Iterable[int]]) -> None:
    """Raises Misuse ``positions.partitions`` for a partition number that no Kafka has: arrays would be as long."""
    for topic, parts in by_topic.items():
        highest = max(parts, default=0)
        if highest >= MOST_PARTITIONS:
            raise Misuse(
                f"{table}: the source says partition {highest} of '{topic}'; position_columns takes numbers below "
                f"{MOST_PARTITIONS:,}. Nothing was written. Leave position_columns out, and drop the three columns in "
                "the query unless the table has them",
                kind="positions.partitions",
            )


def layers(sources: Iterable[Ranges]) -> list[dict[str, dict[int, tuple[int, int]]]]:
    """The same ranges in as few maps as possible, each with at most one range for a partition.

    Sources that read one partition twice, over different ranges, need one map more. Empty ranges are left out.
    """
    found: list[dict[str, Any]] = []
    for source in sources:
        for topic, parts in source.items():
            for part, (start, end) in parts.items():
                if start < end:
                    _put(found, topic, part, (start, end))
    return found


def _put(found: list[dict[str, Any]], topic: str, part: int, here: tuple[int, int]) -> None:
    for layer in found:
        known = layer.setdefault(topic, {})
        if known.setdefault(part, here) == here:
            return
    found.append({topic: {part: here}})


@dataclass(frozen=True)
class PositionRanges:
    """The positions that a batch covers. It is sent to executors.

    columns: names of the columns of topic, partition and offset. sources: see ``Ranges``; a row must lie in one of
    them.
    """

    columns: tuple[str, str, str]
    sources: tuple[Ranges, ...]

    def outside(self, rows: pa.RecordBatch) -> int:
        """Number of rows that lie in none of the ranges."""
        if rows.num_rows == 0 or self._hold_one_partition(rows):
            return 0
        topic, partition, offset = (rows.column(name) for name in self.columns)
        if not _hold_positions(topic, partition, offset):
            return rows.num_rows
        partition, offset = partition.cast(pa.int64()), offset.cast(pa.int64())
        fits = pa.repeat(pa.scalar(False), rows.num_rows)
        for layer in self._layers:
            fits = pc.or_(fits, layer.fits(topic, partition, offset))
        return rows.num_rows - (pc.sum(fits).as_py() or 0)

    def _hold_one_partition(self, rows: pa.RecordBatch) -> bool:
        """Whether all rows lie in one partition's range.

        This is quick to tell, and it is so when a task reads one partition.
        """
        topic, partition, offset = (rows.column(name) for name in self.columns)
        if (
            not _hold_positions(topic, partition, offset)
            or topic.null_count
            or partition.null_count
            or offset.null_count
        ):
            return False
        parts = pc.min_max(partition)
        if parts["min"] != parts["max"] or not pc.all(pc.equal(topic, topic[0])).as_py():
            return False
        found, name, part = pc.min_max(offset), topic[0].as_py(), parts["min"].as_py()
        low, high = found["min"].as_py(), found["max"].as_py()
        here = (source.get(name, {}).get(part) for source in self.sources)
        return any(start <= low and high < end for start, end in filter(None, here))

    @cached_property
    def _layers(self) -> "list[_Layer]":
        return [_Layer(layer) for layer in layers(self.sources)]


class _Layer:
    """Ranges of many partitions, with one range each, as arrays for vector operations."""

    def __init__(self, ranges: Ranges):
        dense = Dense.of(ranges, (0, 0))
        self._names = pa.array(dense.topics, pa.string())
        self._base = pa.array((base for base, _ in dense.topics.values()), pa.int64())
        self._size = pa.array((size for _, size in dense.topics.values()), pa.int64())
        self._start = pa.array((start for start, _ in dense.values), pa.int64())
        self._end = pa.array((end for _, end in dense.values), pa.int64())

    def fits(self, topic: pa.Array, partition: pa.Array, offset: pa.Array) -> pa.Array:
        """Whether each row lies in the range of its partition: True or False, never null."""
        known = pc.index_in(topic, value_set=self._names.cast(topic.type))
        has = pc.and_(pc.greater_equal(partition, 0), pc.less(partition, self._size.take(known)))
        place = pc.if_else(has, pc.add(self._base.take(known), partition), None)
        inside = pc.and_(pc.greater_equal(offset, self._start.take(place)), pc.less(offset, self._end.take(place)))
        return pc.fill_null(inside, False)


def _hold_positions(topic: pa.Array, partition: pa.Array, offset: pa.Array) -> bool:
    """Whether the types of the three columns are those of positions."""
    text = pa.types.is_string(topic.type) or pa.types.is_large_string(topic.type)
    return text and pa.types.is_integer(partition.type) and pa.types.is_integer(offset.type)
