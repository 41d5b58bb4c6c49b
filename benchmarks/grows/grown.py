"""A measurement at three sizes: its table, its slope and its goal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.report import Goal, Table, at_most


@dataclass(frozen=True)
class Grown:
    """One value at several sizes. what: is measured, with its unit. at: the value by size.

    limit: what is judged may be at most this. judged: the slope, a unit of the size ('slope'); the value at the
    greatest size ('last'); or how much the greatest is above the value at the size before it ('flat').
    how: the form of a number.
    """

    what: str
    at: Mapping[int, float]
    limit: float
    judged: str = "last"
    how: str = "{:,.1f}"

    @property
    def slope(self) -> float:
        """How much a unit of the size adds, from the least size to the greatest."""
        first, last = min(self.at), max(self.at)
        return (self.at[last] - self.at[first]) / (last - first)

    @property
    def found(self) -> float:
        """What is compared with the limit."""
        before, last = sorted(self.at)[-2:]
        return {"slope": self.slope, "last": self.at[last], "flat": self.at[last] - self.at[before]}[self.judged]

    @property
    def goal(self) -> Goal:
        """The limit as a goal of the report."""
        before, last = sorted(self.at)[-2:]
        words = {"slope": "a unit more", "last": f"at {last:,}", "flat": f"more at {last:,} than at {before:,}"}
        goal = at_most(f"{self.what}, {words[self.judged]}", self.found, self.limit, self.how)
        if self.judged != "slope":
            return goal
        return replace(goal, target=f"<= {number(self.limit)}", measured=number(self.found))


# What the limit is compared with, in the table.
_JUDGED = {"slope": " (slope)", "last": "", "flat": " more"}


def number(value: float) -> str:
    """With three digits that count, without an exponent where it is large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(title: str, of: str, grown: Sequence[Grown], note: str) -> Table:
    """The measurements as rows; all of them have the same sizes. of: what the sizes count."""
    sizes = sorted(grown[0].at)
    head = (of, *(f"{size:,}" for size in sizes), "slope", "limit", "")
    rows = [
        [
            each.what,
            *(each.how.format(each.at[size]) for size in sizes),
            number(each.slope),
            f"{each.goal.target}{_JUDGED[each.judged]}",
            "met" if each.goal.met else "**not met**",
        ]
        for each in grown
    ]
    return Table(title, head, rows, note)


def report(title: str, of: str, grown: Sequence[Grown], note: str) -> list[Table | Goal]:
    """The table and the goals."""
    return [table(title, of, grown, note), *(each.goal for each in grown)]
