"""Conditions on columns, for reading: ``(col("day") >= date(2024, 5, 1)) & col("city").isin(["Bern", "Ulm"])``.

A condition is a plain model that can be inspected, so that files can be skipped by it. As in SQL, a comparison with a
null is never true. As in Spark, NaN is equal to itself and larger than every other number, and the two zeros are equal.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamsink.errors import Misuse


class Predicate:
    """Base class of all conditions. They are combined with ``&`` and ``|``, with each side in parentheses."""

    def __and__(self, other: "Predicate") -> "Predicate":
        return And((self, _predicate(other)))

    def __or__(self, other: "Predicate") -> "Predicate":
        return Or((self, _predicate(other)))

    def __bool__(self) -> bool:
        raise Misuse(
            "a condition has no truth value of its own: combine conditions with & and | instead of 'and' and 'or', "
            "each in parentheses, and write a <= x <= b as two of them",
            kind="where.bool",
        )


@dataclass(frozen=True)
class And(Predicate):
    """True when all of ``parts`` are true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or(Predicate):
    """True when at least one of ``parts`` is true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class Comparison(Predicate):
    """A test of one column.

    op: =, !=, <, <=, >, >= or starts with, which have one value; in, which has any number; is null or is not null,
    which have none.
    """

    column: str
    op: str
    values: tuple[Any, ...] = ()


class Column:
    """A column of a table, given by its name. Comparing it with values makes conditions."""

    __hash__ = None  # type: ignore[assignment]  # == makes a condition, so columns cannot be keys

    def __init__(self, name: str):
        self._name = name

    def __eq__(self, value: Any) -> Predicate:  # type: ignore[override]
        return self._compare("=", value)

    def __ne__(self, value: Any) -> Predicate:  # type: ignore[override]
        return self._compare("!=", value)

    def __lt__(self, value: Any) -> Predicate:
        return self._compare("<", value)

    def __le__(self, value: Any) -> Predicate:
        return self._compare("<=", value)

    def __gt__(self, value: Any) -> Predicate:
        return self._compare(">", value)

    def __ge__(self, value: Any) -> Predicate:
        return self._compare(">=", value)

    def isin(self, values: Iterable[Any]) -> Predicate:
        """True when the column equals one of the values; if there are none, for no row."""
        return Comparison(self._name, "in", tuple(values))

    def startswith(self, prefix: str) -> Predicate:
        """True when the column's text begins with ``prefix``."""
        return Comparison(self._name, "starts with", (prefix,))

    def is_null(self) -> Predicate:
        """True when the column is null."""
        return Comparison(self._name, "is null")

    def is_not_null(self) -> Predicate:
        """True when the column is not null."""
        return Comparison(self._name, "is not null")

    def _compare(self, op: str, value: Any) -> Predicate:
        if isinstance(value, (Column, Predicate)):
            raise Misuse(
                f"column '{self._name}' is compared with a {type(value).__name__}, expected a value", kind="where.value"
            )
        return Comparison(self._name, op, (value,))


def col(name: str) -> Column:
    """The column ``name``, for comparing it with values."""
    return Column(name)


def _predicate(found: Any) -> Predicate:
    if not isinstance(found, Predicate):
        raise Misuse(f"& and | combine conditions, found a {type(found).__name__}", kind="where.type")
    return found
