"""The page stands alone, has a bounded size, and takes no name of a table for anything but a name."""

import base64
import hashlib
import re
import shutil
from html.parser import HTMLParser

import pytest

from streamsink.operations.report import buckets, text
from streamsink.operations.report.page import MARK, page
from streamsink.operations.report.written import default_name, is_replaceable, write
from tests.cli.conftest import run
from tests.report.conftest import report_on
from tests.report.lakes import long_past, small

_VOID = {"meta", "link", "br", "rect", "line", "circle", "path"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "x" * 10_000,
    "\u202egnp.exe\u2066",
    "a\x00b\x1b[31m\x07\r\n",
    "\ud800 lone",
    "</style><style>*{display:none}</style>",
    "${jndi}{{7*7}}&lt;b&gt;'`",
]


class Parsed(HTMLParser):
    """Elements of a page. Raises where a tag is closed that is not open."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.ids: list[str] = []
        self._open: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def document(tmp_path_factory) -> dict:
    return report_on(long_past(tmp_path_factory.mktemp("lake") / "orders", 300), findings=False)


def test_the_page_is_well_formed_and_names_what_it_shows(document):
    """Each chart has a text for who does not see it, a table of its numbers, and each link leads to a place in it."""
    found = Parsed(page(document))
    assert len(found.ids) == len(set(found.ids))
    links = [said["href"] for tag, said in found.elements if tag == "a"]
    assert links and {link.removeprefix("#") for link in links} <= set(found.ids)
    tags = [tag for tag, _ in found.elements]
    figures = tags.count("figure")
    assert figures >= 6 and tags.count("figcaption") == figures and tags.count("details") >= figures
    for tag, said in found.elements:
        if tag == "svg" and said.get("aria-hidden") != "true" and "overflow" not in said:
            assert said.get("role") == "img" and said.get("aria-label")
        if said.get("role") == "region":
            assert said.get("tabindex") == "0" and said.get("aria-label")


def test_the_page_has_no_script_and_nothing_from_elsewhere(document):
    """And the browser is told to allow none: its policy has the digest of the one style sheet."""
    html = page(document)
    found = Parsed(html)
    assert {tag for tag, _ in found.elements} & {"script", "iframe", "img", "object", "form", "base"} == set()
    names = {name for _, said in found.elements for name in said}
    assert not {name for name in names if name.startswith("on") or name in ("style", "src", "srcset", "xlink:href")}
    [icon] = [said["href"] for tag, said in found.elements if tag == "link"]
    assert icon == "data:," and not re.search(r"@import|url\((?!#)", html)
    [policy] = [said["content"] for _, said in found.elements if said.get("http-equiv") == "Content-Security-Policy"]
    style = html.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def _everywhere(value, name: str):
    """The data with this name in the place of each text that comes out of a table."""
    if isinstance(value, dict):
        return {name if key == "streamsink" else key: _everywhere(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [_everywhere(each, name) for each in value]
    return name if isinstance(value, str) else value


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_shown_as_a_name(document, name):
    """Wherever a table can have it: no tag, no control character, no turned text, and no long one comes of it."""
    said = _everywhere(document, name)
    said["history"]["kinds"] = {name: document["history"]["kinds"]["APPEND"]}
    said["history"]["writers"] = {name: document["history"]["kinds"]["APPEND"]}
    said["history"]["counts"] = {name: 3}
    said["findings"] = {
        "ill": True,
        "count": 1,
        "listed": [{"severity": name, "kind": name, "text": name, "command": name}],
    }
    html = page(said)
    plain = page(_everywhere(document, "x"))
    found = Parsed(html)
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in Parsed(plain).elements} | {"li", "ul", "code"}
    assert not any(said.keys() & {"onerror", "src"} for _, said in found.elements)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html)
    assert len(html) < len(plain) + 250_000
    html.encode("utf-8")


def test_the_page_of_a_long_past_has_a_bounded_size(tmp_path, document):
    """What is shown are sums over parts of time, so the size depends on the number of parts."""
    longer = page(report_on(long_past(tmp_path / "orders", 1500), findings=False))
    assert len(longer) < 250_000 and len(longer) < 2 * len(page(document))


@pytest.mark.parametrize("times", [[], [0], [-5, 10**18], [1, 2, 3], [7 * 10**12] * 5, list(range(0, 10**9, 10**6))])
def test_any_times_are_few_parts(times):
    """Also those of broken clocks."""
    scale = buckets.Scale.over(times)
    assert 1 <= scale.count <= buckets.MOST_BARS
    assert sum(map(len, scale.grouped((each, each) for each in times))) == len(times)
    places = list(range(scale.count))
    assert len(text.ticks_of_time(scale.begin_ms, scale.width_ms, places, scale.count)) == scale.count
    for each in times:
        assert scale.begin_ms <= each < scale.begin_ms + scale.width_ms * scale.count


def test_sums_of_durations_and_sizes_have_all_values():
    """A value at a bound is in the bar that begins there."""
    bars = buckets.durations([0, 1, 1, 2, 5_000, 10**12])
    assert sum(bar["count"] for bar in bars) == 6 and bars[0] == {"from_ms": 0, "to_ms": 1, "count": 1}
    assert bars[1]["count"] == 2 and bars[-1]["to_ms"] is None
    sizes = buckets.sizes([0, 1, 1023, 1024, 1 << 40])
    assert sum(bar["count"] for bar in sizes) == 5 and sum(bar["bytes"] for bar in sizes) == 2048 + (1 << 40)
    assert len(sizes) <= 24 and sizes[0]["from_bytes"] == 0
    assert buckets.quantile([1, 2, 3, 4], 0.5) == 2 and buckets.quantile([7], 0.99) == 7
    assert buckets.summary([]) is None


def test_numbers_are_in_units_that_people_read():
    assert text.size(1536) == "1.5 KiB" and text.size(0) == "0 B" and text.size(5 << 40) == "5 TiB"
    assert text.duration(999) == "999 ms" and text.duration(90_000) == "1.5 min" and text.duration(None) == text.NOTHING
    assert text.moment(0) == "1970-01-01 00:00:00" and text.moment(10**18) == f"{10**18} ms"


def test_a_file_that_is_no_report_is_not_replaced(tmp_path, monkeypatch):
    """A name that was mistyped costs nobody's file; an older report is replaced."""
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "orders", 1)
    (tmp_path / "notes.html").write_text("mine")
    refused = run("report", "orders", "--out", "notes.html", code=2)
    assert "is no report" in refused.stderr and (tmp_path / "notes.html").read_text() == "mine"
    for _ in range(2):
        said = run("report", "orders")
        assert (tmp_path / "orders-report.html").as_uri() in said.stdout
    assert (tmp_path / "orders-report.html").read_text().startswith(MARK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.html", "orders", "orders-report.html"]
    run("report", "orders", "--json")
    shutil.rmtree(tmp_path / "orders")
    run("report", "orders", code=3)


def test_a_page_that_cannot_be_written_leaves_the_older_one(tmp_path):
    file = tmp_path / "page.html"
    write(str(file), MARK + "older")
    with pytest.raises(OSError):
        write(str(tmp_path / "no folder" / "page.html"), MARK)
    assert is_replaceable(str(file)) and file.read_text() == MARK + "older"
    assert default_name("s3://b/a/..%2F <x>/branch/branch-work") == "2F-x-work-report.html"
