"""What a benchmark returns: tables, goals and bars.
Tables are printed as Markdown, and with --write they are put into docs/BENCHMARKS.md."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "BENCHMARKS.md"
PICTURE = PAGE.with_name("benchmarks.svg")


@dataclass(frozen=True)
class Table:
    """``note``: one line below the table. Cells are text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Goal:
    """A ratio or a bound within one run. ``measured``: as text; ``met``: whether it holds."""

    what: str
    target: str
    measured: str
    met: bool


@dataclass(frozen=True)
class Bar:
    """One line of the picture's ``chart``: least, median and greatest value."""

    chart: str
    name: str
    values: Sequence[float]


def text(items: Sequence) -> str:
    """The tables among ``items``, one after another."""
    return "\n\n".join(_one(item) for item in items if isinstance(item, Table))


def goals(items: Sequence) -> Table:
    """The goals among ``items`` as a table."""
    rows = [[g.what, g.target, g.measured, "met" if g.met else "**not met**"] for g in items if isinstance(g, Goal)]
    return Table("Goals, as ratios within one run", ("goal", "target", "measured", ""), rows)


def at_most(what: str, value: float, most: float, how: str = "{:.2f}x") -> Goal:
    """A goal that is met when ``value`` is ``most`` or less."""
    return Goal(what, f"<= {how.format(most)}", how.format(value), value <= most)


def at_least(what: str, value: float, least: float, how: str = "{:.2f}x") -> Goal:
    """A goal that is met when ``value`` is ``least`` or more."""
    return Goal(what, f">= {how.format(least)}", how.format(value), value >= least)


def write(name: str, content: str) -> None:
    """Replace what stands between the markers of ``name`` on the page."""
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE} has no markers {begin} ... {end}")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n{content}\n{end}", page), encoding="utf-8")


def _one(table: Table) -> str:
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.head) + " |", "|" + "---|" * len(table.head)]
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines)
