"""Spans that OpenTelemetry's SDK has kept in memory, as a tree."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Seen:
    """One span, with those below it in the order of their beginnings. took: in ns. links: of other batches."""

    name: str
    began: int
    ended: int
    values: dict[str, Any]
    error: str
    links: int
    kind: str
    below: list["Seen"] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.below]


class Recorder:
    """provider: whose spans are kept."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))

    def trees(self) -> list[Seen]:
        """The spans that have no other above them, in the order of their beginnings."""
        spans = sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time)
        seen = {span.context.span_id: _seen(span) for span in spans}
        roots = []
        for span in spans:
            above = seen.get(span.parent.span_id) if span.parent else None
            (roots if above is None else above.below).append(seen[span.context.span_id])
        return roots


def _seen(span: Any) -> Seen:
    error = span.status.description or "" if not span.status.is_ok and not span.status.is_unset else ""
    values = dict(span.attributes)
    return Seen(span.name, span.start_time, span.end_time, values, error, len(span.links), span.kind.name)
