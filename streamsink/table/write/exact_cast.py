"""Casts a column to another type without changing any value, by Arrow's cast where it can be trusted.

Executor and driver.

Arrow's cast changes values in two cases. It reads hexadecimal digits in a text as the bits of a whole number, so that
'0xFF' becomes -1 as a TINYINT. And a decimal that has too many digits while it is brought to its new scale wraps around
to another number, whether it comes from a text or from a decimal.
"""

import decimal
import re

import pyarrow as pa
import pyarrow.compute as pc

_INTEGER = "^-?[0-9]+$"
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
# No decimal of 38 digits is written with more characters than this, and texts of this length still cost nothing.
_MOST_CHARACTERS = 1000
# Every value that 38 digits hold fits into so many digits, at any scale.
_WIDE_DIGITS = 76


def cast_exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in the type ``kind``. Raises pa.ArrowInvalid when a value is not exactly representable in it."""
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
    """Whether all texts match, which is also True if there are none. A text that is not UTF-8 does not match."""
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False


def _decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as decimals. If all have no more digits than the type, as is usual, Arrow casts them; else one by one."""
    whole = f"[0-9]{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale else "0"
    if _all_match(texts, rf"^-?{whole}(\.[0-9]{{0,{kind.scale}}})?$"):
        return texts.cast(kind)
    return pa.array(
        [None if text is None else _decimal(text, kind) for text in texts.cast(pa.binary()).to_pylist()], kind
    )


def _decimal(text: bytes, kind: pa.DataType) -> decimal.Decimal:
    """Exactly the value of a text in plain or scientific notation.

    Raises pa.ArrowInvalid when the type cannot hold it.
    """
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
