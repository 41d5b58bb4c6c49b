"""Minima and maxima over the partitions of a manifest, for manifest lists."""

import math
from typing import Any, List, Sequence, Tuple

from streamsink.format.binary_row import decode_physical, encode_row
from streamsink.format.simple_stats import EMPTY_STATS, SimpleStats
from streamsink.format.types import BINARY_ROOTS, AtomicType, DataType


def partition_stats(partitions: Sequence[bytes], types: Sequence[DataType]) -> SimpleStats:
    """Stats of one row per partition given (repeated ones count again, as in Java); nothing is truncated.

    A wrong bound here makes readers miss files. Raises: Corrupt ``row.corrupt`` for a bad partition row.
    """
    if not types:
        return EMPTY_STATS
    counted = _counted(partitions)
    rows = [(decode_physical(partition, types), count) for partition, count in counted]
    low: List[Any] = []
    high: List[Any] = []
    nulls: List[int] = []
    for i, t in enumerate(types):
        present = [row[i] for row, _ in rows if row[i] is not None]
        nulls.append(sum(count for row, count in rows if row[i] is None))
        # Java has no order for byte arrays: it writes no bounds for them.
        if not present or (isinstance(t, AtomicType) and t.root in BINARY_ROOTS):
            low.append(None)
            high.append(None)
            continue
        low.append(min(present, key=_order))
        high.append(max(present, key=_order))
    return SimpleStats(encode_row(low, types), encode_row(high, types), tuple(nulls))


def _counted(partitions: Sequence[bytes]) -> List[Tuple[bytes, int]]:
    counts: dict = {}
    for partition in partitions:
        counts[partition] = counts.get(partition, 0) + 1
    return list(counts.items())


def _order(value: Any) -> Any:
    if isinstance(value, float):  # Java's order: -0.0 below 0.0, NaN above all
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value))
    return value
