"""Traces of batches and metrics of queries for OpenTelemetry; see docs/TRACES.md.

It needs opentelemetry-api on the driver, pip install 'streamsink[opentelemetry]', and an SDK with the exporters of your
choice, such as opentelemetry-sdk with opentelemetry-exporter-otlp-proto-http.
"""

from streamsink.traces.instruments import export_metrics
from streamsink.traces.spans import Traces

__all__ = ["Traces", "export_metrics"]
