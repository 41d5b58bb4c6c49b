"""What a command answers, and how that is shown: as one JSON document, as text, or as tables on a terminal."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Exit codes. 2 is click's own for a wrong call.
RIGHT, FINDINGS, USAGE, REFUSED, DAMAGED, PASSING = 0, 1, 2, 3, 4, 5
_GAP = "  "
# Characters that a terminal obeys; names in a table may have them.
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Rows:
    """A table of an answer. columns: its headings. rows: texts and numbers; numbers are set to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Answer:
    """What a command answers.

    document: what ``--json`` prints; its names are stable. parts: what is shown else, lines of text and tables. code:
    of the exit.
    """

    document: Mapping[str, Any]
    parts: Sequence["str | Rows"] = field(default_factory=tuple)
    code: int = RIGHT


def show(answer: Answer, as_json: bool) -> None:
    """Print an answer to the standard output."""
    if as_json:
        write_json(answer.document)
    elif sys.stdout.isatty():
        _show_on_terminal(answer)
    else:
        for part in answer.parts:
            _write((harmless(part) if isinstance(part, str) else plain(part)) + "\n")
    sys.stdout.flush()


def write_json(document: Mapping[str, Any]) -> None:
    """Print one document in one line, whatever the standard output can write."""
    is_utf_8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    _write(json.dumps(document, ensure_ascii=not is_utf_8, sort_keys=True) + "\n")


def harmless(text: str) -> str:
    """The text without what a terminal would obey; lines stay lines."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _write(text: str) -> None:
    """Names of files may be no UTF-8, nor the standard output: what that lacks is written as an escape."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def plain(table: Rows) -> str:
    """The table as text: columns under their headings, at least two spaces apart."""
    cells = [[_text(value) for value in row] for row in table.rows]
    widths = [max(map(len, (name, *(row[at] for row in cells)))) for at, name in enumerate(table.columns)]
    right = [_is_numeric(table, at) for at in range(len(table.columns))]
    lines = [
        _GAP.join(
            text.rjust(width) if numeric else text.ljust(width) for text, width, numeric in zip(row, widths, right)
        )
        for row in (list(table.columns), *cells)
    ]
    return "\n".join([*([table.title] if table.title else []), *(line.rstrip() for line in lines)])


def _show_on_terminal(answer: Answer) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    for part in answer.parts:
        if isinstance(part, str):
            # The terminal breaks the lines: a command that is copied must stay one.
            console.print(Text(harmless(part)), soft_wrap=True)
            continue
        shown = Table(title=part.title or None, title_justify="left")
        for at, name in enumerate(part.columns):
            shown.add_column(name, justify="right" if _is_numeric(part, at) else "left")
        for row in part.rows:
            shown.add_row(*(Text(_text(value)) for value in row))
        console.print(shown)


def _is_numeric(table: Rows, at: int) -> bool:
    found = [row[at] for row in table.rows if row[at] is not None]
    return bool(found) and all(isinstance(value, (int, float)) for value in found)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else harmless(str(value)).replace("\n", "\\n")


def when(time_ms: int | None) -> str | None:
    """A time in ms since the epoch as text, in UTC."""
    if time_ms is None:
        return None
    from datetime import datetime, timezone

    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def age(ms: float | None) -> str | None:
    """A duration in ms as a text of its largest unit, such as '3 min'."""
    if ms is None:
        return None
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= length:
            return f"{int(ms // length)} {unit}"
    return f"{max(int(ms), 0)} ms"
