"""Markdown tables, printed, and with --write put between the markers of docs/BENCHMARKS.md."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "BENCHMARKS.md"


@dataclass(frozen=True)
class Table:
    """``note``: one line below it. Cells are text."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def text(tables: Sequence[Table]) -> str:
    """All of them, one after another."""
    return "\n\n".join(_one(table) for table in tables)


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
