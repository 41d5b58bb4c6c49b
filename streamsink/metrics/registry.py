"""The values of all metrics of one driver, by metric and labels. Any thread may write and read them."""

import bisect
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamsink.metrics.families import COUNTER, HISTOGRAM, METRICS, OF_QUERY, OF_SPARK_QUERY, SECONDS, Metric

# So many series a metric has at most: a driver that writes thousands of tables must not make thousands of each.
# So many queries that have ended are known as well.
MOST_SERIES = 1_000
OTHER = "(other)"
# A label has so many characters at most. Of a longer one the beginning is left, and a digest that tells it from others.
_LONGEST, _BEGINNING = 256, 240

Labels = tuple[str, ...]


@dataclass
class Distribution:
    """What a histogram has observed. counts: for each bound of ``SECONDS``, and above the last one; not cumulative."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Count one more."""
        self.counts[bisect.bisect_left(SECONDS, value)] += 1
        self.total += value

    @property
    def buckets(self) -> Iterator[tuple[str, int]]:
        """(upper bound as Prometheus writes it, how many are not above it)."""
        below = 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), self.counts):
            below += count
            yield bound, below

    def copy(self) -> "Distribution":
        """The same, as it is now."""
        return Distribution(list(self.counts), self.total)


@dataclass(frozen=True)
class Family:
    """A metric with its values at one instant: by labels, a number or, of a histogram, a ``Distribution``."""

    metric: Metric
    values: dict[Labels, float | Distribution]


class Registry:
    """The values. ``lock`` is held for a whole event by who writes many of them.

    A metric that has all the series that it may have gives up those of the query that ended first. Where none has
    ended, new ones are folded into one.
    """

    def __init__(self, metrics: Sequence[Metric] = METRICS):
        self.lock = threading.RLock()
        # Called with the labels of a query that ended so long ago that all of its series are given up.
        self.given_up: Callable[[Labels], object] = lambda of: None
        # Queries that run; those that have ended, in that order, by ours and by Spark's name; and metrics that have no
        # room until another one ends.
        self._running: set[Labels] = set()
        self._ended: dict[int, dict[Labels, None]] = {len(OF_QUERY): {}, len(OF_SPARK_QUERY): {}}
        self._full: set[str] = set()
        # Called with the name of a histogram, its labels and each value, by exporters that make their own of it.
        self.watchers: list[Callable[[str, Labels, float], None]] = []
        self._metrics = metrics
        self._numbers: dict[str, dict[Labels, float]] = {m.name: {} for m in metrics if m.kind != HISTOGRAM}
        self._observed: dict[str, dict[Labels, Distribution]] = {m.name: {} for m in metrics if m.kind == HISTOGRAM}
        self._labels = {m.name: m.labels for m in metrics}
        # A rate is known from the second value of a series on. So counters of a query begin with 0.
        self._zeros = tuple(m.name for m in metrics if m.kind == COUNTER and m.labels == OF_QUERY)

    def begin(self, table: str, application: str) -> None:
        """A query starts: its counters are there from now on, with 0 where they are new."""
        with self.lock:
            for name in self._zeros:
                self.add(name, (table, application), 0.0)

    def go_on(self, of: Labels) -> None:
        """Something is told of a query: it runs, or does so again. of: its table and name, or Spark's name."""
        with self.lock:
            self._ended[len(of)].pop(of, None)
            if len(self._running) < MOST_SERIES:
                self._running.add(of)

    def end(self, of: Labels) -> None:
        """A query has ended: its series stay until others need the room."""
        with self.lock:
            ended = self._ended[len(of)]
            self._running.discard(of)
            ended.pop(of, None)
            ended[of] = None
            self._full.clear()
            if len(ended) > MOST_SERIES:
                oldest = next(iter(ended))
                for name in self._labels:
                    self._give_up(oldest, self._series(name), self._labels[name])
                self.given_up(oldest)
                del ended[oldest]

    def make_room(self, series: dict[Labels, Any], labels: Labels = OF_QUERY) -> bool:
        """Take out what is of the query that ended first of those with one of these series. labels: their names.

        False where none of these has ended.
        """
        with self.lock:
            parts = _parts_of_a_query(labels)
            ended = self._ended.get(parts)
            found = {self._whose(key[:parts]) for key in series} if ended else set()
            of = next((of for of in ended or () if of in found), None)
            if of is not None:
                self._give_up(of, series, labels)
            return of is not None

    def _give_up(self, of: Labels, series: dict[Labels, Any], labels: Labels) -> None:
        if _parts_of_a_query(labels) == len(of):
            for key in [key for key in series if self._whose(key[: len(of)]) == of]:
                del series[key]

    def _whose(self, key: Labels) -> Labels:
        """The query of a series: of one of several tables, that of their folder, where it has ended."""
        ended = self._ended[len(key)]
        if key in ended or key in self._running or len(key) != len(OF_QUERY):
            return key
        of = (key[0].rpartition("/")[0], *key[1:])
        return of if of in ended else key

    def _series(self, name: str) -> "dict[Labels, float] | dict[Labels, Distribution]":
        return self._numbers[name] if name in self._numbers else self._observed[name]

    def add(self, name: str, labels: Labels, amount: float) -> None:
        """Raise a counter."""
        with self.lock:
            series = self._numbers[name]
            key = labels if labels in series else self._key(name, labels)
            series[key] = series.get(key, 0.0) + amount

    def set(self, name: str, labels: Labels, value: float) -> None:
        """Set a gauge."""
        with self.lock:
            series = self._numbers[name]
            series[labels if labels in series else self._key(name, labels)] = value

    def observe(self, name: str, labels: Labels, value: float) -> None:
        """One more value of a histogram."""
        with self.lock:
            series = self._observed[name]
            key = labels if labels in series else self._key(name, labels)
            if key not in series:
                series[key] = Distribution()
            series[key].observe(value)
            for watch in self.watchers:
                self._tell(watch, name, key, value)

    def _tell(self, watch: Callable[[str, Labels, float], None], name: str, key: Labels, value: float) -> None:
        """What another exporter fails with is counted, and keeps no number of the event from being taken in."""
        try:
            watch(name, key, value)
        except Exception:  # an edge: it is the exporter's own
            self.add("exporter_errors", ("watcher",), 1.0)

    def value(self, name: str, *labels: str) -> float | None:
        """A counter or gauge as it is now; None where nothing has set it."""
        with self.lock:
            return self._numbers[name].get(short(labels))

    def distribution(self, name: str, *labels: str) -> Distribution | None:
        """A histogram as it is now; None where nothing was observed."""
        with self.lock:
            found = self._observed[name].get(short(labels))
            return found.copy() if found is not None else None

    def drop(self, name: str, labels: Labels) -> None:
        """Forget a gauge that has no value any more. Idempotent."""
        with self.lock:
            self._numbers[name].pop(short(labels), None)

    def collect(self) -> list[Family]:
        """All metrics that have a value, at one instant."""
        with self.lock:
            return [family for metric in self._metrics if (family := self._family(metric)).values]

    def _family(self, metric: Metric) -> Family:
        if metric.kind == HISTOGRAM:
            return Family(metric, {key: each.copy() for key, each in self._observed[metric.name].items()})
        return Family(metric, dict(self._numbers[metric.name]))

    def _key(self, name: str, labels: Labels) -> Labels:
        """The labels of a series that is new; those of all others where there are too many."""
        made, series = short(labels), self._series(name)
        if made in series or len(series) < MOST_SERIES or not labels:
            return made
        if name not in self._full and self.make_room(series, self._labels[name]):
            return made
        self._full.add(name)
        self._numbers["series_folded"][()] = self._numbers["series_folded"].get((), 0.0) + 1
        return (OTHER,) * len(labels)


def _parts_of_a_query(labels: Labels) -> int:
    """How many of these labels, the first ones, say which query it is."""
    return next((len(of) for of in (OF_QUERY, OF_SPARK_QUERY) if labels[: len(of)] == of), 0)


def short(labels: Labels) -> Labels:
    """The labels as every exporter can write them: of a bounded length, and in characters that UTF-8 has."""
    return tuple(each if each.isascii() and len(each) <= _LONGEST else _written(each) for each in labels)


def _written(label: str) -> str:
    text = label.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_BEGINNING]}...{hashlib.sha256(text.encode()).hexdigest()[:12]}"
