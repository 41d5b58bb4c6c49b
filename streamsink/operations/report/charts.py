"""Charts as SVG inside of HTML, without any script. Pure.

Widths are percentages and heights are pixels, so a chart fills a narrow page and its letters keep their size. A chart
is a figure with a caption, a legend where there are several kinds of bars, and a table of all that it shows. Kinds
differ by pattern as well as by colour.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamsink.operations.report import text
from streamsink.operations.report.text import safe

_HEIGHT, _TOP, _BOTTOM = 210, 32, 24
_MOST_LABELS, _MOST_LINES = 6, 4
_FEWEST_BARS = 8  # fewer ones are as wide as if there were so many
_LEAST_HEIGHT = 1.5  # of a bar that is not nothing
# Between two lines of a chart are so many units.
_STEPS = [m * ten for ten in (1, 10, 100) for m in (1, 2, 3, 4, 5, 6, 8)] + [15, 25, 75]
# What the parts of a bar may look like; ``style.py`` and ``PATTERNS`` have the rest.
LOOKS = ("solid", "stripes", "dots", "bars", "grid")
PATTERNS = (
    '<svg width="0" height="0" aria-hidden="true" focusable="false" class="defs"><defs>'
    '<pattern id="stripes" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" class="soft-stripes"/><rect width="3" height="6" class="ink-stripes"/></pattern>'
    '<pattern id="dots" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect width="6" height="6" class="soft-dots"/><circle cx="3" cy="3" r="1.7" class="ink-dots"/></pattern>'
    '<pattern id="bars" width="6" height="5" patternUnits="userSpaceOnUse">'
    '<rect width="6" height="5" class="soft-bars"/><rect width="6" height="2" class="ink-bars"/></pattern>'
    '<pattern id="grid" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect width="6" height="6" class="soft-grid"/><path d="M0 1h6M1 0v6" class="line-grid"/></pattern>'
    "</defs></svg>"
)


@dataclass(frozen=True)
class Table:
    """A table behind a chart, or one of its own. columns: headings; one with a ``>`` before it has numbers, which are
    set to the right, and one with a ``=`` has texts that stay on one line. rows: cells, in HTML. stacked:
    on a narrow page its cells stand below each other.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    stacked: bool = False

    def html(self, label: str) -> str:
        """label: what the table is, for who does not see it."""
        head = "".join(f'<th scope="col"{_right(each)}>{safe(each.lstrip(">="))}</th>' for each in self.columns)
        body = "".join("<tr>" + "".join(map(self._cell, self.columns, row)) + "</tr>" for row in self.rows)
        look = ' class="stack"' if self.stacked else ""
        return (
            f'<div class="wide" role="region" tabindex="0" aria-label="{safe(label)}"><table{look}><thead>'
            f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def _cell(self, column: str, cell: str) -> str:
        said = f' data-is="{safe(column.lstrip(">="))}"' if self.stacked else ""
        return f"<td{_right(column)}{said}>{cell}</td>"


@dataclass(frozen=True)
class Chart:
    """Bars beside each other, each of parts on top of each other.

    columns: of each bar, by the name of the part, how high it is. looks: by the name of a part, one of ``LOOKS``.
    labels: (place of the bar, text) below them. unit: writes a height. marks: (place in bars, text) of lines across.
    above: of small signs above the bars, (place, name of the sign, text).
    """

    title: str
    says: str
    columns: Sequence[Mapping[str, float]]
    looks: Mapping[str, str]
    labels: Sequence[tuple[float, str]]
    table: Table
    unit: Callable[[float | None], str] = text.count
    y_title: str = ""
    x_title: str = ""
    marks: Sequence[tuple[float, str]] = ()
    above: Sequence[tuple[float, str, str]] = field(default_factory=tuple)

    @property
    def parts(self) -> int:
        """How many bars there is room for."""
        return max(len(self.columns), _FEWEST_BARS)

    def html(self, number: int) -> str:
        """number: of the chart in its page."""
        top = nice_top(max((sum(column.values()) for column in self.columns), default=0), self.unit)
        caption = f'<figcaption id="c{number}"><h3>{safe(self.title)}</h3><p>{self.says}</p></figcaption>'
        signs = sorted({(sign, words) for _, sign, words in self.above})
        plot = (
            f'<div class="chart"><svg class="axis" height="{_HEIGHT}" aria-hidden="true">{_lines(top, self.unit)}</svg>'
            f'<svg class="plot" height="{_HEIGHT}" role="img" aria-label="{safe(self._said())}">'
            f"{self._grid(top)}{self._bars(top)}{self._across()}{self._signs()}{self._below()}</svg></div>"
        )
        titles = f'<p class="axes"><span>↑ {safe(self.y_title)}</span><span>{safe(self.x_title)} →</span></p>'
        return (
            f'<figure aria-labelledby="c{number}">{caption}{legend(self.looks, signs)}{plot}{titles}'
            f"<details><summary>The numbers of this chart: {safe(self.title)}</summary>"
            f"{self.table.html(self.title)}</details></figure>"
        )

    def _said(self) -> str:
        parts = [
            f"{name}: at most {self.unit(max(column.get(name, 0) for column in self.columns))} in a bar"
            for name in (self.looks if self.columns else ())
        ]
        marks = [words for _, words in self.marks]
        return f"Chart with {text.things(len(self.columns), 'bar')}. {'; '.join([*parts, *marks])}. The table has all."

    def _grid(self, top: float) -> str:
        heights = [_y(top * line / _MOST_LINES, top) for line in range(_MOST_LINES + 1)]
        return "".join(f'<line x1="0" x2="100%" y1="{y}" y2="{y}" class="grid-line"/>' for y in heights)

    def _bars(self, top: float) -> str:
        found, wide = [], 100 / self.parts
        for place, column in enumerate(self.columns):
            at, drawn = f'x="{_n((place + 0.1) * wide)}%" width="{_n(wide * 0.8)}%"', 0.0
            for name, value in column.items():
                if value > 0:
                    high, low = _y(drawn + value, top), _y(drawn, top)
                    high = min(high, _n(low - _LEAST_HEIGHT))
                    found.append(f'<rect {at} y="{high}" height="{_n(low - high)}" class="b {self.looks[name]}"/>')
                    drawn += value
        return "".join(found)

    def _across(self) -> str:
        found = []
        for place, words in self.marks:
            x = 100 * place / self.parts
            side = 'text-anchor="end" dx="-5"' if x > 50 else 'dx="5"'
            found.append(
                f'<line x1="{_n(x)}%" x2="{_n(x)}%" y1="4" y2="{_HEIGHT - _BOTTOM}" class="mark"/>'
                f'<text x="{_n(x)}%" y="14" {side} class="mark-text">{safe(words)}</text>'
            )
        return "".join(found)

    def _signs(self) -> str:
        return "".join(
            f'<svg x="{_n((place + 0.5) * 100 / self.parts)}%" y="{_SIGN_Y[sign]}" overflow="visible">'
            f"{_SIGNS[sign]}</svg>"
            for place, sign, _ in self.above
        )

    def _below(self) -> str:
        return axis_below(self.labels, self.parts)


_SIGNS = {
    "restart": '<path d="M0 -5L5 4H-5Z" class="sign restart"/>',
    "accident": '<path d="M0 -6L6 0L0 6L-6 0Z" class="sign accident"/>',
}
_SIGN_Y = {"accident": 8, "restart": 22}


def axis_below(labels: Sequence[tuple[float, str]], parts: int, y: float = _HEIGHT - 6, first: str = "middle") -> str:
    """Texts below bars. labels: (place, text). first: how the first one lies at its place.

    On a narrow page every second one is left out.
    """
    found = []
    for number, (place, words) in enumerate(labels):
        x = 100 * place / max(1, parts)
        anchor = "end" if x > 94 else "middle" if number else first
        narrow = ' class="t2"' if number % 2 else ""
        found.append(f'<text x="{_n(x)}%" y="{_n(y)}" text-anchor="{anchor}"{narrow}>{safe(words)}</text>')
    return "".join(found)


def legend(looks: Mapping[str, str], signs: Sequence[tuple[str, str]] = ()) -> str:
    """What the parts and signs of a chart are; '' where there is one alone."""
    items = [
        f'<li><svg width="16" height="12" aria-hidden="true"><rect width="16" height="12" class="b {look}"/></svg>'
        f"{safe(name, 80)}</li>"
        for name, look in (looks.items() if len(looks) > 1 else ())
    ]
    items += [
        f'<li><svg width="16" height="14" aria-hidden="true"><svg x="8" y="7" overflow="visible">{_SIGNS[sign]}</svg>'
        f"</svg>{safe(words)}</li>"
        for sign, words in signs
    ]
    return f'<ul class="legend">{"".join(items)}</ul>' if items else ""


def strip(values: Sequence[float], label: str) -> str:
    """A line of small bars, as high as the largest of them says."""
    top, wide = max(values, default=0) or 1, 100 / max(1, len(values))
    bars = [
        f'<rect x="{_n(place * wide + wide * 0.1)}%" width="{_n(wide * 0.8)}%" y="{_n(26 - max(3, 24 * value / top))}" '
        f'height="{_n(max(3, 24 * value / top))}" class="b solid"/>'
        for place, value in enumerate(values)
        if value
    ]
    return f'<svg class="strip" height="27" role="img" aria-label="{safe(label)}">{"".join(bars)}</svg>'


def share(value: float, top: float) -> str:
    """A bar in a cell of a table, as long as the value is of the largest one; the cell beside it has the number."""
    part = _n(100 * value / top) if top else 0
    return (
        f'<svg class="share" height="12" aria-hidden="true"><rect width="{part}%" height="12" class="b solid"/></svg>'
    )


def some_of(count: int, most: int = _MOST_LABELS) -> list[int]:
    """Places of the bars that have a text below them."""
    return list(range(0, count, max(1, math.ceil(count / most))))


def nice_top(value: float, unit: Callable[[float | None], str]) -> float:
    """The height of an axis that ends with a number that is easily read, and has four parts that are, too."""
    if value <= 0:
        return _MOST_LINES
    steps: list[tuple[float, float]] = [(m, 1000.0**power) for power in range(7) for m in _STEPS]
    if unit is text.size:
        steps = [(1, 2.0**power) for power in range(70)]
    if unit is text.duration:
        units = [1, 1_000, 60_000, 3_600_000, 86_400_000, 86_400_000_000]
        steps = [
            (m, each)
            for each, next_one in zip(units, [*units[1:], 10**18])
            for m in (0.5, *_STEPS)
            if m * each >= 1 and m * each * _MOST_LINES <= next_one
        ]
    tops = sorted(m * each * _MOST_LINES for m, each in steps)
    return next((top for top in tops if top >= value), value)


def _lines(top: float, unit: Callable[[float | None], str]) -> str:
    return "".join(
        f'<text x="100%" dx="-6" y="{_n(_y(top * line / _MOST_LINES, top) + 4)}" text-anchor="end">'
        f"{unit(top * line / _MOST_LINES)}</text>"
        for line in range(_MOST_LINES + 1)
    )


def _y(value: float, top: float) -> float:
    return _n(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * min(1, value / top))


def _n(value: float) -> float:
    """A coordinate, without digits that nobody sees."""
    return round(value, 2)


def _right(column: str) -> str:
    return {">": ' class="n"', "=": ' class="w"'}.get(column[:1], "")
