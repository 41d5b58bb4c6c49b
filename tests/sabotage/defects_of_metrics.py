"""Defects of metrics: which series there are in a driver that starts ever new queries, and when handing them on ends."""

from tests.sabotage.defect import Defect

_LISTENER, _SPARK = "tests/metrics/test_listener.py", "tests/metrics/test_spark.py"
_REGISTRY = "metrics/registry.py:Registry"

OF_METRICS = (
    Defect("a query more has no series of its own", f"{_REGISTRY}._key",
           "name not in self._full and self.make_room(series, self._labels[name])", "False", (_LISTENER,)),
    Defect("a query more has no ages", "metrics/listener.py:Metrics._query",
           "or self.registry.make_room(self._queries)", "", (_LISTENER,)),
    Defect("a query that has begun again makes room", f"{_REGISTRY}.go_on",
           "self._ended[len(of)].pop(of, None)", "pass", (_LISTENER,)),
    Defect("tables of a query that has ended keep their series", f"{_REGISTRY}._whose",
           "return of if of in ended else key", "return key", (_LISTENER,)),
    Defect("series of a table go although its own query runs", f"{_REGISTRY}._whose",
           "key in ended or key in self._running or", "key in ended or", (_LISTENER,)),
    Defect("a metric that once had no room never has", f"{_REGISTRY}.end",
           "self._full.clear()", "pass", (_LISTENER,)),
    Defect("what ended long ago stays for ever", f"{_REGISTRY}.end",
           "self._give_up(oldest, self._series(name), self._labels[name])", "pass", (_LISTENER,)),
    Defect("a gauge of Spark's outlives its series", "spark/jvm_metrics.py:JvmMetrics._hand_over",
           "self._gauges.keys() - known", "()", (f"{_SPARK}::test_a_gauge_goes_with_its_series",)),
    Defect("numbers are handed to a session that is stopped", "spark/jvm_metrics.py:JvmMetrics._hand_over",
           "if is_stopped(self._spark):", "if False:",
           (f"{_SPARK}::test_gauges_are_set_as_long_as_the_session_is_there",)),
    Defect("a progress that cannot be read is an error of Spark's thread", "spark/progress.py:ProgressListener.onQueryProgress",
           "except Exception as failed:", "except ZeroDivisionError as failed:",
           (f"{_SPARK}::test_a_progress_that_cannot_be_read_ends_nothing",)),
    Defect("a step whose event came late stands behind the next", "traces/spans.py:_Batch.add",
           "earlier.times[1] > begins_ns", "False",
           ("tests/traces/test_spans.py::test_events_that_a_busy_driver_tells_late",)),
)
