"""Finds in the source every kind of error that the code can raise,
and every test that says to follow the advice of a kind."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from streamsink import faults

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "streamsink"
KIND = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")
# Modules where a kind is chosen from a table or a named constant: each word there that has the shape of a kind is one,
# except those that are named here.
TABLES = {
    "locks/lock.py": set(),
    "protocol/admission/continuity.py": set(),
    "sinks/paimon/promise.py": set(),
    "sinks/paimon/trouble.py": set(),
    "storage/store_failures.py": set(),
    "table/write/folders.py": {"partition.default-name", "partition.legacy-name"},
    "table/routed/routed_writer.py": set(),
}
# Calls that have an argument of that name and make no error.
_NO_ERRORS = {"replace", "CommitRequest"}


@functools.cache
def kinds() -> dict[str, list[str]]:
    """Each kind with the places where it is raised, as ``file:line``. Looked for once."""
    found: dict[str, list[str]] = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        name = str(path.relative_to(LIBRARY))
        for kind, line in (*_raised(path), *_of_table(path, name)):
            found.setdefault(kind, []).append(f"{name}:{line}")
    return found


def untraced() -> list[str]:
    """Places where the kind is neither a literal,
    nor the kind of another error, nor from a table that is listed above."""
    found, tables = [], {_module(table) for table in TABLES}
    for path in sorted(LIBRARY.rglob("*.py")):
        name, (given, imported) = str(path.relative_to(LIBRARY)), _read(path)
        reads_table = name in TABLES or not tables.isdisjoint(imported)
        for value in given:
            parameter = isinstance(value, ast.Name) and value.id == "kind"
            handed_on = isinstance(value, ast.Attribute) and value.attr == "kind"
            if not isinstance(value, ast.Constant) and not handed_on and not reads_table and not parameter:
                found.append(f"{name}:{value.lineno}: {ast.unparse(value)}")
    return found


@functools.cache
def followed() -> dict[str, list[str]]:
    """Each kind with the tests that are marked with ``follows``, as ``file::test``. Looked for once."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "follows(" not in text:
            continue
        tree = ast.parse(text, str(path))
        for test in (
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ):
            for kind in _marks(test, tree):
                found.setdefault(kind, []).append(f"{path.relative_to(ROOT)}::{test.name}")
    return found


def called(call: ast.Call) -> str:
    """The last part of the name of what is called; "" where it has none."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _module(table: str) -> str:
    return "streamsink." + table.removesuffix(".py").replace("/", ".")


@functools.cache
def _read(path: Path) -> tuple[list[ast.expr], set[str]]:
    """What is given as ``kind`` to any call that may make an error, and the modules that are imported. Read once."""
    given: list[ast.expr] = []
    imported: set[str] = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") not in _NO_ERRORS:
            given += [each.value for each in node.keywords if each.arg == "kind"]
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module)
    return given, imported


def _raised(path: Path) -> Iterator[tuple[str, int]]:
    for value in _read(path)[0]:
        for node in ast.walk(value):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value, node.lineno


def _of_table(path: Path, name: str) -> Iterator[tuple[str, int]]:
    if name not in TABLES:
        return
    raised = set(_raised(path))
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and KIND.fullmatch(node.value):
            if (
                node.value not in TABLES[name]
                and node.value not in faults.STEPS
                and (node.value, node.lineno) not in raised
            ):
                yield node.value, node.lineno


def _marks(test: ast.FunctionDef, tree: ast.Module) -> Iterator[str]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "follows":
            for given in mark.args:
                yield from _words(given, tree)


def _words(given: ast.expr, tree: ast.Module) -> list[str]:
    """The words of a mark's argument: a literal, or ``*NAME`` of a dict or tuple of the module.
    Of a dict the keys count."""
    if isinstance(given, ast.Starred):
        name = ast.unparse(given.value)
        table = next(
            node.value
            for node in tree.body
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in {ast.unparse(t) for t in _targets(node)}
        )
        return [ast.literal_eval(word) for word in (table.keys if isinstance(table, ast.Dict) else table.elts)]
    return [ast.literal_eval(given)]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
