"""Bringing a column to another type so that each value stays what it is: Arrow's cast, where that can be trusted. Executor and driver.

Arrow reads hexadecimal digits in a text as the bits of a whole number, so that '0xFF' is -1 as a TINYINT; and a decimal that has too
many digits on its way to its new scale comes round to another number, from a text as from a decimal.
"""

import decimal
import re

import pyarrow as pa
import pyarrow.compute as pc

_INTEGER = "^-?[0-9]+$"
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# What no decimal of 38 digits is written with; texts of this length cost nothing yet.
_MOST_CHARACTERS = 1000
# Decimals of any scale, of any value that 38 digits hold, have room in it.
_WIDE_DIGITS = 76


def cast_exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in the type ``kind``. Raises pa.ArrowInvalid when a value is not exactly one of that type."""
    if _is_text(column.type):
        if pa.types.is_integer(kind) and not _all_match(column, _INTEGER):
            raise pa.ArrowInvalid("a text that is no whole number")
        if pa.types.is_decimal(kind):
            return _decimals(column, kind)
    elif pa.types.is_decimal(column.type) and pa.types.is_decimal(kind) and kind.scale > column.type.scale:
        return column.cast(pa.decimal256(_WIDE_DIGITS, kind.scale)).cast(kind)
    return column.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _all_match(texts: pa.Array, pattern: str) -> bool:
    """Also when there is none. A text that is not UTF-8 does not match."""
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """As a rule they have the digits that the type has, and no more; others are read one by one."""
    whole = f"[0-9]{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale else "0"
    if _all_match(texts, rf"^-?{whole}(\.[0-9]{{0,{kind.scale}}})?$"):
        return texts.cast(kind)
    return pa.array(
        [None if text is None else _decimal(text, kind) for text in texts.cast(pa.binary()).to_pylist()], kind
    )


def _decimal(text: bytes, kind: pa.DataType) -> decimal.Decimal:
    """A text in plain or scientific notation, of exactly that value. Raises pa.ArrowInvalid."""
    written = text.decode("ascii", "replace")
    if len(text) > _MOST_CHARACTERS or not _DECIMAL.fullmatch(written):
        raise pa.ArrowInvalid("a text that is no decimal")
    exact = decimal.Context(prec=_MOST_CHARACTERS, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow])
    try:
        value = exact.quantize(exact.create_decimal(written), decimal.Decimal(1).scaleb(-kind.scale))
    except (decimal.Inexact, decimal.InvalidOperation, decimal.Overflow):
        raise pa.ArrowInvalid("a decimal of more digits than the type has") from None
    if value and value.adjusted() >= kind.precision - kind.scale:
        raise pa.ArrowInvalid("a decimal of more digits than the type has")
    return value
