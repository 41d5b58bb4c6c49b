"""A one-line defect: where it is, and how a module looks with it. Anchored by function and guard, never by line.

A defect that no longer applies is a failure: then the guard has moved, and so must the defect.
"""

import ast
import functools
import io
import textwrap
import tokenize
from dataclasses import dataclass
from pathlib import Path

# What the layout of a line adds or leaves out.
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Defect:
    """name: what is broken. at: file below ``streamsink/`` and function in it, as "protocol/x.py:Class.method".

    guard: code that stands exactly once in that function, however its lines are broken. instead: what takes its place. caught_by: the
    tests to ask, fastest first.
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
        function = self.function_in(_parsed(text))
        start, end = function.lineno - 1, function.end_lineno
        lines = text.splitlines(keepends=True)
        body = "".join(lines[start:end])
        found = _places(body, self.guard)
        if len(found) != 1:
            raise LookupError(f"{self.name}: '{self.guard}' stands {len(found)} times in {self.at}")
        ((begin, stop),) = found
        changed = body[:begin] + self.instead + body[stop:]
        ast.parse(textwrap.dedent(changed))
        return "".join([*lines[:start], changed, *lines[end:]])

    def function_in(self, tree: ast.Module) -> ast.AST:
        """Its function in a module's tree. Raises LookupError when it is not there, or not once."""
        node, names = tree, self.at.partition(":")[2].split(".")
        for name in names:
            found = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name]
            if len(found) != 1:
                raise LookupError(f"there is no '{'.'.join(names)}'")
            node = found[0]
        return node


@functools.lru_cache(maxsize=8)  # the defects of one file stand together
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _places(body: str, code: str) -> list[tuple[int, int]]:
    """Where ``code`` stands in ``body``, as slices: as it is written, such as a part of a string, else token by token."""
    if body.count(code) == 1:
        return [(body.index(code), body.index(code) + len(code))]
    wanted = [text for text, _, _ in _tokens(code)]
    there = _tokens(body)
    texts = [text for text, _, _ in there]
    starts = [n for n in range(len(texts) - len(wanted) + 1) if texts[n : n + len(wanted)] == wanted]
    return [(there[n][1], there[n + len(wanted) - 1][2]) for n in starts]


def _tokens(code: str) -> list[tuple[str, int, int]]:
    """Each token with its place, without what a line's layout adds: breaks, comments, a comma before a bracket that closes."""
    ends, tokens = [0], []
    for line in code.splitlines(keepends=True):
        ends.append(ends[-1] + len(line))
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type not in _LAYOUT and token.string.strip():
                start, end = (ends[row - 1] + column for row, column in (token.start, token.end))
                tokens.append((token.string, start, end))
    except (tokenize.TokenError, IndentationError):
        pass  # a fragment ends inside of a bracket
    after = [text for text, _, _ in tokens[1:]] + [""]
    return [token for token, follows in zip(tokens, after) if not (token[0] == "," and follows in (")", "]", "}"))]


def put(module: Path, text: str) -> None:
    """Let a module of a copy have this text. What was compiled of the one before goes: only its second and size would tell the two apart."""
    for compiled in module.parent.glob(f"__pycache__/{module.stem}.*"):
        compiled.unlink()
    module.write_text(text, encoding="utf-8")


def read(root: Path, defect: Defect) -> str:
    """The module that the defect is for."""
    return (root / "streamsink" / defect.file).read_text(encoding="utf-8")
