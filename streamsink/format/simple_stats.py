"""Minima, maxima and null counts in the form in which manifests carry them."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: A row without fields: arity 0, and one word of null bits.
EMPTY_ROW = bytes(12)


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """The stats of some columns, as Paimon's class of this name.

    ``min_values`` and ``max_values`` are BinaryRows with arity prefix. ``null_counts`` has the number of nulls of
    each column, None if unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...]

    def to_record(self) -> dict[str, Any]:
        """The Avro record."""
        return {"_MIN_VALUES": self.min_values, "_MAX_VALUES": self.max_values, "_NULL_COUNTS": list(self.null_counts)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "SimpleStats":
        """The stats of an Avro record. Absent counts, which some writers produce, are read as an empty tuple."""
        found = cls(bytes(record["_MIN_VALUES"]), bytes(record["_MAX_VALUES"]), tuple(record["_NULL_COUNTS"] or ()))
        return EMPTY_STATS if found == EMPTY_STATS else found

    def to_wire(self) -> dict[str, Any]:
        """A dict that JSON can hold."""
        return {
            "min": encode_bytes(self.min_values),
            "max": encode_bytes(self.max_values),
            "nulls": list(self.null_counts),
        }

    @classmethod
    def from_wire(cls, value: Mapping[str, Any]) -> "SimpleStats":
        """The inverse of ``to_wire``. Raises: KeyError, TypeError or ValueError for anything else."""
        return cls(decode_bytes(value["min"]), decode_bytes(value["max"]), tuple(value["nulls"]))


EMPTY_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


def encode_bytes(value: bytes | None) -> str | None:
    """Base64 text, or None."""
    return None if value is None else base64.b64encode(value).decode("ascii")


def decode_bytes(value: str | None) -> Any:
    """The bytes of base64 text, or None. Raises: ValueError, TypeError."""
    return None if value is None else base64.b64decode(value, validate=True)
