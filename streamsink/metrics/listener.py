"""From events to metrics: a listener for ``streamsink.to_table`` and the others. It does no I/O, waits for nobody."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamsink import events
from streamsink.clock import Clock
from streamsink.events import Event
from streamsink.metrics.families import COUNTER, GAUGE, METRICS, OF_QUERY, Feed, Metric
from streamsink.metrics.registry import MOST_SERIES, Family, Labels, Registry, short
from streamsink.protocol.ids import END_OF_INPUT

# Of so many batches it is remembered when Spark planned them; those that are skipped or fail are never published.
_MOST_PLANNED = 1_000
_AGES = ("last_publish_age_seconds", "oldest_pending_age_seconds", "watermark_lag_seconds")


def _by_event() -> Mapping[type[Event], tuple[tuple[Metric, Feed], ...]]:
    kinds = {kind: None for metric in METRICS for kind in metric.feeds}
    return {kind: tuple((m, m.feeds[kind]) for m in METRICS if kind in m.feeds) for kind in kinds}


_BY_EVENT = _by_event()


@dataclass
class _Query:
    """What is computed when it is read. Times are in ms, on the monotonic clock but for what Spark says.

    recorded_ms: by checkpoint that is not published, when it was recorded. planned_ms: by batch, when Spark planned it.
    lost: whether a newer start has ended this one. is_bounded: whether it is a bounded job.
    """

    published_ms: float
    pending: int = 0
    recorded_ms: dict[int, float] = field(default_factory=dict)
    planned_ms: dict[int, int] = field(default_factory=dict)
    watermark_ms: int | None = None
    lost: bool = False
    is_bounded: bool = False


class Metrics:
    """All metrics of this driver. Give one object to all queries of the driver as ``listener``.

    Any thread may call it. With other listeners, such as the log: ``Listeners(to_log, metrics)``.
    """

    def __init__(self, clock: Clock | None = None):
        """clock: of the ages; tests pass their own."""
        self.registry = Registry()
        self.registry.given_up = lambda of: self._queries.pop(of, None)
        self._clock = clock or Clock()
        self._queries: dict[Labels, _Query] = {}
        self._follows: Mapping[type[Event], Callable[[Any, _Query, Labels], None]] = {
            events.Claimed: self._claimed,
            events.Restored: self._restored,
            events.BatchAdmitted: self._admitted,
            events.CheckpointRecorded: self._recorded,
            events.CheckpointPublished: self._published,
            events.PublishingFailed: self._failed,
            events.BatchFailed: self._failed,
            events.RunEnded: self._ended,
        }

    def __call__(self, event: Event) -> None:
        """Take the event in."""
        of = short((str(getattr(event, "path", event.table)), event.application))
        kind = type(event)
        with self.registry.lock:
            follow = self._follows.get(kind)
            query = self._query(of) if follow is not None else None
            if follow is not None:
                self.registry.go_on(of)
            for metric, feed in _BY_EVENT.get(kind, ()):
                value = feed(event)
                if value is not None:
                    self._take(metric, (*(of if metric.labels[:2] == OF_QUERY else ()), *metric.by(event)), value)
            if kind is events.SparkProgress:
                self._progress(event)
            elif kind is events.SparkQueryEnded:
                self.registry.end(short((event.application,)))
            elif kind is events.SparkQueryStarted:
                self.registry.go_on(short((event.application,)))
                for with_error in ("true", "false"):  # as ``Registry.begin``
                    self.registry.add("spark_queries_ended", (event.application, with_error), 0.0)
            if follow is not None and query is not None:
                follow(event, query, of)

    def _take(self, metric: Metric, labels: Labels, value: float) -> None:
        if metric.kind == COUNTER:
            self.registry.add(metric.name, labels, value)
        elif metric.kind == GAUGE:
            self.registry.set(metric.name, labels, value)
        else:
            self.registry.observe(metric.name, labels, value)

    def collect(self) -> list[Family]:
        """All metrics that have a value, with the ages as of now."""
        with self.registry.lock:
            now_ms, since_1970_ms = self._clock.monotonic_ms(), self._clock.now_ms()
            for of, query in self._queries.items():
                ages = {"last_publish_age_seconds": now_ms - query.published_ms}
                oldest_ms = min(query.recorded_ms.values(), default=now_ms)
                ages["oldest_pending_age_seconds"] = now_ms - oldest_ms
                if query.watermark_ms is not None:
                    ages["watermark_lag_seconds"] = float(since_1970_ms - query.watermark_ms)
                for name, age_ms in ages.items():
                    self.registry.set(name, of, max(age_ms, 0.0) / 1000)
                self.registry.set("pending_committables", of, query.pending)
            return self.registry.collect()

    def _query(self, of: Labels) -> _Query:
        """The state of a query; of those that are too many none is kept, and they have no ages."""
        known = self._queries.get(of)
        if known is None:
            known = _Query(self._clock.monotonic_ms())
            if len(self._queries) < MOST_SERIES or self.registry.make_room(self._queries):
                self.registry.begin(*of)
                self._queries[of] = known
        return known

    def _claimed(self, event: events.Claimed, query: _Query, of: Labels) -> None:
        query.lost = False

    def _restored(self, event: events.Restored, query: _Query, of: Labels) -> None:
        query.recorded_ms.clear()
        query.planned_ms.clear()
        query.pending = 0

    def _admitted(self, event: events.BatchAdmitted, query: _Query, of: Labels) -> None:
        query.watermark_ms = event.watermark_ms if event.watermark_ms is not None else query.watermark_ms
        query.is_bounded = event.checkpoint_id == END_OF_INPUT
        if event.planned_ms and event.verdict != "skip":  # which is visible already, or was told as pending
            query.planned_ms[event.checkpoint_id] = event.planned_ms
            if len(query.planned_ms) > _MOST_PLANNED:
                del query.planned_ms[next(iter(query.planned_ms))]
        behind = offsets_behind(event.sources)
        if behind is not None:
            self.registry.set("pending_records", of, behind)

    def _recorded(self, event: events.CheckpointRecorded, query: _Query, of: Labels) -> None:
        query.recorded_ms[event.checkpoint_id] = self._clock.monotonic_ms()
        query.pending = len(query.recorded_ms)

    def _published(self, event: events.CheckpointPublished, query: _Query, of: Labels) -> None:
        now_ms = self._clock.now_ms()
        query.published_ms = self._clock.monotonic_ms()
        query.pending = event.pending
        self.registry.set("last_publish_timestamp_seconds", of, now_ms / 1000)
        for checkpoint_id in [each for each in query.recorded_ms if each <= event.checkpoint_id]:
            del query.recorded_ms[checkpoint_id]
        for checkpoint_id in [each for each in query.planned_ms if each <= event.checkpoint_id]:
            delay_ms = now_ms - query.planned_ms.pop(checkpoint_id)
            self.registry.observe("visible_delay_seconds", of, max(delay_ms, 0) / 1000)

    def _ended(self, event: events.RunEnded, query: _Query, of: Labels) -> None:
        """A bounded job is done, and gets no older. A query that ends does: somebody may have to start it again.

        The series of both make room when others need it.
        """
        self.registry.end(of)
        if query.is_bounded and not query.pending:
            self._queries.pop(of, None)
            for name in _AGES:
                self.registry.drop(name, of)

    def _progress(self, event: Any) -> None:
        """What Spark says by phase and by source."""
        query = event.application
        for phase, took_ms in event.durations_ms.items():
            self.registry.set("spark_batch_duration_seconds", (query, phase), took_ms / 1000)
        for number, behind in enumerate(event.behind):
            for of, offsets in behind.items():
                self.registry.set("spark_offsets_behind_latest", (query, str(number), of), offsets)

    def _failed(self, event: "events.PublishingFailed | events.BatchFailed", query: _Query, of: Labels) -> None:
        """The next batch of a run raises what has ended publishing, so the same fence may be told twice."""
        if event.error == "Fenced" and not query.lost:
            query.lost = True
            self.registry.add("fenced", of, 1.0)


def offsets_behind(sources: tuple[Any, ...]) -> float | None:
    """How many offsets the sources of a batch (``SourceRange``) have behind it; None where no broker has said it."""
    behind, is_known = 0, False
    for source in sources:
        newest = source.newest
        for topic, part, end in source.ends() if newest else ():
            at = newest.get(topic, {}).get(part)
            if at is not None:
                is_known = True
                behind += max(at - end, 0)
    return float(behind) if is_known else None
