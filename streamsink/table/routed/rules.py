"""Rules that say to which table a row goes, and what happens to rows that no rule covers. Values only, no I/O."""

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn, TypeGuard

from streamsink.errors import Misuse
from streamsink.options import SinkOptions
from streamsink.storage.stores import as_text

# The column that carries the name of a row's table from the query to the writers.
ROUTE = "__streamsink_table"
UNROUTED_FAIL, UNROUTED_DEAD_LETTER = "fail", "dead-letter"
# As ``columns`` of a rule: the columns that the table has.
EXISTING = "existing"
# Options that may differ from table to table. All others hold for the whole query.
_OF_A_TABLE = ("partition_by", "table_options", "create", "add_columns", "widen_types")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_RESERVED = "streamsink"


@dataclass(frozen=True)
class TableRule:
    """What holds for one table, or for each table whose name matches a pattern.

    path: the table's path relative to the warehouse; None means its name.
    columns: the columns of the data that the table takes; None means all, 'existing' those that the table has.
    options: those of the query, with what is different for this table.
    """

    path: str | None
    columns: tuple[str, ...] | str | None
    options: SinkOptions

    def choose(self, given: Iterable[str], has: Iterable[str]) -> tuple[str, ...]:
        """Those of the columns ``given`` that a table with the columns ``has`` takes, in the order of ``given``."""
        if self.columns is None:
            return tuple(given)
        wanted = set(has) if self.columns == EXISTING else set(self.columns)
        return tuple(name for name in given if name in wanted)


@dataclass(frozen=True)
class Routing:
    """All rules of one query. They are sent to executors.

    root: the warehouse's absolute path. rules: by table name or by pattern ('*', '?'). A rule for exactly this name
    comes before patterns, and these come in their order.
    dead_letters: name of the table for rows that fit nowhere, or None.
    unrouted: what happens to rows that no rule covers.
    """

    root: str
    rules: Mapping[str, TableRule]
    dead_letters: str | None = None
    unrouted: str = UNROUTED_FAIL

    @classmethod
    def of(
        cls, root: str, tables: Mapping[str, Any], options: SinkOptions, *, dead_letters: str | None, unrouted: str
    ) -> "Routing":
        """The rules that a user gives, checked. Raises Misuse, naming the table and the option."""
        if not isinstance(tables, Mapping) or not tables:
            _refuse(root, "tables", tables, "a mapping of at least one table name or pattern to its options")
        if unrouted not in (UNROUTED_FAIL, UNROUTED_DEAD_LETTER):
            _refuse(root, "unrouted", unrouted, f"'{UNROUTED_FAIL}' or '{UNROUTED_DEAD_LETTER}'")
        if unrouted == UNROUTED_DEAD_LETTER and dead_letters is None:
            _refuse(root, "unrouted", unrouted, "'fail', or the name of a table in dead_letters")
        if dead_letters is not None and (not _is_name(dead_letters) or dead_letters in tables):
            _refuse(root, "dead_letters", dead_letters, "the name of a table that is not one of 'tables'")
        rules = {name: _rule(root, name, given, options) for name, given in tables.items()}
        routing = cls(root, rules, dead_letters, unrouted)
        routing._check_paths()
        return routing

    def rule_of(self, name: str | None) -> str | None:
        """The key of the rule for a table's name; None if there is none, or if it cannot be the name of a table."""
        if name in self.rules and not _is_pattern(name):
            return name
        if not _is_name(name) or name == self.dead_letters or self._hides(name):
            return None
        return next((key for key in self.rules if _is_pattern(key) and fnmatch.fnmatchcase(name, key)), None)

    def path_of(self, name: str) -> str:
        """A table's path, relative to the warehouse."""
        rule = self.rules.get(name)
        return name if rule is None or rule.path is None else rule.path

    def listed(self) -> list[str]:
        """Names of the tables that have a rule for exactly this name."""
        return [name for name in self.rules if not _is_pattern(name)]

    def roots(self) -> list[str]:
        """Absolute paths of the tables that have a name of their own here, with that for dead letters."""
        named = [self.path_of(name) for name in self.listed()] + ([self.dead_letters] if self.dead_letters else [])
        return [os.path.join(self.root, path) for path in named]

    def _hides(self, name: str) -> bool:
        """Whether a table of this name would have the path of a listed table, or contain it."""
        paths = [self.path_of(other) for other in self.listed()]
        return any(path == name or path.startswith(name + "/") for path in paths)

    def _check_paths(self) -> None:
        named = [(self.path_of(name), name) for name in self.listed()]
        if self.dead_letters is not None:
            named.append((self.dead_letters, self.dead_letters))
        for path, name in named:
            for other, beside in named:
                if name != beside and (path == other or path.startswith(other + "/")):
                    raise Misuse(
                        f"{self.root}: the tables '{name}' and '{beside}' are at the same path or one inside the other "
                        f"({path}, {other}). Give each a path of its own",
                        kind="option.value",
                    )


def _rule(root: str, name: str, given: Mapping[str, Any], base: SinkOptions) -> TableRule:
    if not _is_pattern(name) and not _is_name(name):
        _refuse(root, "tables", name, "names of tables: 1 to 128 letters, digits, '_' or '-'; or a pattern with '*'")
    if not isinstance(given, Mapping):
        _refuse(root, f"tables['{name}']", given, "a mapping of options, which may be empty")
    known = (*_OF_A_TABLE, "path", "columns")
    for option in given:
        if option not in known:
            raise Misuse(
                f"{root}: table '{name}' has no option '{option}' of its own; there are {', '.join(known)}. Others "
                "hold for the whole query",
                kind="option.unknown",
            )
    own = {field.name: getattr(base, field.name) for field in fields(base)}
    own |= {option: value for option, value in given.items() if option in _OF_A_TABLE}
    options = SinkOptions.of(os.path.join(root, name), own)
    return TableRule(_path(root, name, given.get("path")), _columns(root, name, given.get("columns")), options)


def _path(root: str, name: str, given: Any) -> str | None:
    path = as_text(given)
    if path is None:
        return None
    if _is_pattern(name):
        _refuse(root, f"tables['{name}']['path']", path, "no path for a pattern")
    relative = os.path.relpath(os.path.join(root, path), root) if isinstance(path, str) and path else ".."
    if relative.split("/")[0] in ("..", ".", _RESERVED):
        _refuse(root, f"tables['{name}']['path']", path, f"a path below {root}, so that all tables are on one store")
    return relative


def _columns(root: str, name: str, columns: Any) -> tuple[str, ...] | str | None:
    if columns is None or columns == EXISTING:
        return columns
    if isinstance(columns, str) or not all(isinstance(c, str) and c for c in columns):
        _refuse(root, f"tables['{name}']['columns']", columns, f"column names, '{EXISTING}' or None")
    return tuple(columns)


def _is_pattern(name: object) -> bool:
    return isinstance(name, str) and ("*" in name or "?" in name)


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and name != _RESERVED


def _refuse(root: str, option: str, found: object, expected: str) -> NoReturn:
    raise Misuse(f"{root}: option '{option}' is {found!r}, expected {expected}", kind="option.value")
