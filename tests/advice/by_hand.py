"""Finds in the source what messages tell a person to do by hand, and whether they name the command that does it."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.advice.errors_page import _text
from tests.advice.kinds import LIBRARY, called

# What a person does to files, tables, options of tables and records, at the beginning of a clause.
_VERBS = (
    "Delete|Remove|Restore|Move|Rename|Copy|Drop|Clear|Truncate|Empty|Edit|Recreate|Put|Repair|Unlock|Roll back|"
    "Create|Set|Undo"
)
_BY_HAND = re.compile(
    rf"(?:^|(?<=[.;:,!?…] )|(?<=\bor )|(?<=\band )|(?<=\bthen )|(?<=\bfirst )|(?<=\belse )|(?<=\bElse ))({_VERBS})\b"
    r"(?! [a-z_]+=)[^.;]*",
    re.IGNORECASE,
)
# What names a command: its text, or a function that makes it.
_COMMAND = re.compile(r"streamsink [a-z-]+")
_MAKERS = {
    "in_a_shell",
    "restore",
    "discard",
    "set_option",
    "command",
    "give_up",
    "give_up_at_once",
    "delete_damaged",
    "answer_in_a_shell",
}


class ByHand(NamedTuple):
    """Advice to do something by hand in a message without a command. place: file of the library and function."""

    place: str
    line: int
    advice: str


def without_command() -> list[ByHand]:
    """All such advice, in the order of the source."""
    return _below(LIBRARY)


@functools.cache
def _below(library: Path) -> list[ByHand]:
    return [each for path in sorted(library.rglob("*.py")) for each in _of_module(library, path)]


def _of_module(library: Path, path: Path) -> Iterator[ByHand]:
    name, tree = str(path.relative_to(library)), ast.parse(path.read_text(encoding="utf-8"))
    if name.startswith("cli/"):
        return
    aside, made = _docstrings(tree), _named(tree)
    for function, node in _texts(tree, ""):
        text = re.sub(r"\s+", " ", _text(node))
        if id(node) in aside or " " not in text or _names_command(node, text, made) or _is_sql(text):
            continue
        for found in _BY_HAND.finditer(text):
            yield ByHand(f"{name}:{function}", node.lineno, found[0].strip())


def _texts(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr]]:
    """Each whole text, with the function around it: parts that are put together count as one."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else function
        if isinstance(child, (ast.JoinedStr, ast.BinOp)) or isinstance(child, ast.Constant):
            if isinstance(child, ast.Constant) and not isinstance(child.value, str):
                continue
            yield inside, child
        else:
            yield from _texts(child, inside)


def _names_command(node: ast.AST, text: str, made: set[str]) -> bool:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return bool(_COMMAND.search(text)) or _makes(node) or bool(names & made)


def _makes(node: ast.AST) -> bool:
    """Whether a function is called here that makes the text of a command."""
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(called(each) in _MAKERS for each in calls)


def _named(tree: ast.Module) -> set[str]:
    """Names of variables of the module's functions that hold such a text."""
    assigned = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _makes(node.value))
    return {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def _is_sql(text: str) -> bool:
    return re.match(r"\s*(CREATE|DROP|DELETE|SET|TRUNCATE|COPY) [A-Z]", text) is not None


def _docstrings(tree: ast.Module) -> set[int]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, kinds))
    return {id(first.value) for first, *_ in filter(None, bodies) if isinstance(first, ast.Expr)}
