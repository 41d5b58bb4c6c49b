"""Finds out where a defect would make a difference: in an instrumented copy of the tree the place of each defect
reports that a walk comes to it, so that the defect is tried only on walks that come there.

A defect changes one function, and a walk does the same each time. A walk that never comes to a place where the defect
has another value, or does something else, goes as it would without the defect. Only the number of I/O calls may differ,
on which accidents at a call depend.
"""

import ast
import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.sabotage.defect import Defect, put, read

_HOOK = "__reach__"
# Calls of any other name may change something; evaluated once more, they would change it twice.
_CHANGES_NOTHING = {
    "all",
    "any",
    "bool",
    "frozenset",
    "isinstance",
    "len",
    "list",
    "map",
    "max",
    "min",
    "next",
    "range",
    "reversed",
    "set",
    "sorted",
    "str",
    "sum",
    "tuple",
    "type",
    "zip",
    "endswith",
    "get",
    "intersection",
    "issubset",
    "issuperset",
    "items",
    "keys",
    "partition",
    "split",
    "startswith",
    "union",
    "values",
    "all_numeric",
    "same_id",
    "same_ranges",
    "token_of",
    "with_word",
    "words_of",
}
# What cannot stand in a function of its own.
_NOT_APART = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await, ast.Starred, ast.Slice, ast.FormattedValue)

reached: set[int] = set()  # The numbers of the defects that the walk under way has come to.
uneven: set[int] = set()  # Those whose other value cannot be looked at without doing something.


def effects() -> int:
    """How much has been done to the world so far; the walker says how it is counted."""
    return 0


def here(number: int) -> None:
    """The place of this defect was reached."""
    reached.add(number)


@contextlib.contextmanager
def raising(number: int) -> Iterator[None]:
    """The place of a defect that leaves a check out: it makes a difference when the check fails."""
    try:
        yield
    except BaseException:
        reached.add(number)
        raise


def same(number: int, value: Callable[[], object], other: Callable[[], object]) -> object:
    """Return the value. The place counts as reached when the defect has another one."""
    try:
        found = value()
    except BaseException:
        reached.add(number)
        raise
    between = effects()
    if number in reached or number in uneven:
        return found
    try:
        theirs = other()
        is_same = type(found) is type(theirs) and bool(found == theirs)
    except Exception:
        is_same = False
    if effects() != between:
        uneven.add(number)
    if not is_same:
        reached.add(number)
    return found


def instrument(
    root: Path, folder: Path, defects: Iterable[tuple[int, Defect]], without: frozenset[int] = frozenset()
) -> None:
    """Let the modules below ``folder``, a copy of ``root``, report the numbers of the defects that they come to.
    without: defects whose other value is never looked at."""
    of_file: dict[str, list[tuple[int, Defect]]] = defaultdict(list)
    for number, defect in defects:
        of_file[defect.file].append((number, defect))
    for file, found in of_file.items():
        text = read(root, found[0][1])
        tree = ast.parse(text)
        places = _Places()
        for number, defect in found:
            other = defect.function_in(ast.parse(defect.applied(text)))  # all around it is the same
            places.note(number, defect.function_in(tree), other, number not in without)
        tree = ast.fix_missing_locations(places.visit(tree))
        _import(tree)
        put(folder / "streamsink" / file, ast.unparse(tree))


def _import(tree: ast.Module) -> None:
    """Insert the import after the docstring and what else must stand first."""
    after = 1
    while (
        after < len(tree.body)
        and isinstance(tree.body[after], ast.ImportFrom)
        and tree.body[after].module == "__future__"
    ):
        after += 1
    tree.body.insert(after, ast.parse(f"from tests.walks import reach as {_HOOK}").body[0])


class _Places(ast.NodeTransformer):
    """Puts ``here``, ``raising`` and ``same`` where the defects are."""

    def __init__(self):
        self._values: dict[int, list[tuple[int, ast.expr]]] = defaultdict(list)
        self._statements: dict[int, list[int]] = defaultdict(list)
        self._checks: dict[int, list[int]] = defaultdict(list)

    def note(self, number: int, mine: ast.AST, theirs: ast.AST, may_compare: bool) -> None:
        path = _to_difference(mine, theirs)
        values = [
            (a, b) for a, b in path if isinstance(a, ast.expr) and isinstance(b, ast.expr) and _may_stand_apart(a, b)
        ]
        if values and may_compare:
            self._values[id(values[-1][0])].append((number, copy.deepcopy(values[-1][1])))
            return
        statement, instead = [(a, b) for a, b in path if isinstance(a, ast.stmt)][-1]
        is_left_out = _is_check(statement) and not isinstance(instead, ast.Expr)
        (self._checks if is_left_out else self._statements)[id(statement)].append(number)

    def visit(self, node):
        found = super().visit(node)
        for number, other in self._values.get(id(node), ()):
            call = ast.parse(f"{_HOOK}.same({number}, lambda: 0, lambda: 0)", mode="eval").body
            call.args[1].body, call.args[2].body = found, other
            found = call
        marks = [ast.parse(f"{_HOOK}.here({number})").body[0] for number in self._statements.get(id(node), ())]
        for number in self._checks.get(id(node), ()):
            checked = ast.parse(f"with {_HOOK}.raising({number}): pass").body[0]
            checked.body = [found]
            found = checked
        return [*marks, found] if marks else found


def _is_check(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = getattr(call.func, "attr", getattr(call.func, "id", "")) if isinstance(call, ast.Call) else ""
    return name.lstrip("_").startswith("check")


def _may_stand_apart(mine: ast.expr, theirs: ast.expr) -> bool:
    if isinstance(mine, ast.Constant) or isinstance(getattr(mine, "ctx", None), ast.Store):
        return False
    for node in [*ast.walk(mine), *ast.walk(theirs)]:
        if isinstance(node, _NOT_APART) or isinstance(node, ast.Name) and node.id == "super":
            return False
    calls = [node.func for node in ast.walk(theirs) if isinstance(node, ast.Call)]
    return all(getattr(call, "attr", getattr(call, "id", "")) in _CHANGES_NOTHING for call in calls)


def _to_difference(mine: ast.AST, theirs: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """Yield pairs of nodes from the function down to the lowest one that holds everything that differs; of a block, at
    last the first statement that differs."""
    path = [(mine, theirs)]
    while (below := _only_difference(mine, theirs)) is not None:
        mine, theirs = below
        path.append(below)
    for name, block in ast.iter_fields(mine):
        others = getattr(theirs, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt) and isinstance(others, list):
            differs = [k for k, each in enumerate(block) if k >= len(others) or not _is_same(each, others[k])]
            if differs or len(others) != len(block):
                path.append((block[differs[0] if differs else -1], mine))
                break
    return path


def _only_difference(mine: ast.AST, theirs: ast.AST) -> tuple[ast.AST, ast.AST] | None:
    if type(mine) is not type(theirs):
        return None
    found = []
    for name, value in ast.iter_fields(mine):
        other = getattr(theirs, name)
        if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
            found += [(a, b) for a, b in zip(value, other) if not _is_same(a, b)]
        elif not _is_same(value, other):
            found.append((value, other))
    is_one = len(found) == 1 and isinstance(found[0][0], ast.AST) and isinstance(found[0][1], ast.AST)
    return (
        found[0]
        if is_one and not isinstance(found[0][0], ast.operator | ast.cmpop | ast.boolop | ast.unaryop)
        else None
    )


def _is_same(mine, theirs) -> bool:
    """Whether the code is the same, wherever it stands."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, list):
        return len(mine) == len(theirs) and all(map(_is_same, mine, theirs))
    if isinstance(mine, ast.AST):
        return all(_is_same(getattr(mine, name, None), getattr(theirs, name, None)) for name in mine._fields)
    return mine == theirs
