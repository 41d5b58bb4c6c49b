"""Converts between Python values and physical values, which are what the format stores.

Physical values are: for a DATE its days, for a TIME its ms of the day, for a timestamp its ns since the epoch (all
int); for a DECIMAL a Decimal with the type's scale; for other types the value that Python has.
"""

import datetime
import decimal
from typing import Any

from streamsink.errors import Misuse
from streamsink.format.type_model import INTEGER_ROOTS
from streamsink.format.types import BINARY_ROOTS, CHARACTER_ROOTS, TIMESTAMP_ROOTS, AtomicType

_EPOCH_DATE = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
#: For arithmetic with 38 digits, in which nothing is rounded silently.
_EXACT = decimal.Context(prec=76, traps=[decimal.InvalidOperation])


def to_physical(value: Any, t: AtomicType) -> Any:
    """The physical value of a value that is not None. Raises: Misuse ``row.bad-value``, TypeError or ValueError."""
    root = t.root
    if root == "BOOLEAN":
        return _need(value, bool, t)
    if root in INTEGER_ROOTS:
        return _integer(value, t)
    if root in ("FLOAT", "DOUBLE"):
        return float(value)
    if root in CHARACTER_ROOTS:
        return _need(value, str, t)
    if root in BINARY_ROOTS:
        return bytes(_need(value, (bytes, bytearray, memoryview), t))
    if root == "DECIMAL":
        return _decimal(value, t)
    if root == "DATE":
        return value.toordinal() - _EPOCH_DATE if isinstance(value, datetime.date) else _integer(value, t)
    if root == "TIME":
        return time_millis(value) if isinstance(value, datetime.time) else _integer(value, t)
    if root in TIMESTAMP_ROOTS:
        return _nanos(value, t)
    raise Misuse(f"values of type {t} cannot be written here", kind="row.unsupported-type")


def from_physical(value: Any, t: AtomicType) -> Any:
    """The Python value of a physical value; an int stays an int if Python's type cannot hold it."""
    if t.root == "DECIMAL":
        if isinstance(value, decimal.Decimal):
            return value
        return decimal.Decimal(value).scaleb(-(t.scale or 0), _EXACT)
    if t.root == "DATE":
        ordinal = value + _EPOCH_DATE
        return datetime.date.fromordinal(ordinal) if 1 <= ordinal <= datetime.date.max.toordinal() else value
    if t.root == "TIME":
        return _time(value)
    if t.root in TIMESTAMP_ROOTS:
        return _datetime(value, t)
    return value


def time_millis(value: datetime.time) -> int:
    """The milliseconds of the day."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1000 + value.microsecond // 1000


def _need(value: Any, kinds: Any, t: AtomicType) -> Any:
    if not isinstance(value, kinds):
        raise Misuse(f"a value of type {type(value).__name__} does not fit {t}", kind="row.bad-value")
    return value


def _integer(value: Any, t: AtomicType) -> int:
    if isinstance(value, bool):
        raise Misuse(f"a bool does not fit {t}", kind="row.bad-value")
    return int(_need(value, int, t))


def _decimal(value: Any, t: AtomicType) -> decimal.Decimal:
    given = decimal.Decimal(_integer(value, t)) if not isinstance(value, decimal.Decimal) else value
    if not given.is_finite():
        raise Misuse(f"a decimal that is not a number does not fit {t}", kind="row.bad-value")
    scaled = given.quantize(decimal.Decimal(1).scaleb(-(t.scale or 0)), context=_EXACT)
    if scaled != given or len(scaled.as_tuple().digits) > (t.precision or 0):
        raise Misuse(f"a decimal with more digits than {t} has does not fit", kind="row.bad-value")
    return scaled


def _nanos(value: Any, t: AtomicType) -> int:
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            if t.root == "TIMESTAMP":
                raise Misuse(f"a datetime with a time zone does not fit {t}", kind="row.bad-value")
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return (value - _EPOCH) // _MICROSECOND * 1000
    return _integer(value, t)


def _time(millis: int) -> Any:
    if not 0 <= millis < 86_400_000:
        return millis
    seconds, ms = divmod(millis, 1000)
    return datetime.time(seconds // 3600, seconds // 60 % 60, seconds % 60, ms * 1000)


def _datetime(nanos: int, t: AtomicType) -> Any:
    micros, rest = divmod(nanos, 1000)
    if rest or (t.precision or 0) > 6:
        return nanos
    try:
        found = _EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        return nanos
    return found.replace(tzinfo=datetime.timezone.utc) if t.root == "TIMESTAMP_LTZ" else found
