"""One set of listeners for the events of the sink and for Spark's own progress, of real queries."""

import time

import pytest

import streamsink
from streamsink import events
from streamsink.metrics import Listeners, Metrics, spark_progress, text
from tests.e2e.harness import Ground, assert_each_once

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
