#!/usr/bin/env python3
"""Build the pages as a site: ``python -m tools.site [FOLDER]``, by default into build/site. ``make docs`` calls it.

Every warning is an error: a link or an anchor that leads nowhere, a page that no navigation has. Nothing that the site
asks for lies elsewhere, so the folder can be put on any server, and be opened from a disk.
"""

import shutil
import sys
from pathlib import Path

from tools.common import ROOT, say
from tools.site import nav

HERE = Path(__file__).resolve().parent
SUMMARY = (
    "An exactly-once sink for Spark Structured Streaming that writes Apache Paimon tables, and by the same protocol "
    "Kafka topics, databases, Delta tables, Iceberg tables and directories of files."
)


def build(folder: Path) -> int:
    """Build all pages into the folder, which is emptied. Returns Sphinx's exit code."""
    from sphinx.cmd.build import build_main

    shutil.rmtree(folder, ignore_errors=True)
    trees = folder.with_name(folder.name + "-trees")
    options = ["-q", "-n", "-W", "--keep-going", "-b", "html", "-c", str(HERE), "-d", str(trees)]
    code = build_main([*options, str(ROOT), str(folder)])
    if code == 0:
        _finish(folder)
    return code


def _finish(folder: Path) -> None:
    """What Sphinx does not make: the page that a server shows first, and what programs read instead of pages."""
    shutil.copyfile(folder / "README.html", folder / "index.html")
    for page in folder.rglob("*.html"):
        source = ROOT / page.relative_to(folder).with_suffix(".md")
        if source.is_file():
            shutil.copyfile(source, page.with_suffix(".md"))
    (folder / "llms.txt").write_text(llms_txt(), encoding="utf-8")


def llms_txt() -> str:
    """An index of the pages' Markdown for programs that read text, made from the navigation (llmstxt.org)."""
    parts = [f"# streamsink\n\n> {SUMMARY}\n"]
    for group, entries in nav.groups().items():
        lines = [f"- [{nav.title_of(entry.page)}]({entry.page}): {entry.what}" for entry in entries]
        parts.append(f"\n## {group}\n\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]).resolve() if arguments else ROOT / "build" / "site"
    code = build(folder)
    if code == 0:
        say(
            f"the site is in {folder}; open {folder / 'index.html'}, or serve it: "
            f"python3 -m http.server --bind 127.0.0.1 --directory {folder}"
        )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
