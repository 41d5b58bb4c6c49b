"""One Parquet file of a lake table, from the first row to the footer. EXECUTOR and driver."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.write.parquet_output import PAGE_BYTES, Nans, Outlet, dictionary_columns


@dataclass(frozen=True)
class LakeFile:
    """A data file that is completely written, under its final name.

    name: without its folder, which is that of the attempt. size: in bytes. rows: their number. partition: the values of
    the partition columns, as one row in Arrow's IPC format; empty where there are no such columns. footer: the Parquet
    footer, which has the statistics. handed_over: a task has written it, so the driver looks whether it is there. nans:
    places of the columns that hold a NaN, of which the bounds say nothing; None where that is not known.
    """

    name: str
    size: int
    rows: int
    partition: bytes
    footer: bytes
    handed_over: bool = False
    nans: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The file as a JSON object. It has values of rows in it."""
        texts = {"partition": self.partition, "footer": self.footer}
        plain = {"name": self.name, "size": self.size, "rows": self.rows, "nans": self.nans}
        return plain | {name: base64.b64encode(data).decode() for name, data in texts.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LakeFile":
        """The inverse of ``to_json``. Raises KeyError, TypeError or ValueError for what is no such object."""
        partition, footer = (base64.b64decode(value[name], validate=True) for name in ("partition", "footer"))
        nans = None if value.get("nans") is None else tuple(map(int, value["nans"]))
        return cls(str(value["name"]), int(value["size"]), int(value["rows"]), partition, footer, nans=nans)

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer: numbers of values, nulls, and bounds, by row group and column."""
        return pq.read_metadata(io.BytesIO(self.footer))

    @property
    def partition_values(self) -> dict[str, pa.Scalar]:
        """The values of the partition columns, by name, in their order."""
        if not self.partition:
            return {}
        row = pa.ipc.open_stream(self.partition).read_all()
        return {name: row.column(name)[0] for name in row.column_names}

    def by_task(self) -> "LakeFile":
        """The same file, as the driver has it from a task."""
        return replace(self, handed_over=True)


def partition_of(rows: pa.Table, columns: tuple[str, ...]) -> bytes:
    """The partition of rows that all have one, as ``LakeFile.partition``."""
    if not columns:
        return b""
    row = rows.slice(0, 1).select(list(columns)).replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_table(row)
    return sink.getvalue().to_pybytes()


class OpenParquetFile:
    """A file that is being written."""

    def __init__(self, file_io: FileIO, path: str, schema: pa.Schema, first: pa.Table, partition: bytes):
        """schema: of the file; ids of fields in its metadata (``PARQUET:field_id``) go into the file. first: rows by
        which the encodings are chosen."""
        self._name = path.rpartition("/")[2]
        self._partition = partition
        self._rows = 0
        self._schema = schema
        self._stream = file_io.open_output(path)
        self._give_up = file_io.unflushed(self._stream).give_up
        self._footers: list[pq.FileMetaData] = []
        self._nans = Nans(schema)
        try:
            self._outlet = Outlet(self._stream)
            self._writer = pq.ParquetWriter(
                self._outlet,
                schema,
                compression="zstd",
                compression_level=1,
                store_decimal_as_integer=True,
                store_schema=False,
                use_dictionary=dictionary_columns(first),
                data_page_size=PAGE_BYTES,
                write_statistics=True,
                metadata_collector=self._footers,
            )
        except BaseException:
            self._give_up()
            raise

    @property
    def bytes(self) -> int:
        """What is written so far."""
        return self._stream.tell()

    def append(self, rows: pa.Table) -> None:
        """Write the rows as one row group."""
        rows = rows.select(self._schema.names).cast(self._schema)
        self._nans.look_at(rows)
        self._writer.write_table(rows)
        self._rows += rows.num_rows

    def close(self, group: FlushGroup) -> LakeFile:
        """Write the footer. The file is durable when ``group`` is flushed."""
        try:
            self._outlet.hold()
            self._writer.close()
            self._outlet.let_go({}, self._nans.leaves)
        except BaseException:
            self.discard()
            raise
        footer = io.BytesIO()
        self._footers[0].write_metadata_file(footer)
        group.close_on_flush(self._stream)
        nans, size = tuple(sorted(self._nans.leaves)), self._stream.tell()
        return LakeFile(self._name, size, self._rows, self._partition, footer.getvalue(), nans=nans)

    def discard(self) -> None:
        """Close without regard to the content."""
        self._outlet.forget()
        self._writer.is_open = False  # else its finaliser would write the footer, and ask for it
        self._give_up()
