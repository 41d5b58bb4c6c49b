"""How the rows of a checkpoint change a table."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from streamsink.sinks.databases.bulk.sharing import Rows
from streamsink.sinks.databases.dialect import Dialect, Run

# So many rows, or bytes of Arrow data, are given to a database at once.
ROWS_AT_ONCE = 100_000
_BYTES_AT_ONCE = 32 << 20
_PLACE = "place"


@dataclass(frozen=True)
class Change:
    """What rows mean.

    keys: rows replace those with the same keys; none: they are added. delete_column: rows in which it is true delete
    instead; '' for none. order_by: of two rows of one checkpoint with the same keys that with the greater value counts;
    '' where the later one does. rows_at_once: about so many are given to the database at once.
    """

    keys: tuple[str, ...] = ()
    delete_column: str = ""
    order_by: str = ""
    rows_at_once: int = ROWS_AT_ONCE

    def apply(self, batches: Iterable[pa.RecordBatch], run: Run, dialect: Dialect, into: str, *, exact: bool) -> None:
        """Change the table. batches: the rows of a checkpoint, in order. into: the quoted table.

        exact: the database takes two keys for equal only when they are the same.
        """
        most = None if self.order_by else self.rows_at_once
        for rows in pieces(batches, most):
            if not self.keys:
                dialect.insert(run, into, rows)
                continue
            for is_deleted, part in self._last(rows, exact):
                if is_deleted:
                    dialect.delete(run, into, part.select(self.keys))
                else:
                    dialect.upsert(run, into, part, self.keys)

    def reduced(self, rows: Rows) -> Rows:
        """The rows that ``apply`` leaves of all: each key is in one of them, so that their order is of no account.

        Of all rows only the keys, and the column ``order_by``, are in memory at once. For keys that the database takes
        for equal only when they are the same.
        """
        if not self.keys:
            return rows
        named = list(dict.fromkeys((*self.keys, *((self.order_by,) if self.order_by else ()))))
        known = pa.Table.from_batches([batch.select(named) for batch in rows.read()])
        last = last_places(known, self.keys, self.order_by)
        return Rows(lambda: _taken(rows.read(), last), len(last))

    def split(self, rows: pa.Table) -> Iterator[tuple[bool, pa.Table]]:
        """Rows of which no two have the same key, in parts: (whether it deletes, the rows of the table, or keys)."""
        if not self.delete_column:
            yield False, rows
            return
        deletes, data = rows[self.delete_column], rows.drop_columns([self.delete_column])
        parts = ((True, data.filter(deletes).select(self.keys)), (False, data.filter(pc.invert(deletes))))
        yield from (part for part in parts if part[1].num_rows)

    def _last(self, rows: pa.Table, exact: bool) -> Iterator[tuple[bool, pa.Table]]:
        """The last row of each key, in parts: (whether it deletes, rows)."""
        rows = last_of_keys(rows, self.keys, self.order_by)
        if not self.delete_column:
            yield False, rows
            return
        deletes = rows[self.delete_column]
        data = rows.drop_columns([self.delete_column])
        if exact:
            parts = [(True, data.filter(deletes)), (False, data.filter(pc.invert(deletes)))]
        else:  # two keys may be the same one to the database: only their order says which counts
            parts = _runs(deletes.to_pylist(), data)
        yield from (part for part in parts if part[1].num_rows)


def plain(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with instants in UTC, and texts and binaries of one kind each, however Spark has handed them over."""
    schema = pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema])
    return rows if schema == rows.schema else rows.cast(schema)


def one_spelling(rows: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The rows with the UUIDs of these columns in small letters, without hyphens and braces, as each server reads them.

    To the database '{A...}' and 'a...' are the same key, and of rows with the same key the last one counts.
    """
    for name in columns:
        place, values = rows.schema.get_field_index(name), pc.ascii_lower(rows[name])
        rows = rows.set_column(place, name, pc.replace_substring_regex(values, "[{}-]", ""))
    return rows


def _plain_type(of: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(of) and of.tz is not None:
        return pa.timestamp(of.unit, "UTC")  # drivers that know no zones would write the clock of the session
    if pt.is_large_string(of):
        return pa.string()
    return pa.binary() if pt.is_large_binary(of) or pt.is_fixed_size_binary(of) else of


def last_of_keys(rows: pa.Table, keys: tuple[str, ...], order_by: str = "") -> pa.Table:
    """Of the rows with the same keys the last one, in the order of the rows, or in that of a column where it is given.

    Rows with the same value there keep their order; null is before all values.
    """
    if order_by:
        rows = rows.take(_sorted(rows[order_by]))
    last = last_places(rows, keys)
    return rows if len(last) == rows.num_rows else rows.take(last)


def last_places(rows: pa.Table, keys: tuple[str, ...], order_by: str = "") -> pa.Array:
    """Where the rows are that ``last_of_keys`` leaves: their numbers from 0, in order."""
    order = _sorted(rows[order_by]) if order_by else None
    names = [f"k{number}" for number in range(len(keys))]
    places = pa.array(range(rows.num_rows), pa.int64())
    of_order = rows.select(list(keys)) if order is None else rows.select(list(keys)).take(order)
    of_keys = pa.table([*(of_order[key] for key in keys), places], [*names, _PLACE])
    last = of_keys.group_by(names).aggregate([(_PLACE, "max")])[f"{_PLACE}_max"]
    last = last if order is None else order.take(last)
    return last.take(pc.sort_indices(last)).combine_chunks()


def _sorted(values: pa.ChunkedArray) -> pa.Array:
    """The places of rows in the order of a column."""
    by = pa.table([values.is_valid(), values], ["known", "value"])
    return pc.sort_indices(by, sort_keys=[("known", "ascending"), ("value", "ascending")])  # stable


def _taken(batches: Iterable[pa.RecordBatch], places: pa.Array) -> Iterator[pa.RecordBatch]:
    """The rows with these numbers, which are in order."""
    first, done, numbers = 0, 0, places.to_numpy()
    for batch in batches:
        end = int(numbers.searchsorted(first + batch.num_rows))
        if end > done:
            yield batch.take(pa.array(numbers[done:end] - first))
        first, done = first + batch.num_rows, end


def _runs(deletes: list[bool], rows: pa.Table) -> list[tuple[bool, pa.Table]]:
    """The rows in order, cut wherever a delete follows another change or the other way round."""
    cuts = [0, *(n for n in range(1, len(deletes)) if deletes[n] != deletes[n - 1]), len(deletes)]
    return [(deletes[first], rows.slice(first, end - first)) for first, end in zip(cuts, cuts[1:]) if end > first]


def pieces(batches: Iterable[pa.RecordBatch], most: int | None) -> Iterator[pa.Table]:
    """Tables of rows, none of them empty, and none with many more rows than ``most``; None for all rows at once."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if most is not None and (rows >= most or size >= _BYTES_AT_ONCE):
            yield pa.Table.from_batches(kept)
            kept, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(kept)
