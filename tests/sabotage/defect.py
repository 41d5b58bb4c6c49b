"""A one-line defect: where it is, and how a module looks with it. Anchored by function and guard, never by line.

A defect that no longer applies is a failure: then the guard has moved, and so must the defect.
"""

import ast
import textwrap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Defect:
    """name: what is broken. at: file below ``streamsink/`` and function in it, as "protocol/x.py:Class.method".

    guard: text that stands exactly once in that function. instead: what takes its place. caught_by: the tests to ask, fastest first.
    """

    name: str
    at: str
    guard: str
    instead: str
    caught_by: tuple[str, ...]

    @property
    def file(self) -> str:
        return self.at.partition(":")[0]

    def applied(self, text: str) -> str:
        """The module's text with the defect in it. Raises LookupError when function or guard are not there, or not once."""
        start, end = _span(ast.parse(text), self.at.partition(":")[2].split("."))
        lines = text.splitlines(keepends=True)
        body = "".join(lines[start:end])
        if body.count(self.guard) != 1:
            raise LookupError(f"{self.name}: '{self.guard}' stands {body.count(self.guard)} times in {self.at}")
        changed = body.replace(self.guard, self.instead)
        ast.parse(textwrap.dedent(changed))
        return "".join([*lines[:start], changed, *lines[end:]])


def _span(tree: ast.AST, names: list[str]) -> tuple[int, int]:
    """First and last line of the function, as a slice."""
    node = tree
    for name in names:
        found = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name]
        if len(found) != 1:
            raise LookupError(f"there is no '{'.'.join(names)}'")
        node = found[0]
    return node.lineno - 1, node.end_lineno


def read(root: Path, defect: Defect) -> str:
    """The module that the defect is for."""
    return (root / "streamsink" / defect.file).read_text(encoding="utf-8")
