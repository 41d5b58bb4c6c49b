"""A page that is run from its first block to its last one, as a reader runs it."""

import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from tests.docs.blocks import Block, blocks_of
from tests.docs.shell import Shell


class Story:
    """Runs the blocks of one page.

    names: what a reader's program has before the page's first line. replaced: {what the page says: what stands there
    here}, such as the address of a server; each must be said somewhere on the page. steps: by the place of a block,
    what happens before it, such as an order that comes.
    """

    def __init__(self, page: str, shell: Shell, names: Mapping[str, Any], replaced: Mapping[str, str]):
        self.page, self.shell, self.names = page, shell, dict(names)
        self.steps: Mapping[int, Callable[[], None]] = {}
        self._replaced = replaced
        self._said = ""
        text = "".join(block.text for block in blocks_of(page))
        assert [said for said in replaced if said not in text] == [], f"{page} does not say this"

    def tell(self, ways: Sequence[str]) -> None:
        """Run each block whose way is 'run'. Raises AssertionError with the block's place where one fails."""
        for place, (block, way) in enumerate(zip(blocks_of(self.page), ways, strict=True)):
            if place in self.steps:
                self.steps[place]()
            if way in ("run", "in session"):
                self._run(block, is_saved=way == "run" and block.file is not None)

    def _run(self, block: Block, is_saved: bool) -> None:
        text = block.text
        for said, here in self._replaced.items():
            text = text.replace(said, here)
        if is_saved:
            (self.shell.inside / block.file).write_text(text)
        elif block.language == "python":
            self._python(block, text)
        elif block.language == "bash":
            self._said = self.shell.run(text)
        elif block.language == "text":
            assert re.search(_pattern(text), self._said), f"{block.where}: it says\n{self._said}"
        else:
            assert {"json": json.loads, "yaml": yaml.safe_load}[block.language](text), block.where

    def _python(self, block: Block, text: str) -> None:
        self.names.pop("query", None)
        said = io.StringIO()
        code = compile("\n" * (block.line - 1) + text, block.page, "exec")
        before = os.getcwd()
        os.chdir(self.shell.inside)
        try:
            with contextlib.redirect_stdout(said):
                exec(code, self.names)  # noqa: S102  our own page
                query = self.names.get("query")
                if query is not None:
                    query.processAllAvailable()
                    query.stop()
        finally:
            os.chdir(before)
        self._said = said.getvalue()


def _pattern(text: str) -> str:
    """Of what a page shows as printed: a line of three dots stands for any lines, three dots in a line for any text."""
    lines = [
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in _lines(text)
    ]
    return "^" + "".join(lines) + "$" if lines else "^$"


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")
