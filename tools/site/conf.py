"""Sphinx's settings. The source folder is the checkout, so links between pages are the same here and on a code host."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.site import nav  # noqa: E402

project = "streamsink"
author = copyright = "streamsink's authors"
root_doc = "README"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
include_patterns = ["*.md", "docs/**"]
# What the site asks for lies beside it: no font, script or picture comes from elsewhere.
# Folders that Sphinx would walk through: thousands of files.
exclude_patterns = [".cache", ".git", "build", "dist", "tests", "streamsink", "benchmarks", "jobs", "tools", "env"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
# Untagged blocks are drawings and what programs print.
highlight_language = "none"
html_theme = "furo"
html_title = "streamsink"
html_static_path = ["static"]
html_css_files = ["streamsink.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
smartquotes = False


_DECISIONS = "docs/design/README"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:]+\.md)\)")


def _with_navigation(app, docname, source):
    """Give the home page the navigation, which plain Markdown has not, and the page of decisions the list of them."""
    if docname == root_doc:
        source[0] += nav.toctrees()
    elif docname == _DECISIONS:
        source[0] += "\n```{toctree}\n:maxdepth: 1\n:glob:\n\n0*\n```\n"
    page = Path(app.srcdir, docname).parent

    def named(link):
        """A page of the checkout that the site does not have is named by its path; one that is nowhere stays a link."""
        target = (page / link[2]).resolve()
        if not target.is_file() or not target.is_relative_to(app.srcdir):
            return link[0]
        inside = target.relative_to(app.srcdir)
        return link[0] if inside.with_suffix("").as_posix() in app.env.found_docs else f"{link[1]} (`{inside}`)"

    source[0] = _LINK.sub(named, source[0])


def setup(app):
    app.connect("source-read", _with_navigation)
