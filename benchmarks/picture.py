"""The measurements as bars: an SVG, drawn here, that any browser and GitHub show."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.report import Bar

_WIDTH, _NAMES, _NUMBERS, _LINE, _HEAD = 960, 300, 110, 22, 34
_MOST_TIMES = 3
_STYLE = "text{font:13px sans-serif;fill:#222}.title{font-weight:bold}.value{fill:#555}"
_OURS, _OTHERS, _WHISKER = "#1b7f5c", "#9bb4c9", "#444"


def draw(items: Sequence, path: Path) -> None:
    """Draw the bars among ``items``, one chart for each name of a chart, in order:
    the median as a bar, least to greatest as a line."""
    charts: dict[str, list[Bar]] = {}
    for bar in (item for item in items if isinstance(item, Bar)):
        charts.setdefault(bar.chart, []).append(bar)
    parts, top = [], 10
    for title, members in charts.items():
        parts.append(f'<text class="title" x="10" y="{top + 16}">{escape(title)}</text>')
        parts += _chart(members, top + _HEAD)
        top += _HEAD + _LINE * len(members) + 16
    body = "\n".join(parts)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}">\n'
        f"<style>{_STYLE}</style>\n"
        f'<rect width="{_WIDTH}" height="{top}" fill="white"/>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def _chart(members: list[Bar], top: int) -> list[str]:
    """A bar that is many times longer than the others ends at the edge, and its number tells."""
    medians = [statistics.median(bar.values) for bar in members]
    edge = max(min(max(max(bar.values) for bar in members), _MOST_TIMES * statistics.median(medians)), 1e-9)
    scale = (_WIDTH - _NAMES - _NUMBERS) / edge
    lines = []
    for number, (median, bar) in enumerate(sorted(zip(medians, members), key=lambda pair: pair[0])):
        y = top + number * _LINE
        low, middle, high = (_NAMES + min(max(v, 0), edge) * scale for v in (min(bar.values), median, max(bar.values)))
        colour = _OURS if bar.name.startswith("streamsink") else _OTHERS
        lines += [
            f'<text x="{_NAMES - 8}" y="{y + 14}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect x="{_NAMES}" y="{y + 3}" width="{max(1.0, middle - _NAMES):.1f}" height="14" fill="{colour}"/>',
            f'<path d="M{low:.1f} {y + 10}H{high:.1f}" stroke="{_WHISKER}"/>',
            (
                f'<text class="value" x="{high + 6:.1f}" '
                f'y="{y + 14}">{median:,.4g}{" ..." if max(bar.values) > edge else ""}</text>'
            ),
        ]
    return lines
