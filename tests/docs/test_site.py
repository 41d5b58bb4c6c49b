"""``make docs`` builds all pages as a site that needs nothing from elsewhere, and whose first page is small."""

import html.parser
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages
from tools.site import nav

# As a browser without compression gets them; with gzip it is a quarter.
MOST_BYTES_OF_THE_FIRST_PAGE = 200_000
_ASKED_FOR_AT_ONCE = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class _Page(html.parser.HTMLParser):
    """What a page asks for when it is opened, where it links to, and its anchors."""

    def __init__(self, text: str):
        super().__init__()
        self.asked: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.tags.append((tag, named))
        if named.get("id"):
            self.ids.add(named["id"])
        if tag in _ASKED_FOR_AT_ONCE and named.get(_ASKED_FOR_AT_ONCE[tag]):
            self.asked.append(named[_ASKED_FOR_AT_ONCE[tag]])
        if tag == "link" and {"stylesheet", "icon", "preload"} & set((named.get("rel") or "").split()):
            self.asked.append(named["href"])
        if tag == "a" and named.get("href"):
            self.links.append(named["href"])


def _build(folder: Path, root: Path = ROOT) -> subprocess.CompletedProcess:
    call = [sys.executable, "-m", "tools.site", str(folder)]
    return subprocess.run(call, cwd=root, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = _build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def parsed(site) -> dict[str, _Page]:
    """By the path of each HTML page in the site."""
    found = sorted(site.rglob("*.html"))
    return {path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8")) for path in found}


def test_every_page_is_in_the_site_and_in_the_navigation(site):
    """docs/README.md lists all of them but itself and the notes of decisions, which a page of their own lists."""
    listed = {entry.page for entries in nav.groups().values() for entry in entries}
    notes = {page for page in pages() if page.startswith("docs/design/0")}
    assert listed == set(pages()) - notes - {nav.INDEX}
    assert [page for page in pages() if not (site / page).with_suffix(".html").exists()] == []


def _weight(site: Path) -> dict[str, int]:
    """Bytes of the first page and of each file that it asks for when it is opened; the sheets ask for nothing more."""
    asked = {
        urllib.parse.urlsplit(each).path for each in _Page((site / "index.html").read_text(encoding="utf-8")).asked
    }
    sheets = [each for each in asked if each.endswith(".css")]
    assert sheets and [each for each in asked if not (site / each).is_file()] == []
    assert not any(re.search(r"@import|url\((?![\"']?data:)", (site / each).read_text()) for each in sheets)
    return {each: (site / each).stat().st_size for each in [*asked, "index.html"]}


def _is_small(weight: dict[str, int]) -> bool:
    return sum(weight.values()) < MOST_BYTES_OF_THE_FIRST_PAGE


def _copied(site: Path, folder: Path) -> dict[str, int]:
    """The first page and what it asks for, copied into the folder."""
    weight = _weight(site)
    for each in weight:
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(site / each, folder / each)
    return weight


def test_the_first_page_is_small(site):
    """With all that it asks for: style sheets, scripts and pictures, none of them compressed."""
    weight = _weight(site)
    assert _is_small(weight), weight


def test_a_first_page_that_grows_is_too_large_whichever_of_its_files_has_grown(site, tmp_path):
    """One at a time has what is left below the limit: its last byte is one too many."""
    whole = _copied(site, tmp_path)
    left = MOST_BYTES_OF_THE_FIRST_PAGE - sum(whole.values())
    for each, size in whole.items():
        for grown, is_small in ((left - 1, True), (left, False)):
            os.truncate(tmp_path / each, size + grown)
            assert _is_small(_weight(tmp_path)) is is_small, each
        os.truncate(tmp_path / each, size)
    assert {Path(each).suffix for each in whole} >= {".html", ".css", ".js", ".svg"}


@pytest.mark.parametrize(
    "more",
    [
        '<img src="big">',
        '<script src="big"></script>',
        '<link rel="preload stylesheet" href="big">',
        '<link rel="icon" href="big">',
        '<iframe src="big"></iframe>',
    ],
)
def test_a_file_that_the_first_page_newly_asks_for_counts(site, tmp_path, more):
    """In whatever way; a link that a reader may follow does not."""
    _copied(site, tmp_path)
    (tmp_path / "big").write_bytes(b" " * MOST_BYTES_OF_THE_FIRST_PAGE)
    page = tmp_path / "index.html"
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", '<a href="big">more</a></body>'), encoding="utf-8")
    assert _is_small(_weight(tmp_path))
    page.write_text(text.replace("</body>", f"{more}</body>"), encoding="utf-8")
    assert not _is_small(_weight(tmp_path))


def test_nothing_is_asked_for_elsewhere(site, parsed):
    """No font, script, picture or style sheet: a reader's browser talks to the site alone, or to the disk."""
    outside = [(name, each) for name, page in parsed.items() for each in page.asked if "//" in each]
    sheets = [path for path in site.rglob("*.css") if re.search(r"url\(\"?'?(https?:)?//", path.read_text())]
    assert (outside, sheets) == ([], [])


def test_every_link_and_anchor_leads_somewhere(site, parsed):
    """In the pages as they are built; those to elsewhere are left alone."""
    wrong = []
    for name, page in parsed.items():
        for link in page.links:
            to = urllib.parse.urlsplit(link)
            if to.scheme or to.netloc:
                continue
            target = (site / name).parent / urllib.parse.unquote(to.path) if to.path else site / name
            other = parsed.get(target.resolve().relative_to(site.resolve()).as_posix())
            there = target.exists() and (not to.fragment or other is None or to.fragment in other.ids)
            wrong += [] if there else [f"{name}: {link}"]
    assert wrong == []


def test_the_search_needs_no_server(site, parsed):
    """The index is a script, which a browser loads from a disk as well, and only the page of results asks for it."""
    assert (site / "searchindex.js").read_text(encoding="utf-8").startswith("Search.setIndex(")
    users = {name for name, page in parsed.items() if any("searchindex.js" in each for each in page.asked)}
    assert users == {"search.html"}


def test_pages_work_by_keyboard_and_in_both_themes(site, parsed):
    """A link over the navigation to the content, buttons that are buttons, pictures in words, and a language."""
    for name, page in parsed.items():
        classes = {each for _, named in page.tags for each in (named.get("class") or "").split()}
        assert {"skip-to-content", "theme-toggle"} <= classes, name
        assert any(tag == "button" and "theme-toggle" in (named.get("class") or "") for tag, named in page.tags), name
        assert all(named.get("alt") for tag, named in page.tags if tag == "img"), name
        assert ("html", "en") in [(tag, named.get("lang")) for tag, named in page.tags], name
    sheet = next((site / "_static" / "styles").glob("furo.css")).read_text()
    assert "prefers-color-scheme:dark" in sheet.replace(" ", "")


def test_programs_find_the_pages_in_llms_txt(site):
    """Every page of the navigation as Markdown, with what it is for."""
    text = (site / "llms.txt").read_text(encoding="utf-8")
    linked = re.findall(r"^- \[.+?\]\((\S+)\): .+$", text, re.MULTILINE)
    assert text.startswith("# streamsink\n\n> ")
    assert linked == [entry.page for entries in nav.groups().values() for entry in entries]
    assert [each for each in linked if (site / each).read_text() != (ROOT / each).read_text()] == []


def test_a_page_that_is_listed_twice_or_without_a_group_is_an_error():
    row = "| [GUIDE.md](GUIDE.md) | what it is for |\n"
    with pytest.raises(ValueError, match="docs/GUIDE.md twice"):
        nav.groups(f"## Start\n\n{row}{row}")
    with pytest.raises(ValueError, match="docs/GUIDE.md before its first heading"):
        nav.groups(row)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("text", "said"),
    [("\n[somewhere](GONE.md)\n", "GONE.md"), ("\n[there](GUIDE.md#no-such-heading)\n", "no-such-heading")],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path, text, said):
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "docs", root / "docs")
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, root / page.name)
    with open(root / "docs" / "TUTORIAL.md", "a", encoding="utf-8") as page:
        page.write(text)
    done = _build(tmp_path / "site", root)
    assert done.returncode != 0 and said in done.stdout + done.stderr
