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

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EPOCH_DATE = datetime.date(1970, 1, 1).toordinal()
_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
# What stands for a time in Python, where another class, or a time with or without a zone, could be taken for it.
_IN_PYTHON = {
    "DATE": " (a date)",
    "TIME": " (a time without a time zone)",
    "TIMESTAMP": " (a datetime without a time zone)",
    "TIMESTAMP_LTZ": " (a datetime with a time zone, such as tzinfo=datetime.timezone.utc)",
}
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


def given_to_physical(value: Any, t: AtomicType) -> Any:
    """As ``to_physical``, for a value that a user gives. Refuses what would be rounded, or could mean something else.

    A time without a zone is no instant: Python takes it for a local one, and Spark for one of its session's zone. A
    number could count days, seconds or milliseconds, so it stands for a time only where Python has none, as nanoseconds
    since the epoch. Raises: Misuse ``row.bad-value``, TypeError, ValueError or ArithmeticError.
    """
    root, physical = t.root, to_physical(value, t)
    if root in _BITS and not -(2 ** (_BITS[root] - 1)) <= physical < 2 ** (_BITS[root] - 1):
        raise ValueError
    if root in ("FLOAT", "DOUBLE") and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError
    if root in CHARACTER_ROOTS:
        value.encode("utf-8")
    if root == "DATE" and (isinstance(value, datetime.datetime) or not isinstance(value, datetime.date)):
        raise TypeError
    if root == "TIME" and (
        not isinstance(value, datetime.time) or value.tzinfo is not None or value.microsecond % 1000
    ):
        raise TypeError
    if root in TIMESTAMP_ROOTS:
        _check_time(value, physical, t)
    return physical


def _check_time(value: Any, physical: int, t: AtomicType) -> None:
    precision = t.precision or 0
    if isinstance(value, datetime.datetime):
        if (t.root == "TIMESTAMP_LTZ") != (value.tzinfo is not None):
            raise TypeError
    elif precision <= 6 and not isinstance(_datetime(physical // 1000 * 1000, t), int):
        raise TypeError
    if physical % (1_000_000 if precision <= 3 else 1000 if precision <= 6 else 1):
        raise ValueError


def expected(t: AtomicType) -> str:
    """What ``given_to_physical`` wants of a user for this type, for messages."""
    return f"a value of type {t}{_IN_PYTHON.get(t.root, '')}"


def described(value: Any) -> str:
    """What a user has given, for messages; without the value."""
    name = f"a {type(value).__name__}"
    if isinstance(value, (datetime.datetime, datetime.time)):
        return f"{name} {'without' if value.tzinfo is None else 'with'} a time zone"
    return name


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
