"""The metrics of ``streamsink.metrics`` as instruments of OpenTelemetry. Runs on the driver.

Counters and gauges are asked for their values when an exporter reads them, in its own thread. Histograms are told each
value, since OpenTelemetry has none that can be asked.
"""

from collections.abc import Callable, Iterable
from typing import Any

from streamsink.clock import Clock
from streamsink.metrics.families import COUNTER, HISTOGRAM, METRICS, SECONDS, Metric
from streamsink.metrics.listener import Metrics
from streamsink.metrics.registry import Labels
from streamsink.traces.api import meter_of, observation

# One reading asks some eighty instruments, one after another: they share a look at the registry.
_LOOK_MS = 100
_UNITS = {"_seconds": "s", "_bytes": "By"}


def export_metrics(metrics: Metrics, meter_provider: Any = None) -> None:
    """Make an instrument of each metric, once for a ``Metrics``.

    Names are those of docs/METRICS.md without the unit, which OpenTelemetry has apart: streamsink_x_seconds is
    'streamsink.x' in 's'. Whatever makes names for Prometheus of them makes the same ones again. meter_provider: of
    OpenTelemetry's SDK; by default the one that the program has set for all. Raises Misuse where OpenTelemetry is not
    installed.
    """
    meter, looks = meter_of(meter_provider), _Looks(metrics)
    observers: dict[str, Callable[[Labels, float], None]] = {}
    for metric in METRICS:
        name, unit = _named(metric)
        if metric.kind == HISTOGRAM:
            made = meter.create_histogram(
                name, unit=unit, description=metric.help, explicit_bucket_boundaries_advisory=SECONDS
            )
            observers[metric.name] = _observer(metric, made)
        else:
            create = meter.create_observable_counter if metric.kind == COUNTER else meter.create_observable_gauge
            create(name, callbacks=[looks.callback(metric)], unit=unit, description=metric.help)

    def watch(name: str, labels: Labels, value: float) -> None:
        observers[name](labels, value)

    metrics.registry.watchers.append(watch)


def _named(metric: Metric) -> tuple[str, str]:
    for suffix, unit in _UNITS.items():
        if metric.name.endswith(suffix):
            return f"streamsink.{metric.name.removesuffix(suffix)}", unit
    return f"streamsink.{metric.name}", ""


def _observer(metric: Metric, histogram: Any) -> Callable[[Labels, float], None]:
    def observe(labels: Labels, value: float) -> None:
        histogram.record(value, dict(zip(metric.labels, labels)))

    return observe


class _Looks:
    """The values of all metrics, looked at once for a reading."""

    def __init__(self, metrics: Metrics):
        self._metrics, self._clock = metrics, Clock()
        self._looked_ms: float | None = None
        self._values: dict[str, dict[Labels, Any]] = {}

    def callback(self, metric: Metric) -> Callable[[Any], Iterable[Any]]:
        """What the SDK calls for this metric."""

        def observe(options: Any) -> Iterable[Any]:
            found = self._now().get(metric.name, {})
            return [observation(value, dict(zip(metric.labels, labels))) for labels, value in found.items()]

        return observe

    def _now(self) -> dict[str, dict[Labels, Any]]:
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is None or now_ms - self._looked_ms > _LOOK_MS:
            self._values = {family.metric.name: family.values for family in self._metrics.collect()}
            self._looked_ms = now_ms
        return self._values
