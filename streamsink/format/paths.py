"""Names of the directories of partitions and buckets.

Readers compute them from a file's partition bytes, so they must be the names that Java gives.
"""

import struct
import unicodedata
from collections.abc import Sequence
from typing import Any

from streamsink.errors import Misuse
from streamsink.format.types import BINARY_ROOTS, CHARACTER_ROOTS, TIMESTAMP_ROOTS, AtomicType, DataField
from streamsink.format.values import to_physical

DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"
POSTPONE_BUCKET = -2

_ESCAPED = frozenset(map(chr, list(range(0x20)) + [0x7F])) | frozenset("\"#%'*/:=?\\{}[]^")
#: Characters for which Java's Character.isWhitespace is true: separators that may break a line, and these controls.
_BLANK_CONTROLS = frozenset("\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f")
_NO_BREAK = frozenset("\u00a0\u2007\u202f")
_DAY_MILLIS = 86_400_000
_DAY_NANOS = _DAY_MILLIS * 1_000_000


def partition_path(
    partition_values: Sequence[Any],
    partition_fields: Sequence[DataField],
    *,
    default_name: str = DEFAULT_PARTITION_NAME,
    legacy: bool = True,
) -> str:
    """The path ``k1=v1/k2=v2`` relative to the table, "" if unpartitioned; values as ``decode_row`` returns them.

    ``legacy`` is the table option ``partition.legacy-name``. Raises: Misuse ``path.unsupported-type``,
    ``path.unsupported-value``, ``path.bad-partition`` or ``row.bad-value``.
    """
    if len(partition_values) != len(partition_fields):
        raise Misuse(
            f"{len(partition_values)} values for {len(partition_fields)} partition columns", kind="path.bad-partition"
        )
    parts = []
    for value, field in zip(partition_values, partition_fields):
        text = default_name if value is None else _text(value, field, legacy)
        parts.append(f"{escape(field.name)}={escape(default_name if _is_blank(text) else text)}")
    return "/".join(parts)


def bucket_dir(partition_path: str, bucket: int) -> str:
    """The directory of a bucket's data files, relative to the table. Raises: Misuse ``path.bad-bucket``."""
    if bucket < POSTPONE_BUCKET or bucket == -1:
        raise Misuse(f"bucket {bucket} has no directory", kind="path.bad-bucket")
    name = "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"
    return f"{partition_path}/{name}" if partition_path else name


def escape(text: str) -> str:
    """Escape one component of a path as Paimon and Hive do."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def _is_blank(text: str) -> bool:
    return all(
        c in _BLANK_CONTROLS or (unicodedata.category(c) in ("Zs", "Zl", "Zp") and c not in _NO_BREAK) for c in text
    )


def check_partition_field(field: DataField, legacy: bool) -> AtomicType:
    """Return the type of a partition column.

    Raises: Misuse ``path.unsupported-type`` if its values give no names of directories.
    """
    t = field.type
    if not isinstance(t, AtomicType) or t.root in BINARY_ROOTS:
        raise Misuse(f"column {field.name!r}: type {t} cannot be a partition column here", kind="path.unsupported-type")
    if not legacy and t.root == "TIMESTAMP_LTZ":
        raise Misuse(
            f"column {field.name!r}: with partition.legacy-name=false the directory of a {t} value "
            "depends on the reader's time zone",
            kind="path.unsupported-type",
        )
    return t


def _text(value: Any, field: DataField, legacy: bool) -> str:
    t = check_partition_field(field, legacy)
    try:
        physical = to_physical(value, t)
    except (TypeError, ValueError, AttributeError) as bad:
        raise Misuse(
            f"column {field.name!r}: a value of type {type(value).__name__} does not fit {t}", kind="row.bad-value"
        ) from bad
    if t.root in CHARACTER_ROOTS:
        return physical
    if t.root == "BOOLEAN":
        return "true" if physical else "false"
    if t.root in ("FLOAT", "DOUBLE"):
        return java_float_text(physical, single=t.root == "FLOAT")
    if t.root == "DECIMAL":
        return format(physical, "f")
    if not legacy and (t.root == "DATE" or t.root in TIMESTAMP_ROOTS):
        _check_year(civil_date(physical if t.root == "DATE" else physical // _DAY_NANOS)[0], field)
    if t.root == "DATE" and not legacy:
        return "{:04d}-{:02d}-{:02d}".format(*civil_date(physical))
    if t.root == "TIME" and not legacy:
        return _time_text(physical, t.precision or 0)
    if t.root in TIMESTAMP_ROOTS:
        return _iso_text(physical) if legacy else _sql_text(physical, t.precision or 0)
    return str(physical)


def _check_year(year: int, field: DataField) -> None:
    """Refuse a year without a directory of its own.

    Java's names have four digits for a year, so the years 1 and 10001 share a directory there, and the year -1 has
    none.
    """
    if not 0 <= year <= 9999:
        raise Misuse(
            f"column {field.name!r}: a date outside of the years 0 to 9999 has no folder of its own in a table with "
            "partition.legacy-name=false. Filter such rows in the query, set them to null, or name a table for them "
            "with dead_letters",
            kind="path.unsupported-value",
        )


def civil_date(days: int) -> tuple[Any, ...]:
    """(year, month, day) of a day number since 1970-01-01 in the proleptic Gregorian calendar, for any year."""
    shifted = days + 719468
    era, day_of_era = divmod(shifted, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    month = month_index + 3 if month_index < 10 else month_index - 9
    return year_of_era + era * 400 + (1 if month <= 2 else 0), month, day_of_year - (153 * month_index + 2) // 5 + 1


def _split(nanos: int) -> tuple[Any, ...]:
    days, rest = divmod(nanos, _DAY_NANOS)
    seconds, fraction = divmod(rest, 1_000_000_000)
    return civil_date(days) + (seconds // 3600, seconds // 60 % 60, seconds % 60, fraction)


def _iso_text(nanos: int) -> str:
    """The text of Java's LocalDateTime.toString: no seconds if they are zero, a fraction in groups of three digits."""
    year, month, day, hour, minute, second, fraction = _split(nanos)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    text = f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}"
    if second or fraction:
        text += f":{second:02d}"
    if fraction:
        digits = f"{fraction:09d}"
        text += "." + (digits[:3] if digits.endswith("000000") else digits[:6] if digits.endswith("000") else digits)
    return text


def _sql_text(nanos: int, precision: int) -> str:
    year, month, day, hour, minute, second, fraction = _split(nanos)
    digits = f"{fraction:09d}"
    while len(digits) > precision and digits.endswith("0"):
        digits = digits[:-1]
    text = f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:{second:02d}"
    return text + "." + digits if digits else text


def _time_text(millis: int, precision: int) -> str:
    seconds, rest = divmod(millis % _DAY_MILLIS, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if precision <= 0:
        return text
    digits = ""
    for _ in range(precision):
        digits += str(rest // 100)
        rest = rest % 100 * 10
        if rest == 0:
            break
    return f"{text}.{digits}"


def java_float_text(value: float, *, single: bool) -> str:
    """The text of Java's Double.toString, or with ``single`` of Float.toString.

    It has the shortest digits that identify the value, as in JDK 19 and later.
    """
    if value != value:
        return "NaN"
    sign = "-" if struct.pack(">d", value)[0] & 0x80 else ""
    value = abs(value)
    if value == float("inf"):
        return sign + "Infinity"
    if value == 0:
        return sign + "0.0"
    mantissa, exponent_text = _shortest(value, single).split("e")
    digits, exponent = mantissa.replace(".", "").rstrip("0") or "0", int(exponent_text)
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"


def _shortest(value: float, single: bool) -> str:
    if not single:
        for places in range(17):
            if float(f"{value:.{places}e}") == value:
                return f"{value:.{places}e}"
        return f"{value:.17e}"
    stored = struct.pack("<f", value)
    for places in range(9):
        text = f"{value:.{places}e}"
        try:
            if struct.pack("<f", float(text)) == stored:
                return text
        except OverflowError:
            continue  # the text was rounded up beyond the largest float, so more digits are needed
    return f"{value:.9e}"
