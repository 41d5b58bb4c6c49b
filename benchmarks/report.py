"""What a benchmark returns: tables, goals and bars. Tables are printed as Markdown.

All of them go into ``build/bench/report.md``; ``pages.py`` says which numbers the documentation quotes.
"""

from collections.abc import Sequence
from dataclasses import dataclass


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
    """The tables among ``items``, one after another, each with its title and its note."""
    return "\n\n".join(_one(item) for item in items if isinstance(item, Table))


def lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]


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


def _one(table: Table) -> str:
    found = [f"**{table.title}**", "", *lines(table.head, table.rows)]
    if table.note:
        found += ["", table.note]
    return "\n".join(found)
