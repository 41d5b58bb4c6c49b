"""The table of all metrics in docs/METRICS.md, made from the code: ``python -m tests.metrics_page`` writes it."""

import re
from pathlib import Path

from streamsink.metrics.families import METRICS, OF_QUERY, Metric

PAGE = Path(__file__).resolve().parent.parent / "docs" / "METRICS.md"
_BEGIN = "<!-- begin metrics -->"
_END = "<!-- end metrics -->"
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


def page() -> str:
    """The page with the table as the code has it now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{listed()}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
