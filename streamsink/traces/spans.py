"""A listener that makes a trace of each batch: what it was, and how long each of its steps took. Runs on the driver.

Spans are made when their events come, with the times of before. So nothing is open between two events, and a listener
that is given to a running query begins with its next batch.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamsink import events
from streamsink.clock import Clock
from streamsink.traces.api import trace_api, tracer_of

# So many batches of a query are remembered until they are published, for the spans of their publishing.
MOST_WAITING = 10_000
_NS_OF_MS = 1_000_000
_OWN = "streamsink"
# The steps in their order: a batch that fails has failed in the one behind the last that has ended.
STEPS: Mapping[type[events.Event], str] = {
    events.BatchAdmitted: "admit",
    events.CheckpointBegun: "wait",
    events.BatchWritten: "write",
    events.CheckpointRecorded: "record",
    events.CheckpointPublished: "publish",
}
_ORDER = tuple(STEPS.values())
# Each of these begins when the one before it ends; the publishing may be another thread's.
_FOLLOWING = _ORDER[:-1]
# What stands beside batches: the name of the span, and the event's field with its milliseconds.
BESIDE: Mapping[type[events.Event], tuple[str, str]] = {
    events.Compacted: ("compact", "elapsed_ms"),
    events.Maintained: ("maintain", "elapsed_ms"),
}
_HEARD = frozenset(
    {*STEPS, *BESIDE, events.Claimed, events.Restored, events.BatchSkipped, events.PublishingFailed}
    | {events.BatchReturned, events.BatchFailed, events.RunEnded}
)
Values = dict[str, Any]


@dataclass(frozen=True)
class _Step:
    """A span that has ended. times: its beginning and its end in nanoseconds since the epoch. links: of other batches.

    error: the kind of the error that has ended it; '' for none. below: the spans that stand below it.
    """

    name: str
    times: tuple[int, int]
    values: Values = field(default_factory=dict)
    links: tuple[Any, ...] = ()
    error: str = ""
    below: "tuple[_Step, ...]" = ()


@dataclass
class _Batch:
    """A batch whose call has not returned. values: of its own span."""

    values: Values = field(default_factory=dict)
    steps: list[_Step] = field(default_factory=list)

    @property
    def failed_in(self) -> str:
        """The step that has not ended."""
        done = [step.name for step in self.steps if step.name in _ORDER]
        return _ORDER[min(_ORDER.index(done[-1]) + 1, len(_ORDER) - 1)] if done else _ORDER[0]

    def add(self, step: _Step) -> None:
        """A step that has begun when the one before it ended. Those whose events came late move to before it, each as
        long as it was: a busy driver may hear of a step's end when the next one is under way.
        """
        begins_ns = step.times[0]
        for place in reversed(range(len(self.steps))):
            earlier = self.steps[place]
            if earlier.name in _FOLLOWING and earlier.times[1] > begins_ns:
                took_ns = earlier.times[1] - earlier.times[0]
                self.steps[place] = replace(earlier, times=(begins_ns - took_ns, begins_ns))
            begins_ns = min(begins_ns, self.steps[place].times[0])
        self.steps.append(step)


@dataclass
class _Query:
    """One query and its table.

    restoring: what a start publishes of earlier ones, while it does. start: the step that did so, which is a part of
    the call for the first batch. batches: by checkpoint, those whose calls have not returned. recorded: by checkpoint,
    the spans of those that are not published.
    """

    restoring: list[_Step] | None = None
    start: _Step | None = None
    batches: dict[int, _Batch] = field(default_factory=dict)
    recorded: dict[int, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remember of it."""
        return self.restoring is None and self.start is None and not self.batches and not self.recorded


class Traces:
    """A listener for any number of queries of a driver. Any thread may call it."""

    def __init__(self, tracer_provider: Any = None):
        """tracer_provider: of OpenTelemetry's SDK; by default the one that the program has set for all.

        Give it a processor that exports beside the query, such as the SDK's ``BatchSpanProcessor``: one that exports in
        the call lets each batch wait. Raises Misuse where OpenTelemetry is not installed.
        """
        self._trace = trace_api()
        self._tracer = tracer_of(tracer_provider)
        self._clock = Clock()
        self._lock = threading.Lock()
        self._queries: dict[tuple[str, str], _Query] = {}

    def __call__(self, event: events.Event) -> None:
        """Make the spans that end with this event."""
        if type(event) not in _HEARD:
            return
        now_ns = self._clock.now_ns()
        with self._lock:
            of = (event.table, event.application)
            query = self._queries.setdefault(of, _Query())
            if isinstance(event, events.Claimed):
                self._make_start(query, event)
                query.restoring = []
                query.batches.clear()
            elif isinstance(event, events.Restored):
                self._restored(event, query, now_ns)
            elif isinstance(event, events.CheckpointPublished):
                self._published(event, query, now_ns)
            elif type(event) in STEPS:
                self._stepped(event, query, now_ns)
            elif isinstance(event, events.BatchSkipped) and event.checkpoint_id in query.batches:
                query.batches[event.checkpoint_id].values["streamsink.skipped"] = event.reason
            elif isinstance(event, events.PublishingFailed):
                self._publishing_failed(event, query, now_ns)
            elif isinstance(event, (events.BatchReturned, events.BatchFailed)):
                self._ended(event, query, now_ns)
            elif type(event) in BESIDE:
                name, took = BESIDE[type(event)]
                self._make(_Step(name, _times(now_ns, getattr(event, took)), _said(event)), event)
            elif isinstance(event, events.RunEnded):
                self._make_start(query, event)
                query.batches.clear()
            if query.is_empty:  # a driver may see any number of queries
                del self._queries[of]

    # -- steps of a batch ----------------------------------------------------------------------------------------------

    def _stepped(self, event: Any, query: _Query, now_ns: int) -> None:
        batch = query.batches.setdefault(event.checkpoint_id, _Batch())
        values = _said(event)
        batch.values |= values
        if isinstance(event, events.BatchAdmitted):
            batch.values |= _read(event.sources)
        batch.add(_Step(STEPS[type(event)], _times(now_ns, getattr(event, event.took)), values))

    def _ended(self, event: "events.BatchReturned | events.BatchFailed", query: _Query, now_ns: int) -> None:
        batch = query.batches.pop(event.checkpoint_id, _Batch())
        values: Values = {"streamsink.checkpoint_id": event.checkpoint_id} | batch.values
        error, steps = "", batch.steps
        if isinstance(event, events.BatchFailed):
            error = event.kind or event.error
            values |= {"streamsink.failed_in": batch.failed_in if query.restoring is None else "restore"}
            steps, query.restoring = [*(query.restoring or []), *steps], None
        if query.start is not None:
            steps, query.start = [query.start, *steps], None
        began_ns = min([_times(now_ns, event.batch_ms)[0], *(step.times[0] for step in batch.steps)])
        whole = _Step("batch", (began_ns, now_ns), values, error=error, below=tuple(steps))
        span = self._make(whole, event)
        done = {step.name for step in batch.steps}
        if "record" in done and "publish" not in done:
            query.recorded[event.checkpoint_id] = span
            while len(query.recorded) > MOST_WAITING:
                del query.recorded[next(iter(query.recorded))]

    # -- publishing ----------------------------------------------------------------------------------------------------

    def _published(self, event: events.CheckpointPublished, query: _Query, now_ns: int) -> None:
        """A step of its batch while that is under way; else a child of its batch, with its own time. Links lead to the
        other batches of its group. What a start publishes of earlier ones has the start for its parent.
        """
        mine = query.recorded.pop(event.checkpoint_id, None)
        others = [each for each in query.recorded if each < event.checkpoint_id]
        links = tuple(self._trace.Link(query.recorded.pop(each).get_span_context()) for each in others)
        step = _Step("publish", _times(now_ns, event.publish_ms), _said(event), links)
        if query.restoring is not None:
            query.restoring.append(step)
        elif event.checkpoint_id in query.batches:
            query.batches[event.checkpoint_id].steps.append(step)
        elif mine is not None or not self._is_of_a_fan_out(event, step):
            self._make(step, event, parent=mine)

    def _is_of_a_fan_out(self, event: events.CheckpointPublished, step: _Step) -> bool:
        """Whether a query is at work that this destination may be one of: then the step stands below its span."""
        mine = _Step("publish-destination", step.times, {"streamsink.table": event.table} | step.values)
        for (_, application), query in self._queries.items():
            if application == event.application and (query.restoring is not None or query.batches):
                hosts = [query.restoring] if query.restoring is not None else []
                hosts += [batch.steps for number, batch in query.batches.items() if number == event.checkpoint_id]
                for steps in hosts[:1]:
                    steps.append(mine)
                    return True
        return False

    def _publishing_failed(self, event: events.PublishingFailed, query: _Query, now_ns: int) -> None:
        error = event.kind or event.error
        step = _Step("publish", (now_ns, now_ns), {"streamsink.pending": event.pending}, error=error)
        waiting = next(iter(query.recorded.values()), None)
        if waiting is None and query.batches:
            next(iter(query.batches.values())).steps.append(step)
        else:
            self._make(step, event, parent=waiting)

    def _restored(self, event: events.Restored, query: _Query, now_ns: int) -> None:
        steps, query.restoring = query.restoring or [], None
        query.recorded.clear()
        values: Values = {"streamsink.restored_checkpoints": len(event.published_checkpoints)}
        values |= {"streamsink.orphans_removed": len(event.orphans_removed)}
        query.start = _Step("restore", _times(now_ns, event.restore_ms), values, below=tuple(steps))

    def _make_start(self, query: _Query, event: events.Event) -> None:
        """The start had no batch: a command has made it, or it has failed on purpose."""
        if query.start is not None:
            self._make(query.start, event)
            query.start = None

    # -- spans ---------------------------------------------------------------------------------------------------------

    def _make(self, step: _Step, event: events.Event, parent: Any = None) -> Any:
        """A span that has ended, with those below it. parent: a span; None for that of the program, if it has one."""
        context = self._trace.set_span_in_context(parent) if parent is not None else None
        values = {"streamsink.table": event.table, "streamsink.application": event.application} | step.values
        span = self._tracer.start_span(
            f"{_OWN}.{step.name}",
            context,
            self._span_kind(step),
            attributes={name: value for name, value in values.items() if value is not None},
            links=step.links,
            start_time=step.times[0],
        )
        if step.error:
            span.set_attribute("error.type", step.error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, step.error))
        for each in step.below:
            self._make(each, event, parent=span)
        span.end(end_time=step.times[1])
        return span

    def _span_kind(self, step: _Step) -> Any:
        """A batch of a topic is what OpenTelemetry calls the processing of messages."""
        kinds = self._trace.SpanKind
        return kinds.CONSUMER if step.name == "batch" and "messaging.system" in step.values else kinds.INTERNAL


def _times(end_ns: int, took_ms: float) -> tuple[int, int]:
    return end_ns - int(took_ms * _NS_OF_MS), end_ns


def _said(event: events.Event) -> Values:
    """The fields of an event as attributes: numbers and words as they are, of lists the lengths."""
    values: Values = {}
    for name, value in event.said().items():
        if name != event.took and not name.endswith("_ms") or name == "watermark_ms":
            values[f"streamsink.{name}"] = len(value) if isinstance(value, tuple) else value
    return values


def _read(sources: tuple[Any, ...]) -> Values:
    """By OpenTelemetry's conventions for messaging, where all sources are topics; of files, how many.

    sources: of ``BatchAdmitted``. A number of messages is one of offsets: transactions leave gaps.
    """
    values: Values = {}
    files = [len(source.files) for source in sources if source.files is not None]
    if files:
        values["streamsink.source_files"] = sum(files)
    if sources and all(source.numeric for source in sources):
        topics = sorted({topic for source in sources for topic in source.end})
        spans = [(source.first(topic, part), end) for source in sources for topic, part, end in source.ends()]
        values |= {"messaging.system": "kafka", "messaging.operation.type": "process"}
        values |= {"messaging.destination.name": topics[0]} if len(topics) == 1 else {}
        values["messaging.batch.message_count"] = sum(end - first for first, end in spans if first is not None)
    return values
