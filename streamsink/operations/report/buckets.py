"""Numbers made few, so that a page of ten thousand snapshots is as large as one of a hundred. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: At most so many bars has a chart over time.
MOST_BARS = 72
# Widths of bars in ms that people think in: seconds, minutes, hours, days.
_WIDTHS_MS = [
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000 * m for m in (1, 2, 5, 10, 15, 30)),
    *(3_600_000 * h for h in (1, 2, 3, 6, 12)),
    *(86_400_000 * d for d in (1, 2, 7, 14, 30, 60, 90, 180, 365, 730, 3_650, 36_500, 365_000)),
]
# Bounds of bars of durations in ms: 1, 2 and 5 of each power of ten, up to eleven days.
_DURATIONS_MS = [digit * 10**power for power in range(9) for digit in (1, 2, 5)]
_MOST_SIZE_BARS = 24


@dataclass(frozen=True)
class Scale:
    """Time in equal parts. begin_ms: where the first part begins. width_ms: of each part. count: how many there are."""

    begin_ms: int
    width_ms: int
    count: int

    @classmethod
    def over(cls, times_ms: Sequence[int], most: int = MOST_BARS) -> "Scale":
        """Over all these times, in at most so many parts; one part where there is no time, or one."""
        low, high = min(times_ms, default=0), max(times_ms, default=0)
        for width in _WIDTHS_MS:
            begin = low // width * width
            count = (high - begin) // width + 1
            if count <= most:
                return cls(begin, width, count)
        width = -(-(high - low + 1) // most)
        return cls(low, width, most)

    def place(self, time_ms: int) -> int:
        """Number of the part in which a time is; that of the nearest part for one outside."""
        return min(max((time_ms - self.begin_ms) // self.width_ms, 0), self.count - 1)

    def grouped(self, pairs: Iterable[tuple[int, Any]]) -> list[list[Any]]:
        """The values of each part. pairs: of a time and a value."""
        parts: list[list[Any]] = [[] for _ in range(self.count)]
        for time_ms, value in pairs:
            parts[self.place(time_ms)].append(value)
        return parts

    def to_json(self) -> dict[str, int]:
        """The scale as the document has it."""
        return {"begin_ms": self.begin_ms, "width_ms": self.width_ms, "count": self.count}


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value below which this part of the values is, by the nearest rank. ordered: ascending, and not empty."""
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered) // 1) - 1))]


def summary(values: Iterable[float]) -> dict[str, float] | None:
    """Count, median, 90 and 99 in a hundred, least and largest of the values; None for none."""
    ordered = sorted(values)
    if not ordered:
        return None
    return {
        "count": len(ordered),
        "least": ordered[0],
        "median": quantile(ordered, 0.5),
        "p90": quantile(ordered, 0.9),
        "p99": quantile(ordered, 0.99),
        "largest": ordered[-1],
    }


def over_time(scale: Scale, pairs: Iterable[tuple[int, float]]) -> list[dict[str, float] | None]:
    """Of each part the count, sum, median and largest value; None for a part without one. pairs: as in ``grouped``."""
    return [
        {"count": len(part), "sum": sum(part), "median": quantile(part, 0.5), "largest": part[-1]} if part else None
        for part in map(sorted, scale.grouped(pairs))
    ]


def durations(values_ms: Iterable[float]) -> list[dict[str, Any]]:
    """How many durations there are of each length, from the shortest one to the longest one.

    Each bar: {from_ms, to_ms, count}; to_ms is None for what is longer than all bounds.
    """
    counts = [0] * (len(_DURATIONS_MS) + 1)
    for value in values_ms:
        counts[bisect_right(_DURATIONS_MS, value)] += 1
    bounds: list[int | None] = [0, *_DURATIONS_MS, None]
    bars = [{"from_ms": bounds[n], "to_ms": bounds[n + 1], "count": count} for n, count in enumerate(counts)]
    return _between_the_empty(bars)


def sizes(values: Sequence[int]) -> list[dict[str, Any]]:
    """How many files there are of each size, by powers of two from the smallest one to the largest one.

    Each bar: {from_bytes, to_bytes, count, bytes}.
    """
    if not values:
        return []
    powers = [max(value, 1).bit_length() - 1 for value in values]
    low, high = min(powers), max(powers)
    low = max(low, high - _MOST_SIZE_BARS + 1)  # what is smaller than that is in the first bar
    bars: list[dict[str, Any]] = [
        {"from_bytes": 2**power, "to_bytes": 2 ** (power + 1), "count": 0, "bytes": 0} for power in range(low, high + 1)
    ]
    if min(powers) < low:
        bars[0]["from_bytes"] = 0
    for value, power in zip(values, powers):
        bar = bars[max(power - low, 0)]
        bar["count"] += 1
        bar["bytes"] += value
    return bars


def _between_the_empty(bars: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the empty ones at both ends."""
    full = [place for place, bar in enumerate(bars) if bar["count"]]
    return bars[full[0] : full[-1] + 1] if full else []
