"""Writes data files as Paimon's readers want them: INT96 only for nanoseconds, and small decimals as integers."""

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamsink.format.arrow_types import leaf_arrays, needs_int96, to_arrow_schema
from streamsink.format.field_ids import with_field_ids
from streamsink.format.iceberg_options import makes_iceberg
from streamsink.format.parquet_footer import Timestamps, with_timestamps, without_bounds
from streamsink.format.types import DataField

# zstd takes closer matches in what is at most 256 KiB long: pages of texts are 2 % smaller than in pages of Arrow's
# megabyte, in the same time. A page exceeds this by up to 1,024 rows.
PAGE_BYTES = 240 * 1024


class Encoding(NamedTuple):
    """How files are written. level: of the codec; None for its default. with_ids: whether they say ids of fields."""

    codec: str
    level: int | None = None
    with_ids: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Encoding":
        """As the table's options say. Readers of Iceberg need ids; without them the files stay as they were."""
        codec = options.get("file.compression", "zstd").strip().lower()
        level = int(options.get("file.compression.zstd-level", "1")) if codec == "zstd" else None
        return cls("none" if codec == "uncompressed" else codec, level, makes_iceberg(options))  # Java takes both names


class ParquetOutput:
    """Writes the row groups of one file into an open stream, which the caller closes."""

    def __init__(self, stream: BinaryIO, fields: Sequence[DataField], first: pa.Table, encoding: Encoding):
        """first: rows by which the encodings of columns are chosen."""
        schema = to_arrow_schema(fields)
        int96 = needs_int96(fields)
        self._plain = _plain_timestamps(fields, schema) if int96 else {}
        self._nans = Nans(schema)
        self._stream = Outlet(stream)
        self._writer = pq.ParquetWriter(
            self._stream,
            with_field_ids(schema, fields) if encoding.with_ids else self._as_written(schema.empty_table()).schema,
            compression=encoding.codec,
            compression_level=encoding.level,
            use_deprecated_int96_timestamps=int96,
            store_decimal_as_integer=True,
            store_schema=not self._plain,
            write_time_adjusted_to_utc=True,
            use_dictionary=dictionary_columns(first),
            data_page_size=PAGE_BYTES,
            write_statistics=True,
            write_page_checksum=True,  # a page that is damaged is seen before compaction makes it new rows
        )

    def write(self, rows: pa.Table) -> None:
        """Write the rows as one row group."""
        self._nans.look_at(rows)
        self._writer.write_table(self._as_written(rows))

    def close(self) -> None:
        """Write the footer."""
        self._stream.hold()
        self._writer.close()
        self._stream.let_go(self._plain, self._nans.leaves)

    def discard(self) -> None:
        """Write nothing more to the stream, which the caller may close then.

        Without this, the finaliser of Arrow's writer would write the footer.
        """
        self._stream.forget()

    def _as_written(self, rows: pa.Table) -> pa.Table:
        for name in self._plain:
            at = rows.column_names.index(name)
            field = pa.field(name, pa.int64(), rows.schema.field(at).nullable)
            rows = rows.set_column(at, field, rows.column(at).cast(pa.int64()))
        return rows


def _plain_timestamps(fields: Sequence[DataField], schema: pa.Schema) -> dict[str, tuple[str, bool]]:
    """Columns that are timestamps of milliseconds or microseconds: their unit, and whether they are instants in UTC.

    Only top-level columns matter, because readers never filter by nested ones.
    """
    found = {}
    for field, arrow in zip(fields, schema):
        if pa.types.is_timestamp(arrow.type) and not needs_int96([field]):
            found[field.name] = (arrow.type.unit, arrow.type.tz is not None)
    return found


class Nans:
    """Finds the columns of a file that hold a NaN, which get no bounds in its footer: see ``without_bounds``.

    leaves: their places among the columns that have values of their own.
    """

    def __init__(self, schema: pa.Schema):
        """schema: of the rows that are written."""
        self.leaves = set[int]()
        self._watched = list[tuple[int, int]]()
        first = 0
        for place, field in enumerate(schema):
            kinds = list(_leaf_types(field.type))
            if any(map(pa.types.is_floating, kinds)):
                self._watched.append((place, first))
            first += len(kinds)

    def look_at(self, rows: pa.Table) -> None:
        """Look at rows that are written. They have the columns of the schema, in its order."""
        for place, first in self._watched:
            for chunk in rows.column(place).chunks:
                for leaf, values in enumerate(leaf_arrays(chunk), first):
                    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
                        self.leaves.add(leaf)


def _leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the columns of a Parquet file that one column of this type becomes, in their order."""
    if pa.types.is_nested(kind):
        for place in range(kind.num_fields):
            yield from _leaf_types(kind.field(place).type)
    else:
        yield kind


class Outlet:
    """A file object that passes bytes on to a stream.

    After ``hold`` it keeps the end of the file back, to be changed; after ``forget`` it drops all bytes.
    """

    closed = False

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._held: bytearray | None = None

    def write(self, data: bytes) -> int:
        if self._held is None:
            return self._stream.write(data)
        self._held += data
        return len(data)

    def hold(self) -> None:
        self._held = bytearray()

    def let_go(self, columns: Timestamps, unbounded: Collection[int]) -> None:
        """Pass the end of the file on, with these columns as timestamps, and without bounds of these leaves."""
        end = bytes(self._held or b"")
        end = with_timestamps(end, columns) if columns else end
        self._stream.write(without_bounds(end, unbounded) if unbounded else end)
        self._held = None

    def forget(self) -> None:
        self._stream, self._held = io.BytesIO(), None

    def tell(self) -> int:
        return self._stream.tell() + len(self._held or b"")

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: whoever opened the stream closes it."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


_SAMPLE_ROWS = 4096
_REPEATS = 0.5
# Wider decimals are FIXED_LEN_BYTE_ARRAY in the file. Java writes no dictionary for these, and its reader would look up
# the shortest form of a filter's value in a dictionary, find nothing, and skip rows that match.
_LONG_DECIMAL = 18


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Names of the flat columns for which a dictionary pays: a sample has at most half as many distinct values as rows.

    A dictionary of mostly distinct values costs time and space, and the writer gives it up in the end. In a small file
    a dictionary saves no space beyond what the codec saves, and 1,000 rows take a third of the time without one.
    """
    if rows.num_rows < _SAMPLE_ROWS:
        return []
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [name for name, column in zip(sample.column_names, sample.columns) if _repeats(column)]


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return False
    if pa.types.is_decimal(column.type) and column.type.precision > _LONG_DECIMAL:
        return False
    return pc.count_distinct(column, mode="all").as_py() <= len(column) * _REPEATS


def row_groups(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """The rows in pieces of at most about ``most_bytes`` each, by the average size of a row."""
    pieces = max(1, -(-rows.nbytes // most_bytes))
    step = max(1, -(-rows.num_rows // pieces))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
