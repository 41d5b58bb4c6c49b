"""Metrics of queries, made from their events: for Prometheus, and for whoever reads ``Metrics.registry``.

A ``Metrics`` is a listener. One object serves all queries of a driver, together with the log:

    metrics = Metrics()
    serve(metrics, "127.0.0.1:9464")
    sink = streamsink.to_table(path, listener=Listeners(to_log, metrics))

docs/METRICS.md lists all metrics. ``ALERTS`` and ``DASHBOARD`` are the paths of rules for Prometheus and of a dashboard
for Grafana.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from streamsink.events import Listener, Listeners, to_log
from streamsink.metrics.exporting import Endpoint, TextFile, flat, serve, text
from streamsink.metrics.json_lines import JsonFormatter
from streamsink.metrics.listener import Metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from streamsink.spark.jvm_metrics import JvmMetrics

ALERTS = Path(__file__).with_name("prometheus-alerts.yml")
DASHBOARD = Path(__file__).with_name("grafana-dashboard.json")

__all__ = [
    "ALERTS",
    "DASHBOARD",
    "Endpoint",
    "JsonFormatter",
    "Listeners",
    "Metrics",
    "TextFile",
    "flat",
    "serve",
    "spark_metrics",
    "spark_progress",
    "text",
    "to_log",
]


def spark_progress(spark: "SparkSession", listener: Listener) -> "StreamingQueryListener":
    """Tell the listener, such as a ``Metrics``, also what Spark says of each query of the session.

    Call it once for a session, before its queries start. Returns Spark's listener, for
    ``spark.streams.removeListener``.
    """
    from streamsink.spark.progress import listen

    return listen(spark, listener)


def spark_metrics(spark: "SparkSession", metrics: Metrics, every_ms: int = 10_000) -> "JvmMetrics":
    """Hand the metrics to the metrics system of Spark's driver, for the sinks that ``spark.metrics.conf`` names there.

    They are gauges of the source ``streamsink``, with the names of ``flat``. A thread hands them over. Returns what
    ``close`` stops.
    """
    from streamsink.spark.jvm_metrics import JvmMetrics

    return JvmMetrics(spark, functools.partial(flat, metrics), every_ms)
