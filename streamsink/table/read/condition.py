"""Predicates bound to a table. They decide about a whole file by its statistics, and about each row by its values."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamsink.errors import Misuse
from streamsink.format.file_stats import ColumnStats
from streamsink.format.schema import TableSchema
from streamsink.format.types import CHARACTER_ROOTS, AtomicType
from streamsink.table.read.literals import FLOATS, literal
from streamsink.table.read.predicate import And, Comparison, Or, Predicate

# Maps the name of a column to its statistics, or to None when nothing is known.
Stats = Callable[[str], ColumnStats | None]


class Condition(ABC):
    """A condition on rows of one table. columns: names of the columns that it tests."""

    columns: frozenset[str]

    @abstractmethod
    def may_match(self, stats: Stats) -> bool:
        """False only if no row with these statistics can match."""

    @abstractmethod
    def mask(self, rows: pa.Table) -> Any:
        """A Boolean array: true for the rows that match, and false or null for the others."""

    def only(self, column: str) -> frozenset[Any] | None:
        """The values of which the column has one in every row that matches; None where others may match too.

        They are physical values, as statistics have them.
        """
        return None


def bind(where: Predicate, schema: TableSchema, table: str) -> Condition:
    """The condition that ``where`` is for a table with this schema. table: its path, for messages.

    Raises Misuse, naming the column, when it does not exist or a value is not of its type.
    """
    if isinstance(where, (And, Or)):
        parts = [bind(part, schema, table) for part in where.parts]
        return _All(parts) if isinstance(where, And) else _Any(parts)
    if not isinstance(where, Comparison):
        raise Misuse(
            f"{table}: where is a {type(where).__name__}, expected a condition such as col('x') > 5", kind="where.type"
        )
    field = next((f for f in schema.fields if f.name == where.column), None)
    if field is None:
        raise Misuse(
            f"{table}: the condition names column '{where.column}'; the table has {', '.join(schema.field_names)}",
            kind="where.column",
        )
    if where.op in ("is null", "is not null"):
        return _Nullness(field.name, where.op == "is null")
    if not isinstance(field.type, AtomicType):
        raise Misuse(
            f"{table}: column '{field.name}' is {field.type}; conditions on such a column are is_null() and "
            "is_not_null()",
            kind="where.nested",
        )
    return _values(where, field.type, table)


def _values(where: Comparison, kind: AtomicType, table: str) -> Condition:
    """The condition of one comparison with values. kind: type of the column that ``where`` names."""
    column = where.column
    if where.op == "starts with" and kind.root not in CHARACTER_ROOTS:
        raise Misuse(f"{table}: column '{column}' is {kind}; startswith() is for texts", kind="where.value")
    tests: list[Condition] = []
    for value in where.values:
        physical, scalar = literal(value, column, kind, table)
        if where.op == "starts with":
            tests.append(_Prefix(column, physical))
        elif kind.root in FLOATS:
            tests.append(_FloatTest(column, _op(where), physical, scalar))
        else:
            tests.append(_ValueTest(column, _op(where), physical, scalar))
    return tests[0] if len(tests) == 1 else _Any(tests, column)


def _op(where: Comparison) -> str:
    return "=" if where.op == "in" else where.op


class _Several(Condition):
    def __init__(self, parts: Sequence[Condition], column: str | None = None):
        self.parts = parts
        self.columns = frozenset([column] if column else []).union(*(part.columns for part in parts))


class _All(_Several):
    def may_match(self, stats: Stats) -> bool:
        return all(part.may_match(stats) for part in self.parts)

    def mask(self, rows: pa.Table) -> Any:
        return reduce(pc.and_kleene, self._masks(rows))

    def _masks(self, rows: pa.Table) -> Iterator[Any]:
        return (part.mask(rows) for part in self.parts)

    def only(self, column: str) -> frozenset[Any] | None:
        found = [values for values in (part.only(column) for part in self.parts) if values is not None]
        return min(found, key=len, default=None)


class _Any(_Several):
    def only(self, column: str) -> frozenset[Any] | None:
        found = [part.only(column) for part in self.parts]
        return frozenset().union(*(values for values in found if values is not None)) if None not in found else None

    def may_match(self, stats: Stats) -> bool:
        return any(part.may_match(stats) for part in self.parts)

    def mask(self, rows: pa.Table) -> Any:
        nothing = pa.repeat(pa.scalar(False), rows.num_rows)
        return reduce(pc.or_kleene, (part.mask(rows) for part in self.parts), nothing)


class _Nullness(Condition):
    def __init__(self, column: str, wanted: bool):
        self.columns = frozenset([column])
        self._column = column
        self._wanted = wanted

    def may_match(self, stats: Stats) -> bool:
        found = stats(self._column)
        if found is None or found.nulls is None:
            return True
        return found.nulls > 0 if self._wanted else found.nulls < found.rows

    def mask(self, rows: pa.Table) -> Any:
        column = rows.column(self._column)
        return pc.is_null(column) if self._wanted else pc.is_valid(column)


class _Bounded(Condition):
    """A test that a null never passes, and that the bounds of a column can rule out."""

    def __init__(self, column: str):
        self.columns = frozenset([column])
        self._column = column

    def may_match(self, stats: Stats) -> bool:
        found = stats(self._column)
        if found is None:
            return True
        if found.nulls is not None and found.nulls == found.rows:
            return False
        return found.low is None or found.high is None or self._within(found.low, found.high)

    @abstractmethod
    def _within(self, low: Any, high: Any) -> bool:
        """Whether a value from ``low`` to ``high`` may pass. Both bounds may be wider than the values."""


class _Prefix(_Bounded):
    def __init__(self, column: str, prefix: str):
        super().__init__(column)
        self._prefix = prefix

    def _within(self, low: str, high: str) -> bool:
        return low[: len(self._prefix)] <= self._prefix <= high

    def mask(self, rows: pa.Table) -> Any:
        return pc.starts_with(rows.column(self._column), pattern=self._prefix)


_COMPUTE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class _ValueTest(_Bounded):
    def __init__(self, column: str, op: str, value: Any, scalar: pa.Scalar):
        super().__init__(column)
        self._op = op
        self._value = self._order(value)
        self._scalar = scalar

    def only(self, column: str) -> frozenset[Any] | None:
        return frozenset((self._value,)) if self._op == "=" and column == self._column else None

    def _order(self, value: Any) -> Any:
        return value

    def _within(self, low: Any, high: Any) -> bool:
        value, low, high = self._value, self._order(low), self._order(high)
        if self._op == "=":
            return low <= value <= high
        if self._op == "!=":
            return not low == value == high
        if self._op == "<":
            return low < value
        if self._op == "<=":
            return low <= value
        return high > value if self._op == ">" else high >= value

    def mask(self, rows: pa.Table) -> Any:
        return _COMPUTE[self._op](rows.column(self._column), self._scalar)


class _FloatTest(_ValueTest):
    """Compares as Spark does: NaN is the largest number. A FLOAT is compared as the DOUBLE of the same value."""

    def only(self, column: str) -> frozenset[Any] | None:
        return None  # equal numbers may have different bytes

    def _order(self, value: float) -> tuple[bool, float]:
        return (True, 0.0) if value != value else (False, value)

    def mask(self, rows: pa.Table) -> Any:
        column = rows.column(self._column).cast(pa.float64())
        nan = pc.is_nan(column)
        if self._value[0]:
            return {
                "=": lambda: nan,
                ">=": lambda: nan,
                "!=": lambda: pc.invert(nan),
                "<": lambda: pc.invert(nan),
                "<=": lambda: pc.is_valid(column),
                ">": lambda: pc.and_(nan, pc.invert(nan)),
            }[self._op]()
        found = _COMPUTE[self._op](column, self._scalar)
        return pc.or_(found, nan) if self._op in (">", ">=") else found
