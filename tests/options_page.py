"""The list of all options in docs/OPTIONS.md, made from the code: ``python -m tests.options_page`` writes it."""

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path

from streamsink.options import groups
from streamsink.options.sink_options import GROUPS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "OPTIONS.md"
_BEGIN = "<!-- made by python -m tests.options_page -->"
_END = "<!-- until here -->"
_COLUMNS = 120
_MIB = 1024 * 1024


def descriptions() -> dict[str, str]:
    """By option, the text that stands below it in the code."""
    found = {}
    for group in ast.parse(inspect.getsource(groups)).body:
        if isinstance(group, ast.ClassDef):
            for declared, text in zip(group.body, group.body[1:]):
                if isinstance(declared, ast.AnnAssign) and isinstance(text, ast.Expr):
                    found[declared.target.id] = " ".join(text.value.value.split())
    return found


def listed() -> str:
    """All options, group by group: those that most queries set first."""
    texts, parts = descriptions(), []
    for group in GROUPS:
        name = re.sub("Options$", "", group.__name__)
        parts.append(f"\n### {name}\n\n{inspect.cleandoc(group.__doc__)}\n")
        for expert in (False, True):
            chosen = [declared for declared in fields(group) if declared.metadata["expert"] is expert]
            if chosen and expert:
                parts.append("\nFor experts:\n")
            parts += ["\n", *(_entry(declared, texts[declared.name]) for declared in chosen)] if chosen else []
    return "".join(parts)


def _entry(declared: Field, text: str) -> str:
    return (
        textwrap.fill(
            f"- `{declared.name}` ({_default(declared)}): {text}",
            _COLUMNS,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def _default(declared: Field) -> str:
    default = declared.default if isinstance(declared.default, (str, int, tuple, type(None))) else {}
    if isinstance(default, str):
        return f'`"{default}"`'
    if isinstance(default, int) and not isinstance(default, bool):
        return f"{default // _MIB} MiB" if default >= _MIB else f"{default:,}"
    return f"`{default!r}`" if not isinstance(default, Mapping) else "`{}`"


def page() -> str:
    """The page with the list as the code has it now."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{listed()}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
