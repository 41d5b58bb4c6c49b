"""Dead letters: rows that do not fit their table are found with their reasons and kept as rows of a separate table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from streamsink.errors import Misuse
from streamsink.format.schema import TableSchema
from streamsink.format.type_model import INTEGER_ROOTS
from streamsink.format.types import AtomicType, DataField, DataType, parse_ddl
from streamsink.options import SinkOptions
from streamsink.table.routed.row_json import rows_to_json
from streamsink.table.routed.rules import ROUTE
from streamsink.table.table import Table
from streamsink.table.write.conform import Conform
from streamsink.table.write.fit import fit
from streamsink.table.write.folders import Folders

# `row` holds the whole row as JSON text, see row_json.py. `table_id` is null in letters of earlier code. The columns of
# the source's positions follow, if the query names them.
_COLUMNS = (
    "`application` STRING NOT NULL, `checkpoint_id` BIGINT NOT NULL, `target` STRING, `reason` STRING NOT NULL, "
    "`column` STRING, `row` STRING NOT NULL, `table_id` STRING"
)
# Types to which texts may be converted exactly, value by value. FLOAT and DOUBLE are none, because most decimal texts
# are not exact in them.
_FROM_TEXT = (*INTEGER_ROOTS, "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit its table.

    index: its index in the batch. reason: kind and explanation, without any value. column: the one that does not fit;
    None if it is the row as a whole.
    """

    index: int
    reason: str
    column: str | None


def dead_letter_fields(positions: Sequence[DataField]) -> list[DataField]:
    """Columns of the table for dead letters.

    Raises Misuse if a position column has the name of one of its own columns.
    """
    fields = list(parse_ddl(_COLUMNS))
    taken = {field.name for field in fields} & {field.name for field in positions}
    if taken:
        raise Misuse(
            f"position column '{sorted(taken)[0]}' has the name of a column of the dead-letter table; rename it in the "
            "query",
            kind="option.position-columns",
        )
    return fields + [replace(field, id=-1, type=field.type.as_nullable(True)) for field in positions]


def fit_by_value(
    table: Table, given: Sequence[DataField], options: SinkOptions, newest: TableSchema | None = None
) -> TableSchema:
    """As ``fit``, but what only some values may break is left to ``Screen``.

    That is nulls in a NOT NULL column, a narrower type, and texts in place of numbers, dates and the like.
    """
    newest = newest or table.latest_schema()
    known = {field.name: field.type for field in newest.fields}
    lenient = [replace(f, type=_by_value(f.type, known.get(f.name, f.type), options)) for f in given]
    return fit(table, lenient, options, newest)


def _by_value(given: DataType, known: DataType, options: SinkOptions) -> DataType:
    if options.widen_types:
        return given  # the table's types are widened instead
    given = given.as_nullable(known.nullable)
    if not isinstance(given, AtomicType) or not isinstance(known, AtomicType):
        return given
    same = given.root in INTEGER_ROOTS and known.root in INTEGER_ROOTS or given.root == known.root == "DECIMAL"
    return known if same or given.root in ("CHAR", "VARCHAR") and known.root in _FROM_TEXT else given


class Screen:
    """Splits a batch into the rows that fit a table, in the table's columns and types, and the rows that do not."""

    def __init__(self, schema: TableSchema, folders: Folders | None = None):
        """folders: checks that the store can name the folders of the table's partitions; None for no such check."""
        self._conform = Conform(schema.fields)
        self._folders = folders

    def __call__(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BadRow]]:
        """(rows that fit, rows that do not, ordered by index).

        Each bad row is named once, with its first column that does not fit.
        """
        places: Sequence[int] = range(rows.num_rows)
        try:
            fitting, bad = self._conform(rows), {}
        except Misuse:
            bad = self._bad_rows(rows)
            places = [index for index in places if index not in bad]
            fitting = self._conform(rows.take(pa.array(places, pa.int64())))
        unfit = self._folders.unfit_rows(fitting) if self._folders is not None else []
        if unfit:
            bad |= {places[index]: BadRow(places[index], reason, column) for index, reason, column in unfit}
            homeless = {index for index, _, _ in unfit}
            fitting = fitting.take(pa.array([i for i in range(fitting.num_rows) if i not in homeless], pa.int64()))
        return fitting, [bad[index] for index in sorted(bad)]

    def _bad_rows(self, rows: pa.RecordBatch) -> dict[int, BadRow]:
        bad: dict[int, BadRow] = {}
        for name in rows.schema.names:
            check = self._conform.check_of(name)
            if check is not None:
                for index, refused in _refused(rows.column(name), check, 0):
                    bad.setdefault(index, BadRow(index, f"{refused.kind}: {refused}", name))
        return bad


def _refused(column: pa.Array, check: Callable[[pa.Array], object], start: int) -> list[tuple[int, Misuse]]:
    """(index plus ``start``, error) of the values that ``check`` refuses.

    They are found by halving, so that a few bad ones among many cost few checks.
    """
    try:
        check(column)
        return []
    except Misuse as refused:
        if len(column) == 1:
            return [(start, refused)]
    half = len(column) // 2
    return _refused(column.slice(0, half), check, start) + _refused(column.slice(half), check, start + half)


@dataclass(frozen=True)
class DeadLetters:
    """What the dead letters of one checkpoint have in common. It is sent to executors.

    table: name of the table for them. positions: names of the position columns. table_id: identity of what the query
    writes to: of its one table, or of its journal for several.
    """

    table: str
    schema_json: bytes
    application: str
    checkpoint_id: int
    positions: tuple[str, ...]
    table_id: str

    def batch(self, rows: pa.RecordBatch, target: str | None, bad: Sequence[BadRow]) -> pa.RecordBatch:
        """One dead letter for each bad row of ``rows``, which has the columns of the query and its routing column.

        target: name of the table to which the rows were to go, if any.
        """
        found = rows.take(pa.array([b.index for b in bad], pa.int64()))
        texts = rows_to_json(found.select([name for name in found.schema.names if name != ROUTE]), marked=True)
        count = len(bad)
        columns = {
            "application": pa.array([self.application] * count, pa.string()),
            "checkpoint_id": pa.array([self.checkpoint_id] * count, pa.int64()),
            "target": pa.array([target] * count, pa.string()),
            "reason": pa.array([b.reason for b in bad], pa.string()),
            "column": pa.array([b.column for b in bad], pa.string()),
            "row": pa.array(texts, pa.string()),
            "table_id": pa.array([self.table_id] * count, pa.string()),
        }
        columns |= {name: found.column(name) for name in self.positions}
        return pa.RecordBatch.from_pydict(columns)
