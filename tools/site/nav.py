"""What the site's navigation has, and ``llms.txt``: docs/README.md, whose tables list all pages, is the only list."""

import re
from pathlib import Path
from typing import NamedTuple

from tools.common import ROOT

INDEX = "docs/README.md"
HOME = "README.md"
_ROW = re.compile(r"^\| \[[^\]]+\]\(([^)#]+)\) \| (.+) \|$")
_HEADING = re.compile(r"^## (.+)$")


class Entry(NamedTuple):
    """page: its path from the checkout's folder. what: what it is for, in a few words."""

    page: str
    what: str


def groups(text: str | None = None) -> dict[str, list[Entry]]:
    """The groups of the navigation with their pages, in the order of docs/README.md.

    text: of that page, if not the file's. Raises ValueError for a page that is listed twice, or outside of a group.
    """
    found: dict[str, list[Entry]] = {}
    group = None
    seen: set[str] = set()
    for line in (text if text is not None else (ROOT / INDEX).read_text(encoding="utf-8")).splitlines():
        heading, row = _HEADING.match(line), _ROW.match(line)
        if heading:
            group = found.setdefault(heading[1], [])
        elif row:
            page = _from_root(row[1])
            if group is None or page in seen:
                raise ValueError(f"{INDEX} lists {page} {'twice' if group is not None else 'before its first heading'}")
            seen.add(page)
            group.append(Entry(page, row[2]))
    return found


def _from_root(target: str) -> str:
    return Path((ROOT / "docs" / target).resolve()).relative_to(ROOT).as_posix()


def title_of(page: str) -> str:
    """A page's first heading, without marks."""
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line[2:].replace("`", "").strip()
    raise ValueError(f"{page} has no heading")


def toctrees() -> str:
    """The navigation as Sphinx wants it, to be put behind the text of the home page."""
    parts = []
    for group, entries in groups().items():
        pages = [entry.page for entry in entries if entry.page != HOME]
        names = "".join(f"/{Path(page).with_suffix('').as_posix()}\n" for page in pages)
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {group}\n\n{names}```\n")
    all_pages = Path(INDEX).with_suffix("").as_posix()
    return (
        "".join(parts) + f"\n```{{toctree}}\n:hidden:\n:caption: All pages\n\nList of all pages </{all_pages}>\n```\n"
    )
