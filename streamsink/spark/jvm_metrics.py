"""Numbers for the metrics system of Spark's driver: the Dropwizard registry whose sinks (JMX, Graphite, CSV and others)
are configured by ``spark.metrics.conf``.

Values are handed over now and then, by a thread: a call to the JVM for each value in each batch would take longer than
a listener may, and gauges that ask Python at each report would need its answer.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streamsink.events import log
from streamsink.spark.gateway.running import jvm_that_calls_back
from streamsink.spark.gateway.side_jobs import is_stopped

SOURCE = "streamsink"
_PATIENCE_S = 10.0


class _Source:
    """Spark's ``Source``: asked by Spark once, when it is registered, and by its name when the session ends."""

    def __init__(self, registry: object):
        self._registry = registry

    def sourceName(self) -> str:
        """The first part of the metrics' names, behind the application's id and the driver."""
        return SOURCE

    def metricRegistry(self) -> object:
        """The registry, whose later metrics Spark's own registry gets as well."""
        return self._registry

    def toString(self) -> str:
        """For Spark's log."""
        return SOURCE

    class Java:
        """How py4j knows what this is."""

        implements = ["org.apache.spark.metrics.source.Source"]


class JvmMetrics:
    """Keeps gauges of the driver's registry at the values that ``numbers`` returns, by name.

    It ends with the session: what it knows of the JVM is let go of then, and a new session needs a new one.
    """

    def __init__(self, spark: SparkSession, numbers: Callable[[], Iterable[tuple[str, float]]], every_ms: int):
        jvm = jvm_that_calls_back(spark)
        self._java: Any = jvm
        self._spark = spark
        self._registry: Any = jvm.com.codahale.metrics.MetricRegistry()
        self._gauges: dict[str, Any] = {}
        self._numbers, self._every_s = numbers, max(every_ms, 1) / 1000
        self._ending = threading.Event()
        jvm.org.apache.spark.SparkEnv.get().metricsSystem().registerSource(_Source(self._registry))
        self._thread = threading.Thread(target=self._run, name="streamsink-jvm-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hand over once more, and stop. Idempotent."""
        if not self._ending.is_set():
            self._ending.set()
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        is_alive = True
        while is_alive:
            is_ending = self._ending.wait(self._every_s)
            is_alive = self._hand_over() and not is_ending
        self._gauges.clear()
        self._java = self._registry = None

    def _hand_over(self) -> bool:
        """Whether the session is there. Without it, or the JVM, there is nothing more to do."""
        try:
            if is_stopped(self._spark):
                return False
            known = set[str]()
            for name, value in self._numbers():
                self._set(name, float(value))
                known.add(name)
            for name in self._gauges.keys() - known:  # of a query that has made room for another one
                self._registry.remove(name)
                del self._gauges[name]
            return True
        except (Py4JError, OSError) as failed:
            log.warning("metrics are not handed to Spark's metrics system any more: %s", type(failed).__name__)
            return False

    def _set(self, name: str, value: float) -> None:
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._java.com.codahale.metrics.DefaultSettableGauge(value)
            self._gauges[name] = self._registry.register(name, gauge)
        else:
            gauge.setValue(value)
