"""How rows become Parquet, JSON lines or CSV files in a staging folder. EXECUTOR and driver."""

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.types as pt

from streamsink.clock import IdSource
from streamsink.errors import Misuse, StreamsinkError
from streamsink.events import log
from streamsink.format.types import AtomicType, DataField
from streamsink.protocol.sink import Writing
from streamsink.sinks.file_writing import DataFile
from streamsink.storage.file_io import FileIO
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.routed.row_json import rows_to_json
from streamsink.table.write.parquet_output import Encoding, ParquetOutput

PARQUET, JSON, CSV = "parquet", "json", "csv"
FORMATS = (PARQUET, JSON, CSV)
_ENCODING = Encoding("zstd", 1)
# So many bytes of rows are kept and written together: a row group of a Parquet file.
_TOGETHER = 32 << 20


def check_columns(path: str, form: str, fields: Sequence[DataField], partition: str) -> None:
    """Raises Misuse for columns that files of this format cannot have. partition: name of the folders' column."""
    clash = [field.name for field in fields if field.name.lower() == partition]
    if clash:
        raise Misuse(
            f"{path}: there is a column '{clash[0]}', and readers take the names of the folders for a column "
            f"'{partition}'. Nothing was written. Give the column another name",
            kind="files.column",
        )
    if form != CSV:
        return
    for field in fields:
        if not isinstance(field.type, AtomicType) or field.type.root in ("BINARY", "VARBINARY"):
            raise Misuse(
                f"{path}: column '{field.name}' is {field.type}, which a CSV file cannot hold. Nothing was written. "
                "Write format='json' or 'parquet', or make it a text",
                kind="files.column",
            )


@dataclass(frozen=True)
class DirectoryWriting(Writing):
    """Files of one checkpoint. path: of the directory, for messages. form: of ``FORMATS``. most_bytes: a file that has
    become larger ends.
    """

    path: str
    staging: str
    form: str
    fields: tuple[DataField, ...]
    most_bytes: int

    def open(self, file_io: FileIO) -> "DirectoryWriter":
        return DirectoryWriter(file_io, self)

    def encode(self, written: DataFile) -> str:
        return json.dumps(asdict(written))

    def decode(self, text: str) -> DataFile:
        return replace(DataFile(**json.loads(text)), handed_over=True)


class _Output(Protocol):
    """Rows of one file, on their way into a stream."""

    @abstractmethod
    def write(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Write what belongs at the end."""

    @abstractmethod
    def discard(self) -> None:
        """Write nothing more."""


class _Lines:
    """JSON lines, or CSV with a header."""

    def __init__(self, stream: BinaryIO, form: str, path: str):
        self._stream = stream
        self._path = path
        self._form = form
        self._header = True

    def write(self, rows: pa.Table) -> None:
        if self._form == JSON:
            for batch in rows.to_batches():
                self._stream.write("".join(f"{line}\n" for line in rows_to_json(batch)).encode())
            return
        if rows.num_columns == 1 and rows.column(0).null_count:
            raise Misuse(
                f"{self._path}: column '{rows.column_names[0]}' is null in a row, and it is the only one: in a CSV "
                "file that row would be an empty line, which readers leave out. Nothing was recorded or published. "
                "Leave such rows out of the query, add a column, or write format='json' or 'parquet'",
                kind="files.empty-line",
            )
        for name, values in zip(rows.column_names, rows.columns):
            if pt.is_timestamp(values.type) or pt.is_date(values.type):
                _check_time(self._path, name, values)
        out = pa.BufferOutputStream()
        pyarrow.csv.write_csv(rows, out, pyarrow.csv.WriteOptions(include_header=self._header))
        self._stream.write(out.getvalue().to_pybytes())
        self._header = False

    def close(self) -> None:
        """Nothing is left to be written."""

    discard = close


def _check_time(path: str, column: str, values: pa.ChunkedArray) -> None:
    """Raises Misuse for a time that has no text: Arrow writes none, or words that readers take for null."""
    of = values.type
    ends = pc.min_max(values if pt.is_date(of) else values.cast(pa.timestamp(of.unit)))
    if any(ends[end].cast(pa.string()).as_py().startswith("<") for end in ("min", "max") if ends[end].is_valid):
        raise Misuse(
            f"{path}: column '{column}' has a time far outside of the years 1 to 9999, as comes of milliseconds that "
            "are taken for seconds, which a CSV file cannot hold. Nothing was recorded or published. Mend or filter "
            "such rows in the query, or write format='parquet'",
            kind="files.time",
        )


class DirectoryWriter:
    """The writer of one task attempt, or of the driver; see ``Writing.open``. It keeps ``_TOGETHER`` bytes of rows."""

    def __init__(self, file_io: FileIO, writing: DirectoryWriting):
        self._io = file_io
        self._of = writing
        self._kept: list[pa.RecordBatch] = []
        self._bytes = 0
        self._open: tuple[str, BinaryIO, _Output] | None = None
        self._rows = 0
        self._done: list[tuple[DataFile, BinaryIO]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Keep these rows, or write them with those that are kept."""
        if rows.num_rows:
            self._kept.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= _TOGETHER:
            self._write_kept()

    def _write_kept(self) -> None:
        rows = pa.Table.from_batches(self._kept)
        self._kept, self._bytes = [], 0
        name, stream, output = self._opened(rows)
        output.write(rows)
        self._rows += rows.num_rows
        if stream.tell() >= self._of.most_bytes:
            self._end()

    def _opened(self, first: pa.Table) -> tuple[str, BinaryIO, _Output]:
        if self._open is None:
            name = f"part-{IdSource().new_id()}.{self._of.form}"
            stream = self._io.open_output(f"{self._of.staging}/{name}")
            output: _Output = (
                ParquetOutput(stream, self._of.fields, first, _ENCODING)
                if self._of.form == PARQUET
                else _Lines(stream, self._of.form, self._of.path)
            )
            self._open = (name, stream, output)
        return self._open

    def _end(self) -> None:
        if self._open is not None:
            name, stream, output = self._open
            output.close()
            self._done.append((DataFile(name, stream.tell(), self._rows), stream))
            self._open, self._rows = None, 0

    def close(self, group: FlushGroup) -> list[DataFile]:
        """End the last file. All are durable when ``group`` is flushed."""
        if self._kept:
            self._write_kept()
        self._end()
        done, self._done = self._done, []
        for _, stream in done:
            group.close_on_flush(stream)
        if done:
            group.sync_dir(self._of.staging)
        return [file for file, _ in done]

    def abort(self) -> None:
        """Let go of what was written. Idempotent. Its files go with the staging folder."""
        self._kept.clear()
        if self._open is not None:
            self._open[2].discard()
            self._done.append((DataFile(self._open[0], 0, 0), self._open[1]))
            self._open = None
        for file, stream in self._done:
            try:
                stream.close()
                self._io.delete(f"{self._of.staging}/{file.name}")
            except (OSError, StreamsinkError) as failed:
                log.warning("a staged file could not be deleted, and stays until its folder is swept: %s", failed)
        self._done.clear()
