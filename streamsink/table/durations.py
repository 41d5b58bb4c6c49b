"""Durations as Paimon's options of a table write them."""

import re

from streamsink.errors import Misuse

_DURATION = re.compile(r"([0-9]+)\s*([a-zµ]*)")
_UNIT_MS = {
    "": 1,
    "ms": 1,
    "milli": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "µs": 1e-3,
    "micro": 1e-3,
    "microsecond": 1e-3,
    "ns": 1e-6,
    "nano": 1e-6,
    "nanosecond": 1e-6,
}


def parse_duration(table: str, option: str, text: str) -> float:
    """Milliseconds of a duration as Paimon writes them: '10 ms', '2 min', '1 h', '500' (ms).

    Raises Misuse ``option.value``.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    unit = found[2].removesuffix("s") if found and found[2] not in _UNIT_MS else found and found[2]
    if not found or unit not in _UNIT_MS:
        raise Misuse(
            f"{table}: table option {option} is {text!r}, expected a duration such as '10 ms', '5 s' or '1 h'",
            kind="option.value",
        )
    return int(found[1]) * _UNIT_MS[unit]
