"""The metrics of a job, which Prometheus or a browser reads while it runs."""

from pyspark.sql import SparkSession

from streamsink.events import Listener
from streamsink.metrics import Listeners, Metrics, serve, spark_progress
from support.progress import say


def served(address: str | None) -> Metrics | None:
    """Metrics at ``HOST:PORT`` until the process ends; None without an address.
    Raises StreamsinkError where the address cannot be had."""
    if not address:
        return None
    metrics = Metrics()
    say(f"metrics     {serve(metrics, address).url}")
    return metrics


def beside(listener: Listener, metrics: Metrics | None, spark: SparkSession) -> Listener:
    """A listener for the sink that tells both, and the metrics are told what Spark says of its queries as well."""
    if metrics is None:
        return listener
    spark_progress(spark, metrics)
    return Listeners(listener, metrics)
