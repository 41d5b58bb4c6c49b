"""A real Prometheus scrapes a run of accidents: each query of the dashboard returns something, each alert fires."""

import json
import math
import re
import sys
import time
import urllib.parse
import urllib.request

import pytest

import streamsink
from streamsink.metrics import ALERTS, Listeners, Metrics, serve, spark_progress, to_log
from tests import dashboard
from tests.conftest import unavailable
from tests.e2e.kafka_data import new_topic, send
from tests.metrics import chaos
from tests.services import process
from tests.services.ports import free_ports

WAIT_S = 120
KILLS, SCRAPED_S = 5, 5.0
PARTITIONS = 2
# A minute has to do: times are short, and what takes long to grow is let fire earlier. promtool tries what is shipped.
_TIMES = {r"\[1h\]": "[90s]", r"\[15m\]": "[60s]", "offset 10m": "offset 15s", r"for: \w+": "for: 0s"}
_THRESHOLDS = {
    "oldest_pending_age_seconds > 600": "oldest_pending_age_seconds > 5",
    "last_publish_age_seconds > 3600": "last_publish_age_seconds > 5",
    "bucket[60s]))) > 30": "bucket[60s]))) > 0.00001",
    "back_pressured_time_seconds_total[60s]) > 0.5": "back_pressured_time_seconds_total[60s]) > 0.02",
    "small_files > 10000": "small_files > 1",
}


def hurried(text: str) -> str:
    """The rules for a run of a minute."""
    for long, short in _TIMES.items():
        text, count = re.subn(long, short, text)
        assert count, long
    for high, low in _THRESHOLDS.items():
        assert high in text, high
        text = text.replace(high, low)
    return text


@pytest.fixture
def addresses():
    return [f"127.0.0.1:{port}" for port in free_ports(2)]


@pytest.fixture
def prometheus(tmp_path, addresses):
    from tests.services.prometheus import Prometheus
    from tests.services.server import ServerError

    rules = tmp_path / "rules.yml"
    rules.write_text(hurried(ALERTS.read_text()))
    server = Prometheus(tmp_path / "prometheus", addresses, [rules])
    try:
        server.start()
    except ServerError as why:
        unavailable("Prometheus", why)
    yield server
    server.kill()


def killed_again_and_again(tmp_path, address):
    """A driver that is killed, and started at once, and in the end is gone."""
    for number in range(KILLS):
        driver = process.spawn(
            [sys.executable, "-m", "tests.metrics.killed", address, str(tmp_path)], tmp_path / "killed.log"
        )
        _until(lambda: _serves(address) or driver.poll() is not None)
        assert driver.poll() is None, process.tail(tmp_path / "killed.log")
        time.sleep(SCRAPED_S + number / 7)
        yield
        process.kill(driver)


def _seen(prometheus, table):
    """Whether the counters of this table have been scraped."""
    return prometheus.query(f'streamsink_listener_errors_total{{table="{table}"}}')


def _serves(address):
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as answer:
            return b"streamsink_last_published_batch_id{" in answer.read()
    except OSError:
        return False


def of_spark(spark, tmp_path, kafka_broker, listener):
    """A query from Kafka with compaction and maintenance, and one that fails."""
    topic = new_topic(kafka_broker.bootstrap, PARTITIONS)
    options = {"kafka.bootstrap.servers": kafka_broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=2).load()
    columns = ("CAST(CAST(value AS STRING) AS BIGINT) id", "topic", "partition", "offset")
    retained = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 s"}
    sink = streamsink.to_table(
        tmp_path / "lake" / "orders",
        listener,
        table_options=retained,
        flush=False,
        maintenance=True,
        maintenance_interval_ms=1_000,
        compaction=True,
        compaction_interval_ms=1_000,
    )
    writer = rows.selectExpr(*columns).writeStream.foreachBatch(sink).queryName("orders")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="0 seconds").start()
    )
    send(kafka_broker.bootstrap, topic, range(200), PARTITIONS)

    def fail(df, batch_id):
        time.sleep(SCRAPED_S)
        raise ValueError("as it may")

    rate = spark.readStream.format("rate").load().writeStream.foreachBatch(fail).queryName("fails")
    rate.option("checkpointLocation", str(tmp_path / "fails")).start()
    return query


def has_value(prometheus, query, begun):
    """Whether the query has had a number at any instant since then."""
    for name, value in {"$table": ".*", "$application": ".*", "$__rate_interval": "10s", "$__range": "60s"}.items():
        query = query.replace(name, value)
    asked = urllib.parse.urlencode({"query": query, "start": begun, "end": time.time(), "step": "1"})
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/query_range?{asked}", timeout=WAIT_S) as answer:
        series = json.load(answer)["data"]["result"]
    return any(math.isfinite(float(value)) for each in series for _, value in each["values"])


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kafka
def test_a_run_of_accidents_is_seen(spark, kafka_broker, tmp_path, prometheus, addresses):
    """Drivers that die, that are fenced, that are slow, and whatever else: nothing of it needs another look."""
    begun, metrics = time.time(), Metrics()
    endpoint = serve(metrics, addresses[0])
    listening = spark_progress(spark, metrics)
    steady = chaos.Steady(metrics)
    try:
        steady.start()
        query = of_spark(spark, tmp_path, kafka_broker, Listeners(to_log, metrics))
        accidents = [accident(metrics) for accident in chaos.ACCIDENTS]
        with chaos.STEPS:
            for accident in accidents:
                next(accident)
        _until(lambda: all(_seen(prometheus, table) for table in chaos.TABLES))
        lives = killed_again_and_again(tmp_path, addresses[1])
        next(lives)
        for accident in accidents:
            with chaos.STEPS:
                assert next(accident, None) is None
        for _ in lives:
            pass
        print("scraped:", prometheus.query("sum_over_time(up[5m])"), prometheus.query("count_over_time(up[5m])"))
        expected = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
        _until(lambda: expected <= prometheus.fired())
        print("fired:", sorted(prometheus.fired()))
        assert prometheus.fired() == expected
        query.stop()
        empty = [title for title, each in dashboard.queries() if not has_value(prometheus, each, begun)]
        assert empty == [], prometheus.url
    finally:
        steady.stop()
        spark.streams.removeListener(listening)
        endpoint.close()
        for each in spark.streams.active:
            each.stop()


def _until(holds):
    end = time.monotonic() + WAIT_S
    while not holds() and time.monotonic() < end:
        time.sleep(0.2)
