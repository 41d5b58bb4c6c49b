"""A real collector, built of OpenTelemetry's own modules, takes what the SDK's exporters send of a real query."""

import pytest

import streamsink
from streamsink.events import Listeners
from streamsink.metrics import Metrics
from streamsink.traces import Traces, export_metrics
from tests.conftest import unavailable
from tests.e2e.harness import Ground
from tests.lineage.test_queries import files, run
from tests.services.otelcol import OpenTelemetryCollector
from tests.services.server import ServerError

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(2_400)]
WAIT_MS = 30_000


@pytest.fixture
def otelcol(sdk, tmp_path):
    folder = tmp_path / "otelcol"
    folder.mkdir()
    try:
        server = OpenTelemetryCollector(folder).start()
    except ServerError as why:
        unavailable("a collector of OpenTelemetry", why)
    with server:
        yield server


def test_a_query(spark, tmp_path, otelcol):
    """Each batch is a trace with its steps, and the metrics have the names of Prometheus."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    ground, metrics, provider = Ground(tmp_path), Metrics(), TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{otelcol.url}/v1/traces")))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter(f"{otelcol.url}/v1/metrics"))])
    export_metrics(metrics, meters)
    ground.add_files(0, 3)
    sink = streamsink.to_table(ground.table, listener=Listeners(metrics, Traces(provider)), flush=False)
    run(files(spark, ground), sink, ground)
    assert provider.force_flush(WAIT_MS) and meters.force_flush(WAIT_MS)
    provider.shutdown()
    meters.shutdown()
    otelcol.stop()  # what it has is in the file then
    spans = list(otelcol.spans())
    batches = [span for span in spans if span["name"] == "streamsink.batch"]
    assert len(batches) == 3 and len({span["traceId"] for span in batches}) == 3
    for batch in batches:
        below = {span["name"] for span in spans if span.get("parentSpanId") == batch["spanId"]}
        steps = {f"streamsink.{step}" for step in ("admit", "wait", "write", "record", "publish")}
        assert below - {"streamsink.restore"} == steps
    rows = [metric for metric in otelcol.metrics() if metric["name"] == "streamsink.num_records_out"][-1]
    [point] = rows["sum"]["dataPoints"]
    assert float(point.get("asDouble", point.get("asInt", 0))) == 30
    names = {metric["name"] for metric in otelcol.metrics()}
    assert {"streamsink.commit_duration", "streamsink.last_commit_attempts"} <= names
