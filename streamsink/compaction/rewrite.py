"""The rows of a task's files, in order, become new files under names of their own. Driver and executor.

What is in memory does not grow with the files: a piece of a row group that is read, of about 16 MiB, what the writer
buffers, and where a store gives no part of a file, one small file.
"""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from streamsink.compaction.plan import Task
from streamsink.errors import Corrupt, Misuse
from streamsink.format.arrow_types import check_arrow, needs_int96
from streamsink.format.data_file import FILE_SOURCE_COMPACT
from streamsink.format.manifest import FileKind, ManifestEntry
from streamsink.format.schema import TableSchema
from streamsink.format.types import DataField
from streamsink.journal.file_journal import JOURNAL_DIR
from streamsink.storage.flush_group import FlushGroup
from streamsink.table.read.evolved import evolve_table
from streamsink.table.read.scan import (
    ScanFile,
    check_footer,
    check_rows,
    check_times,
    damage_told,
    data_file_path,
    data_missing,
    open_parquet,
)
from streamsink.table.table import Table
from streamsink.table.write.spec import AtOnce, WriteSpec
from streamsink.table.write.writer import TableWriter

# Rows that are read at once, and about so many bytes of them.
_ROWS, _PIECE_BYTES = 65_536, 16 * 2**20
# Bytes that wait for a row group, by the target size of a file.
_LEAST_BYTES, _MOST_BYTES = 2**20, 64 * 2**20
# How Arrow says in a file that it has written it.
_ARROW = "parquet-cpp"


class Stopped(Exception):
    """Nobody needs the rewriting any more: ``pace`` raises it."""


@dataclass(frozen=True)
class Rewriting:
    """How files are written again.

    attempt: of the names of the new files. since: number and uuid of the snapshot with the task's files. schema: the
    newest one, with which the new files are written. pace: called between two pieces; it may sleep, or raise to give
    up.
    """

    attempt: str
    since: tuple[int, str]
    schema: TableSchema
    target_bytes: int
    pace: Callable[[], None] = lambda: None


def rewrite(table: Table, task: Task, how: Rewriting) -> list[ManifestEntry]:
    """Write the rows of the task's files into new files, durably. Returns the entries that add these.

    After an error the new files are deleted as far as they can be; after a crash they are there, and no snapshot names
    them: their announcement says where. Raises Corrupt for a file that is gone, altered, or has other rows than its
    entry says; Misuse for rows that the newest schema does not take.
    """
    check_arrow(table.root)
    path = data_file_path(table, how.schema, task.files[0])
    folder = path.rpartition("/")[0]
    at_once = AtOnce(how.attempt, "", how.since, frozenset((table.layout.relative(folder),)))
    memory = min(_MOST_BYTES, max(_LEAST_BYTES, how.target_bytes))  # a file is rolled between two row groups
    staging = table.layout.within(JOURNAL_DIR)
    spec = WriteSpec(staging, how.schema.to_json(), how.target_bytes, 1, memory, table.layout.main, at_once)
    writer = TableWriter(table.file_io, spec)
    try:
        with table.file_io.flush_group() as group:
            entries = _written(table, task, how, writer, group=group)
            group.sync_dir(folder)
            group.flush()
        return entries
    except BaseException:
        writer.abort()
        raise


def _written(
    table: Table, task: Task, how: Rewriting, writer: TableWriter, *, group: FlushGroup
) -> list[ManifestEntry]:
    for entry in task.files:
        for rows in rows_of(table, entry, how.schema):
            for batch in rows.to_batches():
                writer.write(batch)
            how.pace()
    first, entries = task.files[0], list[ManifestEntry]()
    following = first.file.min_sequence_number
    for written in writer.close(group):
        meta = replace(
            written.meta,
            file_source=FILE_SOURCE_COMPACT,
            min_sequence_number=following,
            max_sequence_number=following + max(written.meta.row_count - 1, 0),
        )
        following += meta.row_count
        entries.append(ManifestEntry(FileKind.ADD, task.partition, first.bucket, first.total_buckets, meta))
    found = sum(entry.file.row_count for entry in entries)
    folders = {data_file_path(table, how.schema, each).rpartition("/")[0] for each in (*task.files, *entries)}
    if found != task.rows or len(folders) != 1:
        raise Corrupt(
            f"{table.root}: {len(task.files)} files of {task.rows} rows in {sorted(folders)[0]} were written again, "
            f"and the new files have {found} rows in {len(folders)} folder(s). Nothing was changed, and the new files "
            "are deleted. See streamsink.verify with contents=True, which names a file that was altered",
            kind="compact.rows",
        )
    return entries


def rows_of(table: Table, entry: ManifestEntry, wanted: TableSchema) -> Iterator[pa.Table]:
    """The rows of one file, in order, in the columns of the newest schema. Raises as ``rewrite``."""
    written, path = table.schemas.load(entry.file.schema_id), data_file_path(table, wanted, entry)
    file = ScanFile(path, entry.file.file_size, entry.file.row_count, entry.file.schema_id)
    ids = {field.id for field in wanted.fields}
    # A file of which no column is left has its number of rows still.
    needed = [field for field in written.fields if field.id in ids] or written.fields[:1]
    try:
        with damage_told(path), _opened(table, path) as stream:
            found = 0
            for rows in _pieces(file, stream, needed):
                found += rows.num_rows
                yield evolve_table(rows, written, wanted)
            check_rows(path, found, file.rows)  # a damaged page may have fewer
    except FileNotFoundError as missing:
        raise data_missing(table, path, "the newest snapshot") from missing


def _opened(table: Table, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """The file, to be read in parts where the store can do that; else with all of its bytes, which are few."""
    io_ = table.file_io
    return io_.open_input(path) if io_.takes_files_of_others else io.BytesIO(io_.read(path))


def _pieces(file: ScanFile, stream: BinaryIO, fields: Sequence[DataField]) -> Iterator[pa.Table]:
    """The rows of these columns, as ``read.scan.read_file`` reads them, piece by piece."""
    exact = open_parquet(stream, "us")
    check_footer(file.path, exact, file.rows, fields)
    fine = [field.name for field in fields if needs_int96([field])]
    plain = [field.name for field in fields if field.name not in fine]
    if not fine:
        yield from map(_table, exact.iter_batches(_rows_at_once(exact.metadata), columns=plain, use_threads=False))
        return
    if not exact.metadata.created_by.startswith(_ARROW):
        raise Misuse(
            f"{file.path}: column '{fine[0]}' has nanoseconds, and the file was not written by Arrow: it may have "
            "times before 1677-09-21 or after 2262-04-11, and Arrow takes some of these for others. Compact it with "
            "Paimon",
            kind="read.time-range",
        )
    nanos = open_parquet(stream)  # the same footer; each reader seeks before it reads
    for number in range(exact.num_row_groups):
        found = nanos.read_row_group(number, columns=fine, use_threads=False)
        check_times(file.path, exact.read_row_group(number, columns=fine, use_threads=False), found, 0)
        for name in plain:
            found = found.append_column(
                name, exact.read_row_group(number, columns=[name], use_threads=False).column(name)
            )
        yield found


def _rows_at_once(footer: pq.FileMetaData) -> int:
    """By the size that the rows have before they are compressed."""
    size = sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups))
    return max(1, min(_ROWS, _PIECE_BYTES * footer.num_rows // max(1, size)))


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
