"""The dashboard for Grafana, made from the panels below: ``python -m tests.dashboard`` writes it.

``tests/metrics/test_dashboard.py`` sees that it is current, and the soak that each query returns something.
"""

import json
from collections.abc import Iterator
from typing import Any

from streamsink.metrics import DASHBOARD

_OF = 'table=~"$table",application=~"$application"'
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 24


def _rate(name: str) -> str:
    return f"rate(streamsink_{name}{{{_OF}}}[$__rate_interval])"


def _sum(name: str, by: str) -> str:
    return f"sum by ({by}) ({_rate(name)})"


def _gauge(name: str) -> str:
    return f"streamsink_{name}{{{_OF}}}"


def _mean(name: str, by: str) -> str:
    return f"{_sum(f'{name}_sum', by)} / {_sum(f'{name}_count', by)}"


def _quantile(name: str, share: float) -> str:
    return f"histogram_quantile({share}, {_sum(f'{name}_bucket', 'le, table')})"


def _increase(name: str, by: str) -> str:
    return f"sum by ({by}) (increase(streamsink_{name}{{{_OF}}}[$__range]))"


_T, _S, _B = "{{table}}", "s", "bytes"
# By row: (title, unit, {legend: query}).
ROWS: dict[str, list[tuple[str, str, dict[str, str]]]] = {
    "At a glance": [
        ("Rows that become visible", "rowsps", {_T: _sum("num_records_out_total", "table")}),
        ("Time since the last publishing", _S, {_T: _gauge("last_publish_age_seconds")}),
        ("Checkpoints that are recorded and not published", "short", {_T: _gauge("pending_committables")}),
    ],
    "What is written": [
        ("Bytes", "Bps", {_T: _sum("num_bytes_out_total", "table")}),
        ("Data files a commit", "short", {_T: _gauge("last_table_files_added")}),
        ("Batches by what they were", "short", {"{{verdict}}": _sum("batches_total", "verdict")}),
    ],
    "How long it takes": [
        ("Steps of a batch, mean", _S, {"{{step}}": _mean("step_duration_seconds", "step")}),
        (
            "Commits",
            _S,
            {"median": _quantile("commit_duration_seconds", 0.5), "95 %": _quantile("commit_duration_seconds", 0.95)},
        ),
        ("Until rows are visible, 95 %", _S, {_T: _quantile("visible_delay_seconds", 0.95)}),
        ("Calls of the sink, 95 %", _S, {_T: _quantile("batch_duration_seconds", 0.95)}),
        ("Oldest record that is not published", _S, {_T: _gauge("oldest_pending_age_seconds")}),
        (
            "Waiting for publishing, share of time",
            "percentunit",
            {_T: _sum("back_pressured_time_seconds_total", "table")},
        ),
    ],
    "How far behind": [
        ("Messages behind the topics", "short", {_T: _gauge("pending_records")}),
        ("Age of the watermark", _S, {_T: _gauge("watermark_lag_seconds")}),
        (
            "Offsets behind, as Spark says",
            "short",
            {"{{query}} {{of}}": "max by (query, of) (streamsink_spark_offsets_behind_latest)"},
        ),
    ],
    "Accidents": [
        (
            "Batches that failed, by kind",
            "short",
            {"{{error}} {{kind}}": _increase("batch_failures_by_kind_total", "error, kind")},
        ),
        (
            "Starts and fences",
            "short",
            {
                "start {{table}}": _gauge("epoch"),
                "fenced": _increase("fenced_total", "table"),
                "restored": _increase("restored_committables_total", "table"),
            },
        ),
        (
            "Replays and overlaps",
            "short",
            {
                "replays skipped": _increase("already_committed_committables_total", "table"),
                "batches filtered": _increase("batches_filtered_total", "table"),
            },
        ),
        ("Tries of commits behind the first", "short", {_T: _sum("retried_committables_total", "table")}),
        ("Dead letters", "short", {_T: _increase("num_records_out_errors_total", "table")}),
        (
            "Other writers and destinations",
            "short",
            {
                "snapshots replaced": _increase("snapshots_replaced_total", "table"),
                "{{destination}} lacks": _gauge("destination_pending"),
                "Iceberg behind {{table}}": _gauge("iceberg_metadata_behind"),
            },
        ),
    ],
    "Compaction and maintenance": [
        ("Small files", "short", {_T: _gauge("small_files")}),
        (
            "Files that compaction replaced and made",
            "short",
            {
                "in {{table}}": _increase("compaction_files_in_total", "table"),
                "out {{table}}": _increase("compaction_files_out_total", "table"),
            },
        ),
        ("Snapshots that expired", "short", {_T: _increase("snapshots_expired_total", "table")}),
    ],
    "Spark": [
        (
            "Rows that arrive and are worked on",
            "rowsps",
            {
                "in {{query}}": "streamsink_spark_input_rows_per_second",
                "done {{query}}": "streamsink_spark_processed_rows_per_second",
            },
        ),
        ("Phases of the last trigger", _S, {"{{query}} {{phase}}": "streamsink_spark_batch_duration_seconds"}),
        ("Rows of states", "short", {"{{query}}": "streamsink_spark_state_rows"}),
    ],
}


def queries() -> Iterator[tuple[str, str]]:
    """(title of the panel, query) of all panels."""
    for panels in ROWS.values():
        for title, _, targets in panels:
            yield from ((title, query) for query in targets.values())


def dashboard() -> str:
    """The whole dashboard, as Grafana imports it."""
    return json.dumps(
        {
            "title": "streamsink",
            "uid": "streamsink",
            "description": "Queries that write with streamsink. docs/METRICS.md says what each metric is.",
            "tags": ["streamsink", "spark", "paimon"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": list(_variables())},
            "panels": list(_panels()),
        },
        indent=1,
    )


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    for label in ("table", "application"):
        yield {
            "name": label,
            "type": "query",
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "query": f"label_values(streamsink_epoch, {label})",
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": row, "gridPos": {"x": 0, "y": y, "w": _COLUMNS, "h": 1}}
        y += 1
        for place, (title, unit, targets) in enumerate(panels):
            number += 1
            x = place * _WIDTH % _COLUMNS
            at = {"x": x, "y": y + place * _WIDTH // _COLUMNS * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            yield _panel(number, title, unit, targets) | {"gridPos": at}
        y += -(-len(panels) * _WIDTH // _COLUMNS) * _HEIGHT


def _panel(number: int, title: str, unit: str, targets: dict[str, str]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(targets.items())
        ],
    }


if __name__ == "__main__":
    DASHBOARD.write_text(dashboard() + "\n", encoding="utf-8")
