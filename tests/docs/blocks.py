"""The pages, and the blocks of code, commands and data in them."""

import functools
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^( *)(`{3,}|~{3,})(\S*)")


@dataclass(frozen=True)
class Block:
    """page: its path from the checkout's folder. line: of its first line of text, from 1. language: '' for none."""

    page: str
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name under which a reader saves it: that of the comment that it begins with."""
        named = re.match(r"# (\S+\.(?:py|yaml|json))\n", self.text)
        return named[1] if named else None


@functools.cache
def pages() -> tuple[str, ...]:
    """All pages for users and contributors, as paths from the checkout's folder."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in found))


@functools.cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@functools.cache
def blocks_of(page: str) -> tuple[Block, ...]:
    """The blocks of a page in their order. Raises ValueError for one that does not end."""
    found, lines = [], text_of(page).splitlines()
    opened: tuple[int, str, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened = (number + 1, fence[2], fence[3])
        elif opened and fence and fence[2].startswith(opened[1]) and not fence[3]:
            first, _, language = opened
            text = textwrap.dedent("\n".join(lines[first:number]) + "\n")
            found.append(Block(page, first + 1, language, text))
            opened = None
    if opened:
        raise ValueError(f"{page}:{opened[0]}: the block does not end")
    return tuple(found)
