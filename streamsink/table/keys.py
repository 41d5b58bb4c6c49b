"""The order of a primary-key table's keys, from their BinaryRow bytes."""

import math
from typing import Any

from streamsink.format.binary_row import decode_physical
from streamsink.format.schema import TableSchema
from streamsink.table.conflicts import KeyOrder


def key_order(schema: TableSchema) -> KeyOrder | None:
    """Sorts keys as Paimon does: column by column, nulls first, text by its UTF-8 bytes. None for an append table."""
    names = [name for name in schema.primary_keys if name not in schema.partition_keys]
    if not names:
        return None
    types = [schema.field(name).type for name in names]
    return lambda key: tuple(_order(value) for value in decode_physical(key, types))


def _order(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, str):
        return 1, value.encode("utf-8")
    if isinstance(value, float):
        # Java's order: -0.0 before 0.0, NaN after everything.
        return 1, (1, 0.0, 0) if math.isnan(value) else (0, value, math.copysign(1, value))
    return 1, value
