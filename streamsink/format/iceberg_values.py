"""Values in Iceberg's metadata: bounds as bytes, and the values of partition columns in manifests.

Values are physical, as ``binary_row.decode_physical`` returns them: dates are days, timestamps nanoseconds.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from streamsink.errors import Corrupt
from streamsink.format.binary_row import decode_physical
from streamsink.format.data_file import DataFileMeta
from streamsink.format.iceberg_types import FIRST_PARTITION_ID, PLAIN
from streamsink.format.schema import TableSchema
from streamsink.format.types import BINARY_ROOTS, CHARACTER_ROOTS, TIMESTAMP_ROOTS, AtomicType, DataField

#: root of a type -> struct code of its bound
_FIXED = {
    "BOOLEAN": "<?",
    "TINYINT": "<i",
    "SMALLINT": "<i",
    "INT": "<i",
    "DATE": "<i",
    "BIGINT": "<q",
    "FLOAT": "<f",
    "DOUBLE": "<d",
}
_MICROS = 1000


def bound(value: Any, t: AtomicType) -> bytes:
    """The bytes of a minimum or maximum (Iceberg's single-value serialization)."""
    if t.root in _FIXED:
        return struct.pack(_FIXED[t.root], value)
    if t.root in TIMESTAMP_ROOTS:
        return struct.pack("<q", value // _MICROS)
    if t.root == "DECIMAL":
        return _shortest(unscaled(value))
    return cast(bytes, value) if t.root in BINARY_ROOTS else str(value).encode("utf-8")


def unscaled(value: Decimal) -> int:
    """The digits of a decimal as one number."""
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _shortest(number: int) -> bytes:
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


@dataclass(frozen=True)
class ColumnStats:
    """What a manifest says of a file's columns, by the ids of fields."""

    nulls: dict[int, int]
    lower: dict[int, bytes]
    upper: dict[int, bytes]


def column_stats(file: DataFileMeta, schema: TableSchema) -> ColumnStats:
    """From Paimon's statistics of a data file. schema: with which it was written.

    Nothing is said of what is not known, and where one bound of a column is unknown, of neither. Statistics that cannot
    be read say nothing.
    """
    stats = ColumnStats({}, {}, {})
    names = schema.field_names if file.value_stats_cols is None else file.value_stats_cols
    by_name = {field.name: field for field in schema.fields}
    fields = [by_name[name] for name in names if name in by_name]
    nulls = file.value_stats.null_counts
    if len(fields) != len(names):
        return stats
    try:
        types = [field.type.as_nullable(True) for field in fields]
        low, high = (decode_physical(row, types) for row in (file.value_stats.min_values, file.value_stats.max_values))
    except Corrupt:
        return stats
    for number, field in enumerate(fields):
        count = nulls[number] if number < len(nulls) else None
        if count is not None:
            stats.nulls[field.id] = count
        if isinstance(field.type, AtomicType) and low[number] is not None and high[number] is not None:
            stats.lower[field.id] = bound(low[number], field.type)
            stats.upper[field.id] = bound(high[number], field.type)
    return stats


class PartitionColumn:
    """One partition column in manifests: its Avro schema, and its values there.

    These are what Avro stores: numbers, texts, and the big-endian bytes of a decimal.
    """

    def __init__(self, field: DataField, number: int):
        """number: of the column among the partition columns, from 0."""
        self.id = FIRST_PARTITION_ID + number
        self.name = _avro_name(field.name)
        self.type = cast(AtomicType, field.type)  # a partition column of another type is refused when a table is opened
        #: What Avro calls the type of a decimal; within a schema it is given once.
        self.shape = f"decimal_{self.type.precision}_{self.type.scale}"

    @property
    def width(self) -> int:
        """Bytes of a decimal."""
        most = 10 ** (self.type.precision or 0) - 1
        return most.bit_length() // 8 + 1

    @property
    def avro(self) -> Any:
        """The Avro type of the values."""
        t = self.type
        if t.root == "DATE":
            return {"type": "int", "logicalType": "date"}
        if t.root in TIMESTAMP_ROOTS:
            return {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": t.root == "TIMESTAMP_LTZ"}
        if t.root == "DECIMAL":
            shape = {"type": "fixed", "size": self.width, "name": self.shape}
            return {**shape, "logicalType": "decimal", "precision": t.precision, "scale": t.scale}
        return PLAIN[t.root]

    def stored(self, value: Any) -> Any:
        """What Avro stores for a physical value."""
        if value is None:
            return None
        if self.type.root in TIMESTAMP_ROOTS:
            return value // _MICROS
        if self.type.root == "DECIMAL":
            return unscaled(value).to_bytes(self.width, "big", signed=True)
        return value

    def as_ours(self, value: Any, avro: Any) -> Any:
        """What another writer has stored, as ours would have. avro: the type that its file says."""
        if isinstance(avro, dict) and avro.get("logicalType") == "timestamp-millis":
            return value * _MICROS
        if self.type.root == "DECIMAL":
            return int.from_bytes(value, "big", signed=True).to_bytes(self.width, "big", signed=True)
        return value

    def bounds(self, values: Sequence[Any]) -> tuple[bytes | None, bytes | None]:
        """The bytes of the smallest and the greatest of these stored values; None where there is none."""
        known = [value for value in values if value is not None and value == value]
        if not known:
            return None, None
        return self._bound(min(known, key=self._order)), self._bound(max(known, key=self._order))

    def _order(self, value: Any) -> Any:
        if self.type.root == "DECIMAL":
            return int.from_bytes(value, "big", signed=True)
        # Iceberg and Paimon compare as Java does, where -0.0 is below 0.0.
        return (value, math.copysign(1.0, value)) if isinstance(value, float) else value

    def _bound(self, value: Any) -> bytes:
        if self.type.root in CHARACTER_ROOTS:
            return str(value).encode("utf-8")
        if self.type.root == "DECIMAL":
            return _shortest(int.from_bytes(value, "big", signed=True))
        return struct.pack(_FIXED.get(self.type.root, "<q"), value)


def partition_columns(schema: TableSchema) -> tuple[PartitionColumn, ...]:
    """The partition columns of a table, in order. Each has another name in Avro; readers go by the id."""
    made = tuple(PartitionColumn(field, number) for number, field in enumerate(schema.partition_fields))
    for number, column in enumerate(made):
        if column.name in [other.name for other in made[:number]]:
            column.name += f"_{column.id}"
        if column.shape in [other.shape for other in made[:number]]:
            column.shape += f"_{column.id}"
    return made


def _avro_name(name: str) -> str:
    """As Iceberg's own writers name a field whose name Avro does not allow; readers go by the id."""
    made = "".join(c if c == "_" or c.isascii() and c.isalnum() else f"_x{ord(c):X}" for c in name)
    return f"_{made}" if made[:1].isdigit() else made
