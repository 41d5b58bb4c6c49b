"""Values in conditions: the form in which the format stores them, and the Arrow scalar with which rows are compared."""

import datetime
import decimal
from typing import Any

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.format.arrow_types import to_arrow_type
from streamsink.format.types import BINARY_ROOTS, CHARACTER_ROOTS, TIMESTAMP_ROOTS, AtomicType
from streamsink.format.values import to_physical

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
FLOATS = ("FLOAT", "DOUBLE")
_UNIT_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def literal(value: Any, column: str, kind: AtomicType, table: str) -> tuple[Any, pa.Scalar]:
    """(value as the format stores it, Arrow scalar) of a value that a column is compared with.

    kind: the column's type. table: its path, for messages.
    Raises Misuse, naming the column, for a value of another type.
    """
    try:
        physical = to_physical(value, kind)
        _check(value, kind)
        return physical, _scalar(physical, kind)
    except (Misuse, TypeError, ValueError, ArithmeticError, pa.ArrowException):
        raise Misuse(
            f"{table}: column '{column}' is {kind}, and the condition compares it with a {type(value).__name__} that "
            "is no value of that type. Give one that is (a date, a datetime with a time zone for WITH LOCAL TIME ZONE "
            "and without one for TIMESTAMP, a Decimal of the column's scale, ...), or is_null() instead of None",
            kind="where.value",
        ) from None


def _check(value: Any, kind: AtomicType) -> None:
    """Raises TypeError or ValueError for values of wrong types that ``to_physical`` lets pass."""
    root = kind.root
    if root in FLOATS and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError
    if root in _BITS and not -(2 ** (_BITS[root] - 1)) <= value < 2 ** (_BITS[root] - 1):
        raise ValueError
    if root in CHARACTER_ROOTS:
        value.encode("utf-8")
    if root == "DECIMAL" and not isinstance(value, (int, decimal.Decimal)):
        raise TypeError
    if root == "DATE" and (isinstance(value, datetime.datetime) or not isinstance(value, datetime.date)):
        raise TypeError
    if root == "TIME" and (
        not isinstance(value, datetime.time) or value.tzinfo is not None or value.microsecond % 1000
    ):
        raise TypeError
    if root in TIMESTAMP_ROOTS and isinstance(value, datetime.datetime):
        if (root == "TIMESTAMP_LTZ") != (value.tzinfo is not None):
            raise TypeError


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
