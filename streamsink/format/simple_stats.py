"""Minima, maxima and null counts as manifests carry them."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: A row without fields: arity 0, one null-bit word.
EMPTY_ROW = bytes(12)


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """``min_values`` and ``max_values`` are BinaryRows with arity prefix; counts are per column, None = unknown."""

    min_values: bytes
    max_values: bytes
    null_counts: tuple[int | None, ...]

    def to_record(self) -> dict[str, Any]:
        """The Avro record."""
        return {"_MIN_VALUES": self.min_values, "_MAX_VALUES": self.max_values, "_NULL_COUNTS": list(self.null_counts)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "SimpleStats":
        """From the Avro record; absent counts (some writers) are read as none."""
        found = cls(bytes(record["_MIN_VALUES"]), bytes(record["_MAX_VALUES"]), tuple(record["_NULL_COUNTS"] or ()))
        return EMPTY_STATS if found == EMPTY_STATS else found

    def to_wire(self) -> dict[str, Any]:
        """A JSON-safe dict."""
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
