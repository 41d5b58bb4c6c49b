"""The tables in docs/METRICS.md, made from the code: ``python -m tests.metrics_page`` writes them."""

import re
from pathlib import Path

import yaml

from streamsink.metrics import ALERTS
from streamsink.metrics.families import METRICS, OF_QUERY, Metric

PAGE = Path(__file__).resolve().parent.parent / "docs" / "METRICS.md"
_ALERTS = "| alert | severity | fires when | for |\n|---|---|---|---|\n"
_HEAD = "| metric | kind | labels besides | as others know it | made of | what it is |\n|---|---|---|---|---|---|\n"


def listed() -> str:
    """All metrics, group by group."""
    parts = []
    for group in dict.fromkeys(metric.group for metric in METRICS):
        rows = [_row(metric) for metric in METRICS if metric.group == group]
        parts.append(f"\n### {group}\n\n{_HEAD}{''.join(rows)}")
    return "".join(parts)


def _row(metric: Metric) -> str:
    labels = metric.labels[2:] if metric.labels[:2] == OF_QUERY else metric.labels
    of = ", ".join(f"`{kind.__name__}`" for kind in metric.feeds) or "when it is read"
    known = re.sub(r"\b([a-z]+[A-Z]\w*|records-lag|eventTime\.watermark)", r"`\1`", metric.known_as)
    cells = (f"`{metric.full_name}`", metric.kind, ", ".join(f"`{each}`" for each in labels), known, of, metric.help)
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


def alerts() -> str:
    """The rules for Prometheus, as they are shipped."""
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    rows = [(r["alert"], r["labels"]["severity"], f"`{' '.join(r['expr'].split())}`", r.get("for", "")) for r in rules]
    return "\n" + _ALERTS + "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)


def page() -> str:
    """The page with its tables as the code has them now."""
    text = PAGE.read_text(encoding="utf-8")
    for name, made in {"metrics": listed(), "alerts": alerts()}.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
