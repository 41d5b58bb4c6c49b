"""A page that is run from its first block to its last one, as a reader runs it."""

import contextlib
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import yaml

from tests.docs.blocks import Block, blocks_of
from tests.docs.shell import Shell
from tests.docs.ways import is_run, servers_of


class Story:
    """Runs the blocks of one page.

    names: what a reader's program has, to which the page adds. words: what is known here, such as ``folder``. replaced:
    {what the page says: what stands there here}, such as the address of a server, where ``{word}`` is one of the words;
    each must be said somewhere on the page. steps: by the place of a block, what happens before it, such as an order
    that comes. checks: what is looked at behind it; it is given what the block has printed. ends: the exit code of
    commands, by how they begin, that find something and so do not end with 0. servers: names of those that are there.
    """

    def __init__(
        self,
        page: str,
        shell: Shell,
        names: MutableMapping[str, Any],
        words: Mapping[str, str],
        replaced: Mapping[str, str],
    ):
        self.page, self.shell, self.names = page, shell, names
        self.steps: Mapping[int, Callable[[], None]] = {}
        self.checks: Mapping[int, Callable[[str], None]] = {}
        self.ends: Mapping[str, int] = {}
        self.servers: Collection[str] = ()
        self._words, self._replaced = words, replaced
        self._said = ""
        text = "".join(block.text for block in blocks_of(page))
        assert [said for said in replaced if said not in text] == [], f"{page} does not say this"

    def tell(self, ways: Sequence[str]) -> None:
        """Run each block whose way is 'run', and those that need a server where it is there.

        Raises AssertionError with the block's place where one fails.
        """
        for place, (block, way) in enumerate(zip(blocks_of(self.page), ways, strict=True)):
            if not set(servers_of(way)) <= set(self.servers):
                continue
            with self._where_the_reader_is():
                self.steps.get(place, lambda: None)()
                if is_run(way):
                    self._run(block, is_saved=way == "run" and block.file is not None)
                self.checks.get(place, lambda said: None)(self._said)

    def _run(self, block: Block, is_saved: bool) -> None:
        text = block.text
        for said, here in self._replaced.items():
            if said in text:
                text = text.replace(said, here.format(**self._words))
        if is_saved:
            (self.shell.inside / block.file).write_text(text)
        elif block.language == "python":
            self._python(block, text)
        elif block.language == "bash":
            self._said = self.shell.run(text, self.ends)
        elif block.language == "text":
            assert re.search(_pattern(text), self._said), f"{block.where}: it says\n{self._said}"
        else:
            assert {"json": json.loads, "yaml": yaml.safe_load}[block.language](text), block.where

    def _python(self, block: Block, text: str) -> None:
        self.names.pop("query", None)
        said = io.StringIO()
        code = compile("\n" * (block.line - 1) + text, block.page, "exec")
        with contextlib.redirect_stdout(said):
            exec(code, self.names)  # noqa: S102  our own page
            query = self.names.get("query")
            if query is not None:
                query.processAllAvailable()
                query.stop()
        self._said = said.getvalue()

    @contextlib.contextmanager
    def _where_the_reader_is(self) -> Iterator[None]:
        before = os.getcwd()
        os.chdir(self.shell.inside)
        try:
            yield
        finally:
            os.chdir(before)


def _pattern(text: str) -> str:
    """Of what a page shows as printed: a line of three dots stands for any lines, three dots in a line for any text."""
    lines = [
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in _lines(text)
    ]
    return "^" + "".join(lines) + "$" if lines else "^$"


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")
