"""One set of listeners for the events of the sink and for Spark's own progress, of real queries."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import streamsink
from streamsink import events
from streamsink.metrics import Listeners, Metrics, spark_metrics, spark_progress, text
from streamsink.spark import jvm_metrics
from streamsink.spark.jvm_metrics import JvmMetrics
from streamsink.spark.progress import ProgressListener
from tests.e2e.harness import Ground, assert_each_once

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


def run(spark, ground, sink, name):
    stream = spark.readStream.schema("id BIGINT, name STRING").option("maxFilesPerTrigger", 1).json(str(ground.source))
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", ground.checkpoint).queryName(name)
    return writer.trigger(availableNow=True).start()


def heard_within(heard, kind):
    """Spark calls its listeners behind the batch, in a thread of its own."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = [event for event in heard if isinstance(event, kind)]
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {kind.__name__} in {heard}")


def in_spark(spark):
    """The gauges of ours in the registry of Spark's driver, which only Spark's own sinks are given."""
    system = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
    (field,) = (each for each in system.getClass().getDeclaredFields() if each.getName() == "registry")
    field.setAccessible(True)
    gauges = field.get(system).getGauges()
    return {
        name.partition(".driver.streamsink.")[2]: gauges.get(name).getValue()
        for name in gauges.keySet()
        if ".driver.streamsink." in name
    }


@pytest.mark.spark
def test_sinks_of_sparks_own_metrics_are_given_them(spark):
    """By flat names, with their last values; metrics that come later as well."""
    metrics = Metrics()
    metrics(events.Claimed("lake/shop.db/orders", "streamsink", 3))
    handing = spark_metrics(spark, metrics, every_ms=1)
    try:
        end = time.monotonic() + WAIT_S
        while "lake_shop_db_orders.streamsink.epoch" not in in_spark(spark) and time.monotonic() < end:
            time.sleep(0.05)
        metrics(events.Claimed("lake/shop.db/orders", "streamsink", 4))
        metrics(events.BatchReturned("lake/shop.db/orders", "streamsink", 1, 2_000.0))
    finally:
        handing.close()
    handing.close()
    found = in_spark(spark)
    of = "lake_shop_db_orders.streamsink."
    assert (found[f"{of}epoch"], found[f"{of}starts"]) == (4, 2)
    assert (found[f"{of}batch_duration_seconds_count"], found[f"{of}batch_duration_seconds_sum"]) == (1, 2)


@pytest.mark.spark
def test_a_gauge_goes_with_its_series(spark):
    """In a driver that starts ever new queries there would be more and more of them."""
    numbers = {"made.one": 1.0, "made.two": 2.0}
    handing = JvmMetrics(spark, lambda: list(numbers.items()), every_ms=60_000)
    handing._hand_over()
    assert {"made.one", "made.two"} <= in_spark(spark).keys()
    del numbers["made.one"]
    handing.close()
    assert "made.one" not in in_spark(spark) and in_spark(spark)["made.two"] == 2


@pytest.mark.spark
def test_gauges_are_set_as_long_as_the_session_is_there(spark, monkeypatch, caplog):
    """The JVM lives on behind ``spark.stop()``, and would take the numbers of a thread that goes on for ever."""
    handing = JvmMetrics(spark, lambda: [("made.three", 3.0)], every_ms=1)
    monkeypatch.setattr(jvm_metrics, "is_stopped", lambda spark: True)
    handing._thread.join(WAIT_S)
    assert not handing._thread.is_alive() and not caplog.records
    handing.close()


_STOPPED = """
import threading
from pyspark.sql import SparkSession
from streamsink.metrics import Metrics, spark_metrics
from tools.sparkconf import local_conf
for number in range(2):
    builder = SparkSession.builder
    for name, value in local_conf("", []).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    handing = spark_metrics(spark, Metrics(), every_ms=1)
    spark.stop()
    handing._thread.join(60)
    print(handing._thread.is_alive(), [each.name for each in threading.enumerate() if "jvm-metrics" in each.name])
    handing.close()
"""


@pytest.mark.soak
def test_a_session_that_is_stopped_takes_its_numbers_along():
    """With a real session, and another one behind it."""
    said = subprocess.run([sys.executable, "-c", _STOPPED], capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert said.stdout.splitlines() == ["False []"] * 2, said.stderr


def test_a_progress_that_cannot_be_read_ends_nothing(caplog):
    """Spark's own thread calls; what a version says in another form is logged once, and counted."""
    heard = []
    listening = ProgressListener(heard.append)
    for _ in range(2):
        listening.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(name="orders", durationMs=None)))
    assert [(type(each), each.error) for each in heard] == [(events.ListenerFailed, "AttributeError")] * 2
    (line,) = caplog.records
    assert "could not be read" in line.getMessage()


@pytest.mark.spark
def test_one_registry_has_the_sink_and_spark(spark, ground):
    """Rows that Spark has read and rows that are visible stand side by side, and so does the query's id."""
    heard, metrics = [], Metrics()
    both = Listeners(heard.append, metrics)
    listening = spark_progress(spark, both)
    try:
        expected = ground.add_files(0, 3)
        run(spark, ground, streamsink.to_table(ground.table, both, flush=False), "orders").awaitTermination()
        heard_within(heard, events.SparkQueryEnded)
        assert_each_once(ground.table, expected)
        of, registry = (ground.table, "streamsink"), metrics.registry
        assert registry.value("spark_input_rows", "orders") == registry.value("num_records_out", *of) == 30
        assert registry.value("spark_batch_id", "orders") == registry.value("last_published_batch_id", *of) == 2
        assert registry.value("spark_queries_ended", "orders", "false") == 1
        assert registry.value("spark_batch_duration_seconds", "orders", "addBatch") > 0
        (query,) = {event.query for event in heard if isinstance(event, events.BatchAdmitted)}
        assert {event.query for event in heard if isinstance(event, events.SparkProgress)} == {query}
        assert f'query="{query}"' in text(metrics) and 'streamsink_spark_input_rows_total{query="orders"}' in text(
            metrics
        )

        heard.clear()
        ground.add_files(3, 1)
        wrong = streamsink.to_table(ground.table, both, flush=False, application="other", create=False)
        stopped = run(spark, ground, lambda df, batch_id: wrong(df.selectExpr("id AS other"), batch_id), "orders")
        with pytest.raises(Exception, match="StreamingQueryException|STREAM_FAILED|terminated with exception"):
            stopped.awaitTermination()
        (ended,) = heard_within(heard, events.SparkQueryEnded)
        assert ended.with_error and registry.value("spark_queries_ended", "orders", "true") == 1
        assert registry.value("batch_failures", ground.table, "other") == 1
    finally:
        spark.streams.removeListener(listening)
