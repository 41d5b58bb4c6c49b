"""Minima and maxima over the partitions of a manifest, for manifest lists."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamsink.errors import Corrupt
from streamsink.format.binary_row import decode_physical, encode_row
from streamsink.format.simple_stats import EMPTY_STATS, SimpleStats
from streamsink.format.types import BINARY_ROOTS, AtomicType, DataType


def partition_stats(partitions: Mapping[bytes, int], types: Sequence[DataType]) -> SimpleStats:
    """The stats of a manifest's partitions, where ``partitions`` maps each partition to its number of entries.

    Nulls are counted by entry, as Java does, and nothing is truncated. A wrong bound here makes readers miss files.
    Raises: Corrupt ``row.corrupt`` for a bad partition row.
    """
    if not types:
        return EMPTY_STATS
    rows = [(decode_physical(partition, types), count) for partition, count in partitions.items()]
    low: list[Any] = []
    high: list[Any] = []
    nulls: list[int] = []
    for i, t in enumerate(types):
        present = [row[i] for row, _ in rows if row[i] is not None]
        nulls.append(sum(count for row, count in rows if row[i] is None))
        # Java has no order for byte arrays, so it writes no bounds for them.
        if not present or (isinstance(t, AtomicType) and t.root in BINARY_ROOTS):
            low.append(None)
            high.append(None)
            continue
        low.append(min(present, key=_order))
        high.append(max(present, key=_order))
    return SimpleStats(encode_row(low, types), encode_row(high, types), tuple(nulls))


def may_hold(stats: SimpleStats, partitions: Iterable[Sequence[Any]], types: Sequence[DataType]) -> bool:
    """Whether a manifest with these stats may have an entry of one of ``partitions``.

    The partitions are rows as ``decode_physical`` returns them. Stats that cannot be read rule nothing out.
    """
    try:
        low, high = decode_physical(stats.min_values, types), decode_physical(stats.max_values, types)
    except Corrupt:
        return True
    nulls = stats.null_counts if len(stats.null_counts) == len(types) else (None,) * len(types)
    return any(
        all(_within(value, *bounds) for value, *bounds in zip(partition, low, high, nulls)) for partition in partitions
    )


def _within(value: Any, low: Any, high: Any, nulls: int | None) -> bool:
    if value is None:
        return nulls is None or nulls > 0
    if low is None or high is None:
        return True  # binary columns have no bounds
    return _order(low) <= _order(value) <= _order(high)


def _order(value: Any) -> Any:
    if isinstance(value, float):  # Java's order: -0.0 is below 0.0, and NaN above everything
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value))
    return value
