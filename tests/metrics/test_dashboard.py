"""The dashboard and the alert rules: current, of metrics that there are, and firing when they shall and not before."""

import json
import re

import pytest
import yaml

from streamsink.metrics import ALERTS, DASHBOARD, Metrics, text
from streamsink.metrics.families import METRICS
from tests import dashboard, metrics_page
from tests.conftest import unavailable
from tests.crash.world import memory_world

_OF = 'table="lake/t", application="a"'
# By alert: series with their values by minute (promtool's notation), which make it fire after an hour, and others which
# do not.
FIRES = {
    "StreamsinkPublishingStuck": ({f"streamsink_oldest_pending_age_seconds{{{_OF}}}": "0+60x60"}, "0+4x60"),
    "StreamsinkIdle": ({f"streamsink_last_publish_age_seconds{{{_OF}}}": "1000+60x60"}, "5x60"),
    "StreamsinkGone": ({f"streamsink_epoch{{{_OF}}}": "1x53 _x10"}, "1x60"),
    "StreamsinkRestarting": ({f"streamsink_epoch{{{_OF}}}": "1x30 2 3 4 5 6x30"}, "1x30 2x30"),
    "StreamsinkBatchFailing": ({f"streamsink_batch_failures_total{{{_OF}}}": "0x55 1x10"}, "3x60"),
    "StreamsinkPublishingFailed": ({f"streamsink_failed_committables_total{{{_OF}}}": "0x55 1x10"}, "1x60"),
    "StreamsinkFenced": ({f"streamsink_fenced_total{{{_OF}}}": "0x55 1x10"}, "1x60"),
    "StreamsinkSnapshotReplaced": ({f"streamsink_snapshots_replaced_total{{{_OF}}}": "0x30 1x30"}, "2x60"),
    "StreamsinkCheckpointLost": ({f"streamsink_batches_filtered_total{{{_OF}}}": "0x30 1x30"}, "1x60"),
    "StreamsinkDeadLetters": ({f"streamsink_num_records_out_errors_total{{{_OF}}}": "0x55 7x10"}, "9x60"),
    "StreamsinkCommitsContended": (
        {
            f"streamsink_retried_committables_total{{{_OF}}}": "0+2x60",
            f"streamsink_successful_committables_total{{{_OF}}}": "0+3x60",
        },
        "0x60",
    ),
    "StreamsinkCommitsSlow": (
        {
            f'streamsink_commit_duration_seconds_bucket{{{_OF}, le="30.0"}}': "0+1x60",
            f'streamsink_commit_duration_seconds_bucket{{{_OF}, le="60.0"}}': "0+2x60",
            f'streamsink_commit_duration_seconds_bucket{{{_OF}, le="+Inf"}}': "0+2x60",
        },
        "0+2x60",
    ),
    "StreamsinkBackPressure": ({f"streamsink_back_pressured_time_seconds_total{{{_OF}}}": "0+40x60"}, "0+20x60"),
    "StreamsinkSourceLag": ({f"streamsink_pending_records{{{_OF}}}": "2000000x60"}, "10x60"),
    "StreamsinkWatermarkLag": ({f"streamsink_watermark_lag_seconds{{{_OF}}}": "3000+60x60"}, "20x60"),
    "StreamsinkDestinationBehind": ({f'streamsink_destination_pending{{{_OF}, destination="d"}}': "1x60"}, "0x60"),
    "StreamsinkIcebergBehind": ({f"streamsink_iceberg_metadata_behind{{{_OF}}}": "1x60"}, "0x60"),
    "StreamsinkSmallFiles": ({f"streamsink_small_files{{{_OF}}}": "20000x70"}, "100x70"),
    "StreamsinkSparkQueryFailed": (
        {'streamsink_spark_queries_ended_total{query="q", with_error="true"}': "0x55 1x10"},
        "0x60",
    ),
    "StreamsinkListenerErrors": ({f"streamsink_listener_errors_total{{{_OF}}}": "0x55 1x10"}, "4x60"),
}
_AT, _FIRING = "61m", 'count by (alertname, table) (ALERTS{alertstate="firing"})'


@pytest.fixture(scope="module")
def promtool():
    """Prometheus' own tool."""
    from tests.services import prometheus
    from tests.services.server import ServerError

    try:
        prometheus.program("promtool")
    except ServerError as why:
        unavailable("promtool", why)
    return prometheus.promtool


def rules():
    return yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]


def names_in(query):
    return {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\bstreamsink_\w+", query)}


def test_the_dashboard_is_as_the_code_has_it():
    """``python -m tests.dashboard`` writes it anew."""
    assert DASHBOARD.read_text(encoding="utf-8") == dashboard.dashboard() + "\n"
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
    assert len(set(places)) == len(places)


def test_queries_and_rules_name_metrics_that_there_are():
    """A metric that was renamed would leave an empty panel, or an alert that never fires."""
    known = {metric.full_name for metric in METRICS}
    for query in [query for _, query in dashboard.queries()] + [rule["expr"] for rule in rules()]:
        assert names_in(query) and names_in(query) <= known, query


def test_each_alert_says_what_to_do():
    """A summary, a description with a way on, and a severity."""
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"].endswith((".", "kinds."))
    assert sorted(rule["alert"] for rule in rules()) == sorted(FIRES)


def test_each_alert_fires_and_is_quiet_otherwise(promtool, tmp_path):
    """By promtool, with the thresholds and times as they are shipped."""
    groups = []
    for is_calm in (False, True):
        # each alert has a table of its own, so all of them are tried at once, and none fires for another one's table
        given = [
            {"series": name.replace("lake/t", alert), "values": calm if is_calm else values}
            for alert, (series, calm) in FIRES.items()
            for name, values in series.items()
        ]
        fired = [
            {"labels": f'{{alertname="{alert}"{of}}}', "value": 1}
            for alert, (series, _) in FIRES.items()
            for of in [f', table="{alert}"' if "table=" in next(iter(series)) else ""]
        ]
        asked = {"expr": _FIRING, "eval_time": _AT, "exp_samples": [] if is_calm else fired}
        groups.append({"interval": "1m", "input_series": given, "promql_expr_test": [asked]})
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": groups}))
    promtool("check", "rules", ALERTS)
    promtool("test", "rules", file)


def test_the_configuration_of_the_page_is_one(promtool, tmp_path):
    """promtool takes it, with the rules beside it."""
    (config,) = re.findall(r"```yaml\n(.*?)```", metrics_page.PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text())
    (tmp_path / "prometheus.yml").write_text(config)
    promtool("check", "config", "prometheus.yml", folder=tmp_path)


def test_what_is_served_is_as_prometheus_wants_it(promtool):
    """promtool's own check of names, helps and types."""
    world, metrics = memory_world(), Metrics()
    world.run()
    for event in world.driver.events:
        metrics(event)
    promtool("check", "metrics", stdin=text(metrics))
