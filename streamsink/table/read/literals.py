"""Values in conditions: the form in which the format stores them, and the Arrow scalar with which rows are compared."""

from typing import Any

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.format.arrow_types import to_arrow_type
from streamsink.format.types import BINARY_ROOTS, TIMESTAMP_ROOTS, AtomicType
from streamsink.format.values import described, given_to_physical

FLOATS = ("FLOAT", "DOUBLE")
_UNIT_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def literal(value: Any, column: str, kind: AtomicType, table: str) -> tuple[Any, pa.Scalar]:
    """(value as the format stores it, Arrow scalar) of a value that a column is compared with.

    kind: the column's type. table: its path, for messages.
    Raises Misuse, naming the column, for a value of another type.
    """
    try:
        physical = given_to_physical(value, kind)
        return physical, _scalar(physical, kind)
    except (Misuse, TypeError, ValueError, ArithmeticError, pa.ArrowException):
        raise Misuse(
            f"{table}: column '{column}' is {kind}, and the condition compares it with {described(value)} that is no "
            "value of that type. Give one that is (a date, a datetime with a time zone for WITH LOCAL TIME ZONE "
            "and without one for TIMESTAMP, a Decimal of the column's scale, ...), or is_null() instead of None",
            kind="where.value",
        ) from None


def _scalar(physical: Any, kind: AtomicType) -> pa.Scalar:
    if kind.root in FLOATS:
        return pa.scalar(physical, pa.float64())
    arrow = to_arrow_type(kind, "")
    if kind.root in TIMESTAMP_ROOTS:
        units, rest = divmod(physical, _UNIT_NANOS[arrow.unit])
        if rest:
            raise ValueError
        return pa.scalar(units, pa.int64()).cast(arrow)
    if kind.root in BINARY_ROOTS:
        physical = bytes(physical)
    return pa.scalar(physical, arrow)
