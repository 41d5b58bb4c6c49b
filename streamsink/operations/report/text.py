"""Names and numbers as a page shows them: harmless, cut, and in units that people read. Pure."""

import html
import re
from collections.abc import Sequence
from datetime import datetime, timezone

# What a browser or a terminal obeys, or what turns the direction of a text: names in a table may have them.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_MOST_NAME, _MOST_SENTENCE, _MOST_COMMAND = 120, 1_200, 4_000
_BYTES = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_MS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
NOTHING = "–"


def visible(text: str, most: int) -> str:
    """The text without what is obeyed, which is shown as escapes, and cut in the middle to about so many characters."""
    if len(text) > most:
        head = text[: most * 2 // 3]
        text = f"{head} … ({len(text) - most:,} characters are left out) … {text[-(most - len(head)) :]}"
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def safe(text: object, most: int = _MOST_SENTENCE) -> str:
    """A sentence for HTML, also inside of an attribute."""
    return html.escape(visible(str(text), most), quote=True)


def name(text: object) -> str:
    """A name that somebody else has chosen, for HTML: cut, and apart from the direction of the text around it."""
    return f"<bdi>{safe(text, _MOST_NAME)}</bdi>"


def command(text: str) -> str:
    """A command, to be copied."""
    return f'<code class="cmd">{safe(text, _MOST_COMMAND)}</code>'


def count(value: float | None) -> str:
    """A number of things."""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: int) -> str:
    """A number of things, large ones in millions."""
    return f"{value / 1e6:,.1f} M" if value >= 100_000_000 else count(value)


def things(value: int, one: str, many: str = "") -> str:
    """A number with the word for it, such as '1 file' and '2 files'."""
    return f"{value:,} {one if value == 1 else many or f'{one}s'}"


def size(value: float | None) -> str:
    """A number of bytes."""
    if value is None:
        return NOTHING
    for unit, word in _BYTES:
        if value >= unit:
            return f"{_short(value / unit)} {word}"
    return f"{value:,.0f} B"


def duration(value: float | None) -> str:
    """A number of milliseconds."""
    if value is None:
        return NOTHING
    for unit, word in _MS:
        if abs(value) >= unit:
            return f"{_short(value / unit)} {word}"
    return f"{value:,.0f} ms"


def moment(time_ms: float | None) -> str:
    """A time in ms since the epoch, in UTC, to the second; what no calendar has is shown as it is."""
    if time_ms is None:
        return NOTHING
    found = _date(time_ms)
    return found.strftime("%Y-%m-%d %H:%M:%S") if found is not None else f"{time_ms:.0f} ms"


def ticks_of_time(begin_ms: int, width_ms: int, indices: Sequence[int], parts: int) -> list[str]:
    """The times at which these parts of a scale begin, each as short as the scale allows."""
    span = width_ms * parts
    if width_ms >= 86_400_000:
        form = "%Y-%m-%d"
    elif span > 86_400_000:
        form = "%m-%d %H:%M"
    else:
        form = "%H:%M" if width_ms >= 60_000 else "%H:%M:%S"
    found = [_date(begin_ms + index * width_ms) for index in indices]
    more = [f".{(begin_ms + index * width_ms) % 1000:03}" if width_ms < 1000 else "" for index in indices]
    return [f"{at.strftime(form)}{part}" if at is not None else NOTHING for at, part in zip(found, more)]


def _date(time_ms: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return None


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
