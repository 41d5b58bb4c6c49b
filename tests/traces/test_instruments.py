"""The metrics as OpenTelemetry's SDK reads them: the same names and values as Prometheus has."""

import re

import pytest

from streamsink import events
from streamsink.metrics import Metrics
from streamsink.metrics.families import COUNTER, HISTOGRAM, METRICS
from streamsink.traces import export_metrics, instruments
from tests.metrics.test_listener import Hands
from tests.traces.test_spans import A, T, published, returned, steps

pytestmark = pytest.mark.usefixtures("sdk")
_UNITS = {"s": "_seconds", "By": "_bytes", "": ""}


@pytest.fixture
def reading():
    """(metrics, a function that reads all instruments as the SDK does: by name, the instrument)."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    metrics, reader = Metrics(), InMemoryMetricReader()
    export_metrics(metrics, MeterProvider([reader]))

    def read() -> dict:
        data = reader.get_metrics_data()
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics] if data else []
        return {each.name: each for each in found}

    return metrics, read


def test_values_of_a_batch(reading):
    """Counters, gauges and histograms, each with the table and the query."""
    metrics, read = reading
    for event in (events.Claimed(T, A, 1), *steps(0), published(0), returned(0)):
        metrics(event)
    found = read()
    [rows] = found["streamsink.num_records_out"].data.data_points
    assert (rows.value, dict(rows.attributes)) == (10, {"table": T, "application": A})
    assert found["streamsink.num_records_out"].data.is_monotonic
    duration = found["streamsink.last_commit_duration"]
    assert (duration.unit, [point.value for point in duration.data.data_points]) == ("s", [0.003])
    [commits] = found["streamsink.commit_duration"].data.data_points
    assert (commits.count, commits.sum) == (1, 0.003)
    for event in (*steps(1), published(1), returned(1)):
        metrics(event)
    assert len(read()["streamsink.commit_duration"].data.data_points) == 1


def test_names_are_those_of_prometheus(reading):
    """By OpenTelemetry's rules for names in Prometheus: the unit behind the name, and _total behind a counter."""
    metrics, read = reading
    for event in (events.Claimed(T, A, 1), *steps(0), published(0), returned(0)):
        metrics(event)
    known = {metric.full_name: metric for metric in METRICS}
    for name, found in read().items():
        full = re.sub(r"\W", "_", name) + _UNITS[found.unit]
        full += "_total" if type(found.data).__name__ == "Sum" else ""
        assert full in known, name
        kinds = {"Sum": COUNTER, "Gauge": "gauge", "Histogram": HISTOGRAM}
        assert known[full].kind == kinds[type(found.data).__name__], name
    assert len(read()) > 30


def test_all_that_prometheus_has(reading):
    """No metric is missing that has a value."""
    metrics, read = reading
    for event in (events.Claimed(T, A, 1), *steps(0), published(0), returned(0)):
        metrics(event)
    assert len(read()) == len(metrics.collect())


def test_one_look_for_a_reading(sdk, monkeypatch):
    """Some eighty instruments are asked, and the registry is looked at once; then again when a while is over."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    clock = Hands()
    monkeypatch.setattr(instruments, "Clock", lambda: clock)
    metrics, reader = Metrics(), InMemoryMetricReader()
    export_metrics(metrics, MeterProvider([reader]))
    metrics(events.Claimed(T, A, 1))
    looks = []
    monkeypatch.setattr(metrics, "collect", lambda of=metrics.collect: looks.append(1) or of())
    for number in range(1, 3):
        assert reader.get_metrics_data() is not None
        assert len(looks) == number
        clock.ms += 1_000
