"""The page in a real browser: light and dark, narrow and wide, by keyboard, and with ten thousand snapshots."""

import pytest

from streamsink.operations.report.page import page
from tests.report.conftest import report_on
from tests.report.lakes import long_past, small
from tests.report.test_page import HOSTILE, _everywhere

WIDE, NARROW = 1280, 360
MOST_OPEN_MS, MOST_BYTES = 2_000, 500_000
# The contrast of each text with what is behind it, by the formula of WCAG 2; the worst one, with its text.
_CONTRAST = """(() => {
  const number = c => c.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = number(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; }
    return [255, 255, 255]; };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const style = getComputedStyle(e), svg = e instanceof SVGElement;
    const [a, b] = [number(svg ? style.fill : style.color), behind(e)].map(light);
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, e.textContent.slice(0, 60)];
  }
  return worst;
})()"""
# Elements that reach beyond the page, but for those inside of what scrolls by itself.
_BEYOND = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.wide, .skip, .defs') &&
  e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"""
_FOCUS = """(() => { const e = document.activeElement, s = getComputedStyle(e); return {
  tag: e.tagName, text: (e.getAttribute('aria-label') || e.textContent).slice(0, 60), seen: s.outlineStyle !== 'none'
  && parseFloat(s.outlineWidth) >= 2, at: e.getBoundingClientRect().top >= 0, href: e.getAttribute('href') }; })()"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """URL of a report with all its parts."""
    folder = tmp_path_factory.mktemp("page")
    file = folder / "page.html"
    document = report_on(long_past(folder / "orders", 650), findings=False)
    document["findings"] = {
        "ill": True,
        "count": 2,
        "listed": [
            {"severity": "damage", "kind": "file.missing", "text": "A file is gone.", "command": ""},
            {"severity": "note", "kind": "checkpoint.pending", "text": "Pending.", "command": "streamsink recover /x"},
        ],
    }
    file.write_text(page(document))
    return file.as_uri()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_page_is_readable_light_and_dark_and_nothing_is_beyond_its_edge(chromium, shown, width):
    """A contrast of 4.5 for each text, no scrolling sideways, nothing asked for but the page, no complaint."""
    backgrounds = set()
    for dark in (False, True):
        chromium.look(width, dark=dark)
        chromium.open(shown)
        assert chromium.asked == [shown] and chromium.said == []
        assert chromium.ask("document.documentElement.scrollWidth") <= width and chromium.ask(_BEYOND) == []
        ratio, where = chromium.ask(_CONTRAST)
        assert ratio >= 4.5, where
        backgrounds.add(chromium.ask("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_everything_is_reached_by_keyboard(chromium, shown):
    """The first key skips to the findings; links, tables that scroll and details are reached in order, and seen."""
    chromium.look(WIDE)
    chromium.open(shown)
    chromium.press("Tab")
    first = chromium.ask(_FOCUS)
    assert first["href"] == "#main" and first["seen"] and first["at"]
    chromium.press("Enter")
    assert chromium.ask("location.hash") == "#main"
    wanted = chromium.ask(
        "[...document.querySelectorAll('main a, main summary, main .wide')].filter(e => e.checkVisibility()).length"
    )
    reached = []
    for _ in range(wanted):
        chromium.press("Tab")
        reached.append(chromium.ask(_FOCUS))
        if reached[-1]["tag"] == "SUMMARY" and "Snapshots by kind" in reached[-1]["text"]:
            chromium.press("Enter")
            assert chromium.ask("document.activeElement.parentElement.open")
            chromium.press("Enter")
    assert all(each["seen"] for each in reached) and {each["tag"] for each in reached} == {"SUMMARY", "DIV"}
    assert len({each["text"] for each in reached}) == wanted


def test_a_picture_can_be_read_without_colour(chromium, shown):
    """Kinds of bars differ by pattern, and signs by shape."""
    chromium.look(WIDE)
    chromium.open(shown)
    looks = "[...new Set([...document.querySelectorAll('.legend')].map(l => [...l.querySelectorAll('rect')].map("
    looks += "r => getComputedStyle(r).fill).join('|')))]"
    for fills in chromium.ask(looks):
        each = [fill for fill in fills.split("|") if fill]
        assert len({fill if "url" in fill else "solid" for fill in each}) == len(each), each
    named = "[...document.querySelectorAll('rect')].map(r => getComputedStyle(r).fill.match(/#(.*?)[\"')]/)?.[1])"
    assert chromium.ask(f"[...new Set({named})].filter(id => id && !document.querySelector('pattern#' + id))") == []
    assert chromium.ask(f"[...new Set({named})].filter(id => id).length") >= 2


@pytest.mark.parametrize("name", [pytest.param(each, marks=pytest.mark.soak) for each in HOSTILE[2:]] + HOSTILE[:2])
def test_a_hostile_name_does_nothing_in_a_browser(chromium, tmp_path, name):
    """No script of it runs, nothing is asked for, and the page stays as wide as its window."""
    file = tmp_path / "page.html"
    file.write_text(page(_everywhere(report_on(small(tmp_path / "orders"), findings=False), name)))
    chromium.look(NARROW)
    chromium.open(file.as_uri())
    assert chromium.asked == [file.as_uri()] and chromium.said == []
    assert chromium.ask("document.documentElement.scrollWidth") <= NARROW
    assert chromium.ask("document.querySelectorAll('script, img, iframe').length") == 0


@pytest.mark.soak
def test_ten_thousand_snapshots_open_within_two_seconds(chromium, tmp_path):
    """The soak may look at a clock: it is what the page promises. Three tries, since other programs run here."""
    file = tmp_path / "page.html"
    file.write_text(page(report_on(long_past(tmp_path / "orders", 10_000), findings=False)))
    assert file.stat().st_size < MOST_BYTES
    chromium.look(WIDE)
    assert min(chromium.open(file.as_uri()) for _ in range(3)) < MOST_OPEN_MS
