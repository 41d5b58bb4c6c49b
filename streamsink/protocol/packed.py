"""Numbers of a topic's partitions as JSON: an array by partition number, which names no partition."""

from collections.abc import Mapping
from typing import Any

# An array may hold this many empty places, and one more for each partition that it names.
_FREE_PLACES = 8


def pack(parts: Mapping[str, int]) -> list[Any] | dict[str, Any]:
    """``{"0": 5, "2": 7}`` as ``[5, null, 7]``. An object where most places of the array would be empty."""
    size = max((int(part) for part in parts), default=-1) + 1
    if size > 2 * len(parts) + _FREE_PLACES:
        return dict(parts)
    return [parts.get(str(part)) for part in range(size)]


def unpack(packed: list[Any] | Mapping[str, Any]) -> dict[str, int]:
    """What ``pack`` was given."""
    if isinstance(packed, Mapping):
        return dict(packed)
    return {str(part): number for part, number in enumerate(packed) if number is not None}
