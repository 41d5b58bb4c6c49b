"""Makes data files that another program wrote, such as Spark's own Parquet writer, files of a checkpoint. Driver.

Nothing is taken on trust: the columns, the number of rows and NOT NULL are checked here, and the files are flushed to
disk, before any file gets a name.
"""

import os
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.clock import Clock, IdSource
from streamsink.errors import Corrupt, Misuse
from streamsink.faults import fault_point
from streamsink.format.arrow_types import to_arrow_schema
from streamsink.format.binary_row import EMPTY_ROW
from streamsink.format.data_file import DataFileMeta
from streamsink.format.footer_stats import row_groups_of
from streamsink.format.paths import bucket_dir
from streamsink.format.schema import TableSchema
from streamsink.format.stats import ColumnChunk, StatsCollector
from streamsink.format.types import DataField
from streamsink.storage.file_io import FileIO
from streamsink.table.history.deletion import delete_staged_folder
from streamsink.table.write.conform import WAY_ON
from streamsink.table.write.folders import UNAWARE_BUCKET
from streamsink.table.write.spec import WrittenFile

_SUFFIX = ".parquet"
_WAY_OUT = "Nothing was published and nothing is lost: the batch is replayed after a restart. Set large_batches='tasks'"


@dataclass(frozen=True)
class _Found:
    """A Parquet file that was found, with its footer. path: absolute. size: in bytes."""

    path: str
    size: int
    footer: pq.FileMetaData


def adopt_files(file_io: FileIO, folder: str, schema: TableSchema, rows: int) -> list[WrittenFile]:
    """Turn the Parquet files of ``folder`` into staged files in the folder above it, and delete ``folder``.

    Their content is durable when this returns; their names are durable once the folder above is synced. The table must
    have no partitions. rows: how many rows the other program was given.
    Raises Misuse ``data.null``, and Corrupt when the files are not what they must be. The caller then removes them.
    """
    fault_point("spark.written")
    files = [
        _look_at(file_io, folder, entry.name, entry.size) for entry in file_io.entries(folder) if _is_data(entry.name)
    ]
    for file in files:
        _check_columns(file, schema)
    found = sum(file.footer.num_rows for file in files)
    if found != rows:
        raise Corrupt(
            f"{folder}: Spark's writer was given {rows} rows, and its files hold {found}: a disk that is not shared by "
            f"the driver and all executors, or a commit protocol other than Spark's. {_WAY_OUT}",
            kind="spark.row-count",
        )
    file_io.at_once([partial(file_io.flush_file, file.path) for file in files if file.footer.num_rows])
    token = IdSource().new_id()
    written = [
        _take(file_io, file, f"data-{token}-{number}{_SUFFIX}", schema)
        for number, file in enumerate(file for file in files if file.footer.num_rows)
    ]
    delete_staged_folder(file_io, folder)
    return written


def _is_data(name: str) -> bool:
    """Whether a file of this name holds data. Hidden files are the other program's checksums and markers."""
    return name.endswith(_SUFFIX) and not name.startswith((".", "_"))


def _look_at(file_io: FileIO, folder: str, name: str, size: int) -> _Found:
    path = os.path.join(folder, name)
    with file_io.open_input(path) as stream:
        try:
            return _Found(path, size, pq.read_metadata(stream))
        except (pa.ArrowInvalid, OSError) as bad:
            raise Corrupt(
                f"{path}: Spark's writer left no readable Parquet file ({bad}). {_WAY_OUT}", kind="spark.file"
            ) from bad


def _check_columns(file: _Found, schema: TableSchema) -> None:
    """Raises Corrupt unless names, order and types of the file's columns are the table's."""
    wanted, found = to_arrow_schema(schema.fields), file.footer.schema.to_arrow_schema()
    if [(f.name, f.type) for f in found] != [(f.name, f.type) for f in wanted]:
        raise Corrupt(
            f"{file.path}: Spark's writer wrote the columns ({_listed(found)}), expected ({_listed(wanted)}). "
            f"{_WAY_OUT}",
            kind="spark.file",
        )


def _listed(columns: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in columns)


def _take(file_io: FileIO, file: _Found, name: str, schema: TableSchema) -> WrittenFile:
    """Take statistics from the footer, and link the flushed file into staging under the name it gets in the table."""
    stats = StatsCollector(schema.fields, schema.options)
    for number, chunks in enumerate(row_groups_of(file.footer, schema.fields)):
        for column, (field, chunk) in enumerate(zip(schema.fields, chunks)):
            nulls = 0 if field.type.nullable else _nulls(file_io, file, number, column, chunk)
            _check_values(file, field, file.footer.row_group(number).num_rows - chunk.rows, nulls)
        stats.update_from(chunks)
    value_stats, columns = stats.finish()
    staged = os.path.join(os.path.dirname(os.path.dirname(file.path)), name)
    file_io.place(file.path, staged, keep_source=False)
    meta = DataFileMeta.for_append(
        file_name=name,
        file_size=file.size,
        row_count=file.footer.num_rows,
        schema_id=schema.id,
        value_stats=value_stats,
        value_stats_cols=columns,
        creation_time=Clock().local_ms(),
    )
    return WrittenFile(EMPTY_ROW, staged, os.path.join(bucket_dir("", UNAWARE_BUCKET), name), meta)


def _nulls(file_io: FileIO, file: _Found, group: int, column: int, chunk: ColumnChunk) -> int:
    """Number of nulls of one column in one row group.

    They are counted where the footer does not say how many there are, as for texts of kilobytes.
    """
    if chunk.nulls is not None:
        return chunk.nulls
    name = file.footer.row_group(group).column(column).path_in_schema
    with file_io.open_input(file.path) as stream:
        return pq.ParquetFile(stream).read_row_group(group, columns=[name]).column(0).null_count


def _check_values(file: _Found, field: DataField, missing: int, nulls: int) -> None:
    """Raises Misuse when a NOT NULL column has nulls.

    missing: rows minus values. In a column that the file calls required, one value is missing for each null.
    """
    if missing or nulls:
        raise Misuse(
            f"column '{field.name}' is NOT NULL in the table or in the data, found {missing or nulls} nulls in "
            f"{file.path}. {WAY_ON}",
            kind="data.null",
        )
