"""Brings Arrow batches to the table's columns (order, types, nullability), and refuses what would lose anything."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from streamsink.errors import Misuse
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.type_model import MAX_LENGTH
from streamsink.format.types import AtomicType, DataField
from streamsink.table.write.exact_cast import cast_exactly
from streamsink.table.write.nested_nulls import has_not_null, keeping, loosened, nulls_inside

_WITH_OFFSETS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_map,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
# The range of 64 bits of nanoseconds, for messages.
_RANGE = "; it holds the times from 1677-09-21 to 2262-04-11, and a TIMESTAMP(6) holds all"


# Advice for rows that do not fit. The reason of a dead letter does not contain it.
WAY_ON = "Nothing was recorded. Mend or filter such rows in the query, or name a table for them with dead_letters"


class Conform:
    """Called with a batch, it returns one that has exactly the table's Arrow schema. Raises Misuse, naming the column.

    Columns are matched by name. A missing column that is nullable becomes null in every row; other columns are dropped.
    """

    def __init__(self, fields: Sequence[DataField], way_on: str = WAY_ON):
        """way_on: the advice for rows that do not fit."""
        self._way_on = way_on
        self._fields = fields
        self._target = to_arrow_schema(fields)
        # This is decided once, so that columns without NOT NULL inside are not looked into for every batch.
        self._loose = {field.name: loosened(field.type) for field in self._target if has_not_null(field.type)}

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return self._conforming(batch)
        except Misuse as refused:
            raise Misuse(f"{refused}. {self._way_on}", kind=refused.kind) from refused

    def _conforming(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        present = set(batch.schema.names)
        columns = []
        for field, target in zip(self._fields, self._target):
            if target.name in present:
                columns.append(self._column(batch.column(target.name), field, target))
            elif target.nullable:
                columns.append(self._absent(batch.num_rows, target))
            else:
                raise Misuse(f"column '{target.name}' is NOT NULL and missing in the data", kind="data.missing-column")
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def check_of(self, name: str) -> Callable[[pa.Array], pa.Array] | None:
        """A function that brings values of one column to the table's type, or raises Misuse.

        None for a column that the table does not have.
        """
        for field, target in zip(self._fields, self._target):
            if target.name == name:
                return lambda column: self._column(column, field, target)
        return None

    def _absent(self, rows: int, target: pa.Field) -> pa.Array:
        loose = self._loose.get(target.name)
        return pa.nulls(rows, target.type) if loose is None else keeping(pa.nulls(rows, loose), target.type)

    def _column(self, column: pa.Array, field: DataField, target: pa.Field) -> pa.Array:
        if not target.nullable and column.null_count:
            raise _nulls(target.name, column.null_count, len(column))
        column = _with_offsets(column)
        wanted = self._loose.get(target.name, target.type)
        if column.type != wanted:
            try:
                column = cast_exactly(column, wanted)
            except pa.ArrowInvalid:
                raise Misuse(
                    f"column '{target.name}': a value of type {column.type} does not fit the table's {target.type} "
                    f"without loss{_RANGE if _is_nanoseconds(target.type) else ''}",
                    kind="data.cast",
                ) from None  # Arrow's own message quotes the value
        _check_length(column, field)
        if target.name in self._loose:
            found = nulls_inside(column, target.type, target.name)
            if found is not None:
                raise _nulls(*found, len(column))
            column = keeping(column, target.type)
        return column


def _nulls(path: str, nulls: int, rows: int) -> Misuse:
    return Misuse(
        f"column '{path}' is NOT NULL in the table, found {nulls} nulls in a batch of {rows} rows", kind="data.null"
    )


def _with_offsets(column: pa.Array) -> pa.Array:
    """The same values, copied if a nested array without elements came without its offsets.

    Spark sends the inside of lists and maps like this when they are empty or null in every row of a batch, and Arrow's
    format allows it. But pyarrow reads the offsets nevertheless, through a null pointer, when it measures or
    concatenates such a column.
    """
    if not pa.types.is_nested(column.type):
        return column
    buffers = iter(column.buffers())
    return column.take(pa.array(range(len(column)), pa.int64())) if _lacks_offsets(column.type, buffers) else column


def _lacks_offsets(kind: pa.DataType, buffers: Iterator[pa.Buffer | None]) -> bool:
    """Whether offsets are missing in an array of this type.

    buffers: depth first, as Arrow lists them. Those of the array are consumed.
    """
    own = [next(buffers, None) for _ in range(kind.num_buffers)]
    lacking = any(is_kind(kind) for is_kind in _WITH_OFFSETS) and not own[1]
    # This is a list, and no generator that any() may leave early, because each field must consume its buffers.
    inside = [_lacks_offsets(kind.field(i).type, buffers) for i in range(kind.num_fields)]
    return lacking or any(inside)


def _is_nanoseconds(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.unit == "ns"


def _check_length(column: pa.Array, field: DataField) -> None:
    """Raises Misuse for a value that is too long: CHAR(n) and VARCHAR(n) count characters, (VAR)BINARY(n) bytes."""
    kind = field.type
    if not isinstance(kind, AtomicType) or kind.root not in ("CHAR", "VARCHAR", "BINARY", "VARBINARY"):
        return
    if kind.length is None or kind.length >= MAX_LENGTH:
        return
    text = kind.root in ("CHAR", "VARCHAR")
    lengths = pc.utf8_length(column) if text else pc.binary_length(column)
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > kind.length:
        raise Misuse(
            f"column '{field.name}' is {kind.root}({kind.length}), found a value of {longest} "
            f"{'characters' if text else 'bytes'}",
            kind="data.too-long",
        )
